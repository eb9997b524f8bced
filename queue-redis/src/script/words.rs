//! The letters by which scripts answer; the table for readers is in `lua/README.md`, and a test compares both.

/// What became of a task, or of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// What was asked for is done.
    Applied,
    /// It was done before, by a call whose reply was lost: this very message is there.
    Same,
    /// Another task has the id.
    IdTaken,
    /// Another task holds the uniqueness lock.
    Locked,
    /// The run belongs to somebody else by now.
    Others,
    /// There is no such task, or not where it was looked for.
    Missing,
    /// A worker has it.
    WorkedOn,
    /// It is pending, or archived, already.
    AlreadyThere,
    /// It is no longer as the caller saw it.
    Changed,
    /// It is not where its state says.
    Misplaced,
    /// What was left of a task, an id or a hash, was deleted.
    Remains,
    /// It is pending, but not near the place where it was seen.
    Elsewhere,
    /// It is of a type that the caller does not want.
    Unwanted,
    /// The queue is paused.
    Paused,
}

impl Word {
    /// Each letter means the same in all scripts.
    pub(super) const LETTERS: [(u8, Self); 14] = [
        (b'a', Self::Applied),
        (b's', Self::Same),
        (b'i', Self::IdTaken),
        (b'l', Self::Locked),
        (b'o', Self::Others),
        (b'm', Self::Missing),
        (b'w', Self::WorkedOn),
        (b't', Self::AlreadyThere),
        (b'c', Self::Changed),
        (b'p', Self::Misplaced),
        (b'r', Self::Remains),
        (b'e', Self::Elsewhere),
        (b'u', Self::Unwanted),
        (b'h', Self::Paused),
    ];

    pub(crate) fn of(letter: u8) -> Option<Self> {
        Self::LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, word)| *word)
    }
}
