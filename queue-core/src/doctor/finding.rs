//! What was found, and what repairs it.

use std::fmt;

use bytes::Bytes;

use super::{Entry, Fault, Remedy, Severity, Suspect};

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// How bad it is here; most often as bad as the fault [is](Fault::severity).
    pub severity: Severity,
    /// Queue name; `None` where no queue is concerned.
    pub queue: Option<String>,
    /// What it is about: a task's id, a key, a group or a setting. What is not UTF-8 in it is replaced.
    pub subject: String,
    /// The facts, in a few words; may be empty.
    pub detail: String,
    /// What helps, where something does.
    pub repair: Option<Repair>,
}

/// What is wrong, the facts, and what to do.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (meaning, advice) = (self.fault.meaning(), self.fault.advice());
        match self.detail.as_str() {
            "" => write!(f, "{meaning}; {advice}"),
            detail => write!(f, "{meaning}: {detail}; {advice}"),
        }
    }
}

impl Finding {
    /// This fault, of this subject.
    pub fn new(fault: Fault, queue: Option<&str>, subject: &[u8]) -> Self {
        Self {
            fault,
            severity: fault.severity(),
            queue: queue.map(str::to_owned),
            subject: String::from_utf8_lossy(subject).into_owned(),
            detail: String::new(),
            repair: None,
        }
    }

    /// The same with what is known of it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The same with what repairs it.
    #[must_use]
    pub fn repair(mut self, repair: Repair) -> Self {
        self.repair = Some(repair);
        self
    }

    /// Whether there is a repair.
    pub fn is_mendable(&self) -> bool {
        self.repair.is_some()
    }

    /// Whether the repair deletes something, so that a copy of it should be kept.
    pub fn deletes(&self) -> bool {
        self.repair.as_ref().is_some_and(Repair::deletes)
    }

    /// Whether the repair can lose nothing and needs nobody's judgement; servers do it by themselves.
    pub fn is_harmless(&self) -> bool {
        use Fault::{EmptyGroup, EmptySet, ExpiredServers, Expires, NoLease, NoPlace, StrayLease};
        use Fault::{LostAggregation, OrphanWorkers, SilentServer, UnlistedGroup, UnlistedQueue, UnlistedSet};
        use Fault::{ParkedNoLane, StaleSlot, StaleWait};
        let harmless = [
            EmptyGroup,
            EmptySet,
            ExpiredServers,
            Expires,
            NoLease,
            NoPlace,
            StrayLease,
            LostAggregation,
            OrphanWorkers,
            ParkedNoLane,
            SilentServer,
            StaleSlot,
            StaleWait,
            UnlistedGroup,
            UnlistedQueue,
            UnlistedSet,
        ];
        harmless.contains(&self.fault) && self.is_mendable() && !self.deletes()
    }
}

/// What helps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "most are of tasks")]
pub enum Repair {
    /// A task goes where it belongs, or what is left of it goes.
    Task {
        /// Its queue.
        queue: String,
        /// The task.
        suspect: Suspect,
        /// Stands for how it was seen.
        digest: Bytes,
        /// What helps.
        remedy: Remedy,
        /// Where its id stood.
        entries: Vec<Entry>,
        /// The end of its lease; empty for none.
        lease: String,
    },
    /// A key is deleted.
    Key {
        /// Its name.
        key: Bytes,
        /// For a lock: only if the task that it names (key, message) is as it was in each queue of the family. For what is left
        /// of a batch: only if the root (key, nothing) has not been made again.
        holders: Vec<(Bytes, Bytes)>,
    },
    /// A group is listed if it has tasks, else it is not.
    ListGroup {
        /// Queue name.
        queue: String,
        /// Name of the group.
        group: String,
    },
    /// A set that was taken out of a group is listed as lost.
    ListSet {
        /// Queue name.
        queue: String,
        /// Name of its key.
        key: Bytes,
    },
    /// The tasks of a set go back into their group.
    Reclaim {
        /// Queue name.
        queue: String,
        /// Name of the group.
        group: String,
        /// Id of the set.
        set: String,
        /// Only if its time is over.
        only_expired: bool,
    },
    /// Entries of lanes that say what is not so go, and parked tasks come into their lanes.
    Lanes {
        /// Queue name.
        queue: String,
        /// What the entries are.
        entries: LaneEntries,
    },
    /// A queue is listed.
    ListQueue {
        /// Queue name.
        queue: String,
    },
    /// A flow is looked after again.
    Flow {
        /// The name of the root of its tree.
        root: String,
        /// Its number in the tree.
        flow: u32,
        /// What is done.
        repair: FlowRepair,
    },
    /// A member of a global set is removed.
    Unlist {
        /// Name of the set.
        set: &'static str,
        /// The member.
        member: Bytes,
    },
    /// What has expired by this second is removed from a global set.
    Purge {
        /// Name of the set.
        set: &'static str,
        /// Unix second.
        before: i64,
    },
}

/// What helps a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowRepair {
    /// Its tree is listed.
    List,
    /// The leader looks at its tree.
    LookAt,
    /// Its members are counted anew.
    Count,
    /// Its members are looked for.
    Probe,
}

/// Entries that were found in a set of lanes, or are missing there, at most 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEntries {
    /// Of those who run.
    Slots(Vec<Bytes>),
    /// Of those who wait.
    Waiting(Vec<Bytes>),
}

impl Repair {
    /// Whether it deletes something.
    pub fn deletes(&self) -> bool {
        match self {
            Self::Task { remedy, entries, .. } => match remedy {
                Remedy::Delete { .. } => true,
                // An id that stands somewhere else too; but not one that only moves.
                Remedy::Place(_) => entries.len() > 1,
            },
            Self::Key { .. } => true,
            _ => false,
        }
    }
}
