//! What is to become of tasks, done: each [`Step`] by its script.

use queue_core::Step;
use queue_core::attempt::Attempt;
use queue_core::clock::UnixSecond;
use queue_core::crash::Crashes;
use queue_core::exhausted::FollowUp;

use super::finish::{Completion, Report, Verdict};
use super::maintain::{ExpiredLease, Recovery};
use super::{Broker, MAX_BATCH_BYTES, SET_BATCH, SHORT_BATCH};
use crate::error::Error;

/// Which reports of a queue one call can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Travel {
    /// With others that are done.
    Done,
    /// With others that are kept as completed.
    Complete,
    /// Alone.
    Alone,
}

impl Travel {
    /// How a step travels, and the bytes it brings.
    pub fn of(step: &Step) -> (Self, usize) {
        match step {
            Step::Done => (Self::Done, 0),
            Step::Complete { message, result, .. } => {
                (Self::Complete, message.payload.len() + result.as_ref().map_or(0, bytes::Bytes::len))
            }
            Step::Revoke | Step::Retry { .. } | Step::Archive { .. } | Step::Requeue => (Self::Alone, 0),
        }
    }

    /// Whether a call that carries so many reports, of so many bytes, can carry one of so many more.
    pub fn has_room(self, reports: usize, bytes: usize, more: usize) -> bool {
        let most = match self {
            Self::Done => SHORT_BATCH,
            Self::Complete => SET_BATCH,
            Self::Alone => 1,
        };
        reports == 0 || (reports < most && bytes.saturating_add(more) <= MAX_BATCH_BYTES)
    }
}

/// A run, and what is to become of its task.
pub trait Ended: Sync {
    /// Both.
    fn ended(&self) -> (&Report, &Step);
}

impl Ended for (&Report, &Step) {
    fn ended(&self) -> (&Report, &Step) {
        *self
    }
}

impl Broker {
    /// Applies steps to the runs of one queue, in this order. Of those that follow one another, the ones that can
    /// [travel](Travel) together do; 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the same reports may then be sent again.
    pub async fn apply(&self, mut ended: &[impl Ended], now_ns: i64) -> Result<Vec<Verdict>, Error> {
        let now = now_ns.div_euclid(1_000_000_000);
        let mut verdicts = Vec::new();
        while let Some(first) = ended.first() {
            let ((report, step), travel) = (first.ended(), |ended: &_| Travel::of(Ended::ended(ended).1).0);
            let together = match travel(first) {
                Travel::Alone => 1,
                kind => ended.iter().take_while(|next| travel(*next) == kind).count(),
            };
            let (those, rest) = ended.split_at(together);
            ended = rest;
            let queue = &report.run.queue;
            let mut applied = match step {
                Step::Done => {
                    let reports: Vec<&Report> = those.iter().map(|ended| ended.ended().0).collect();
                    self.done(queue, &reports, now).await?
                }
                Step::Complete { .. } => {
                    let mut completions = Vec::with_capacity(together);
                    completions.extend(those.iter().filter_map(completion));
                    self.complete(queue, &completions, now).await?
                }
                Step::Revoke => vec![self.revoke(report, now).await?],
                Step::Retry { message, at, is_failure } => {
                    vec![self.retry(report, &message.to_bytes(), *at, *is_failure, now).await?]
                }
                Step::Archive { message } => vec![self.archive(report, &message.to_bytes(), now).await?],
                Step::Requeue => vec![self.requeue(report, now_ns).await?],
            };
            if rest.is_empty() && verdicts.is_empty() {
                return Ok(applied);
            }
            verdicts.append(&mut applied);
        }
        Ok(verdicts)
    }
}

fn completion(ended: &impl Ended) -> Option<Completion> {
    let (report, Step::Complete { message, expires_at, result }) = ended.ended() else { return None };
    let (report, message, result) = (report.clone(), message.clone(), result.clone());
    Some(Completion { report, message, expires_at: *expires_at, result })
}

impl Recovery {
    /// The same for a task whose worker went silent, which goes by [`Broker::recover`]. What is archived is followed by what it
    /// names.
    pub fn new(lease: ExpiredLease, step: Step, crashes: Crashes, now: i64) -> Self {
        let follow_up = match &step {
            Step::Archive { message } => FollowUp::of(message, now).map(Box::new),
            _ => None,
        };
        let (message, retry_at) = match step {
            Step::Retry { message, at, .. } => (message.to_bytes(), Some(at)),
            Step::Archive { message } => (message.to_bytes(), None),
            Step::Done | Step::Revoke | Step::Complete { .. } | Step::Requeue => (lease.raw.clone(), Some(now)),
        };
        let attempt = Some(Attempt::lost(UnixSecond(lease.ended_at()), &lease.owner));
        Self { lease, message, retry_at, crashes: Some(crashes), attempt, follow_up }
    }

    /// Archives a task whose message cannot be read, as it is.
    pub fn as_it_is(lease: ExpiredLease) -> Self {
        Self { message: lease.raw.clone(), retry_at: None, crashes: None, attempt: None, follow_up: None, lease }
    }
}
