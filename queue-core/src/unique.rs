//! Until when a uniqueness lock is held.

use crate::wire::TaskMessage;

/// The header that says until when a task holds its uniqueness lock, where that is not asynq's way.
pub const UNIQUE_UNTIL: &str = "x-unique-until";

/// Until when a task holds its uniqueness lock, if its time does not run out before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UniqueUntil {
    /// Until it has succeeded, or is deleted: asynq's way. An archived task keeps its lock.
    #[default]
    Success,
    /// Until a server of ours starts it: what comes in while it runs is another task.
    Start,
    /// Until it has succeeded, or was archived by a server of ours.
    Finish,
}

impl UniqueUntil {
    /// The word for it in the header and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Start => "start",
            Self::Finish => "finish",
        }
    }

    /// The one with this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Success, Self::Start, Self::Finish].into_iter().find(|until| until.as_str() == word)
    }

    /// What a message says; what cannot be read is asynq's way.
    pub fn of(message: &TaskMessage) -> Self {
        message.headers.get(UNIQUE_UNTIL).and_then(|word| Self::parse(word)).unwrap_or_default()
    }
}
