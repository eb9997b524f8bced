//! Tells Redis what is carried, and learns what the other schedulers have done.

use std::sync::Arc;

use futures_util::StreamExt as _;
use queue_core::TaskMessage;
use queue_core::wire::{SchedulerEntry, Timestamp};
use queue_redis::log::{error, info, warn};
use queue_redis::{EntryDefinition, Error};
use tracing::debug;

use super::Shared;
use crate::schedule::Schedule;

/// Entries that are told about at the same time.
const AT_ONCE: usize = 32;

/// Tells over and over, and at once when an entry comes or goes.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut failing = false;
    while !shared.stop.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(shared.options.heartbeat_interval) => {}
            () = shared.untold.notified() => {}
            () = shared.stop.cancelled() => return,
        }
        let works = beat(&shared).await;
        if works == failing {
            failing = !works;
            if works {
                info!(scheduler = shared.id, "the heartbeat works again");
            }
        }
        if !works {
            // An entry that Redis has not been told about has no ticks; do not let it wait for long.
            tokio::time::sleep(std::time::Duration::from_millis(500).min(shared.options.heartbeat_interval)).await;
            shared.untold.notify_one();
        }
    }
}

/// Tells once; returns whether all of it worked.
pub(super) async fn beat(shared: &Shared) -> bool {
    if let Some(clock) = &shared.options.corrected
        && let Err(problem) = clock.compare(shared.broker.redis()).await
    {
        debug!(error = %problem, "Redis could not be asked for its time");
        return false;
    }
    let now = shared.options.clock.now_secs();
    let mut works = true;
    let removed = std::mem::take(&mut shared.entries().removed);
    for (queue, name) in removed {
        let told = async {
            shared.broker.release_entry(&queue, &name, &shared.id, Some(now)).await?;
            shared.broker.unlist_entry(&queue, &name).await
        };
        if let Err(problem) = told.await {
            debug!(entry = name, error = %problem, "the end of an entry could not be told");
            works = false;
            shared.entries().removed.push((queue, name));
        }
    }
    let carried: Vec<_> = {
        let entries = shared.entries();
        let all = entries.carried.values();
        all.map(|carried| (carried.schedule.clone(), carried.version, carried.fresh, carried.upto)).collect()
    };
    let telling = futures_util::stream::iter(carried)
        .map(|(schedule, version, fresh, known)| async move {
            let told = tell(shared, &schedule, version, fresh, known, now).await;
            if let Err(problem) = &told {
                warn!(entry = schedule.name, error = %problem, "Redis could not be told about an entry; trying again");
            }
            told.is_ok()
        })
        .buffer_unordered(AT_ONCE);
    works &= telling.fold(true, |all, told| std::future::ready(all && told)).await;
    shared.changed.notify_one();
    if let Err(problem) = show(shared, now).await {
        warn!(scheduler = shared.id, error = %problem, "the heartbeat could not be written; trying again");
        works = false;
    }
    works
}

async fn tell(
    shared: &Shared,
    schedule: &Schedule,
    version: u64,
    fresh: bool,
    known: i64,
    now: i64,
) -> Result<(), Error> {
    let template = match schedule.compose(0, 0) {
        Ok(task) => TaskMessage { id: String::new(), ..task.message },
        Err(_) => return Ok(()),
    };
    let unique_ttl = schedule.task.options.unique.map_or(0, queue_core::clock::secs_ceil);
    let definition = EntryDefinition {
        name: &schedule.name,
        spec: &schedule.identity(),
        template: &template,
        unique_ttl,
        overlap: schedule.overlap,
        policy: &schedule.policy(),
    };
    match shared.broker.register_entry(definition, &shared.id, fresh, known, now).await? {
        Some(status) => shared.entries().registered(&schedule.name, version, &status),
        None => {
            error!(
                entry = schedule.name,
                "the clock of this machine is ahead of that of Redis; the entry is left to other schedulers"
            );
        }
    }
    Ok(())
}

/// Writes what Go's tools show: of each entry one scheduler, so that it is listed once.
async fn show(shared: &Shared, now: i64) -> Result<(), Error> {
    let (mut shown, mut carried) = (Vec::new(), Vec::new());
    for entry in shared.entries().carried.values().filter(|entry| !entry.fresh) {
        carried.push((entry.schedule.clone(), entry.shown));
        if entry.shown {
            let next =
                Some(entry.upto.max(now)).filter(|_| !entry.rests).and_then(|upto| entry.schedule.next_due(upto));
            let next = next.map_or(Timestamp::NO_MORE, |next| Timestamp { seconds: next, nanos: 0 });
            let prev = if entry.last_ns == 0 { Timestamp::NEVER } else { Timestamp::from_unix_ns(entry.last_ns) };
            shown.push(SchedulerEntry {
                id: entry.schedule.name.clone(),
                spec: entry.schedule.text.clone(),
                task_type: entry.schedule.task.kind.clone(),
                task_payload: entry.schedule.task.payload.clone().unwrap_or_default(),
                enqueue_options: entry.schedule.options.clone(),
                next_enqueue_time: Some(next),
                prev_enqueue_time: Some(prev),
            });
        }
    }
    let carried: Vec<(&str, &str)> = carried.iter().map(|(entry, _)| (&*entry.name, &*entry.queue)).collect();
    let mut connection = shared.broker.redis().pooled().await?;
    shared.broker.write_scheduler_entries(&mut connection, &shared.key, &shown, &carried, now).await
}

/// Takes the scheduler off the list; other schedulers may show its entries.
pub(super) async fn clear(shared: &Shared) {
    let names: Vec<(String, String)> = {
        let entries = shared.entries();
        let shown = entries.carried.values().filter(|carried| carried.shown);
        shown.map(|carried| (carried.schedule.queue.clone(), carried.schedule.name.clone())).collect()
    };
    let cleared = async {
        let mut connection = shared.broker.redis().pooled().await?;
        shared.broker.clear_scheduler_entries(&mut connection, &shared.key).await?;
        for (queue, name) in names {
            shared.broker.release_entry(&queue, &name, &shared.id, None).await?;
        }
        Ok::<(), Error>(())
    };
    if let Err(problem) = cleared.await {
        debug!(error = %problem, "could not take the scheduler off the list; it drops off by itself");
    }
}
