//! One attempt at one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use queue_core::clock::UnixSecond;
use queue_core::outcome::{Failure, NO_HANDLER, Outcome, Step};
use queue_core::unique::UniqueUntil;
use queue_redis::broker::{Report, Side};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span, debug};

use super::acks::{Ack, Unsettled};
use super::adaptive::Sign;
use super::options::{Unhandled, default_span};
use super::shared::Shared;
use super::slots::Slot;
use super::telling;
use crate::budgets;
use crate::events::{End, Event};
use crate::job::{CancelReason, Job, ResultError};
use crate::log::{error, info, warn};
use crate::panic::{self, Catch, Panicked};
use crate::routes::Routes;
use crate::sequel::{CanceledForGood, Sequel};

/// How long an attempt waits at its end for what its job has said to be written.
const NOTES_WITHIN: Duration = Duration::from_secs(10);
/// The same when the time of a server that ends is over: the report that follows is waited for a second longer.
const NOTES_IN_A_HURRY: Duration = Duration::from_secs(1);

/// A log line about an attempt, with what names it.
macro_rules! attempt_line {
    ($level:ident, $job:expr, $($line:tt)*) => {
        $level!(task = $job.id(), task_type = $job.task_type(), queue = $job.queue(), attempt = $job.attempt(), $($line)*)
    };
}

/// Runs the handler of a task; gives the report on the outcome, unless others have the task by now. The slot goes with it:
/// it is free again when the outcome is written.
pub(super) async fn run(shared: Arc<Shared>, job: Job, ticket: u64, slot: Arc<Slot>) -> Option<Ack> {
    let report = Report::by_owner(job.run().clone(), job.message(), Side::default());
    let mut ack = Unsettled::new(shared.clone(), ticket, report, slot);
    let began = begin(&shared, &job);
    telling::started(&shared, &job);
    let span = shared.span_guard.call("the function that makes spans", || (shared.options.span)(&job));
    let span = span.unwrap_or_else(|| default_span(&job));
    let limits = Limits {
        unhandled: shared.options.unhandled,
        cancel_grace: shared.options.cancel_grace,
        max_result_bytes: shared.options.max_result_bytes,
    };
    if job.run().leased_until() <= shared.now() {
        // This process stood still while the attempt waited for its turn: somebody else may have the task.
        job.cancel(CancelReason::LeaseLost);
    } else if shared.cancels.by(&job).is_some() {
        job.cancel(CancelReason::Canceled);
    }
    // Handlers are caught where they run. This is for what is beside them: the `Clone` of a layer, a subscriber.
    let caught = Catch::new(work(&shared.routes, &limits, &job, &span)).await;
    let Some(outcome) = caught.unwrap_or_else(|panicked| Some(failed(panicked))) else {
        // Whoever has the task now will report on it.
        ack.settle();
        ended(&shared, &job, End::LeaseLost, began);
        span.record("outcome", End::LeaseLost.as_str());
        attempt_line!(warn, job, "lease lost; the attempt was given up");
        return None;
    };
    let outcome = match outcome {
        Outcome::Done(_) => outcome,
        // Boxed, as what is told late: the future of every attempt would have room for what is seldom done.
        failed => Box::pin(shared.cancels.judge(&shared.broker, &job, failed)).await,
    };
    ack.sequel = Sequel::of(&job, &outcome);
    let is_canceled = matches!(&outcome, Outcome::Failed(failure) if failure.error().is::<CanceledForGood>());
    let backtrace = backtrace(&outcome);
    // An error is the user's too, and so is what it says.
    let concluded = panic::catch(|| conclude(&shared, &job, &span, outcome));
    let (step, end, error) = concluded.unwrap_or_else(|panicked| conclude(&shared, &job, &span, failed(panicked)));
    tell_the_rest(&job, &step, &shared.shutdown.interrupting).await;
    if !is_canceled {
        ack.report.follow_up = shared.options.on_exhausted.take_leave(&step, shared.now());
    }
    let ended_ns = shared.now_ns();
    ack.report.ended(&step, job.started_ns(), ended_ns, backtrace.as_deref());
    if let Some(adaptive) = &shared.adaptive {
        let took = u64::try_from(ended_ns.saturating_sub(job.started_ns())).unwrap_or(0);
        let is_late = job.has_begun() && job.cancel_reason() == Some(CancelReason::Deadline);
        let sign = match end {
            End::Succeeded => Sign::Succeeded,
            _ if is_late || ack.sequel.too_many.is_some() => Sign::Refused,
            _ => Sign::Other,
        };
        let (in_hand, slots) = (shared.running.len(), shared.slots.total());
        adaptive.ended(job.task_type(), Duration::from_nanos(took), sign, in_hand, slots);
    }
    ack.step = step;
    ack.news = telling::ended(&shared, &job, end, &ack.step, error.as_deref());
    ack.report.side = shared.running.side(ticket);
    ended(&shared, &job, end, began);
    tell_outcome(&job, &span, end, &ack.step, error);
    Some(ack)
}

