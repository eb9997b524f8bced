//! What can be done to tasks: one table for the command line, the dashboard, and whatever else operators use.

use queue_core::TaskState;
use serde::Serialize;

use crate::Inspector;
use crate::error::Error;

/// What can be done to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Make them pending.
    Run,
    /// Put them into the archive.
    Archive,
    /// Delete them, and the locks they own.
    Delete,
    /// Ask their servers to stop them.
    Cancel,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Run, Self::Archive, Self::Delete, Self::Cancel];

    /// `run`, `archive`, `delete` or `cancel`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Archive => "archive",
            Self::Delete => "delete",
            Self::Cancel => "cancel",
        }
    }

    /// The states of tasks to which it can be done.
    pub fn possible(self) -> impl Iterator<Item = TaskState> {
        TaskState::ALL.into_iter().filter(move |state| self.check(*state).is_ok())
    }

    /// The states it goes through when none is named.
    pub(crate) fn usual_states(self) -> &'static [TaskState] {
        use TaskState::{Active, Aggregating, Archived, Completed, Pending, Retry, Scheduled};
        match self {
            Self::Run => &[Scheduled, Retry, Archived, Aggregating],
            Self::Archive => &[Pending, Scheduled, Retry, Aggregating],
            Self::Delete => &[Pending, Scheduled, Retry, Archived, Completed, Aggregating],
            Self::Cancel => &[Active],
        }
    }

    pub(crate) fn check(self, state: TaskState) -> Result<(), Error> {
        let (verb, hint) = match (self, state) {
            (Self::Cancel, TaskState::Active) => return Ok(()),
            (Self::Cancel, _) => ("cancelled", "; delete them"),
            (Self::Run, TaskState::Active) => ("run", "; they are being worked on"),
            (Self::Run, TaskState::Pending) => ("run", "; a worker takes them when their turn comes"),
            (Self::Archive, TaskState::Active) => ("archived", "; cancel them, or wait until they are done"),
            (Self::Archive, TaskState::Archived) => ("archived", "; they are already"),
            (Self::Delete, TaskState::Active) => ("deleted", "; cancel them, or wait until they are done"),
            _ => return Ok(()),
        };
        Err(Error::StateRefused { verb, state, hint })
    }
}

impl Inspector {
    /// Does this to one task. Returns `false` where no server was there to hear that it should be cancelled.
    ///
    /// # Errors
    /// As [`run_task`](Self::run_task), [`archive_task`](Self::archive_task), [`delete_task`](Self::delete_task) and
    /// [`cancel`](Self::cancel).
    pub async fn change_task(&self, verb: Verb, queue: &str, id: &str) -> Result<bool, Error> {
        match verb {
            Verb::Run => self.run_task(queue, id).await?,
            Verb::Archive => self.archive_task(queue, id).await?,
            Verb::Delete => self.delete_task(queue, id).await?,
            Verb::Cancel => return Ok(self.cancel(id).await? > 0),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_goes_through_no_state_to_which_it_cannot_be_done() {
        for verb in Verb::ALL {
            let possible: Vec<TaskState> = verb.possible().collect();
            assert!(verb.usual_states().iter().all(|state| possible.contains(state)), "{verb:?}");
        }
        assert_eq!(Verb::Cancel.possible().collect::<Vec<_>>(), [TaskState::Active]);
    }
}
