//! The forwarder: makes scheduled and retried tasks pending when their time has come.
//!
//! It looks at the first task of each set, which costs Redis nothing worth mentioning, and forwards
//! only where one is due. It sleeps until the next one is, or until a set changes: it is told so by the
//! listening connection, which the look has armed. Without that, it looks as often as asynq.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::TaskState;
use queue_core::event as news;
use queue_core::limits::FORWARD_INTERVAL;
use queue_redis::service::Service;
use queue_redis::{
    Error,
    broker::{Broker, SHORT_BATCH},
};

use super::queues::Queues;
use super::telling;
use super::time::Time;
use super::wakeups::Wakeups;
use crate::events::{Event, Observers};
use crate::log::{error, info, warn};

/// So many sets that are known to have tasks are looked at again in that time.
const SWEPT: usize = 100;
/// Shortest: a burst of new scheduled tasks is not a burst of looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The scheduled or the retry set of a queue.
#[derive(Clone)]
struct Set {
    queue: Arc<str>,
    state: TaskState,
    /// When its first task is due, or is to be tried again; `None` where it has none.
    next: Option<i64>,
    /// It cannot be served, and is left alone until then.
    refused: Option<Instant>,
    /// Its first tasks are due and have to stay; the Unix second at which to try again, or the next one is
    /// due.
    held_up: Option<i64>,
}

impl Set {
    fn of(queue: &Arc<str>) -> [Self; 2] {
        let set = |state| Self { queue: queue.clone(), state, next: None, refused: None, held_up: None };
        [set(TaskState::Scheduled), set(TaskState::Retry)]
    }
}

#[derive(Clone)]
pub(super) struct Forwarder {
    broker: Broker,
    time: Arc<Time>,
    queues: Arc<Queues>,
    wakeups: Arc<Wakeups>,
    observers: Observers,
    sets: Vec<Set>,
    /// When the first task of each is due, in Unix seconds; those that are not named are empty.
    due: BTreeSet<(i64, usize)>,
    /// Those of which that is not known. A look tells, and has Redis tell of the next change.
    doubtful: BTreeSet<usize>,
    /// Those that cannot be served.
    refused: BTreeSet<usize>,
    /// When all that are taken to be empty are looked at again, and a part of the others.
    sweep: Instant,
    sweeps: usize,
}

impl Service for Forwarder {
    const NAME: &'static str = "forwarder";
    const WORK: &'static str = "forwarding scheduled tasks";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        self.hear();
        self.forward_due().await.map(|()| self.pause())
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(pause.saturating_sub(PAUSE), self.wakeups.schedule.notified()).await;
    }
}

impl Forwarder {
    pub(super) fn new(
        broker: Broker,
        time: Arc<Time>,
        queues: Arc<Queues>,
        wakeups: Arc<Wakeups>,
        observers: Observers,
    ) -> Self {
        let sets: Vec<Set> = queues.names().flat_map(Set::of).collect();
        let (doubtful, sweep) = ((0..sets.len()).collect(), Instant::now() + queues.safety_interval());
        let (due, refused) = Default::default();
        Self { broker, time, queues, wakeups, observers, sets, due, doubtful, refused, sweep, sweeps: 0 }
    }

    /// Goes by what was told since.
    fn hear(&mut self) {
        let changes = self.wakeups.schedule.take();
        let known = self.sets.len();
        self.sets.extend(self.queues.names().skip(known / 2).flat_map(Set::of));
        self.doubtful.extend(known..self.sets.len());
        self.doubtful.extend(changes.queues.into_iter().flat_map(|queue| [2 * queue, 2 * queue + 1]));
        if changes.everywhere {
            self.doubtful.extend(0..self.sets.len());
        }
        let now = Instant::now();
        if now < self.sweep {
            return;
        }
        self.sweep = now + self.longest();
        self.sweeps = self.sweeps.wrapping_add(1);
        let parts = self.due.len().div_ceil(SWEPT).max(1);
        let (sets, part) = (&self.sets, self.sweeps % parts);
        let swept = |set: &usize| sets[*set].next.is_none() || set % parts == part;
        self.doubtful.extend((0..sets.len()).filter(swept));
    }

    fn longest(&self) -> Duration {
        if self.wakeups.watch().is_none() { FORWARD_INTERVAL } else { self.queues.safety_interval() }
    }

    /// When the next task is due that can be moved, as far as is known, in Unix seconds.
    pub(super) fn next_due(&self) -> Option<i64> {
        let free = self.due.iter().find(|(_, set)| self.sets[*set].held_up.is_none());
        free.map(|(next, _)| *next)
    }

    fn pause(&mut self) -> Duration {
        self.sweep = self.sweep.min(Instant::now() + self.longest());
        let mut pause = self.sweep.saturating_duration_since(Instant::now());
        if let Some((next, _)) = self.due.first() {
            pause = pause.min(self.time.until(*next));
        }
        if self.refused.is_empty() { pause } else { pause.min(FORWARD_INTERVAL) }
    }

