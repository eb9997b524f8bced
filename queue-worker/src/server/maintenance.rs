//! What keeps queues clean: recovery, and deleting what is over. Any number of servers may do this at the
//! same time, Go's and ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use queue_core::crash::{Crashes, step_after_crash};
use queue_core::{RetryPolicy, Step};
use queue_redis::service::Backoff;
use queue_redis::{Error, Expired, ExpiredLease, Holding, Recovery, SHORT_BATCH, Verdict};
use tracing::debug;

use super::{Options, Shared};
use crate::events::{End, Event};
use crate::log::{error, info, warn};
use crate::panic;

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
/// Queues that are looked at at the same time: Redis may be far away.
const QUEUES_AT_ONCE: usize = 16;
/// So many leases that have ended, in an active list so long, are met in the order of the list: to search the list for
/// each of them takes Redis the product of the two, at 12 ns each.
const MANY_ENDED: u64 = 100;
const LONG_LIST: u64 = 1_000;
/// How many ids of the active list one call may be searching, half a millisecond's worth.
const IDS_SEARCHED: u64 = 40_000;
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
    let (mut next, mut failed) = (None, None);
    let queues = shared.which_hold(Holding::Leases).await?;
    for queues in queues.chunks(QUEUES_AT_ONCE) {
        for looked in join_all(queues.iter().map(|queue| recover_queue(shared, queue, margin))).await {
            match looked {
                Ok(of_queue) => next = [next, of_queue].into_iter().flatten().min(),
                Err(error) => failed = worse(failed, error),
            }
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
    // What is left where it is would be found again, and hide what comes after it.
    let mut skip = 0;
    let (mut walked, mut ended_before) = (false, None);
    loop {
        let now = shared.now();
        if shared.time.is_settling() {
            return Ok(None);
        }
        let found = shared.broker.list_expired(queue, now - margin, skip).await?;
        if found.ended >= MANY_ENDED && found.active >= LONG_LIST && !walked {
            walked = true;
            walk(shared, queue, margin, &mut failed).await?;
            continue;
        }
        let (more, next, ended) = (found.more, found.next, Some(found.ended));
        let at_once = usize::try_from(IDS_SEARCHED / found.active.max(1)).unwrap_or(SHORT_BATCH);
        let page = recover_page(shared, queue, found, (0, at_once.clamp(1, SHORT_BATCH)), now, &mut failed).await?;
        skip += page.left;
        // Where others are faster, leases become fewer all the same.
        let goes_on = page.left + page.gone > 0 || ended_before != ended;
        ended_before = ended;
        if !more || !goes_on {
            return failed.map_or(Ok(next), Err);
        }
    }
}

/// Recovers what can be in the order of the active list, from its tail, where the oldest are.
async fn walk(shared: &Shared, queue: &Arc<str>, margin: i64, failed: &mut Option<Error>) -> Result<(), Error> {
    let (mut at, mut left) = (0, 0);
    loop {
        let now = shared.now();
        if shared.time.is_settling() {
            return Ok(());
        }
        let found = shared.broker.list_expired_in_order(queue, now - margin, at).await?;
        let (seen, more) = (found.seen, found.more && found.ended > left);
        let page = recover_page(shared, queue, found, (at, SHORT_BATCH), now, failed).await?;
        // What is gone no longer stands between the tail and what comes next.
        at += seen.saturating_sub(page.gone);
        left += page.left as u64;
        if !more {
            return Ok(());
        }
    }
}

/// What became of the tasks of a page.
#[derive(Default)]
struct Page {
    /// They are where they were.
    left: usize,
    /// They are not active any more.
    gone: usize,
}

/// Recovers the tasks that were found `at` so many places from the tail of the active list, in calls of so many.
async fn recover_page(
    shared: &Shared,
    queue: &Arc<str>,
    found: Expired,
    (at, at_once): (usize, usize),
    now: i64,
    failed: &mut Option<Error>,
) -> Result<Page, Error> {
    let mut page = Page { left: 0, gone: found.ghosts.len() };
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
    page.left += worked_on.iter().filter(|worked_on| **worked_on).count();
    let silent = recent.into_iter().zip(worked_on).filter_map(|(lease, worked_on)| (!worked_on).then_some(lease));
    let recoveries: Vec<Recovery> =
        old.into_iter().chain(silent).map(|lease| decide(shared, queue, lease, now)).collect();
    for batch in recoveries.chunks(at_once) {
        match shared.broker.recover(queue, batch, at, now).await {
            Ok(verdicts) => {
                for (recovery, verdict) in batch.iter().zip(verdicts) {
                    page.gone += usize::from(verdict == Verdict::Applied);
                    tell(shared, queue, recovery, verdict);
                }
            }
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                page.left += batch.len();
                *failed = worse(failed.take(), error);
            }
        }
    }
    Ok(page)
}

