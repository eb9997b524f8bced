//! The recoverer: takes tasks from servers that went silent. Any number of servers may do this at the same time, Go's
//! and ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use queue_core::RetryPolicy;
use queue_core::clock::UnixSecond;
use queue_core::crash::{Crashes, step_after_crash};
use queue_core::event as news;
use queue_core::limits::{IDLE_INTERVAL, RECOVER_INTERVAL, RECOVERY_MARGIN_SECS, RENEWED_WITHIN, SILENT_MARGIN_SECS};
use queue_redis::service::{Service, worse};
use queue_redis::{
    Error,
    broker::{Broker, Expired, ExpiredLease, Holding, Recovery, SHORT_BATCH, Verdict},
};
use tracing::debug;

use super::holdings::Holdings;
use super::telling;
use super::time::Time;
use crate::budgets;
use crate::events::{End, Event, Observers};
use crate::exhausted::OnExhausted;
use crate::log::{error, warn};
use crate::panic;
use crate::routes::Routes;

/// Queues that are looked at at the same time: Redis may be far away.
const QUEUES_AT_ONCE: usize = 16;
/// So many leases that have ended, in an active list so long, are met in the order of the list: to search the list for
/// each of them takes Redis the product of the two, at 12 ns each.
const MANY_ENDED: u64 = 100;
const LONG_LIST: u64 = 1_000;
/// How many ids of the active list one call may be searching, half a millisecond's worth.
const IDS_SEARCHED: u64 = 40_000;

/// What became of the tasks of a page.
#[derive(Default)]
struct Page {
    /// They are where they were.
    left: usize,
    /// They are not active any more.
    gone: usize,
}

#[derive(Clone)]
pub(super) struct Recoverer {
    broker: Broker,
    time: Arc<Time>,
    holdings: Arc<Holdings>,
    routes: Arc<Routes>,
    max_crashes: u32,
    on_exhausted: OnExhausted,
    observers: Observers,
    heard: Heard,
}

/// Whether those who are alive have had the time to renew their leases, and to say what they work on.
#[derive(Debug, Default, Clone, Copy)]
struct Heard {
    /// Redis did not answer, or this process was stopped.
    was_away: bool,
    /// Since when Redis has answered. Servers that it could not hear do not tell what they work on, either.
    since: Option<Instant>,
    /// When the next run should begin.
    next: Option<Instant>,
}

impl Heard {
    fn away() -> Self {
        Self { was_away: true, since: None, next: None }
    }
}

impl Service for Recoverer {
    const NAME: &'static str = "recoverer";
    const WORK: &'static str = "recovering tasks";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        // This process was stopped, perhaps its machine, and others with it: they have to renew first.
        if self.heard.next.is_some_and(|next| next.elapsed() > RENEWED_WITHIN) {
            self.heard = Heard::away();
        }
        if self.heard.was_away || self.time.is_settling() {
            // Not by a look at the leases: the first one that is answered would already recover.
            self.broker.redis().ping().await?;
            self.heard = Heard::default();
            return Ok(RENEWED_WITHIN);
        }
        let margin = match self.heard.since {
            Some(since) if since.elapsed() >= RENEWED_WITHIN => SILENT_MARGIN_SECS,
            _ => RECOVERY_MARGIN_SECS,
        };
        match self.recover(margin).await {
            Ok(next) => {
                let pause = self.pause(next, margin);
                self.heard.since.get_or_insert_with(Instant::now);
                self.heard.next = Some(Instant::now() + pause);
                Ok(pause)
            }
            Err(error) => {
                self.heard = if error.is_outage() { Heard::away() } else { Heard { next: None, ..self.heard } };
                Err(error)
            }
        }
    }
}

impl Recoverer {
    pub(super) fn new(
        broker: Broker,
        time: Arc<Time>,
        holdings: Arc<Holdings>,
        routes: Arc<Routes>,
        max_crashes: u32,
        on_exhausted: OnExhausted,
        observers: Observers,
    ) -> Self {
        Self { broker, time, holdings, routes, max_crashes, on_exhausted, observers, heard: Heard::default() }
    }

    /// How long to wait before leases are looked at again, of which the next one ends at `next`.
    fn pause(&self, next: Option<i64>, margin: i64) -> Duration {
        let jitter = 0.8 + 0.4 * fastrand::f64();
        let Some(next) = next else { return IDLE_INTERVAL.mul_f64(jitter) };
        // Of servers that wait for the same lease, one is first.
        let left = self.time.until(next.saturating_add(margin)) + Duration::from_millis(fastrand::u64(10..500));
        left.min(RECOVER_INTERVAL.mul_f64(jitter))
    }

