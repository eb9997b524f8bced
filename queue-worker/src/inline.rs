//! One attempt here and now, without a server: what a testing kit is built on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use queue_core::Clock;
use queue_core::crash::DEFAULT_LIMIT;
use queue_core::outcome::{Failure, Outcome, Step};
use queue_redis::flow::Recorder;
use queue_redis::{
    Error,
    broker::{Broker, Delivery, GroupRules, Matching, Report, Side, Verdict},
};
use tokio_util::sync::CancellationToken;

use crate::budgets;
use crate::events::End;
use crate::exhausted::OnExhausted;
use crate::job::Job;
use crate::router::Router;
use crate::sequel::{CanceledForGood, Sequel, free_lanes, start_followers};
use crate::server::cancels::Cancels;
use crate::server::time::Time;
use crate::server::upkeep::Upkeep;
use crate::server::{MAX_RESULT_BYTES, Unhandled, attempt, default_span};
use crate::work::{Work, WorkOptions};

/// Runs attempts one by one, exactly as a server does between taking a task and reporting on it: layers,
/// extractors, timeouts, panics, the decision about what happens next.
///
/// It takes no tasks and renews no leases.
#[derive(Debug)]
pub struct Inline {
    upkeep: Upkeep,
    unhandled: Unhandled,
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
    sequel: Sequel,
}

impl Inline {
    /// Attempts by this router's handlers. `broker` is what they write results to; `options` say how tasks are worked,
    /// unless the router says otherwise for their type.
    pub fn new<S: Clone + Send + Sync + 'static>(
        router: Router<S>,
        broker: Broker,
        options: WorkOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        crate::panic::install_hook();
        let routes = router.into_routes().with_work(Work { all: options, ..Work::default() });
        let (routes, time) = (Arc::new(routes), Arc::new(Time::new(clock, false)));
        let recorder = Recorder::new(broker.clone(), time.clock());
        let upkeep = Upkeep { broker, routes, time, max_crashes: DEFAULT_LIMIT, recorder };
        Self { upkeep, unhandled: Unhandled::Snooze(Duration::from_secs(30)) }
    }

    /// What happens to a task whose type no handler serves. Defaults to snoozing it for 30 s.
    #[must_use]
    pub fn unhandled(mut self, choice: Unhandled) -> Self {
        self.unhandled = choice;
        self
    }

    /// How many crashes of its workers a task may survive. Defaults to what a server has.
    #[must_use]
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.upkeep.max_crashes = crashes;
        self
    }

    /// Runs the handler of a task that was taken. Writes nothing about its outcome.
    pub async fn attempt(&self, delivery: Delivery) -> Attempted {
        let Upkeep { broker, routes, time, .. } = &self.upkeep;
        let mut report = Report::by_owner(delivery.run.clone(), &delivery.message, Side::default());
        let work = (routes.timeout(&delivery.message), routes.undecodable(&delivery.message));
        let job = Job::new(delivery, time.now_ns(), broker.clone(), Weak::<()>::new(), MAX_RESULT_BYTES, work);
        let (unhandled, cancel_grace) = (self.unhandled, Duration::from_secs(1));
        let limits = attempt::Limits { unhandled, cancel_grace, max_result_bytes: MAX_RESULT_BYTES };
        let Some(outcome) = attempt::work(routes, &limits, &job, &default_span(&job)).await else {
            let sequel = Sequel::default();
            return Attempted { end: End::LeaseLost, result: None, error: None, step: None, report, sequel };
        };
        let outcome = match outcome {
            Outcome::Done(_) => outcome,
            failed => Cancels::known_to(broker).await.judge(broker, &job, failed).await,
        };
        let sequel = Sequel::of(&job, &outcome);
        let is_canceled = matches!(&outcome, Outcome::Failed(failure) if failure.error().is::<CanceledForGood>());
        let result = if let Outcome::Done(result) = &outcome { result.clone() } else { None };
        let error = if let Outcome::Failed(failure) = &outcome { Some(failure.to_string()) } else { None };
        let backtrace = attempt::backtrace(&outcome);
        let step = budgets::decide(job.message(), outcome, time.now(), routes.retry_policy(job.message()));
        let error = step.error().map(str::to_owned).or(error);
        attempt::tell_the_rest(&job, &step, &CancellationToken::new()).await;
        if !is_canceled {
            report.follow_up = OnExhausted::default().take_leave(&step, time.now());
        }
        report.ended(&step, job.started_ns(), time.now_ns(), backtrace.as_deref());
        Attempted { end: End::of(&step), result, error, step: Some(step), report, sequel }
    }

    /// What is taken of the tasks with these ids where those of other types are left to others ([`Unhandled::Leave`]).
    pub fn matching(&self, ids: Vec<Bytes>) -> Matching {
        let routes = &self.upkeep.routes;
        Matching { types: routes.types(), prefixes: routes.prefixes(), ids, are_young: false }
    }

    /// Whether an aggregator is for this group.
    pub fn aggregates(&self, queue: &str, group: &str) -> bool {
        self.upkeep.routes.aggregators().find(queue, group).is_some()
    }

    /// Aggregates a group as a server does, if it is ready by these rules; then says whether that failed, after which the
    /// tasks are in their group again.
    pub async fn aggregate(&self, queue: &Arc<str>, group: &str, rules: GroupRules) -> Option<Result<(), Failure>> {
        self.upkeep.aggregate(queue, group, rules).await
    }

    /// Does once what servers do beside working: takes tasks from those that went silent, makes due tasks pending, puts
    /// back what was lost with an aggregation, records what members of batches told, deletes what is over. Returns the Unix second at which there is more to do.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn look_after(&self, queues: &[String]) -> Result<Option<i64>, Error> {
        self.upkeep.look_after(queues).await
    }

    /// Writes what became of an attempt, frees the slots that it had in lanes, and starts what follows its task.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn report(&self, attempted: &Attempted) -> Result<Verdict, Error> {
        let (broker, now_ns) = (&self.upkeep.broker, self.upkeep.time.now_ns());
        let Attempted { step: Some(step), report, sequel, .. } = attempted else { return Ok(Verdict::Lost) };
        let verdict = broker.apply(&[(report, step)], now_ns).await?.first().copied().unwrap_or(Verdict::Lost);
        free_lanes(broker, [(&report.run, sequel)]).await;
        if sequel.begins(step, verdict) {
            start_followers(broker, std::slice::from_ref(&report.run), now_ns).await;
        }
        Ok(verdict)
    }
}
