//! The seven states of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

crate::words! {
    /// Where a task is in its life.
    ///
    /// The text form is what stands in the `state` field of the task hash, and, except for
    /// [`TaskState::Aggregating`], it is also the last part of the name of the list or sorted set that holds
    /// the task's id. Go's Inspector relies on that (rule R2 in `docs/wire-format.md`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum TaskState with ALL {
        /// A worker has it, under a lease.
        Active: "active",
        /// Waiting for a worker, in a list consumed from its tail.
        Pending: "pending",
        /// Waiting for its time.
        Scheduled: "scheduled",
        /// Failed, waiting for its next attempt.
        Retry: "retry",
        /// Given up on; kept for inspection.
        Archived: "archived",
        /// Succeeded; kept for its retention.
        Completed: "completed",
        /// Waiting in a group to be aggregated with others.
        Aggregating: "aggregating",
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names none of the seven states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown task state {0:?}; expected one of active, pending, scheduled, retry, archived, completed, aggregating"
)]
pub struct UnknownState(pub String);

impl FromStr for TaskState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        TaskState::from_name(text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_for_all_seven() {
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("Pending".parse::<TaskState>().is_err());
    }
}
