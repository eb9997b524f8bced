//! The names of the Redis keys, and the [table](KeyFamily) of all families of them;
//! `docs/wire-format.md` lists them with what they hold.
//!
//! All keys of a queue carry the queue's name in braces, so that Redis Cluster keeps them in one slot.
//! Names are used as they are: no escaping, no trimming, no case folding.

mod families;

use crate::queue_name::base_of;

pub use families::{KeyFamily, KeyRole, KeyType, Owner, family, queue_families, queue_family, shared_families};

/// Sorted set of the roots of all trees of flows, by creation (Unix seconds). Not asynq's.
pub const FLOWS: &str = "asynq:x:flows";
/// Set of all queue names ever enqueued to.
pub const QUEUES: &str = "asynq:queues";
/// Sorted set of server-info keys by expiry.
pub const SERVERS: &str = "asynq:servers";
/// Sorted set of worker-hash keys by expiry.
pub const WORKERS: &str = "asynq:workers";
/// Sorted set of scheduler-entry keys by expiry.
pub const SCHEDULERS: &str = "asynq:schedulers";
/// Sorted set of our own periodic entries (`<entry> <queue>`) by the second they were last carried.
pub const CRON_ENTRIES: &str = "asynq:x:cron";
/// String that names the server which looks after what belongs to no queue alone. Not asynq's.
pub const LEADER: &str = "asynq:x:leader";
/// Sorted set of what the leader has to do (`<duty> <subject>`) by the Unix time in milliseconds of the next look. Not
/// asynq's.
pub const DUTIES: &str = "asynq:x:duties";
/// Stream of what operators did with our tools. Not asynq's.
pub const AUDIT: &str = "asynq:x:audit";
/// Sorted set of the ids of operations (changes of many tasks) by the Unix millisecond at which they were asked for. Not asynq's.
pub const OPERATIONS: &str = "asynq:x:ops";
/// Hash of those who listen to what happens, and of what they want to hear ([`Wanted`](crate::event::Wanted)). Not asynq's.
pub const WATCHERS: &str = "asynq:x:watchers";
/// Stream of what happens to servers, while somebody listens. Not asynq's.
pub const EVENTS: &str = "asynq:x:events";
/// Hash of the tasks that are to be canceled for good (`<id> <queue>`). Not asynq's.
pub const CANCELS: &str = "asynq:x:cancels";
/// What the keys begin with by which servers of ours say more of themselves; not asynq's. What follows is the same as in
/// asynq's own key of the server.
pub const SERVER_ENTRY: &str = "asynq:x:servers:";
/// What the keys begin with by which one server is told what operators want of it. Not asynq's.
pub const WANT: &str = "asynq:x:want:";
/// The same for all servers of a name.
pub const WANT_NAME: &str = "asynq:x:want-name:";
/// Pub/sub channel on which the id of a task to cancel is published.
pub const CANCEL_CHANNEL: &str = "asynq:cancel";
/// The queue a task goes to when none is named.
pub const DEFAULT_QUEUE: &str = "default";

/// The key names of one queue.
///
/// ```
/// let keys = queue_core::keys::QueueKeys::new("mail");
/// assert_eq!(keys.pending(), "asynq:{mail}:pending");
/// assert_eq!(keys.task("42"), "asynq:{mail}:t:42");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueKeys {
    prefix: String,
}

impl QueueKeys {
    /// The keys of the queue with this name.
    pub fn new(queue: &str) -> Self {
        Self { prefix: format!("asynq:{{{queue}}}:") }
    }

    /// What every key of the queue begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The slot of Redis Cluster in which the queue is, 0 to 16383: CRC16 of the hash tag, as the Redis Cluster
    /// specification has it. A name that begins with `}` is no tag, and the keys of such a queue have slots
    /// of their own; this is then the one of `pending`.
    pub fn slot(&self) -> u16 {
        slot_of(self.pending().as_bytes())
    }

