//! What can be wrong with an entry.

use queue_core::OptionError;

use crate::spec::SpecError;

/// Why an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryProblem {
    /// The name cannot be part of a task id and of the addresses of web pages.
    #[error("the name {0:?} must be 1 to 200 of the characters A-Z a-z 0-9 . _ : @ + -")]
    Name(String),
    /// The spec is none.
    #[error("spec {spec:?}: {source}")]
    Spec {
        /// As it was given.
        spec: String,
        /// What is wrong with it.
        source: SpecError,
    },
    /// Two time zones.
    #[error("spec {0:?} and the entry both name a time zone; leave one out")]
    TwoZones(String),
    /// A time zone that is not known.
    #[error(transparent)]
    Zone(SpecError),
    /// An option of the task cannot be honoured.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The task has an id.
    #[error("the task's id is made from the entry's name and the tick; leave out task_id")]
    TaskId,
    /// An entry without a name is known by its payload, and each encryption of the same payload is another one.
    #[error("the payload is encrypted, another way each time; give the entry a name, by which it is known again")]
    Unnamed,
    /// A policy makes no sense.
    #[error("{option} is {value}; {rule}")]
    Policy {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it has to be.
        rule: &'static str,
    },
    /// The scheduler has an entry of this name already, or of the same spec and task if they have none.
    #[error("there is another entry of this name")]
    Duplicate,
    /// There is no entry of this name to replace.
    #[error("there is no entry of this name")]
    Unknown,
    /// The entry could not be read, or its payload not be encoded.
    #[error("{0}")]
    Unreadable(String),
}

/// An entry that cannot be used, and why. The others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryError {
    /// The entry's name, or spec and type for one without.
    pub entry: String,
    /// Where it comes from, if that is known.
    pub origin: Option<String>,
    /// Why.
    pub problem: EntryProblem,
}

impl std::fmt::Display for EntryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        write!(f, "entry {:?}: {}", self.entry, self.problem)
    }
}

impl std::error::Error for EntryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}
