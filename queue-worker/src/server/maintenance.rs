//! What keeps queues clean: recovery, and deleting what is over. Any number of servers may do this at the
//! same time, Go's and ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::crash::step_after_crash;
use queue_core::outcome::Step;
use queue_redis::{Error, ExpiredLease, Holding, MAX_BATCH, Report, SHORT_BATCH, Verdict};
use tracing::debug;

use super::backoff::Backoff;
use super::{Options, Shared};
use crate::events::{End, Event};
use crate::log::{error, info, warn};

/// Seconds after the end of a lease before anybody takes the task over, as in asynq. They cover clocks
/// that differ between hosts.
pub(super) const RECOVERY_MARGIN: i64 = 30;

/// The same for a task that no server says it works on. One that has it says so every 5 s.
const SILENT_FOR: i64 = 7;

/// How often leases are looked at. asynq: 60 s, which is how long a crash goes unnoticed there.
const RECOVER_INTERVAL: Duration = Duration::from_secs(5);
/// The same while there are no leases: whoever takes a task now cannot lose it for another 12 s.
const RECOVER_IDLE: Duration = Duration::from_secs(15);
/// How long nothing is recovered after Redis was away: leases have ended in the meantime, and whoever is
/// alive needs this long at the most to renew his, or to report.
const PATIENCE: Duration = Duration::from_secs(12);
/// How often completed tasks are looked at; asynq: 8 s.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(15);
/// In how many of these rounds archives are looked at: what is in them may be up to 90 days old.
const TRIM_EVERY: u32 = 4;

/// Takes tasks from servers that went silent.
pub(super) async fn recover(shared: Arc<Shared>) {
    let mut backoff = Backoff::new(&shared.outage, "recovering tasks");
    let mut was_away = false;
    // Since when Redis has answered. Servers that it could not hear do not tell what they work on, either.
    let mut heard_since: Option<Instant> = None;
    loop {
        if was_away || shared.time.is_settling() {
            // Not by a look at the leases: the first one that is answered would already recover.
            if let Err(error) = shared.broker.redis().ping().await {
                backoff.failed(&error).await;
                continue;
            }
            backoff.succeeded();
            tokio::time::sleep(PATIENCE).await;
            (was_away, heard_since) = (false, None);
            continue;
        }
        let margin = match heard_since {
            Some(since) if since.elapsed() >= PATIENCE => SILENT_FOR,
            _ => RECOVERY_MARGIN,
        };
        match recover_once(&shared, margin).await {
            Ok(next) => {
                heard_since.get_or_insert_with(Instant::now);
                backoff.succeeded();
                let (pause, begun) = (until(&shared, next, margin), Instant::now());
                tokio::time::sleep(pause).await;
                // This process was stopped, perhaps its machine, and others with it: they have to renew first.
                if begun.elapsed() > pause + PATIENCE {
                    was_away = true;
                    heard_since = None;
                }
            }
            Err(error) => {
                if error.is_outage() {
                    was_away = true;
                    heard_since = None;
                }
                backoff.failed(&error).await;
            }
        }
    }
}

/// How long to wait before leases are looked at again, of which the next one ends at `next`.
fn until(shared: &Shared, next: Option<i64>, margin: i64) -> Duration {
    let jitter = 0.8 + 0.4 * fastrand::f64();
    let Some(next) = next else { return RECOVER_IDLE.mul_f64(jitter) };
    let left = next.saturating_add(margin).saturating_mul(1_000_000_000).saturating_sub(shared.now_ns());
    let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
    // Of servers that wait for the same lease, one is first.
    let left = left + Duration::from_millis(fastrand::u64(10..500));
    left.min(RECOVER_INTERVAL.mul_f64(jitter))
}

/// Recovers what can be recovered; returns when the next lease ends, in Unix seconds. A queue that cannot
/// be served does not keep the others from being served.
async fn recover_once(shared: &Shared, margin: i64) -> Result<Option<i64>, Error> {
    if !shared.may_hold(Holding::Leases).await? {
        return Ok(None);
    }
    let (mut next, mut failed) = (None, None);
    for queue in shared.queues.names() {
        match recover_queue(shared, queue, margin).await {
            Ok(of_queue) => next = [next, of_queue].into_iter().flatten().min(),
            Err(error) => failed = worse(failed, error),
        }
    }
    failed.map_or(Ok(next), Err)
}

/// Of two errors the one that says that Redis was away.
fn worse(known: Option<Error>, error: Error) -> Option<Error> {
    known.filter(Error::is_outage).or(Some(error))
}

