//! What others wait for when a run has ended: the slots that it had in lanes are free, and what follows its task starts.
//!
//! Both are hints, given beside the report: what is lost here is found by the next look at a lane, and starts at its fallback.

use std::time::Duration;

use queue_core::outcome::{Failure, Outcome, Step};
use queue_core::publish::FOLLOW;
use queue_redis::broker::{Broker, Freed, Run, Verdict};
use tracing::debug;

use crate::job::{CancelReason, Job};

/// Why a task is archived that somebody has canceled for good.
#[derive(Debug, thiserror::Error)]
#[error("canceled by {0}")]
pub(crate) struct CanceledForGood(pub(crate) String);

/// What of a run matters to others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sequel {
    /// The limit of which nothing is to start for so long.
    pub(crate) too_many: Option<(String, Duration)>,
    /// Whether it has ended well or badly, where that says something about what its task is for.
    went_well: Option<bool>,
    /// Whether another task may follow this one.
    is_followed: bool,
}

impl Sequel {
    pub(crate) fn of(job: &Job, outcome: &Outcome) -> Self {
        let too_many = match outcome {
            Outcome::Failed(Failure::TooMany { limit, delay, .. }) => Some((limit.clone(), *delay)),
            _ => None,
        };
        let went_well = match outcome {
            Outcome::Done(_) => Some(true),
            Outcome::Failed(failure @ (Failure::Retry(_) | Failure::RetryIn(..) | Failure::Archive(_))) => {
                let is_canceled = job.cancel_reason() == Some(CancelReason::Canceled);
                let says_nothing = is_canceled || !job.has_begun() || failure.error().is::<CanceledForGood>();
                (!says_nothing).then_some(false)
            }
            _ => None,
        };
        Self { too_many, went_well, is_followed: job.headers().contains_key(FOLLOW) }
    }

    fn freed(&self, run: &Run) -> Freed {
        Freed { run: run.clone(), too_many: self.too_many.clone(), went_well: self.went_well }
    }

    /// Whether the task has ended for good and another one may start.
    pub(crate) fn begins(&self, step: &Step, verdict: Verdict) -> bool {
        self.is_followed && verdict != Verdict::Lost && !matches!(step, Step::Retry { .. } | Step::Requeue)
    }
}

/// Gives back the slots that runs of a queue had in lanes.
pub(crate) async fn free_lanes<'a>(broker: &Broker, runs: impl IntoIterator<Item = (&'a Run, &'a Sequel)>) {
    let in_lanes = runs.into_iter().filter(|(run, _)| !run.lanes().is_empty());
    let freed: Vec<Freed> = in_lanes.map(|(run, sequel)| sequel.freed(run)).collect();
    let Some(Freed { run, .. }) = freed.first() else { return };
    if let Err(error) = broker.free_slots(&run.queue, &freed).await {
        debug!(queue = %run.queue, %error, "the slots of ended tasks are found free by the next look at their lanes");
    }
}

/// Starts what follows these runs of a queue.
pub(crate) async fn start_followers(broker: &Broker, ended: &[Run], now_ns: i64) {
    let Some(Run { queue, .. }) = ended.first() else { return };
    let ids: Vec<&str> = ended.iter().map(|run| run.id.as_str()).collect();
    if let Err(error) = broker.start_followers(queue, &ids, now_ns).await {
        debug!(%queue, %error, "what follows tasks that have ended starts at its fallback");
    }
}
