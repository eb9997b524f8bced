//! Queues with limits: which they are, and when tasks that wait for room may start.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use queue_core::registry::LIMITS;
use queue_redis::broker::Holding;
use queue_redis::{Error, Watch};

use super::Unhandled;
use super::shared::Shared;
use crate::log::{error, warn};

/// When to ask a queue with limits again.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    due: HashMap<usize, Instant>,
    /// A limit for all of the queue lets nothing start until then, whatever is pending.
    shut: HashMap<usize, Instant>,
    /// What time it was by the clock of the queue's Redis, in Unix milliseconds, when a take was answered. Ours may be off by up to a
    /// second, and in a cluster by more, where a rate counts milliseconds.
    clocks: HashMap<usize, (i64, Instant)>,
}

impl Lanes {
    /// A take has said at `now_ms` that there is nothing more before `at_ms`, in Unix milliseconds, or before something changes.
    pub(super) fn wait(&mut self, queue: usize, is_shut: bool, at_ms: Option<i64>, now_ms: i64) {
        let now = Instant::now();
        self.clocks.insert(queue, (now_ms, now));
        let Some(at) = at_ms.map(|at_ms| now + until(at_ms, now_ms)) else { return };
        self.due.insert(queue, at);
        if is_shut {
            self.shut.insert(queue, at);
        }
    }

    /// A look has said when the first lane is due. By our clock it is `now_ms`.
    pub(super) fn see(&mut self, queue: usize, at_ms: Option<i64>, now_ms: i64) {
        match at_ms {
            // Somebody says that there is room now.
            Some(0) => {
                self.shut.remove(&queue);
                self.due.insert(queue, Instant::now());
            }
            // What waits elsewhere has to wait all the same.
            Some(_) if self.is_shut(queue) => {}
            Some(at_ms) => {
                let at = match self.clocks.get(&queue) {
                    Some((then_ms, then)) => *then + until(at_ms, *then_ms),
                    // The take that comes then learns what time it is there.
                    None => Instant::now() + until(at_ms, now_ms).min(Duration::from_secs(1)),
                };
                self.due.insert(queue, at);
            }
            None => {
                self.due.remove(&queue);
                self.shut.remove(&queue);
            }
        }
    }

    /// Where no limits are left there is nothing to wait for.
    pub(super) fn keep(&mut self, has_limits: impl Fn(usize) -> bool) {
        self.due.retain(|queue, _| has_limits(*queue));
        self.shut.retain(|queue, _| has_limits(*queue));
        self.clocks.retain(|queue, _| has_limits(*queue));
    }

    pub(super) fn is_shut(&self, queue: usize) -> bool {
        self.shut.get(&queue).is_some_and(|until| Instant::now() < *until)
    }

    /// The queues that are to be asked by now; each is named once.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<usize> {
        let due: Vec<usize> = self.due.iter().filter(|(_, at)| **at <= now).map(|(queue, _)| *queue).collect();
        for queue in &due {
            self.due.remove(queue);
            self.shut.remove(queue);
        }
        due
    }

    /// How long until the next is due.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        self.due.values().min().map(|at| at.saturating_duration_since(now))
    }
}

fn until(at_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0))
}

/// Asks which queues have limits, where that may have changed; Redis tells of the next change.
pub(super) async fn learn(shared: &Shared) {
    if !shared.wakeups.limits.swap(false, Ordering::AcqRel) {
        return;
    }
    let names: Vec<&str> = shared.queues.names().map(|name| &**name).collect();
    let found = match shared.wakeups.watch() {
        Some(mut watch) => watch.which_hold(&names, Holding::Limits).await,
        None => shared.broker.which_hold(&names, Holding::Limits).await,
    };
    match found {
        Ok(found) => {
            names.iter().zip(&found).for_each(|(name, has_limits)| shared.broker.learn_limits(name, *has_limits));
            let limited = names.into_iter().zip(found).filter(|(_, has_limits)| *has_limits).map(|(name, _)| name);
            tell_of_limits(shared, limited.collect()).await;
        }
        // A take says so too.
        Err(_) => shared.wakeups.limits.store(true, Ordering::Release),
    }
}

/// Says in the log, when a queue comes to have limits, that this server takes nothing from it, if that is so, and which
/// servers take tasks from it without asking for them.
async fn tell_of_limits(shared: &Shared, limited: HashSet<&str>) {
    let is_news = {
        let mut told = shared.told_of_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = limited.iter().any(|queue| !told.contains(*queue));
        *told = limited.iter().map(|queue| (*queue).to_owned()).collect();
        is_news
    };
    if !is_news {
        return;
    }
    if shared.options.unhandled == Unhandled::Leave {
        error!(
            queues = ?limited,
            "these queues have limits, and this server leaves tasks that it has no handler for where they are: it takes nothing from \
             such queues; have it archive or retry such tasks, or remove the limits"
        );
    }
    // What cannot be asked now is said by `queuectl limit ls`, the doctor and a metric.
    let unaware = shared.broker.unaware_servers(LIMITS, shared.now()).await.unwrap_or_default();
    for (queue, servers) in unaware.iter().filter(|(queue, _)| limited.contains(queue.as_str())) {
        warn!(queue, ?servers, "the queue has limits, and these servers take tasks from it without asking for them");
    }
}

/// When the first lane of each of these queues is due that have limits, in Unix milliseconds.
pub(super) async fn look(
    shared: &Shared,
    watch: Option<Watch>,
    queues: &[usize],
) -> Result<Vec<(usize, Option<i64>)>, Error> {
    let has_limits = |queue: &usize| shared.broker.has_limits(shared.queues.name(*queue));
    let limited: Vec<usize> = queues.iter().copied().filter(has_limits).collect();
    if limited.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = limited.iter().map(|queue| &**shared.queues.name(*queue)).collect();
    let due = match watch {
        Some(mut watch) => watch.lanes_due(&names).await?,
        None => shared.broker.lanes_due(&names).await?,
    };
    Ok(limited.into_iter().zip(due).collect())
}