async fn recover_queue(shared: &Shared, queue: &Arc<str>, margin: i64) -> Result<Option<i64>, Error> {
    let mut failed = None;
    // What is still there afterwards would be found again, and hide what comes after it.
    let mut skip = 0;
    loop {
        let now = shared.now();
        if shared.time.is_settling() {
            return Ok(None);
        }
        let found = shared.broker.list_expired(queue, now - margin, skip).await?;
        if !found.ghosts.is_empty() {
            warn!(queue = %queue, ids = ?found.ghosts, "active ids without tasks were dropped");
        }
        let (recent, old): (Vec<_>, Vec<_>) =
            found.leases.into_iter().partition(|lease| lease.ended_at() > now - RECOVERY_MARGIN);
        let worked_on = match shared.broker.are_worked_on(queue, &recent).await {
            Ok(worked_on) => worked_on,
            Err(error) if error.is_outage() => return Err(error),
            // Whoever may not ask waits for the whole margin.
            Err(error) => {
                debug!(%error, "Redis does not tell what servers work on");
                vec![true; recent.len()]
            }
        };
        skip += worked_on.iter().filter(|worked_on| **worked_on).count();
        let silent = recent.into_iter().zip(worked_on).filter_map(|(lease, worked_on)| (!worked_on).then_some(lease));
        for lease in old.into_iter().chain(silent) {
            match recover_one(shared, queue, lease).await {
                Ok(true) => {}
                Ok(false) => skip += 1,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    skip += 1;
                    failed = worse(failed, error);
                }
            }
        }
        if found.seen < MAX_BATCH {
            return failed.map_or(Ok(found.next), Err);
        }
    }
}

/// Lets one task wait for its next attempt, or archives it; whether it was still there to be recovered.
async fn recover_one(shared: &Shared, queue: &Arc<str>, lease: ExpiredLease) -> Result<bool, Error> {
    let now = shared.now();
    let mut report = Report::by_recoverer(queue, &lease);
    let crashes = lease.crashes.clone().and(&lease.owner, lease.ended_at());
    let Some(message) = lease.message else {
        error!(task = lease.id, queue = %queue, "task cannot be read; it goes to the archive as it is");
        let applied = shared.broker.archive(&report, &lease.raw, now).await? == Verdict::Applied;
        if applied {
            shared.tell(|| Event::Recovered { queue, kind: None, end: End::Archived });
        }
        return Ok(applied);
    };
    let Options { max_crashes, work, .. } = &shared.options;
    let policy = work.retry_policy(&shared.routes, &message);
    let (verdict, end) = match step_after_crash(&message, &crashes, *max_crashes, now, policy) {
        Step::Retry { message, at, is_failure } => {
            report.crashes = Some(crashes.clone());
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
            crashes = crashes.count(),
            holder = lease.owner,
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
    let mut backoff = Backoff::new(&shared.outage, "deleting expired tasks");
    let mut round = 0_u32;
    loop {
        match clean_up_once(&shared, round.is_multiple_of(TRIM_EVERY)).await {
            Ok(deleted) => {
                backoff.succeeded();
                round = round.wrapping_add(1);
                if deleted > 0 {
                    info!(deleted, "expired tasks were deleted");
                }
            }
            Err(error) => {
                backoff.failed(&error).await;
                continue;
            }
        }
        tokio::time::sleep(CLEAN_UP_INTERVAL).await;
    }
}

async fn clean_up_once(shared: &Shared, archives: bool) -> Result<usize, Error> {
    let (mut total, mut failed) = (0, None);
    let completed = shared.may_hold(Holding::Completed).await?;
    let archives = archives && shared.may_hold(Holding::Archived).await?;
    if !completed && !archives {
        return Ok(0);
    }
    for queue in shared.queues.names() {
        match clean_up_queue(shared, queue, archives).await {
            Ok(deleted) => total += deleted,
            Err(error) => failed = worse(failed, error),
        }
    }
    failed.map_or(Ok(total), Err)
}

async fn clean_up_queue(shared: &Shared, queue: &str, archives: bool) -> Result<usize, Error> {
    let mut total = 0;
    loop {
        let completed = shared.broker.delete_expired_completed(queue, shared.now()).await?;
        let archived = if archives { shared.broker.trim_archived(queue, shared.now()).await? } else { 0 };
        total += completed + archived;
        if completed < SHORT_BATCH && archived < SHORT_BATCH {
            return Ok(total);
        }
    }
}