    /// Recovers what can be recovered; returns when the next lease ends, in Unix seconds. A queue that cannot
    /// be served does not keep the others from being served.
    pub(super) async fn recover(&self, margin: i64) -> Result<Option<i64>, Error> {
        let (mut next, mut failed) = (None, None);
        let queues = self.holdings.which_hold(Holding::Leases).await?;
        for queues in queues.chunks(QUEUES_AT_ONCE) {
            for looked in join_all(queues.iter().map(|queue| self.recover_queue(queue, margin))).await {
                match looked {
                    Ok(of_queue) => next = [next, of_queue].into_iter().flatten().min(),
                    Err(error) => failed = worse(failed, error),
                }
            }
        }
        failed.map_or(Ok(next), Err)
    }

    async fn recover_queue(&self, queue: &Arc<str>, margin: i64) -> Result<Option<i64>, Error> {
        let mut failed = None;
        // What is left where it is would be found again, and hide what comes after it.
        let mut skip = 0;
        let (mut walked, mut ended_before) = (false, None);
        loop {
            let now = self.time.now();
            if self.time.is_settling() {
                return Ok(None);
            }
            let found = self.broker.list_expired(queue, now - margin, skip).await?;
            if found.ended >= MANY_ENDED && found.active >= LONG_LIST && !walked {
                walked = true;
                self.walk(queue, margin, &mut failed).await?;
                continue;
            }
            let (more, next, ended) = (found.more, found.next, Some(found.ended));
            let at_once = usize::try_from(IDS_SEARCHED / found.active.max(1)).unwrap_or(SHORT_BATCH);
            let page = self.recover_page(queue, found, (0, at_once.clamp(1, SHORT_BATCH)), now, &mut failed).await?;
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
    async fn walk(&self, queue: &Arc<str>, margin: i64, failed: &mut Option<Error>) -> Result<(), Error> {
        let (mut at, mut left) = (0, 0);
        loop {
            let now = self.time.now();
            if self.time.is_settling() {
                return Ok(());
            }
            let found = self.broker.list_expired_in_order(queue, now - margin, at).await?;
            let (seen, more) = (found.seen, found.more && found.ended > left);
            let page = self.recover_page(queue, found, (at, SHORT_BATCH), now, failed).await?;
            // What is gone no longer stands between the tail and what comes next.
            at += seen.saturating_sub(page.gone);
            left += page.left as u64;
            if !more {
                return Ok(());
            }
        }
    }

    /// Recovers the tasks that were found `at` so many places from the tail of the active list, in calls of so many.
    async fn recover_page(
        &self,
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
            found.leases.into_iter().partition(|lease| lease.ended_at() > now - RECOVERY_MARGIN_SECS);
        let worked_on = match self.broker.are_worked_on(queue, &recent).await {
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
            old.into_iter().chain(silent).map(|lease| self.decide(queue, lease, now)).collect();
        for batch in recoveries.chunks(at_once) {
            match self.broker.recover(queue, batch, at, now).await {
                Ok(verdicts) => {
                    for (recovery, verdict) in batch.iter().zip(verdicts) {
                        page.gone += usize::from(verdict == Verdict::Applied);
                        self.tell(queue, recovery, verdict);
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
    fn decide(&self, queue: &str, lease: ExpiredLease, now: i64) -> Recovery {
        let Some(message) = &lease.message else {
            error!(task = lease.id, queue = %queue, "task cannot be read; it goes to the archive as it is");
            return Recovery::as_it_is(lease);
        };
        budgets::complain(message);
        let crashes = lease.crashes.clone().and(&lease.owner, lease.ended_at());
        let step = |policy: &RetryPolicy| step_after_crash(message, &crashes, self.max_crashes, now, policy);
        let step = panic::catch(|| step(self.routes.retry_policy(message))).unwrap_or_else(|panicked| {
            // The other tasks of the queue are not to wait for that.
            error!(task = message.id, error = %panicked, "the retry policy panicked; the default one is asked");
            step(&RetryPolicy::default())
        });
        self.on_exhausted.tell(&step, now);
        Recovery::new(lease, step, crashes, now)
    }

    fn tell(&self, queue: &Arc<str>, recovery: &Recovery, verdict: Verdict) {
        let Recovery { lease, retry_at, crashes, .. } = recovery;
        if verdict != Verdict::Applied {
            debug!(task = lease.id, ?verdict, "another server was faster");
            return;
        }
        let end = if retry_at.is_some() { End::Retried } else { End::Archived };
        let task_type = lease.message.as_ref().map(|message| &*message.r#type);
        self.observers.tell(|| Event::Recovered { queue, task_type, end });
        let Some(message) = &lease.message else { return };
        self.broker.feed().tell(|| {
            let at = telling::now(&self.time);
            let mut lost = news::Event::of_task(news::Kind::Lost, at, queue, &message.id, &message.r#type);
            (lost.retry_at, lost.attempt) =
                (retry_at.map(UnixSecond), u32::try_from(message.retried.saturating_add(1)).ok());
            lost.because(&lease.owner)
        });
        warn!(
            task = message.id,
            task_type = message.r#type,
            queue = message.queue,
            attempt = message.retried.saturating_add(1),
            crashes = crashes.as_ref().map_or(0, Crashes::count),
            holder = lease.owner,
            then = end.as_str(),
            "its worker went silent; task recovered"
        );
    }
}
