//! What keeps queues moving: forwarding, recovery, cleaning up. Any number of servers may do this at
//! the same time, Go's and ours.

use std::sync::Arc;
use std::time::Duration;

use queue_core::State;
use queue_core::outcome::{Failure, Outcome, Step, next_step};
use queue_redis::{Error, ExpiredLease, MAX_BATCH, Report, Verdict};
use tracing::debug;

use super::Shared;
use super::backoff::Backoff;
use crate::events::{End, Event};
use crate::log::{error, info, warn};

/// Seconds after the end of a lease before anybody takes the task over, as in asynq. They cover clocks
/// that differ between hosts.
pub(super) const RECOVERY_MARGIN: i64 = 30;

/// Longest pause between two looks at scheduled tasks, as in asynq.
const FORWARD_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest: a burst of new scheduled tasks is not a burst of looks.
const FORWARD_PAUSE: Duration = Duration::from_millis(20);
/// How often leases are looked at. asynq: 60 s, which is how long a crash goes unnoticed there.
const RECOVER_INTERVAL: Duration = Duration::from_secs(5);
/// How long nothing is recovered after Redis was away: leases have ended in the meantime, and whoever is
/// alive needs this long at the most to renew his, or to report.
const PATIENCE: Duration = Duration::from_secs(12);
/// As in asynq.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(8);

/// Makes scheduled and retried tasks pending when their time has come.
pub(super) async fn forward(shared: Arc<Shared>) {
    let mut backoff = Backoff::new("forwarding scheduled tasks");
    // What was due at the last look. If it still is, it cannot be moved (a key of another type stands where
    // its group should be), and is not looked at again at once.
    let mut overdue = None;
    loop {
        let next = match forward_once(&shared).await {
            Ok(next) => next,
            Err(error) => {
                backoff.failed(&error).await;
                continue;
            }
        };
        backoff.succeeded();
        tokio::time::sleep(FORWARD_PAUSE).await;
        // Arms the listening connection, and sees what others have scheduled since.
        let next = match shared.watch() {
            Some(mut watch) => watch.next_due(shared.queues.names().map(|name| &**name)).await.unwrap_or(next),
            None => next,
        };
        let pause = match next {
            Some(due) if overdue != Some(due) => {
                let left = due.saturating_mul(1_000_000_000).saturating_sub(shared.now_ns());
                Duration::from_nanos(u64::try_from(left).unwrap_or(0)).min(FORWARD_INTERVAL)
            }
            _ => FORWARD_INTERVAL,
        };
        overdue = next.filter(|due| *due <= shared.now());
        let _ = tokio::time::timeout(pause, shared.schedule.notified()).await;
    }
}

/// Forwards all that is due; returns the Unix second at which the next task is. A queue that cannot be
/// served does not keep the others from being served.
async fn forward_once(shared: &Shared) -> Result<Option<i64>, Error> {
    let mut next = Ok(None);
    for queue in shared.queues.names() {
        for set in [State::Scheduled, State::Retry] {
            let due = forward_set(shared, queue, set).await;
            next = next.and_then(|next| Ok([next, due?].into_iter().flatten().min()));
        }
    }
    next
}

async fn forward_set(shared: &Shared, queue: &str, set: State) -> Result<Option<i64>, Error> {
    loop {
        let forwarded = shared.broker.forward(queue, set, shared.now_ns()).await?;
        if forwarded.moved > 0 {
            shared.tell(|| Event::Forwarded { queue, tasks: forwarded.moved });
        }
        if forwarded.dropped > 0 {
            warn!(queue, %set, ids = forwarded.dropped, "ids without tasks were dropped");
        }
        if forwarded.moved + forwarded.dropped < MAX_BATCH as u64 {
            return Ok(forwarded.next_due);
        }
    }
}

