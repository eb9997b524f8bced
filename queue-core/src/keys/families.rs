//! The table of all keys: what each family is called, its type, and who takes care of it.
//!
//! The doctor, the removal of a queue and the errors about wrong types read this table. Tests hold it against
//! `docs/wire-format.md` and against the keys that the product really writes.

use super::queue_prefix;

crate::words! {
    /// The type of a Redis key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum KeyType {
        /// A string.
        String: "string",
        /// A list.
        List: "list",
        /// A set.
        Set: "set",
        /// A sorted set.
        SortedSet: "zset",
        /// A hash.
        Hash: "hash",
        /// A stream.
        Stream: "stream",
    }
}

/// Whose format a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// asynq: Go's programs read and write it.
    Asynq,
    /// This project: Go's programs do not know it.
    Ours,
}

/// What the keys of a family are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyRole {
    /// One task.
    Task,
    /// Ids of tasks, or names of keys that hold such ids.
    Holder,
    /// Ids of the tasks of one group, or of one aggregation.
    Group,
    /// A uniqueness lock.
    Lock,
    /// A number that only grows.
    Counter,
    /// Anything else.
    Note,
}

/// A family of keys that have the same form of name.
///
/// ```
/// use queue_core::keys::{KeyType, family};
///
/// assert_eq!(family(b"asynq:{mail}:t:7").unwrap().key_type, KeyType::Hash);
/// assert_eq!(family(b"asynq:servers:{host:1:id}").unwrap().name, "asynq:servers:{<host>:<pid>:<uuid>}");
/// assert!(family(b"mine").is_none());
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeyFamily {
    /// The form of the name; what differs stands in angle brackets. Of a queue's key, what follows the
    /// [prefix](super::QueueKeys::prefix) of the queue.
    pub name: &'static str,
    /// The type.
    pub key_type: KeyType,
    /// Whose format it belongs to.
    pub owner: Owner,
    /// What it is for.
    pub role: KeyRole,
    /// Whether the removal of a queue needs this key until its last step. It deletes all other keys of the queue
    /// as it finds them.
    pub removed_last: bool,
    /// What removes or mends a key that is left over or damaged.
    pub repaired_by: &'static str,
}

impl KeyFamily {
    /// The part of the name that all keys of the family begin with.
    pub fn beginning(&self) -> &'static str {
        self.name.split('<').next().unwrap_or_default()
    }

    /// Whether the family is one key only: the name has no part that differs.
    pub fn is_single(&self) -> bool {
        !self.name.contains('<')
    }

    fn has(&self, name: &[u8]) -> bool {
        if self.is_single() {
            return name == self.name.as_bytes();
        }
        // A bin has keys of two types: `t` tells its tasks from its lists, which have numbers there.
        let is_task = || name.splitn(4, |byte| *byte == b':').nth(3).is_some_and(|rest| rest.starts_with(b"t:"));
        let end = self.name.rsplit('>').next().unwrap_or_default();
        name.starts_with(self.beginning().as_bytes())
            && name.ends_with(end.as_bytes())
            && (self.name != BINNED || is_task())
    }
}

const fn asynq(name: &'static str, key_type: KeyType, role: KeyRole, repaired_by: &'static str) -> KeyFamily {
    KeyFamily { name, key_type, owner: Owner::Asynq, role, removed_last: false, repaired_by }
}

const fn ours(name: &'static str, key_type: KeyType, role: KeyRole, repaired_by: &'static str) -> KeyFamily {
    KeyFamily { name, key_type, owner: Owner::Ours, role, removed_last: false, repaired_by }
}

const fn removed_last(family: KeyFamily) -> KeyFamily {
    KeyFamily { removed_last: true, ..family }
}

use KeyRole::{Counter, Group, Holder, Lock, Note, Task};
use KeyType::{List, Set, SortedSet};

/// The tasks of a bin; the list of their ids begins alike.
const BINNED: &str = "x:bin:<op>:t:<id>";

const WALK: &str = "doctor: every id is compared with its task";