/// Writes what the job has said last, where the task stays, and while there is no hurry: a server that ends is interrupted when its
/// time is over.
pub(crate) async fn tell_the_rest(job: &Job, step: &Step, interrupting: &CancellationToken) {
    if !job.has_notes() || matches!(step, Step::Done | Step::Revoke) {
        return;
    }
    // Boxed: the future of every attempt would have room for it.
    Box::pin(async {
        let hurry = async {
            interrupting.cancelled().await;
            tokio::time::sleep(NOTES_IN_A_HURRY).await;
        };
        tokio::select! {
            // A runtime of the handler's own may have begun to write, and stand still. The task does not wait for what is only shown.
            _ = tokio::time::timeout(NOTES_WITHIN, job.write_notes()) => {}
            () = hurry => {}
        }
    })
    .await;
}

fn failed(panicked: Panicked) -> Outcome {
    Outcome::Failed(Failure::Retry(panicked.into()))
}

/// Where an attempt failed, if that is known.
pub(crate) fn backtrace(outcome: &Outcome) -> Option<String> {
    let Outcome::Failed(failure) = outcome else { return None };
    let panicked = failure.error().downcast_ref::<Panicked>();
    panicked.and_then(Panicked::backtrace).or_else(|| failure.backtrace().map(str::to_owned))
}

/// What an outcome comes to, and its error.
fn conclude(shared: &Shared, job: &Job, span: &Span, outcome: Outcome) -> (Step, End, Option<String>) {
    let error = if let Outcome::Failed(failure) = &outcome { Some(failure.to_string()) } else { None };
    if let Outcome::Failed(failure) = &outcome
        && let Some(hook) = &shared.options.on_error
        && let Err(panicked) = panic::catch(|| span.in_scope(|| hook(job, failure)))
    {
        error!(task = job.id(), error = %panicked, "the error hook panicked");
    }
    let policy = shared.routes.retry_policy(job.message());
    let step = budgets::decide(job.message(), outcome, shared.now(), policy);
    let (end, error) = (End::of(&step), step.error().map(str::to_owned).or(error));
    (step, end, error)
}

/// Tells observers of the beginning; without any, time is not even looked at.
fn begin(shared: &Shared, job: &Job) -> Option<Instant> {
    if shared.options.observers.is_empty() {
        return None;
    }
    let now_ns = shared.now_ns();
    let since = |then_ns: i64| Duration::from_nanos(u64::try_from(now_ns.saturating_sub(then_ns)).unwrap_or(0));
    let (waited, delay) = (job.pending_since_ns().map(since), since(job.started_ns()));
    shared.options.observers.tell(|| Event::Started { job, waited, delay });
    Some(Instant::now())
}

fn ended(shared: &Shared, job: &Job, end: End, began: Option<Instant>) {
    if let Some(began) = began {
        let took = began.elapsed();
        shared.options.observers.tell(|| Event::Ended { job, end, took });
    }
}

/// Logs what became of an attempt and writes it into its span. A success is no news.
fn tell_outcome(job: &Job, span: &Span, end: End, step: &Step, error: Option<String>) {
    span.record("outcome", end.as_str());
    let Some(error) = error else {
        match end {
            End::Aborted => attempt_line!(info, job, "task goes back to its queue, because the server shuts down"),
            _ => debug!(task = job.id(), task_type = job.task_type(), queue = job.queue(), "task done"),
        }
        return;
    };
    if matches!(end, End::Retried | End::Archived) {
        // The names that OpenTelemetry's bridge knows; spans without these fields ignore them.
        span.record("otel.status_code", "ERROR").record("otel.status_description", error.as_str());
    }
    match (end, step) {
        (End::Retried, Step::Retry { at, .. }) => {
            attempt_line!(warn, job, max_retry = job.max_retry(), retry_at = %UnixSecond(*at), error, "task failed");
        }
        (End::Archived, _) => attempt_line!(error, job, max_retry = job.max_retry(), error, "task failed; archived"),
        (End::Revoked, _) => attempt_line!(info, job, reason = error, "task revoked by its handler"),
        (_, Step::Retry { at, .. }) => {
            attempt_line!(info, job, retry_at = %UnixSecond(*at), reason = error, "task snoozed without spending a retry");
        }
        _ => attempt_line!(info, job, reason = error, "task snoozed without spending a retry"),
    }
}

/// What an attempt has to know of its server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) unhandled: Unhandled,
    pub(crate) cancel_grace: Duration,
    pub(crate) max_result_bytes: usize,
}

/// How the attempt ended; `None` when the task is no longer ours and the handler did not finish it.
pub(crate) async fn work(routes: &Routes, limits: &Limits, job: &Job, span: &Span) -> Option<Outcome> {
    let outcome = try_to_work(routes, limits, job, span).await?;
    match &outcome {
        Outcome::Done(Some(result)) if job.message().retention > 0 && result.len() > limits.max_result_bytes => {
            let error = ResultError::TooLarge { bytes: result.len(), limit: limits.max_result_bytes };
            // The work is done; doing it again would not make its result any smaller.
            Some(Outcome::Failed(Failure::archive(error)))
        }
        _ => Some(outcome),
    }
}

