//! What a running task says of itself: how far it is, and where to go on.
//!
//! Both stand in fields of its hash. Go's servers leave them alone and write none.

use std::fmt;

use crate::clock::UnixMilli;
use crate::limits::MAX_NOTE_BYTES;

/// The field of a task's hash that says how far it is.
pub const PROGRESS: &str = "x_progress";

/// The field of a task's hash that says where the next attempt goes on: JSON.
pub const CURSOR: &str = "x_cursor";

/// How far a task is.
///
/// In Redis: `<percent> <Unix milliseconds> <note>`.
///
/// ```
/// use queue_core::clock::UnixMilli;
/// use queue_core::progress::Progress;
///
/// let progress = Progress::new(140, "all pages", UnixMilli(1_700_000_000_000));
/// assert_eq!(progress.to_string(), "100 1700000000000 all pages");
/// assert_eq!(Progress::parse("100 1700000000000 all pages"), Some(progress));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// When it was so.
    pub at: UnixMilli,
    /// What it is at, for people; cut to 512 bytes.
    pub note: String,
}

impl Progress {
    /// So far, with this note, at this time. More than 100 percent are 100.
    pub fn new(percent: u8, note: impl Into<String>, at: UnixMilli) -> Self {
        let mut note = note.into();
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        Self { percent: percent.min(100), at, note }
    }

    /// What the field says; `None` where it cannot be read.
    pub fn parse(field: &str) -> Option<Self> {
        let mut words = field.splitn(3, ' ');
        let percent = words.next()?.parse().ok().filter(|percent| *percent <= 100)?;
        Some(Self { percent, at: UnixMilli(words.next()?.parse().ok()?), note: words.next()?.to_owned() })
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.percent, self.at.0, self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_may_be_empty_long_or_have_blanks() {
        for note in ["", "page 3 of 7", " "] {
            let progress = Progress::new(3, note, UnixMilli(5));
            assert_eq!(Progress::parse(&progress.to_string()), Some(progress));
        }
        assert_eq!(Progress::new(0, "ü".repeat(MAX_NOTE_BYTES), UnixMilli(5)).note.len(), MAX_NOTE_BYTES);
    }

    #[test]
    fn what_somebody_else_has_written_is_no_progress() {
        for field in ["", "5", "5 6", "x 6 note", "101 6 note", "-1 6 note", "5 x note"] {
            assert_eq!(Progress::parse(field), None, "{field}");
        }
    }
}