    fn with(&self, suffix: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + suffix.len());
        key.push_str(&self.prefix);
        key.push_str(suffix);
        key
    }

    /// LIST of ids waiting for a worker; the tail is next.
    pub fn pending(&self) -> String {
        self.with("pending")
    }

    /// LIST of ids being worked on; the newest is at the head.
    pub fn active(&self) -> String {
        self.with("active")
    }

    /// ZSET of active ids by lease expiry (Unix seconds).
    pub fn lease(&self) -> String {
        self.with("lease")
    }

    /// ZSET of ids by the time they are due (Unix seconds).
    pub fn scheduled(&self) -> String {
        self.with("scheduled")
    }

    /// ZSET of ids by their next attempt (Unix seconds).
    pub fn retry(&self) -> String {
        self.with("retry")
    }

    /// ZSET of ids by the time they were archived (Unix seconds).
    pub fn archived(&self) -> String {
        self.with("archived")
    }

    /// ZSET of ids by the time their retention ends (Unix seconds).
    pub fn completed(&self) -> String {
        self.with("completed")
    }

    /// STRING that exists while the queue is paused.
    pub fn paused(&self) -> String {
        self.with("paused")
    }

    /// STREAM of what happens to the tasks, while somebody listens. Not asynq's.
    pub fn events(&self) -> String {
        self.with("x:events")
    }

    /// STRING counting all tasks ever finished, successes and failures.
    pub fn processed_total(&self) -> String {
        self.with("processed")
    }

    /// STRING counting all failures ever.
    pub fn failed_total(&self) -> String {
        self.with("failed")
    }

    /// STRING counting the tasks finished on the UTC day of this Unix second.
    pub fn processed_on(&self, unix_secs: i64) -> String {
        self.with(&format!("processed:{}", utc_day(unix_secs)))
    }

    /// STRING counting the failures on the UTC day of this Unix second.
    pub fn failed_on(&self, unix_secs: i64) -> String {
        self.with(&format!("failed:{}", utc_day(unix_secs)))
    }

    /// SET of the names of groups that may hold tasks.
    pub fn groups(&self) -> String {
        self.with("groups")
    }

    /// What the key of every group begins with.
    pub fn group_prefix(&self) -> String {
        self.with("g:")
    }

    /// ZSET of ids waiting in a group, by the time they joined it (Unix seconds).
    pub fn group(&self, group: &str) -> String {
        self.with(&format!("g:{group}"))
    }

    /// ZSET of ids taken out of a group for one aggregation, with the scores they had there. The id of the
    /// set has no colon (rule R12).
    pub fn aggregation_set(&self, group: &str, set_id: &str) -> String {
        self.with(&format!("g:{group}:{set_id}"))
    }

    /// ZSET of the key names of aggregation sets by the time the aggregation counts as lost (Unix seconds).
    pub fn aggregation_sets(&self) -> String {
        self.with("aggregation_sets")
    }

    /// STRING that exists while the queue is being removed: the Unix second at which that began. Not asynq's.
    pub fn removing(&self) -> String {
        self.with("x:removing")
    }

    /// STRING that names the server which looks whether the queue is in order. Not asynq's.
    pub fn reconciler(&self) -> String {
        self.with("x:reconciler")
    }

    /// STRING that says since when no server that may run the tasks of the queue is alive: a Unix second. Not asynq's.
    pub fn gone(&self) -> String {
        self.with("x:gone")
    }

    /// SET of the key names of sets that were aggregated and wait for their deletion. Not asynq's.
    pub fn aggregated(&self) -> String {
        self.with("x:aggregated")
    }

    /// ZSET of ids that were aggregated and wait for their deletion. Not asynq's.
    pub fn aggregated_set(&self, set_id: &str) -> String {
        self.with(&format!("x:aggregated:{set_id}"))
    }

    /// LIST of what members of flows have told through one process, oldest first. Not asynq's.
    pub fn outcomes(&self, who: &str) -> String {
        self.with(&format!("x:outcomes:{who}"))
    }

    /// SET of the key names of such lists. Not asynq's.
    pub fn outcome_lists(&self) -> String {
        self.with("x:outcome-lists")
    }

    /// STRING (JSON) of the limits by which tasks are taken. Not asynq's.
    pub fn rules(&self) -> String {
        self.with("x:rules")
    }

    /// ZSET of the tasks that wait in lanes (`<lane> <since> <id>`), by name. Not asynq's.
    pub fn lanes_waiting(&self) -> String {
        self.with("x:waiting")
    }

    /// ZSET of the tasks that run in lanes with a cap (`<lane> <id>`), by name. Not asynq's.
    pub fn lane_slots(&self) -> String {
        self.with("x:slots")
    }

    /// ZSET of the lanes in which tasks wait, by the Unix millisecond of the next look. Not asynq's.
    pub fn lanes_due(&self) -> String {
        self.with("x:due")
    }

    /// HASH of what is different for some lanes (JSON). Not asynq's.
    pub fn lane_changes(&self) -> String {
        self.with("x:lanes")
    }

    /// HASH of counts for each limit: `<limit>:parked` and `<limit>:too-many`. Not asynq's.
    pub fn limit_stats(&self) -> String {
        self.with("x:limit-stats")
    }

    /// STRING of how the runs of a lane have ended whose limit has a breaker. Not asynq's.
    pub fn lane_health(&self, lane: &str) -> String {
        self.with(&format!("x:health:{lane}"))
    }

    /// STRING of the share of its rate at which a lane goes on whose limit has an adaptive one. Not asynq's.
    pub fn lane_pace(&self, lane: &str) -> String {
        self.with(&format!("x:pace:{lane}"))
    }

    /// ZSET of ids of tasks that are stored once only, by the Unix second at which they are forgotten. Not asynq's.
    pub fn stored_once(&self) -> String {
        self.with("x:once")
    }

    /// LIST of ids of tasks that an operation has deleted, and that can be restored: the piece of this number. Not asynq's.
    pub fn bin_piece(&self, operation: &str, piece: u64) -> String {
        self.with(&format!("x:bin:{operation}:{piece}"))
    }

    /// What the key of every such task begins with: a HASH, the task as it was.
    pub fn bin_prefix(&self, operation: &str) -> String {
        self.with(&format!("x:bin:{operation}:t:"))
    }

    /// HASH that notes how far the import of one export got. Not asynq's.
    pub fn import_record(&self, export_id: &str) -> String {
        self.with(&format!("x:import:{export_id}"))
    }

    /// What the key of every task begins with.
    pub fn task_prefix(&self) -> String {
        self.with("t:")
    }

    /// HASH of one task.
    pub fn task(&self, id: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + 2 + id.len());
        key.push_str(&self.prefix);
        key.push_str("t:");
        key.push_str(id);
        key
    }

    /// HASH of what schedulers share about a periodic entry.
    pub fn cron_entry(&self, entry: &str) -> String {
        self.with(&format!("x:cron:{entry}"))
    }

    /// LIST of what became of the ticks of a periodic entry, newest first.
    pub fn cron_history(&self, entry: &str) -> String {
        self.with(&format!("x:cron-history:{entry}"))
    }

    /// STRING that exists while nothing else is published under a key (the id of the task): the number of the call that
    /// opened it. Not asynq's.
    pub fn window(&self, id: &str) -> String {
        format!("{}x:window:{:x}", self.prefix, md5::compute(id))
    }

    fn base(&self) -> &str {
        base_of(&self.prefix["asynq:{".len()..self.prefix.len() - "}:".len()])
    }

    /// What the uniqueness locks of the queue begin with: those of the base of its [family](crate::queue_name).
    pub fn unique_prefix(&self) -> String {
        format!("asynq:{{{}}}:unique:", self.base())
    }

    /// Whether a uniqueness lock can be one of this queue's tasks: it is one of the queue, or of its
    /// [family](crate::queue_name).
    pub fn may_own(&self, lock: &str) -> bool {
        let queue = lock.strip_prefix("asynq:{").and_then(|lock| lock.split_once("}:unique:"));
        queue.is_some_and(|(queue, _)| base_of(queue) == self.base())
    }

    /// STRING that holds the id of the task which owns this combination of type and payload. All queues of a
    /// [family](crate::queue_name) have the locks of its base; Go's clients make a lock in each of them.
    ///
    /// As in Go, a missing payload (`None`) and an empty one lock differently: the former ends in a
    /// colon, the latter in the MD5 of nothing. Headers, group and options play no part.
    pub fn unique(&self, task_type: &str, payload: Option<&[u8]>) -> String {
        use std::fmt::Write as _;
        let mut key = self.unique_prefix();
        key.push_str(task_type);
        key.push(':');
        if let Some(payload) = payload {
            for byte in md5::compute(payload).0 {
                let _ = write!(key, "{byte:02x}");
            }
        }
        key
    }

    /// The list or sorted set that holds the ids in this state; `None` for aggregating tasks, which are
    /// spread over their groups.
    pub fn container(&self, state: crate::TaskState) -> Option<String> {
        (state != crate::TaskState::Aggregating).then(|| self.with(state.as_str()))
    }
}

