//! One attempt here and now, without a server: what a testing kit is built on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use queue_core::outcome::{Failure, Outcome, Step, next_step};
use queue_core::{Clock, RetryPolicy, TaskMessage};
use queue_redis::{Broker, Completion, Delivery, Error, GroupRules, Report, Side, Verdict};

use crate::events::{End, is_revoked};
use crate::job::Job;
use crate::router::Router;
use crate::routes::Routes;
use crate::server::{MAX_RESULT_BYTES, Unhandled, aggregator, attempt};
use crate::work::{Work, WorkOptions};

/// Runs attempts one by one, exactly as a server does between taking a task and reporting on it: layers,
/// extractors, timeouts, panics, the decision about what happens next.
///
/// It takes no tasks and renews no leases.
#[derive(Debug)]
pub struct Inline {
    routes: Routes,
    broker: Broker,
    unhandled: Unhandled,
    work: Work,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Attempted {
    /// In a word.
    pub end: End,
    /// What the handler returned, also where nobody keeps it.
    pub result: Option<Bytes>,
    /// What went wrong, as it is stored with the task.
    pub error: Option<String>,
    /// What is to be written; `None` when the task was lost.
    pub step: Option<Step>,
    report: Report,
}

impl Inline {
    /// Attempts by this router's handlers. `broker` is what they write results to.
    pub fn new<S: Clone + Send + Sync + 'static>(router: Router<S>, broker: Broker) -> Self {
        crate::panic::install_hook();
        Self {
            routes: router.into_routes(),
            broker,
            unhandled: Unhandled::PutBack(Duration::from_secs(30)),
            work: Work::default(),
        }
    }

    /// What happens to a task whose type no handler serves. Defaults to putting it back for 30 s.
    #[must_use]
    pub fn unhandled(mut self, choice: Unhandled) -> Self {
        self.unhandled = choice;
        self
    }

    /// How tasks are worked, unless the router says otherwise for their type.
    #[must_use]
    pub fn work_options(mut self, options: WorkOptions) -> Self {
        self.work.all = options;
        self
    }

    /// The policy for a task.
    pub fn retry_policy(&self, message: &TaskMessage) -> &RetryPolicy {
        self.work.retry_policy(&self.routes, message)
    }

    /// Runs the handler of a task that was taken. Writes nothing about its outcome.
    pub async fn attempt(&self, delivery: Delivery, clock: &dyn Clock) -> Attempted {
        let report = Report::by_owner(delivery.run.clone(), &delivery.message, Side::default());
        let work = (&self.work, &self.routes);
        let job = Job::new(delivery, clock.now_ns(), self.broker.clone(), Weak::new(), MAX_RESULT_BYTES, work);
        let (unhandled, cancel_grace) = (self.unhandled, Duration::from_secs(1));
        let limits = attempt::Limits { unhandled, cancel_grace, max_result_bytes: MAX_RESULT_BYTES };
        let Some(outcome) = attempt::work(&self.routes, &limits, &job, &attempt::default_span(&job)).await else {
            return Attempted { end: End::LeaseLost, result: None, error: None, step: None, report };
        };
        let result = if let Outcome::Done(result) = &outcome { result.clone() } else { None };
        let error = if let Outcome::Failed(failure) = &outcome { Some(failure.to_string()) } else { None };
        let revoked = is_revoked(&outcome);
        let step = next_step(job.message(), outcome, clock.now_secs(), self.retry_policy(job.message()));
        Attempted { end: End::of(&step, revoked), result, error, step: Some(step), report }
    }

    /// Whether an aggregator is for this group.
    pub fn aggregates(&self, queue: &str, group: &str) -> bool {
        self.routes.aggregators().find(queue, group).is_some()
    }

    /// Aggregates a group as a server does, if it is ready by these rules; then says whether that failed, after which the
    /// tasks are in their group again.
    pub async fn aggregate(
        &self,
        queue: &Arc<str>,
        group: &str,
        rules: GroupRules,
        clock: &dyn Clock,
    ) -> Option<Result<(), Failure>> {
        let group = (queue.clone(), group.to_owned());
        aggregator::run_inline((&self.broker, &self.routes), group, rules, clock).await
    }

    /// Writes what became of an attempt.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn report(&self, attempted: &Attempted, clock: &dyn Clock) -> Result<Verdict, Error> {
        let (broker, report) = (&self.broker, &attempted.report);
        let (queue, now) = (&report.run.queue, clock.now_secs());
        let verdicts = match &attempted.step {
            None => return Ok(Verdict::Lost),
            Some(Step::Done) => broker.done(queue, std::slice::from_ref(report), now).await?,
            Some(Step::Complete { message, expires_at, result }) => {
                let (report, message, result) = (report.clone(), message.clone(), result.clone());
                let completion = Completion { report, message, expires_at: *expires_at, result };
                broker.complete(queue, &[completion], now).await?
            }
            Some(Step::Retry { message, at, is_failure }) => {
                return broker.retry(report, &message.to_bytes(), *at, *is_failure, now).await;
            }
            Some(Step::Archive { message }) => return broker.archive(report, &message.to_bytes(), now).await,
            Some(Step::Requeue) => return broker.requeue(report, clock.now_ns()).await,
        };
        Ok(verdicts.first().copied().unwrap_or(Verdict::Lost))
    }
}
