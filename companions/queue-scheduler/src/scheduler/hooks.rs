//! What the hooks of a scheduler are told.

use chrono::{DateTime, Utc};
use queue_core::TaskInfo;
use queue_redis::log::error;
use queue_redis::panic::catch;
use queue_redis::{
    EnqueueError,
    broker::{TickVerdict, Why},
};

use crate::problem::EntryError;
use crate::provider::BoxError;

/// What became of a tick, for a hook.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ticked<'a> {
    /// Name of the entry.
    pub entry: &'a str,
    /// The tick; of several that are let go, the last.
    pub tick: DateTime<Utc>,
    /// Why it was dealt with.
    pub why: Why,
    /// Its task, whether it was enqueued or not.
    pub task: TaskInfo,
    /// What became of it, by the hand of this scheduler. After an error the tick is tried again until it
    /// works; the hook is called for the first one only.
    pub outcome: Result<TickVerdict, &'a EnqueueError>,
}

pub(super) type TickHook = dyn Fn(&Ticked<'_>) + Send + Sync;
pub(super) type ProblemHook = dyn Fn(&SyncProblem) + Send + Sync;

/// What went wrong when a provider was asked for its entries. What is carried already goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncProblem {
    /// The provider has no answer. All entries stay as they are.
    #[error("the provider of entries failed: {0}")]
    Provider(#[source] BoxError),
    /// One entry cannot be used. What runs under its name, if anything, stays as it is.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// A hook that panics must not end the scheduler (W40).
pub(super) fn guarded(what: &'static str, hook: impl FnOnce()) {
    if let Err(error) = catch(hook) {
        error!(hook = what, %error, "a hook of the scheduler panicked");
    }
}
