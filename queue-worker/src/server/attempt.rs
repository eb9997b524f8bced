//! One attempt at one task.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queue_core::outcome::{Failure, Outcome, next_step};
use queue_redis::Report;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::acks::Ack;
use super::slots::Slot;
use super::{Shared, Unhandled};
use crate::job::{CancelReason, Job};
use crate::panic::{self, Catch};

/// Runs the handler of a task and hands the outcome to the reports. The slot goes with it: it is free
/// again when the outcome is written.
pub(super) async fn run(shared: Arc<Shared>, job: Job, ticket: u64, slot: Arc<Slot>) {
    let held = Held { shared: shared.clone(), ticket, slot: Some(slot) };
    let outcome = match work(&shared, &job).await {
        Some(outcome) => outcome,
        None => {
            // Whoever has the task now will report on it.
            warn!(task = job.id(), kind = job.kind(), queue = job.queue(), "lease lost; the attempt was given up");
            return;
        }
    };
    if let Outcome::Failed(failure) = &outcome {
        warn!(
            task = job.id(),
            kind = job.kind(),
            queue = job.queue(),
            retried = job.retried(),
            max_retry = job.max_retry(),
            error = %failure,
            "task failed"
        );
        if let Some(hook) = &shared.options.on_error
            && let Err(panicked) = panic::catch(std::panic::AssertUnwindSafe(|| hook(&job, failure)))
        {
            tracing::error!(task = job.id(), error = %panicked, "the error hook panicked");
        }
    }
    let step = next_step(job.message(), outcome, shared.now(), &shared.options.retry_policy);
    let report = Report::by_owner(job.run().clone(), job.message(), shared.running.side(ticket));
    if let Some(slot) = held.hand_over() {
        shared.acks.send(Ack { ticket, report, step, slot: Some(slot) });
    }
}

/// What an attempt holds until it hands it over to the reports. Should it end without (its lease is lost, or
/// a user's code panics where nobody expects it), its slot is free again and its lease is no longer renewed,
/// so that the task comes back when it ends.
struct Held {
    shared: Arc<Shared>,
    ticket: u64,
    slot: Option<Arc<Slot>>,
}

impl Held {
    fn hand_over(mut self) -> Option<Arc<Slot>> {
        self.slot.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.running.remove([self.ticket]);
            self.shared.slots.give_back([slot]);
        }
    }
}

/// How the attempt ended; `None` when the task is no longer ours and the handler did not finish it.
async fn work(shared: &Shared, job: &Job) -> Option<Outcome> {
    let Some(route) = shared.routes.find(job.kind()) else {
        return Some(unhandled(shared.options.unhandled, job));
    };
    let left = job.deadline_ns().saturating_sub(job.started_ns());
    let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else {
        job.cancel(CancelReason::Deadline);
        return interrupted(job, None);
    };
    // Far beyond any task, and short of what the timer wheel cannot hold.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let deadline = Instant::now() + Duration::from_nanos(left).min(LONGEST);
    debug!(task = job.id(), kind = job.kind(), queue = job.queue(), retried = job.retried(), "task started");

    let mut handler = Catch(Box::pin(route.oneshot(job.clone())));
    tokio::select! {
        biased;
        answer = &mut handler => {
            let answer = flatten(answer);
            // The token wakes the handler too, which may well be faster to say that it was interrupted.
            return if job.cancel_reason().is_some() { interrupted(job, Some(answer)) } else { Some(outcome(answer)) };
        }
        () = tokio::time::sleep_until(deadline) => job.cancel(CancelReason::Deadline),
        () = job.cancellation().cancelled() => {}
    }
    let answer = tokio::time::timeout(shared.options.cancel_grace, &mut handler).await.ok();
    interrupted(job, answer.map(flatten))
}

type Answer = Result<Option<Bytes>, Failure>;

fn flatten(answer: Result<Answer, panic::Panicked>) -> Answer {
    answer.unwrap_or_else(|panicked| Err(Failure::Retry(panicked.into())))
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Ok(result) => Outcome::Done(result),
        Err(failure) => Outcome::Failed(failure),
    }
}

/// The outcome of an attempt that was told to stop. Work that was finished all the same counts; a
/// handler that says more than "I was interrupted" is listened to.
fn interrupted(job: &Job, answer: Option<Answer>) -> Option<Outcome> {
    match answer {
        Some(Ok(result)) => return Some(Outcome::Done(result)),
        Some(Err(failure @ (Failure::Archive(_) | Failure::Revoke(_) | Failure::PutBack(..)))) => {
            return Some(Outcome::Failed(failure));
        }
        _ => {}
    }
    match job.cancel_reason() {
        Some(CancelReason::LeaseLost) => None,
        Some(CancelReason::Shutdown) => Some(Outcome::Aborted),
        // Go's texts, so that tools and people recognise them.
        Some(CancelReason::Canceled) => Some(Outcome::Failed(Failure::Retry("context canceled".into()))),
        Some(CancelReason::Deadline) | None => {
            Some(Outcome::Failed(Failure::Retry("context deadline exceeded".into())))
        }
    }
}

fn unhandled(choice: Unhandled, job: &Job) -> Outcome {
    let error = format!("handler not found for task {:?}", job.kind()).into();
    Outcome::Failed(match choice {
        Unhandled::PutBack(delay) => Failure::PutBack(Some(delay), error),
        // Taken by mistake: a handler's pattern and the script's look at the type disagree. Not a reason
        // to lose a retry.
        Unhandled::Leave => Failure::PutBack(None, error),
        Unhandled::Fail => Failure::Retry(error),
        Unhandled::Archive => Failure::Archive(error),
    })
}