    /// Forwards what is due, and learns of the sets that are doubtful when they are.
    pub(super) async fn forward_due(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        self.refused.retain(|set| self.sets[*set].refused.is_some());
        let again = self.refused.iter().filter(|set| self.sets[**set].refused.is_some_and(|until| until <= now));
        self.doubtful.extend(again);
        let looked_at: Vec<usize> = self
            .doubtful
            .iter()
            .copied()
            .filter(|set| self.sets[*set].refused.is_none_or(|until| until <= now))
            .collect();
        let heads = if looked_at.is_empty() { Vec::new() } else { self.look(&looked_at).await? };
        let some_answer = heads.iter().any(Result::is_ok);
        let mut heads: Vec<(usize, Result<Option<i64>, Error>)> = looked_at.into_iter().zip(heads).collect();
        // What the last look said of these still stands.
        let second = self.time.now();
        let due = self.due.range(..(second.saturating_add(1), 0)).filter(|(_, set)| !self.doubtful.contains(set));
        heads.extend(due.map(|(due, set)| (*set, Ok(Some(*due)))));
        for (number, head) in heads {
            match &head {
                // A node of the cluster is gone, and others are not.
                Err(error) if error.is_transient() && some_answer => {
                    self.refuse(number, error);
                    continue;
                }
                _ => {}
            }
            match self.forward_if_due(number, head).await {
                Ok(next) => {
                    let set = &mut self.sets[number];
                    if set.refused.take().is_some() {
                        info!(queue = %set.queue, set = %set.state, "the set is forwarded again");
                    }
                    self.doubtful.remove(&number);
                    self.learn(number, next);
                }
                Err(error) if error.is_outage() => return Err(error),
                // Only this one is left alone; the others must not wait for it.
                Err(error) => self.refuse(number, &error),
            }
        }
        Ok(())
    }

    fn learn(&mut self, number: usize, next: Option<i64>) {
        let known = std::mem::replace(&mut self.sets[number].next, next);
        if known != next {
            if let Some(known) = known {
                self.due.remove(&(known, number));
            }
            self.due.extend(next.map(|next| (next, number)));
        }
    }

    fn refuse(&mut self, number: usize, error: &Error) {
        self.sets[number].refuse(error);
        self.learn(number, None);
        self.doubtful.remove(&number);
        self.refused.insert(number);
    }

    /// When the first task of each set is due. On the listening connection, which is then told about changes.
    async fn look(&self, looked_at: &[usize]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
        let sets: Vec<(&str, TaskState)> =
            looked_at.iter().map(|set| (&*self.sets[*set].queue, self.sets[*set].state)).collect();
        if let Some(mut watch) = self.wakeups.watch()
            && let Ok(heads) = watch.next_due(&sets).await
        {
            return Ok(heads);
        }
        // The listening connection is being replaced; when that is done, there will be another look.
        self.broker.next_due(&sets).await
    }

    /// Returns when the next task is due.
    async fn forward_if_due(&mut self, number: usize, head: Result<Option<i64>, Error>) -> Result<Option<i64>, Error> {
        let Some(head) = head? else { return Ok(None) };
        let (now, set) = (self.time.now(), &mut self.sets[number]);
        let due = set.held_up.filter(|_| head <= now).unwrap_or(head);
        if due > now {
            return Ok(Some(due));
        }
        let mut stayed = 0;
        loop {
            let forwarded = self.broker.forward(&set.queue, set.state, self.time.now_ns(), stayed).await?;
            stayed += forwarded.stayed;
            if forwarded.moved > 0 {
                self.observers.tell(|| Event::Forwarded { queue: &set.queue, tasks: forwarded.moved });
                self.broker.feed().tell(|| {
                    let mut event = news::Event::new(news::Kind::Forwarded, telling::now(&self.time));
                    (event.queue, event.count) = (Some(set.queue.to_string()), Some(forwarded.moved));
                    event
                });
            }
            if forwarded.dropped > 0 {
                warn!(queue = %set.queue, set = %set.state, ids = forwarded.dropped, "ids without tasks were dropped");
            }
            if forwarded.moved + forwarded.dropped + forwarded.stayed < SHORT_BATCH as u64 {
                return Ok(set.settle(now, stayed, forwarded.next_due));
            }
        }
    }
}

impl Set {
    /// Remembers whether tasks had to stay; returns when to come back.
    fn settle(&mut self, now: i64, stayed: u64, next_due: Option<i64>) -> Option<i64> {
        if stayed == 0 {
            self.held_up = None;
            return next_due;
        }
        if self.held_up.is_none() {
            let (queue, set) = (&self.queue, self.state);
            warn!(queue = %queue, %set, tasks = stayed, "due tasks stay: keys of other types stand where their groups should be");
        }
        let again = now.saturating_add(FORWARD_INTERVAL.as_secs() as i64);
        self.held_up = Some(next_due.unwrap_or(again).min(again));
        self.held_up
    }

    fn refuse(&mut self, error: &Error) {
        if self.refused.replace(Instant::now() + FORWARD_INTERVAL).is_none() {
            error!(queue = %self.queue, set = %self.state, %error, "the set cannot be forwarded; looking at it again every few seconds");
        }
    }
}