static QUEUE: &[KeyFamily] = &[
    asynq("pending", List, Holder, WALK),
    asynq("active", List, Holder, WALK),
    removed_last(asynq("lease", SortedSet, Holder, WALK)),
    asynq("scheduled", SortedSet, Holder, WALK),
    asynq("retry", SortedSet, Holder, WALK),
    asynq("archived", SortedSet, Holder, WALK),
    asynq("completed", SortedSet, Holder, WALK),
    asynq("aggregation_sets", SortedSet, Holder, "reclaimer of every server; doctor"),
    asynq("groups", Set, Note, "reconciler; doctor"),
    asynq("g:<group>", SortedSet, Group, WALK),
    asynq("g:<group>:<uuid>", SortedSet, Group, "reclaimer of every server; doctor"),
    asynq("t:<id>", KeyType::Hash, Task, "doctor: every task is compared with its list"),
    asynq("unique:<type>:<hash>", KeyType::String, Lock, "its TTL; doctor"),
    removed_last(asynq("paused", KeyType::String, Note, "unpause")),
    removed_last(asynq("processed", KeyType::String, Counter, "doctor, if it is no number")),
    removed_last(asynq("failed", KeyType::String, Counter, "doctor, if it is no number")),
    asynq("processed:<day>", KeyType::String, Counter, "its TTL; doctor, if it is no number"),
    asynq("failed:<day>", KeyType::String, Counter, "its TTL; doctor, if it is no number"),
    ours("x:aggregated", Set, Note, "reclaimer of every server"),
    ours("x:aggregated:<uuid>", SortedSet, Note, "reclaimer of every server"),
    ours("x:cron:<entry>", KeyType::Hash, Note, "its TTL"),
    ours("x:cron-history:<entry>", List, Note, "its TTL"),
    ours("x:import:<export>", KeyType::Hash, Note, "its TTL"),
    ours("x:reconciler", KeyType::String, Note, "its TTL"),
    ours("x:gone", KeyType::String, Note, "its TTL"),
    ours("x:outcomes:<who>", List, Note, "leader: records and trims them"),
    ours("x:outcome-lists", Set, Note, "leader"),
    removed_last(ours("x:rules", KeyType::String, Note, "limit off")),
    ours("x:waiting", SortedSet, Note, "the next take from the lane; doctor"),
    ours("x:slots", SortedSet, Note, "the next take that finds the lane full; reconciler; doctor"),
    ours("x:due", SortedSet, Note, "the next take; reconciler; doctor: the lane of every parked task"),
    ours("x:lanes", KeyType::Hash, Note, "limit key NAME KEY --reset"),
    ours("x:limit-stats", KeyType::Hash, Note, "limit off"),
    ours("x:tat:<lane>", KeyType::String, Note, "its TTL"),
    ours("x:health:<lane>", KeyType::String, Note, "its TTL"),
    ours("x:pace:<lane>", KeyType::String, Note, "its TTL"),
    ours("x:events", KeyType::Stream, Note, "its TTL"),
    ours("x:window:<md5>", KeyType::String, Note, "its TTL"),
    ours(BINNED, KeyType::Hash, Note, "its TTL; bin empty"),
    ours("x:bin:<op>:<n>", List, Note, "its TTL; bin empty"),
    ours("x:once", SortedSet, Note, "the next task that is stored once; doctor"),
    removed_last(ours("x:removing", KeyType::String, Note, "the next removal, or unpause")),
];

