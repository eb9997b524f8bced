//! What became of the wish that a task ends.

use queue_core::TaskState;

/// What became of the wish that a task ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancellation {
    /// Nobody worked on it, and it is archived.
    Done,
    /// It had ended before, in this state.
    Ended(TaskState),
    /// It is recorded, and told to this server (`<host>:<pid>`), which works on the task, and was there within the last ten seconds.
    Told {
        /// Which.
        server: String,
    },
    /// It is recorded; no server has said that it works on the task, or none listens.
    Recorded,
}

impl Cancellation {
    /// `done`, `ended`, `told` or `recorded`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Ended(_) => "ended",
            Self::Told { .. } => "told",
            Self::Recorded => "recorded",
        }
    }

    /// The server that was told.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Told { server } => Some(server),
            _ => None,
        }
    }
}
