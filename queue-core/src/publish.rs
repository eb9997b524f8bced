//! Publishing under a key: what is done where a task has the key already, and what became of it.
//!
//! A script decides (`lua/publish.lua`); here stand the words that it is asked and answers in.

use std::fmt;
use std::time::Duration;

use crate::clock::secs_ceil;
use crate::limits::LAST_SECOND;
use crate::options::OptionError;

/// The field of a task's hash that says how often and when it was published.
pub const PUBLISHED: &str = "x_published";

/// The header of tasks that another may follow: who ends one starts its [`twin`].
pub const FOLLOW: &str = "x-follow";

/// How the id of the second task of a key ends.
pub const TWIN_ENDS: char = '~';

/// The other task of a key: the two follow each other.
///
/// ```
/// use queue_core::publish::twin;
///
/// assert_eq!(twin("index:7"), "index:7~");
/// assert_eq!(twin("index:7~"), "index:7");
/// ```
pub fn twin(id: &str) -> String {
    id.strip_suffix(TWIN_ENDS).map_or_else(|| format!("{id}{TWIN_ENDS}"), str::to_owned)
}

/// What may be done to a task that has the key already. By default nothing: it is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishPolicy {
    /// A task that waits gets the new payload, options and headers.
    pub replace: bool,
    /// A task that waits for its time gets the new time.
    pub reschedule: bool,
    /// A task that has completed or was archived begins anew.
    pub restart: bool,
    /// Where a worker has the task, another one follows.
    pub follow: bool,
    /// How long nothing has to be published under the key before the task runs, as its time says; for the check alone.
    pub quiet: Option<Duration>,
    /// A task that is rescheduled again and again is due at the latest this long after its first publish. Seconds; a fraction is
    /// rounded up.
    pub max_wait: Option<Duration>,
    /// For so long, nothing else is published under the key. Milliseconds; a fraction is rounded up.
    pub window: Option<Duration>,
}

impl PublishPolicy {
    /// Whether it can be meant.
    ///
    /// # Errors
    /// When a time is zero, or a longest wait has nothing to limit.
    pub fn check(&self) -> Result<(), OptionError> {
        for (option, time) in [("debounce", self.quiet), ("max_wait", self.max_wait), ("throttle", self.window)] {
            match time {
                Some(Duration::ZERO) => return Err(OptionError::NoTime { option }),
                Some(time) if secs_ceil(time) > LAST_SECOND => return Err(OptionError::TimeTooFar { option }),
                _ => {}
            }
        }
        match (self.max_wait, self.quiet) {
            (Some(_), _) if !self.reschedule => Err(OptionError::NeedsReschedule),
            (Some(max_wait), Some(quiet)) if max_wait < quiet => Err(OptionError::MaxWaitTooShort { max_wait, quiet }),
            _ => Ok(()),
        }
    }
}

/// What became of a task that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishOutcome {
    /// There was no such task; it is stored.
    Stored,
    /// The one that waits has the new payload, and the new time where that may be changed.
    Replaced,
    /// The one that waits has the new time.
    Rescheduled,
    /// The one that had ended begins anew, with the new payload.
    Restarted,
    /// A worker has the one that is there; this one follows.
    Follows,
    /// The one that is there stays as it was.
    Kept,
    /// The key was published before, and its window is open.
    Suppressed,
}

impl PublishOutcome {
    const ALL: [(Self, &str); 7] = [
        (Self::Stored, "stored"),
        (Self::Replaced, "replaced"),
        (Self::Rescheduled, "rescheduled"),
        (Self::Restarted, "restarted"),
        (Self::Follows, "follows"),
        (Self::Kept, "kept"),
        (Self::Suppressed, "suppressed"),
    ];

    /// Whether a task waits now that did not before: it is stored, restarted, or follows.
    pub fn is_put(self) -> bool {
        matches!(self, Self::Stored | Self::Restarted | Self::Follows)
    }

    /// The word for it in scripts and JSON.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, word)| word)
    }

    /// The outcome with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(outcome, _)| *outcome)
    }
}

impl fmt::Display for PublishOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How often a task was published, and when; counted are the calls that changed something.
///
/// In Redis: `<count> <first, Unix second> <last, Unix second> <hexadecimal number of the last call> <its outcome>`.
///
/// ```
/// use queue_core::publish::Publications;
///
/// let told = Publications::parse("4 1700000000 1700000003 c0ffee replaced").unwrap();
/// assert_eq!((told.count, told.first, told.last), (4, 1_700_000_000, 1_700_000_003));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Publications {
    /// How often.
    pub count: u64,
    /// The first time, in Unix seconds.
    pub first: i64,
    /// The last time, in Unix seconds.
    pub last: i64,
}

impl Publications {
    /// What the field says; `None` where it cannot be read.
    pub fn parse(field: &str) -> Option<Self> {
        let mut words = field.split(' ');
        let count = words.next()?.parse().ok()?;
        Some(Self { count, first: words.next()?.parse().ok()?, last: words.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_meant_are_refused() {
        let secs = |secs| Some(Duration::from_secs(secs));
        let policy = |quiet, max_wait, window| PublishPolicy {
            reschedule: true,
            quiet,
            max_wait,
            window,
            ..PublishPolicy::default()
        };
        assert_eq!(policy(secs(5), secs(5), secs(1)).check(), Ok(()));
        assert_eq!(policy(None, secs(1), None).check(), Ok(()));
        for (refused, why) in [
            (policy(secs(0), None, None), "debounce is 0s"),
            (policy(None, secs(0), None), "max_wait is 0s"),
            (policy(None, None, secs(0)), "throttle is 0s"),
            (policy(None, None, secs(u64::MAX)), "throttle lies beyond"),
            (policy(secs(5), secs(4), None), "max_wait is 4s, which is shorter than the debounce of 5s"),
            (PublishPolicy { reschedule: false, ..policy(None, secs(4), None) }, "debounce, or reschedule"),
        ] {
            let error = refused.check().unwrap_err().to_string();
            assert!(error.contains(why), "{refused:?}: {error}");
        }
    }
}