/// What is to become of a task whose lease has ended: another attempt, or the archive.
fn decide(shared: &Shared, queue: &str, lease: ExpiredLease, now: i64) -> Recovery {
    let Some(message) = &lease.message else {
        error!(task = lease.id, queue = %queue, "task cannot be read; it goes to the archive as it is");
        return Recovery { message: lease.raw.clone(), retry_at: None, crashes: None, lease };
    };
    let crashes = lease.crashes.clone().and(&lease.owner, lease.ended_at());
    let Options { max_crashes, work, .. } = &shared.options;
    let step = |policy: &RetryPolicy| step_after_crash(message, &crashes, *max_crashes, now, policy);
    let step = panic::catch(|| step(work.retry_policy(&shared.routes, message))).unwrap_or_else(|panicked| {
        // The other tasks of the queue are not to wait for that.
        error!(task = message.id, error = %panicked, "the retry policy panicked; the default one is asked");
        step(&RetryPolicy::default())
    });
    let (message, retry_at) = match step {
        Step::Retry { message, at, .. } => (message.to_bytes(), Some(at)),
        Step::Archive { message } => (message.to_bytes(), None),
        Step::Done | Step::Complete { .. } | Step::Requeue => (lease.raw.clone(), Some(now)),
    };
    Recovery { message, retry_at, crashes: Some(crashes), lease }
}

fn tell(shared: &Shared, queue: &Arc<str>, recovery: &Recovery, verdict: Verdict) {
    let Recovery { lease, retry_at, crashes, .. } = recovery;
    if verdict != Verdict::Applied {
        debug!(task = lease.id, ?verdict, "another server was faster");
        return;
    }
    let end = if retry_at.is_some() { End::Retried } else { End::Archived };
    let kind = lease.message.as_ref().map(|message| &*message.r#type);
    shared.tell(|| Event::Recovered { queue, kind, end });
    let Some(message) = &lease.message else { return };
    warn!(
        task = message.id,
        kind = message.r#type,
        queue = message.queue,
        attempt = message.retried.saturating_add(1),
        crashes = crashes.as_ref().map_or(0, Crashes::count),
        holder = lease.owner,
        then = end.as_str(),
        "its worker went silent; task recovered"
    );
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
    for queue in shared.which_hold(Holding::Completed).await? {
        match clean_up_queue(shared, queue, Holding::Completed).await {
            Ok(deleted) => total += deleted,
            Err(error) => failed = worse(failed, error),
        }
    }
    let archived = if archives { shared.which_hold(Holding::Archived).await? } else { Vec::new() };
    for queue in archived {
        match clean_up_queue(shared, queue, Holding::Archived).await {
            Ok(deleted) => total += deleted,
            Err(error) => failed = worse(failed, error),
        }
    }
    failed.map_or(Ok(total), Err)
}

/// Deletes, some at a time, until fewer than that are left.
async fn clean_up_queue(shared: &Shared, queue: &str, what: Holding) -> Result<usize, Error> {
    let mut total = 0;
    loop {
        let deleted = match what {
            Holding::Archived => shared.broker.trim_archived(queue, shared.now()).await?,
            _ => shared.broker.delete_expired_completed(queue, shared.now()).await?,
        };
        total += deleted;
        if deleted < SHORT_BATCH {
            return Ok(total);
        }
    }
}
