//! Which tasks are to be canceled for good. A server keeps them in memory, so that taking tasks and renewing leases cost no
//! more; Redis tells it of changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use queue_core::limits::{WATCH_POLL, WATCH_REST};
use queue_core::outcome::{Failure, Outcome};
use queue_redis::Error;
use queue_redis::broker::{Broker, CancelRequests};
use queue_redis::service::Service;

use super::running::Running;
use super::wakeups::Wakeups;
use crate::job::{CancelReason, Job};
use crate::log::info;
use crate::sequel::CanceledForGood;

/// Those that are known.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    /// A std lock: held to look or to replace it.
    requests: RwLock<CancelRequests>,
    /// Whether there are any: every attempt asks twice, and there seldom are.
    any: AtomicBool,
}

impl Cancels {
    /// Those that Redis has now; none where it does not answer.
    pub(crate) async fn known_to(broker: &Broker) -> Self {
        let cancels = Self::default();
        cancels.replace(broker.cancel_requests().await.unwrap_or_default());
        cancels
    }

    /// Who wants this task to end.
    pub(super) fn by(&self, job: &Job) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let requests = self.requests.read().unwrap_or_else(PoisonError::into_inner);
        requests.of(job.queue(), job.id()).map(|request| request.by.clone())
    }

    fn replace(&self, requests: CancelRequests) {
        let any = !requests.is_empty();
        let mut held = self.requests.write().unwrap_or_else(PoisonError::into_inner);
        *held = requests;
        self.any.store(any, Ordering::Release);
    }

    /// What an attempt comes to that has not succeeded: it ends in the archive if somebody wants that.
    pub(crate) async fn judge(&self, broker: &Broker, job: &Job, outcome: Outcome) -> Outcome {
        if matches!(outcome, Outcome::Failed(Failure::Revoke(_))) {
            return outcome;
        }
        let by = match self.by(job) {
            // asynq's channel may have been faster than the record.
            None if job.cancel_reason() == Some(CancelReason::Canceled) => {
                let recorded = broker.cancel_request(job.queue(), job.id()).await;
                recorded.ok().flatten().map(|request| request.by)
            }
            by => by,
        };
        match by {
            Some(by) => Outcome::Failed(Failure::archive(CanceledForGood(by))),
            None => outcome,
        }
    }
}

/// Keeps them up to date, and stops those that run.
#[derive(Clone)]
pub(super) struct CancelWatcher {
    pub(super) broker: Broker,
    pub(super) cancels: Arc<Cancels>,
    pub(super) running: Arc<Running>,
    pub(super) wakeups: Arc<Wakeups>,
}

impl Service for CancelWatcher {
    const NAME: &'static str = "canceler";
    const WORK: &'static str = "looking for tasks that are to be canceled";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let mut watch = self.wakeups.watch();
        let requests = match &mut watch {
            Some(watch) => watch.cancel_requests().await,
            None => self.broker.cancel_requests().await,
        };
        let requests = match requests {
            // The listening connection is being replaced.
            Err(error) if watch.is_some() && error.is_outage() => self.broker.cancel_requests().await?,
            requests => requests?,
        };
        // First what is taken from now on, then what runs: an attempt is among those that run before it asks.
        self.cancels.replace(requests);
        for job in self.running.all() {
            if job.cancel_reason().is_none()
                && let Some(by) = self.cancels.by(&job)
            {
                job.cancel(CancelReason::Canceled);
                info!(task = job.id(), queue = job.queue(), by, "task canceled for good");
            }
        }
        Ok(watch.map_or(WATCH_POLL, |watch| watch.rest(WATCH_REST)))
    }

    async fn wait(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wakeups.cancels.notified()).await;
    }
}