/// What every key of a queue begins with, from one of its keys; `None` for keys of no queue.
///
/// ```
/// assert_eq!(queue_core::keys::queue_prefix(b"asynq:{mail}:t:7"), Some(&b"asynq:{mail}:"[..]));
/// assert_eq!(queue_core::keys::queue_prefix(b"asynq:queues"), None);
/// ```
pub fn queue_prefix(key: &[u8]) -> Option<&[u8]> {
    let name = key.strip_prefix(b"asynq:{")?;
    let end = name.windows(2).position(|pair| pair == b"}:")?;
    key.get(..b"asynq:{".len() + end + 2)
}

/// What the keys of all flows of a tree begin with; in braces the name of its root, so that a tree is in one slot.
pub fn flow_prefix(root: &str) -> String {
    format!("asynq:x:{{{root}}}:")
}

/// ZSET of those who hold a token of a semaphore, by the time they lose it (Unix seconds).
pub fn semaphore(scope: &str) -> String {
    format!("asynq:sema:{scope}")
}

/// STRING of a limiter that is no limit of a queue: the Unix millisecond at which the next start would be due. Not asynq's.
pub fn limiter(name: &str) -> String {
    format!("asynq:x:limit:{name}")
}

/// Key of the server-info string of one server.
pub fn server_info(host: &str, pid: u32, server_id: &str) -> String {
    format!("asynq:servers:{{{host}:{pid}:{server_id}}}")
}

