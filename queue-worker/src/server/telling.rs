//! Tells those who listen what happens: looks who does, and writes what has gathered.

use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::{UnixMilli, UnixSecond};
use queue_core::event::{Event, Kind};
use queue_core::limits::{WATCH_POLL, WATCH_REST};
use queue_core::outcome::Step;
use queue_redis::Error;
use queue_redis::broker::Broker;
use queue_redis::service::Service;
use tracing::debug;

use super::shared::Shared;
use super::time::Time;
use super::wakeups::Wakeups;
use crate::events::End;
use crate::job::{CancelReason, Job};

/// How long to write nothing after Redis could not be asked, or has refused.
const REST: Duration = Duration::from_secs(1);

/// Knows who listens.
#[derive(Clone)]
pub(super) struct Audience {
    pub(super) broker: Broker,
    pub(super) time: Arc<Time>,
    pub(super) wakeups: Arc<Wakeups>,
}

impl Service for Audience {
    const NAME: &'static str = "audience";
    const WORK: &'static str = "looking who listens to events";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let mut watch = self.wakeups.watch();
        let wanted = match &mut watch {
            Some(watch) => watch.wanted().await,
            None => self.broker.wanted().await,
        };
        let wanted = match wanted {
            // The listening connection is being replaced.
            Err(error) if watch.is_some() && error.is_outage() => self.broker.wanted().await,
            wanted => wanted,
        };
        let wanted = match wanted {
            Err(error) if !error.is_outage() => {
                // A key of another type, a missing right: no trouble of the server, which tells nothing then.
                debug!(%error, "Redis does not tell who listens to events");
                self.broker.feed().heard_by(Vec::new(), 0);
                return Ok(WATCH_POLL);
            }
            wanted => wanted?,
        };
        let over = self.broker.feed().heard_by(wanted, now(&self.time).0);
        let pause = watch.map_or(WATCH_POLL, |watch| watch.rest(WATCH_REST));
        Ok(over.map_or(pause, |over| over.min(pause)))
    }

    async fn wait(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wakeups.watchers.notified()).await;
    }
}

/// Writes what has gathered. It does not ask Redis for anything before there is something.
#[derive(Clone)]
pub(super) struct Teller {
    pub(super) broker: Broker,
    pub(super) time: Arc<Time>,
}

impl Service for Teller {
    const NAME: &'static str = "teller";
    const WORK: &'static str = "telling events";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let Err(error) = self.broker.tell_events(now(&self.time).0).await else { return Ok(Duration::ZERO) };
        // It is news, no trouble of the server: what was lost is counted, and told when that is possible again.
        debug!(%error, "events were not written");
        Ok(REST)
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
        self.broker.feed().gathered().await;
    }
}

pub(super) fn now(time: &Time) -> UnixMilli {
    UnixMilli::of_ns(time.now_ns())
}

/// That an attempt begins.
pub(super) fn started(shared: &Shared, job: &Job) {
    let feed = shared.broker.feed();
    if feed.takes(Kind::Started, job.queue(), job.task_type()) {
        feed.tell(|| {
            let mut event = of_job(Kind::Started, now(&shared.time), job);
            event.attempt = Some(job.attempt());
            event
        });
    }
}

/// How an attempt has ended, to be told when that is written; nothing while nobody listens, or more than may be told was.
pub(super) fn ended(shared: &Shared, job: &Job, end: End, step: &Step, error: Option<&str>) -> Option<Box<Event>> {
    if !shared.broker.feed().is_heard() {
        return None;
    }
    let kind = match end {
        End::Succeeded => Kind::Succeeded,
        End::Retried => Kind::Failed,
        End::Archived if job.cancel_reason() == Some(CancelReason::Canceled) => Kind::Cancelled,
        End::Archived => Kind::Archived,
        End::Snoozed => Kind::Snoozed,
        End::Revoked => Kind::Revoked,
        End::Aborted => Kind::Requeued,
        // Who has found the lease at its end tells that.
        End::LeaseLost => return None,
    };
    if !shared.broker.feed().takes(kind, job.queue(), job.task_type()) {
        return None;
    }
    let now_ns = shared.now_ns();
    let mut event = of_job(kind, UnixMilli::of_ns(now_ns), job);
    event.attempt = Some(job.attempt());
    event.took_ms = u64::try_from(now_ns.saturating_sub(job.started_ns()) / 1_000_000).ok();
    if let Step::Retry { at, .. } = step {
        event.retry_at = Some(UnixSecond(*at));
    }
    Some(Box::new(match error {
        Some(error) => event.because(error),
        None => event,
    }))
}

/// About the task of an attempt.
fn of_job(kind: Kind, at: UnixMilli, job: &Job) -> Event {
    Event::of_task(kind, at, job.queue(), job.id(), job.task_type())
}

/// About the server itself.
pub(super) fn of_server(shared: &Shared, kind: Kind) {
    shared.broker.feed().tell(|| {
        let mut event = Event::new(kind, now(&shared.time));
        event.count = Some(shared.slots.total() as u64);
        event
    });
}
