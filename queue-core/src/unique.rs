//! Until when a uniqueness lock is held.

use std::str::FromStr;

use crate::wire::TaskMessage;

/// The header that says until when a task holds its uniqueness lock, where that is not asynq's way.
pub const UNIQUE_UNTIL: &str = "x-unique-until";

/// A lock that stands for a window says this, and the id of the task that has opened it: the tab is in no id, so that the lock is nobody's
/// to release. `lua/lib/window_of.lua` writes it.
const WINDOW: &[u8] = b"window\t";

/// The id that the value of a lock names, and whether it stands for a window.
pub fn holder_of(value: &[u8]) -> (&[u8], bool) {
    value.strip_prefix(WINDOW).map_or((value, false), |id| (id, true))
}

crate::words! {
    /// Until when a task holds its uniqueness lock, if its time does not run out before.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum UniqueUntil {
        /// Until it has succeeded, or is deleted: asynq's way. An archived task keeps its lock.
        #[default]
        Success: "success",
        /// Until a server of ours starts it: what comes in while it runs is another task.
        Start: "start",
        /// Until it has succeeded, or was archived by a server of ours.
        Finish: "finish",
        /// Until its time is over, whatever becomes of the task. Go's programs leave it alone, too.
        Window: "window",
    }
}

impl UniqueUntil {
    /// Whether the lock is free when a server of ours archives the task, also one that has not been started.
    pub fn ends_in_archive(self) -> bool {
        matches!(self, Self::Start | Self::Finish)
    }

    /// How long a lock lives, as scripts are told: seconds, below 0 for a window.
    pub fn ttl(self, secs: i64) -> i64 {
        if self == Self::Window { -secs } else { secs }
    }

    /// What a message says; what cannot be read is asynq's way.
    pub fn of(message: &TaskMessage) -> Self {
        message.headers.get(UNIQUE_UNTIL).and_then(|word| word.parse().ok()).unwrap_or_default()
    }
}

impl FromStr for UniqueUntil {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::from_name(word).ok_or("it is success, start, finish or window")
    }
}
