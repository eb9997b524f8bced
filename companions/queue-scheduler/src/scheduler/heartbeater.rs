//! The heartbeater: tells Redis what is carried, and learns what the other schedulers have done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use queue_core::wire::{SchedulerEntry, Timestamp};
use queue_core::{Clock, TaskMessage};
use queue_redis::log::{error, warn};
use queue_redis::service::{Service, worse};
use queue_redis::{
    Error, RedisClock,
    broker::{Broker, EntryDefinition, Occasion},
};
use tracing::debug;

use super::carried::Shared;
use crate::schedule::Schedule;

/// Entries that are told about at the same time.
const AT_ONCE: usize = 32;
/// The longest pause after a failure: an entry that Redis has not been told about has no ticks.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Tells over and over, and at once when an entry comes or goes.
#[derive(Clone)]
pub(super) struct Heartbeater {
    /// Of the scheduler.
    pub(super) id: Arc<str>,
    /// Where Go's tools look for its entries.
    pub(super) key: Arc<str>,
    pub(super) broker: Broker,
    pub(super) clock: Arc<dyn Clock>,
    /// The same clock, where it is corrected by Redis'.
    pub(super) corrected: Option<Arc<RedisClock>>,
    pub(super) interval: Duration,
    pub(super) shared: Arc<Shared>,
}

impl Service for Heartbeater {
    const NAME: &'static str = "heartbeater";
    const WORK: &'static str = "telling Redis about the entries";
    // What is taken off the list at the end is not to be put on it again by a beat that is under way.
    const FINISHES: bool = true;

    async fn run_once(&mut self) -> Result<Duration, Error> {
        self.beat().await.map(|()| self.interval)
    }

    async fn wait(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.shared.untold.notified()).await;
    }

    fn delay(&self) -> Duration {
        self.interval
    }

    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE.min(self.interval)
    }
}

impl Heartbeater {
    /// Tells once. What is wrong with one entry does not keep the others from being told.
    pub(super) async fn beat(&self) -> Result<(), Error> {
        let mut failed = None;
        if let Some(clock) = &self.corrected
            && let Err(problem) = clock.compare(self.broker.redis()).await
        {
            // The node that tells the time may be away alone; the clock goes on by itself.
            if !(clock.was_compared() && self.broker.redis().is_cluster()) {
                return Err(problem);
            }
            failed = Some(problem);
        }
        let (shared, now) = (&self.shared, self.clock.now_secs());
        let removed = std::mem::take(&mut shared.entries().removed);
        for (queue, name) in removed {
            let told = async {
                self.broker.release_entry(&queue, &name, &self.id, Some(now)).await?;
                self.broker.unlist_entry(&queue, &name).await
            };
            if let Err(problem) = told.await {
                debug!(entry = name, error = %problem, "the end of an entry could not be told");
                shared.entries().removed.push((queue, name));
                failed = worse(failed, problem);
            }
        }
        let carried: Vec<_> = {
            let entries = shared.entries();
            let all = entries.carried.values();
            all.map(|carried| (carried.schedule.clone(), carried.version, carried.occasion(), carried.upto)).collect()
        };
        let mut telling = futures_util::stream::iter(carried)
            .map(|(schedule, version, occasion, known)| async move {
                let told = self.tell(&schedule, version, occasion, known, now).await;
                told.map_err(|problem| (schedule, problem))
            })
            .buffer_unordered(AT_ONCE);
        while let Some(told) = telling.next().await {
            let Err((schedule, problem)) = told else { continue };
            // An outage is told once for all.
            if !problem.is_outage() {
                warn!(entry = schedule.name, error = %problem, "Redis could not be told about an entry; trying again");
            }
            failed = worse(failed, problem);
        }
        shared.changed.notify_one();
        self.show(now).await?;
        failed.map_or(Ok(()), Err)
    }

    async fn tell(
        &self,
        schedule: &Schedule,
        version: u64,
        occasion: Occasion,
        known: i64,
        now: i64,
    ) -> Result<(), Error> {
        let template = match schedule.compose(0, 0) {
            Ok(task) => TaskMessage { id: String::new(), ..task.message },
            Err(_) => return Ok(()),
        };
        let options = &schedule.task.options;
        let secs = options.unique.map_or(0, queue_core::clock::secs_ceil);
        let unique_ttl = options.unique_until.unwrap_or_default().ttl(secs);
        let definition = EntryDefinition {
            name: &schedule.name,
            spec: &schedule.identity(),
            ends: schedule.end(),
            template: &template,
            unique_ttl,
            overlap: schedule.overlap,
            policy: &schedule.policy(),
        };
        match self.broker.register_entry(definition, &self.id, occasion, known, now).await? {
            Some(status) => self.shared.entries().registered(&schedule.name, version, known, &status),
            None => {
                error!(
                    entry = schedule.name,
                    "the time of this scheduler is over a minute ahead of that of the Redis node with the entry, which does not tick; \
                     correct the clock that is wrong, this machine's or a node's"
                );
            }
        }
        Ok(())
    }

    /// Writes what Go's tools show: of each entry one scheduler, so that it is listed once.
    async fn show(&self, now: i64) -> Result<(), Error> {
        let (mut shown, mut carried) = (Vec::new(), Vec::new());
        for entry in self.shared.entries().carried.values().filter(|entry| !entry.fresh) {
            carried.push((entry.schedule.clone(), entry.shown));
            if entry.shown {
                let next =
                    Some(entry.upto.max(now)).filter(|_| !entry.rests).and_then(|upto| entry.schedule.next_due(upto));
                let next = next.map_or(Timestamp::NO_MORE, |next| Timestamp { seconds: next, nanos: 0 });
                let prev = if entry.last_ns == 0 { Timestamp::NEVER } else { Timestamp::from_unix_ns(entry.last_ns) };
                shown.push(SchedulerEntry {
                    id: entry.schedule.name.clone(),
                    spec: entry.schedule.text.clone(),
                    task_type: entry.schedule.task.task_type.clone(),
                    task_payload: entry.schedule.task.payload.clone().unwrap_or_default(),
                    enqueue_options: entry.schedule.options.clone(),
                    next_enqueue_time: Some(next),
                    prev_enqueue_time: Some(prev),
                });
            }
        }
        let carried: Vec<(&str, &str)> = carried.iter().map(|(entry, _)| (&*entry.name, &*entry.queue)).collect();
        let mut connection = self.broker.redis().pooled().await?;
        self.broker.write_scheduler_entries(&mut connection, &self.key, &shown, &carried, now).await
    }

    /// Takes the scheduler off the list; other schedulers may show its entries.
    pub(super) async fn clear(&self) {
        let names: Vec<(String, String)> = {
            let entries = self.shared.entries();
            let shown = entries.carried.values().filter(|carried| carried.shown);
            shown.map(|carried| (carried.schedule.queue.clone(), carried.schedule.name.clone())).collect()
        };
        let cleared = async {
            let mut connection = self.broker.redis().pooled().await?;
            self.broker.clear_scheduler_entries(&mut connection, &self.key).await?;
            for (queue, name) in names {
                self.broker.release_entry(&queue, &name, &self.id, None).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(problem) = cleared.await {
            debug!(error = %problem, "could not take the scheduler off the list; it drops off by itself");
        }
    }
}