/// Key of what a server of ours says beyond that; `server` is `<host>:<pid>:<uuid>`.
pub fn server_entry(server: &str) -> String {
    format!("{SERVER_ENTRY}{{{server}}}")
}

/// Key of what operators want of one server; `server` is `<host>:<pid>:<uuid>`.
pub fn want(server: &str) -> String {
    format!("{WANT}{{{server}}}")
}

/// Key of what operators want of all servers of a name.
pub fn want_name(name: &str) -> String {
    format!("{WANT_NAME}{name}")
}

/// Key of what is known about an operation.
pub fn operation(id: &str) -> String {
    format!("asynq:x:op:{{{id}}}")
}

/// Key that names the process which carries an operation out.
pub fn operation_lease(id: &str) -> String {
    format!("asynq:x:op:{{{id}}}:lease")
}

/// Key of the hash of running tasks of one server.
pub fn server_workers(host: &str, pid: u32, server_id: &str) -> String {
    format!("asynq:workers:{{{host}:{pid}:{server_id}}}")
}

/// Key of the list of entries that one scheduler carries.
pub fn scheduler_entries(host: &str, pid: u32, scheduler_id: &str) -> String {
    format!("asynq:schedulers:{{{host}:{pid}:{scheduler_id}}}")
}

/// Key of the sorted set of a periodic entry's enqueue events.
pub fn scheduler_history(entry_id: &str) -> String {
    format!("asynq:scheduler_history:{entry_id}")
}

/// The slot of Redis Cluster in which a key is, 0 to 16383: CRC16 of its hash tag, which is what stands between the
/// first `{` and the next `}`, or of all of it where there is none.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0).map(|close| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

/// CRC-16/XMODEM: polynomial 0x1021, starting from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc: u16, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

/// The UTC day of a Unix second as the names of day counters end with it, `2096-10-02`.
pub fn utc_day(unix_secs: i64) -> String {
    chrono::DateTime::from_timestamp(unix_secs, 0).unwrap_or_default().date_naive().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_keys_tell_no_payload_from_an_empty_one() {
        let keys = QueueKeys::new("q");
        assert_eq!(keys.unique("t", None), "asynq:{q}:unique:t:");
        assert_eq!(keys.unique("t", Some(b"")), "asynq:{q}:unique:t:d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(keys.unique("t", Some(b"{\"id\":1}")), "asynq:{q}:unique:t:d2ce28b9a7fd7e4407e2b0fd499b7fe4");
    }

    #[test]
    fn day_counters_use_the_utc_day() {
        let keys = QueueKeys::new("default");
        assert_eq!(keys.processed_on(1_700_000_006), "asynq:{default}:processed:2023-11-14");
        assert_eq!(keys.failed_on(1_700_006_400), "asynq:{default}:failed:2023-11-15");
    }

    #[test]
    fn a_family_shares_its_locks_and_its_slot() {
        let (base, level) = (QueueKeys::new("mail"), QueueKeys::new("mail}p9"));
        assert_eq!(level.pending(), "asynq:{mail}p9}:pending");
        assert_eq!(level.unique("t", None), base.unique("t", None));
        assert_eq!(level.slot(), base.slot());
        for lock in ["asynq:{mail}:unique:t:", "asynq:{mail}p9}:unique:t:"] {
            assert!(level.may_own(lock) && base.may_own(lock), "{lock}");
        }
        assert!(!base.may_own("asynq:{mails}:unique:t:") && !base.may_own("asynq:{news}:unique:t:"));
    }

    /// The first number is the check value of the CRC's definition, the others are answers of
    /// `CLUSTER KEYSLOT`.
    #[test]
    fn the_slot_is_that_of_the_queue_name() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(QueueKeys::new("default").slot(), 5718);
        assert_eq!(QueueKeys::new("").slot(), 15341);
        assert_eq!(QueueKeys::new("}x").slot(), 9204);
        assert_eq!(QueueKeys::new("a}b").slot(), QueueKeys::new("a").slot());
    }

    #[test]
    fn every_state_but_aggregating_has_a_container_named_after_it() {
        let keys = QueueKeys::new("q");
        assert_eq!(keys.container(crate::TaskState::Retry).as_deref(), Some("asynq:{q}:retry"));
        assert_eq!(keys.container(crate::TaskState::Aggregating), None);
    }
}
