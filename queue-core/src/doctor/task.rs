//! A task as Redis holds it, and where it belongs.

use bytes::Bytes;

use crate::TaskState;

/// A task to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Suspect {
    /// Its id.
    pub id: Bytes,
    /// Groups in which it was seen.
    pub groups: Vec<Bytes>,
}

/// All that Redis holds about one task, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Stands for all of the following.
    pub digest: Bytes,
    /// The type of the task's key; `none` when there is no such key.
    pub key_type: String,
    /// The stored message; empty when there is none.
    pub message: Bytes,
    /// What its hash calls it.
    pub state: String,
    /// The group that its hash names; empty for none.
    pub group: Bytes,
    /// Whether the task's key expires.
    pub expires: bool,
    /// Unix nanosecond since when it is pending, as its hash says.
    pub pending_since: String,
    /// Its score among the leases, as Redis prints it; empty when it has none.
    pub lease: String,
    /// It was aggregated and waits for its deletion.
    pub is_remains: bool,
    /// Where its id stands.
    pub entries: Vec<Entry>,
}

/// An id in a list or a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The name of the list or set.
    pub key: Bytes,
    /// As Redis prints it; empty in a list.
    pub score: String,
    /// Whether the key is a set that is being aggregated.
    pub is_staged: bool,
}

/// What is to become of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// It belongs into this one place.
    Place(Target),
    /// There is nothing that a worker could use.
    Delete {
        /// The `DUMP` of its hash; empty when there is none.
        copy: Bytes,
    },
}

/// The place where a task belongs, and what its hash has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name of the list or set.
    pub key: Bytes,
    /// Its score; empty in a list.
    pub score: String,
    /// The state to write.
    pub state: TaskState,
    /// The group to write; empty: as it is.
    pub group: Bytes,
    /// The end of its lease; empty for none.
    pub lease: String,
}
