//! What a run has found to be wrong.

use std::collections::BTreeMap;
use std::fmt;

/// What has to hold after every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Invariant {
    /// A task that was acknowledged never ended, and is not in Redis.
    Lost,
    /// A task is still on its way although everybody had time enough.
    Stuck,
    /// A task is in two places, or not in the one that its state names.
    Misplaced,
    /// A key belongs to nothing.
    OrphanKey,
    /// A lock names a task that is not there.
    LeakedLock,
    /// The counters of a queue do not fit what happened.
    Counter,
    /// A task ran again although nothing had happened to its worker.
    NeedlessRun,
    /// A task ran, or is in Redis, although its enqueueing was refused.
    Phantom,
    /// A task ended otherwise than it should.
    WrongEnd,
    /// A crash of a worker spent a retry.
    RetrySpent,
    /// A task that kills its workers was given up too early, too late, or under the wrong names.
    Budget,
    /// The result of a worker that had lost the task was kept.
    NotFenced,
    /// An export has a task twice: by itself, and in the digest of its group.
    ExportedTwice,
    /// A scheduled task started before its time.
    Early,
    /// A callback of a batch ran that should not have, or too early, or did not.
    Callback,
    /// A task began after its canceller was told that it does not start any more.
    NotCancelled,
    /// More tasks of a key ran at once than its limit allows.
    OverLimit,
    /// A task began before another one of its key that was enqueued earlier had succeeded.
    OutOfOrder,
    /// A run did not go on from a checkpoint that was stored.
    Checkpoint,
    /// A listener was told what had not happened.
    FalseNews,
    /// A process ended that nobody had told to.
    Fallen,
}

impl Invariant {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Invariant::Lost => "lost",
            Invariant::Stuck => "stuck",
            Invariant::Misplaced => "in two places",
            Invariant::OrphanKey => "orphan key",
            Invariant::LeakedLock => "leaked lock",
            Invariant::Counter => "counter",
            Invariant::NeedlessRun => "ran again needlessly",
            Invariant::Phantom => "refused, but there",
            Invariant::WrongEnd => "wrong end",
            Invariant::RetrySpent => "crash spent a retry",
            Invariant::Budget => "crash budget",
            Invariant::NotFenced => "not fenced",
            Invariant::ExportedTwice => "exported twice",
            Invariant::Early => "too early",
            Invariant::Callback => "callback",
            Invariant::NotCancelled => "not cancelled",
            Invariant::OverLimit => "over the limit",
            Invariant::OutOfOrder => "out of order",
            Invariant::Checkpoint => "checkpoint",
            Invariant::FalseNews => "false news",
            Invariant::Fallen => "process fell",
        }
    }
}

/// All that was found, by what it violates.
#[derive(Debug, Default)]
pub(crate) struct Findings(BTreeMap<Invariant, Vec<String>>);

impl Findings {
    pub(crate) fn add(&mut self, invariant: Invariant, story: impl Into<String>) {
        self.0.entry(invariant).or_default().push(story.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn invariants(&self) -> Vec<Invariant> {
        self.0.keys().copied().collect()
    }
}

/// So many of a kind are told in full.
const TOLD: usize = 8;

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (invariant, stories) in &self.0 {
            writeln!(f, "* {}: {}", invariant.text(), stories.len())?;
            for story in stories.iter().take(TOLD) {
                writeln!(f, "  * {story}")?;
            }
        }
        Ok(())
    }
}