static SHARED: &[KeyFamily] = &[
    asynq(super::QUEUES, Set, Note, "doctor: a queue that has tasks is listed"),
    asynq(super::SERVERS, SortedSet, Note, "whoever lists servers; doctor"),
    asynq("asynq:servers:{<host>:<pid>:<uuid>}", KeyType::String, Note, "its TTL"),
    asynq(super::WORKERS, SortedSet, Note, "whoever lists servers; doctor"),
    asynq("asynq:workers:{<host>:<pid>:<uuid>}", KeyType::Hash, Note, "its TTL"),
    asynq(super::SCHEDULERS, SortedSet, Note, "whoever lists schedulers; doctor"),
    asynq("asynq:schedulers:{<host>:<pid>:<uuid>}", List, Note, "its TTL; doctor, if it has none"),
    asynq("asynq:scheduler_history:<entry>", SortedSet, Note, "its TTL, if a scheduler of ours wrote it last"),
    asynq("asynq:sema:<scope>", SortedSet, Note, "the next one who acquires a token"),
    ours("asynq:x:limit:<name>", KeyType::String, Note, "its TTL"),
    ours(super::LEADER, KeyType::String, Note, "its TTL"),
    ours("asynq:x:servers:{<host>:<pid>:<uuid>}", KeyType::String, Note, "its TTL"),
    ours("asynq:x:want:{<host>:<pid>:<uuid>}", KeyType::Hash, Note, "its TTL"),
    ours("asynq:x:want-name:<name>", KeyType::Hash, Note, "server reset"),
    ours(super::CANCELS, KeyType::Hash, Note, "the leader, when the task has ended"),
    ours(super::WATCHERS, KeyType::Hash, Note, "its TTL, and the next listener"),
    ours(super::EVENTS, KeyType::Stream, Note, "its TTL"),
    ours(super::DUTIES, SortedSet, Note, "the leader: a duty without a subject ends"),
    ours(
        super::AUDIT,
        KeyType::Stream,
        Note,
        "each action lets go what is older than 90 days; doctor, if it has another type",
    ),
    ours(super::OPERATIONS, SortedSet, Note, "whoever lists operations"),
    ours("asynq:x:op:{<id>}", KeyType::Hash, Note, "its TTL"),
    ours("asynq:x:op:{<id>}:lease", KeyType::String, Note, "its TTL"),
    ours(super::FLOWS, SortedSet, Note, "leader: a tree that is gone is taken off"),
    ours("asynq:x:{<root>}:todo", SortedSet, Note, "leader"),
    ours("asynq:x:{<root>}:<flow>:flow", KeyType::Hash, Note, "leader; deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:about", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours(
        "asynq:x:{<root>}:<flow>:states",
        KeyType::String,
        Note,
        "leader, by looking for members; deleted when the tree is forgotten",
    ),
    ours("asynq:x:{<root>}:<flow>:keys", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:kids", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:messages", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:names", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:before", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:after", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:signals", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours("asynq:x:{<root>}:<flow>:runs", KeyType::Hash, Note, "deleted when the tree is forgotten"),
    ours(super::CRON_ENTRIES, SortedSet, Note, "schedulers; the removal of the entry's queue"),
];

/// The families of a queue's keys.
pub fn queue_families() -> &'static [KeyFamily] {
    QUEUE
}

/// The families of keys that belong to no queue.
pub fn shared_families() -> &'static [KeyFamily] {
    SHARED
}

/// The family of a key of a queue, by what follows the queue's prefix; `None` if the name is not known.
pub fn queue_family(name: &[u8]) -> Option<&'static KeyFamily> {
    QUEUE.iter().find(|family| family.has(name))
}

/// The family that a key belongs to by its name; `None` if the name is not known.
pub fn family(key: &[u8]) -> Option<&'static KeyFamily> {
    match queue_prefix(key) {
        Some(prefix) => queue_family(&key[prefix.len()..]),
        None => SHARED.iter().find(|family| family.has(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_tells_single_keys_from_those_that_begin_alike() {
        for (key, name) in [
            ("asynq:{q}:processed", Some("processed")),
            ("asynq:{q}:processed:2026-01-01", Some("processed:<day>")),
            ("asynq:{q}:x:aggregated", Some("x:aggregated")),
            ("asynq:{q}:x:aggregated:7", Some("x:aggregated:<uuid>")),
            ("asynq:{q}:x:bin:op:t:7", Some("x:bin:<op>:t:<id>")),
            ("asynq:{q}:x:bin:op:7", Some("x:bin:<op>:<n>")),
            ("asynq:{a}b}:pending", Some("pending")),
            ("asynq:x:op:{7}", Some("asynq:x:op:{<id>}")),
            ("asynq:x:op:{7}:lease", Some("asynq:x:op:{<id>}:lease")),
            ("asynq:x:{root}:0:states", Some("asynq:x:{<root>}:<flow>:states")),
            ("asynq:servers", Some("asynq:servers")),
            ("asynq:servers:{host:1:id}", Some("asynq:servers:{<host>:<pid>:<uuid>}")),
            ("asynq:{q}:unknown", None),
            ("asynq:{q}:pending2", None),
            ("other", None),
        ] {
            assert_eq!(family(key.as_bytes()).map(|family| family.name), name, "{key}");
        }
    }
}