async fn try_to_work(routes: &Routes, limits: &Limits, job: &Job, span: &Span) -> Option<Outcome> {
    if job.cancel_reason().is_some() {
        // Before it began.
        return interrupted(job, None);
    }
    let Some(route) = routes.find(job.task_type()) else {
        return Some(unhandled(limits.unhandled, job));
    };
    let left = job.deadline_ns().saturating_sub(job.started_ns());
    let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else {
        job.cancel(CancelReason::Deadline);
        return interrupted(job, None);
    };
    // Far beyond any task, and short of what the timer wheel cannot hold.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let deadline = Instant::now() + Duration::from_nanos(left).min(LONGEST);
    // Not before: nobody starts what has no handler or no time, and of a lost task the lock is another run's.
    if UniqueUntil::of(job.message()) == UniqueUntil::Start
        && let Err(error) = Box::pin(job.broker().unlock(job.message())).await
    {
        attempt_line!(warn, job, %error, "its uniqueness lock stays until it has succeeded");
    }
    job.begin();
    debug!(task = job.id(), task_type = job.task_type(), queue = job.queue(), attempt = job.attempt(), "task started");

    let mut handler = Catch::new(Box::pin(route.oneshot(job.clone()).instrument(span.clone())));
    // Made when the handler waits: most do not, and need no timer.
    let mut end = None;
    let mut answer = poll_fn(|context| {
        if let Poll::Ready(answer) = Pin::new(&mut handler).poll(context) {
            return Poll::Ready(Some(answer));
        }
        let end = end.get_or_insert_with(|| Box::pin(told_to_end(job, deadline)));
        end.as_mut().poll(context).map(|()| None)
    })
    .await;
    if answer.is_none() {
        answer = tokio::time::timeout(limits.cancel_grace, &mut handler).await.ok();
    }
    // What the handler or a layer leaves behind is dropped here.
    if let Err(panicked) = panic::discard(handler) {
        if answer.is_some() {
            attempt_line!(error, job, error = %panicked, "a panic after the handler had answered; the answer counts");
        } else {
            answer = Some(Err(panicked));
        }
    }
    match answer {
        Some(answer) if job.cancel_reason().is_none() => Some(match answer {
            Ok(Ok(result)) => Outcome::Done(result),
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(panicked) => failed(panicked),
        }),
        // The token wakes the handler too, which may well be faster to say that it was interrupted.
        answer => interrupted(job, answer),
    }
}

/// Waits until the attempt is to end, by its deadline or because somebody says so.
async fn told_to_end(job: &Job, deadline: Instant) {
    tokio::select! {
        () = tokio::time::sleep_until(deadline) => job.cancel(CancelReason::Deadline),
        () = job.cancellation().cancelled() => {}
    }
}

type Answer = Result<Result<Option<Bytes>, Failure>, Panicked>;

/// The outcome of an attempt that was told to stop. Work that was finished all the same counts; a
/// handler that says more than "I was interrupted", be it by a panic, is listened to.
fn interrupted(job: &Job, answer: Option<Answer>) -> Option<Outcome> {
    let panicked = match answer {
        Some(Ok(Ok(result))) => return Some(Outcome::Done(result)),
        Some(Ok(Err(
            failure @ (Failure::Archive(_) | Failure::Revoke(_) | Failure::Snooze(..) | Failure::TooMany { .. }),
        ))) => {
            return Some(Outcome::Failed(failure));
        }
        Some(Ok(Err(failure))) if failure.error().is::<Panicked>() => Some(failure),
        Some(Err(panicked)) => Some(Failure::Retry(panicked.into())),
        _ => None,
    };
    // Go's texts, so that tools and people recognise them.
    let text = match job.cancel_reason() {
        Some(CancelReason::LeaseLost) => return None,
        Some(CancelReason::Shutdown) => return Some(Outcome::Aborted),
        Some(CancelReason::Canceled) => "context canceled",
        Some(CancelReason::Deadline) | None => "context deadline exceeded",
    };
    Some(Outcome::Failed(panicked.unwrap_or_else(|| Failure::Retry(text.into()))))
}

fn unhandled(choice: Unhandled, job: &Job) -> Outcome {
    let error = format!("{NO_HANDLER} {:?}", job.task_type()).into();
    Outcome::Failed(match choice {
        Unhandled::Snooze(delay) => Failure::Snooze(Some(delay), error),
        // Taken by mistake: a handler's pattern and the script's look at the type disagree. Not a reason
        // to lose a retry.
        Unhandled::Leave => Failure::Snooze(None, error),
        Unhandled::Fail => Failure::Retry(error),
        Unhandled::Archive => Failure::Archive(error),
    })
}