/// Takes tasks from servers that went silent.
pub(super) async fn recover(shared: Arc<Shared>) {
    let mut backoff = Backoff::new("recovering tasks");
    let mut was_away = false;
    loop {
        if was_away && shared.broker.redis().ping().await.is_ok() {
            tokio::time::sleep(PATIENCE).await;
            was_away = false;
        }
        match recover_once(&shared).await {
            Ok(()) => backoff.succeeded(),
            Err(error) => {
                was_away |= error.is_transient();
                backoff.failed(&error).await;
                continue;
            }
        }
        tokio::time::sleep(RECOVER_INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

async fn recover_once(shared: &Shared) -> Result<(), Error> {
    let mut result = Ok(());
    for queue in shared.queues.names() {
        result = result.and(recover_queue(shared, queue).await);
    }
    result
}

async fn recover_queue(shared: &Shared, queue: &Arc<str>) -> Result<(), Error> {
    loop {
        let (expired, ghosts) = shared.broker.list_expired(queue, shared.now() - RECOVERY_MARGIN).await?;
        if !ghosts.is_empty() {
            warn!(queue = %queue, ids = ?ghosts, "active ids without tasks were dropped");
        }
        let found = expired.len() + ghosts.len();
        let mut recovered = ghosts.len();
        for lease in expired {
            recovered += usize::from(recover_one(shared, queue, lease).await?);
        }
        // Without progress the same ones would be listed again.
        if found < MAX_BATCH || recovered == 0 {
            return Ok(());
        }
    }
}

/// Retries or archives one task by asynq's rules; whether it was still there to be recovered.
async fn recover_one(shared: &Shared, queue: &Arc<str>, lease: ExpiredLease) -> Result<bool, Error> {
    let now = shared.now();
    let report = Report::by_recoverer(queue, &lease);
    let Some(message) = lease.message else {
        error!(task = lease.id, queue = %queue, "task cannot be read; it goes to the archive as it is");
        let applied = shared.broker.archive(&report, &lease.raw, now).await? == Verdict::Applied;
        if applied {
            shared.tell(|| Event::Recovered { queue, kind: None, end: End::Archived });
        }
        return Ok(applied);
    };
    let silent = Outcome::Failed(Failure::Retry("asynq: task lease expired".into()));
    let (verdict, end) = match next_step(&message, silent, now, &shared.options.retry_policy) {
        Step::Retry { message, at, is_failure } => {
            (shared.broker.retry(&report, &message.to_bytes(), at, is_failure, now).await?, End::Retried)
        }
        Step::Archive { message } => (shared.broker.archive(&report, &message.to_bytes(), now).await?, End::Archived),
        Step::Done | Step::Complete { .. } | Step::Requeue => return Ok(false),
    };
    if verdict == Verdict::Applied {
        shared.tell(|| Event::Recovered { queue, kind: Some(&message.r#type), end });
        warn!(
            task = message.id,
            kind = message.r#type,
            queue = message.queue,
            attempt = message.retried.saturating_add(1),
            then = end.as_str(),
            "its worker went silent; task recovered"
        );
    } else {
        debug!(task = message.id, ?verdict, "another server was faster");
    }
    Ok(verdict == Verdict::Applied)
}

/// Deletes completed tasks whose retention has ended, and what is too much in the archive.
pub(super) async fn clean_up(shared: Arc<Shared>) {
    let mut backoff = Backoff::new("deleting expired tasks");
    loop {
        match clean_up_once(&shared).await {
            Ok(0) => backoff.succeeded(),
            Ok(deleted) => {
                backoff.succeeded();
                info!(deleted, "expired tasks were deleted");
            }
            Err(error) => {
                backoff.failed(&error).await;
                continue;
            }
        }
        tokio::time::sleep(CLEAN_UP_INTERVAL).await;
    }
}

async fn clean_up_once(shared: &Shared) -> Result<usize, Error> {
    let mut total = Ok(0);
    for queue in shared.queues.names() {
        let deleted = clean_up_queue(shared, queue).await;
        total = total.and_then(|total| Ok(total + deleted?));
    }
    total
}

async fn clean_up_queue(shared: &Shared, queue: &str) -> Result<usize, Error> {
    let mut total = 0;
    loop {
        let completed = shared.broker.delete_expired_completed(queue, shared.now()).await?;
        let archived = shared.broker.trim_archived(queue, shared.now()).await?;
        total += completed + archived;
        if completed < MAX_BATCH && archived < MAX_BATCH {
            return Ok(total);
        }
    }
}
