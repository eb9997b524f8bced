//! Aggregation: `list_ready_groups.lua`, `stage.lua`, `read_set.lua`, `aggregate.lua`, `archive_staged.lua`,
//! `extend_set.lua`, `delete_aggregated.lua`.
//!
//! A set is staged for one server, which aggregates it. Whatever goes wrong, the set is listed with a
//! deadline, and after that anybody puts its tasks back into their group ([`reclaim`](Broker::reclaim)).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queue_core::TaskMessage;
use queue_core::clock::secs_ceil;
use queue_core::keys::QueueKeys;
use queue_core::options::Composed;
use queue_core::unique::UniqueUntil;
use redis::Value;

use super::enqueue::place_of;
use super::finish::counted;
use super::{Broker, MAX_BATCH, MAX_SET, verdicts};
use crate::error::Error;
use crate::script::{
    AGGREGATE, ARCHIVE_STAGED, DELETE_AGGREGATED, EXTEND_SET, LIST_READY_GROUPS, READ_SET, STAGE, Script, Word,
};

/// When a group is to be aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRules {
    /// Seconds without a new task.
    pub grace_secs: i64,
    /// Seconds that the oldest task may wait; 0 for any.
    pub max_delay_secs: i64,
    /// How many tasks make a group full, and how many are aggregated at once at the most; 0 for
    /// [`MAX_SET`], with which a group is never full. Larger values count as `MAX_SET`.
    pub max_size: usize,
}

impl GroupRules {
    /// Rules from durations, which are rounded up to the second.
    pub fn new(grace_period: Duration, max_delay: Duration, max_size: usize) -> Self {
        Self {
            // The last task may have joined at the end of the second that stands in its score.
            grace_secs: secs_ceil(grace_period).saturating_add(1),
            max_delay_secs: secs_ceil(max_delay),
            max_size,
        }
    }

    fn max_size(&self) -> usize {
        self.max_size.min(MAX_SET)
    }

    fn most(&self) -> usize {
        if self.max_size == 0 { MAX_SET } else { self.max_size() }
    }
}

/// What [`Broker::list_ready_groups`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyGroups {
    /// Names of the groups that are to be aggregated.
    pub ready: Vec<String>,
    /// Those that will be soon, and the Unix second at which each will be, if nothing joins it until then.
    pub soon: Vec<(String, i64)>,
    /// The Unix second at which another one will be, if nothing joins it until then.
    pub next: Option<i64>,
}

/// Tasks taken out of their group, to be aggregated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSet {
    /// Queue name.
    pub queue: Arc<str>,
    /// Group name.
    pub group: String,
    /// The id of the set: text without `:` that no other set has (rule R12).
    pub id: String,
    /// How many tasks it has; proves that nobody has reclaimed it.
    pub count: usize,
}

impl StagedSet {
    pub(super) fn key(&self, keys: &QueueKeys) -> String {
        keys.aggregation_set(&self.group, &self.id)
    }
}

/// A task of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedTask {
    /// Task id.
    pub id: String,
    /// The id as it stands in the set: bytes that may not even be text.
    member: Vec<u8>,
    /// The task; `None` when its message cannot be read, or is that of another task.
    pub message: Option<TaskMessage>,
}

impl StagedTask {
    /// The lock to release with the task; empty for none.
    fn lock(&self, keys: &QueueKeys) -> &str {
        let key = self.message.as_ref().map_or("", |message| &message.unique_key);
        // A lock of another queue would be in another slot.
        if keys.may_own(key) { key } else { "" }
    }
}

/// What became of an aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregated {
    /// The new task is stored, and those of the set are gone or no longer to be found.
    Done,
    /// The id of the new task is taken in this queue. Nothing was written.
    IdTaken,
    /// Another task holds the lock of the new one. Nothing was written.
    Duplicate,
    /// The set was reclaimed, or an earlier call whose answer was lost had done it. Nothing was written.
    Lost,
}

impl Broker {
    /// The groups of a queue that are to be aggregated at `now` (Unix seconds); none while it is paused.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_ready_groups(&self, queue: &str, rules: GroupRules, now: i64) -> Result<ReadyGroups, Error> {
        self.list_groups_until(queue, rules, now, now).await
    }

    /// The same, and those that will be up to the Unix second `soon`.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_groups_until(
        &self,
        queue: &str,
        rules: GroupRules,
        now: i64,
        soon: i64,
    ) -> Result<ReadyGroups, Error> {
        let keys = QueueKeys::new(queue);
        let (mut found, mut cursor) = (ReadyGroups::default(), Some(String::from("0")));
        while let Some(from) = cursor {
            let mut call = LIST_READY_GROUPS.call(2);
            call.arg(keys.groups()).arg(keys.paused()).arg(keys.group_prefix()).arg(from).arg(now);
            call.arg(rules.grace_secs).arg(rules.max_delay_secs).arg(rules.max_size()).arg(soon.max(now));
            cursor = found.add(&self.redis.run(&LIST_READY_GROUPS, &call).await?, now)?;
        }
        found.ready.sort_unstable();
        found.ready.dedup();
        Ok(found)
    }

    /// Whether groups of a queue are listed.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn has_groups(&self, queue: &str) -> Result<bool, Error> {
        self.redis.command("EXISTS", QueueKeys::new(queue).groups()).await
    }

    /// Takes the tasks of a group into a set of this id, if the group is ready at `now` and not empty, and the
    /// queue not paused; the aggregation counts as lost at `deadline` (Unix seconds).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. After an [ambiguous](Error::is_ambiguous) error the set may
    /// have been made; [`reclaim`](Self::reclaim) it.
    pub async fn stage(
        &self,
        queue: &Arc<str>,
        group: &str,
        id: &str,
        rules: GroupRules,
        now: i64,
        deadline: i64,
    ) -> Result<Option<StagedSet>, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = STAGE.call(5);
        call.arg(keys.group(group)).arg(keys.groups()).arg(keys.aggregation_set(group, id));
        call.arg(keys.aggregation_sets()).arg(keys.paused());
        call.arg(group).arg(now).arg(rules.grace_secs).arg(rules.max_delay_secs).arg(rules.max_size());
        call.arg(rules.most()).arg(deadline);
        let mut count = 0;
        loop {
            let [held, left] = numbers(&STAGE, &self.redis.run(&STAGE, &call).await?)?;
            let held = usize::try_from(held).unwrap_or(0);
            // Each call moves a part of a large group; one that moved nothing was the last.
            if held == count || left == 0 || held >= rules.most() {
                let set = StagedSet { queue: queue.clone(), group: group.to_owned(), id: id.to_owned(), count: held };
                return Ok(Some(set).filter(|set| set.count > 0));
            }
            count = held;
        }
    }

    /// Reads the tasks of a set, oldest first; `None` when it was reclaimed. Ids without a task are dropped
    /// and no longer counted.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn read_set(&self, set: &mut StagedSet) -> Result<Option<Vec<StagedTask>>, Error> {
        let keys = QueueKeys::new(&set.queue);
        let key = set.key(&keys);
        let mut tasks = Vec::with_capacity(set.count);
        loop {
            let (page, dropped) = self.read_page(&set.queue, &key, tasks.len()).await?;
            set.count = set.count.saturating_sub(dropped);
            let end = page.is_empty() && dropped == 0;
            tasks.extend(page);
            if tasks.len() >= set.count || end {
                return Ok(Some(tasks).filter(|tasks| tasks.len() == set.count));
            }
        }
    }

    /// Some tasks of a set, and how many ids without a task were dropped.
    async fn read_page(&self, queue: &str, key: &str, from: usize) -> Result<(Vec<StagedTask>, usize), Error> {
        let mut call = READ_SET.call(1);
        call.arg(key).arg(QueueKeys::new(queue).task_prefix()).arg(from);
        let reply = self.redis.run(&READ_SET, &call).await?;
        let Value::Array(items) = reply else { return Err(Error::unexpected(READ_SET.name, &reply)) };
        let Some((Value::Int(dropped), pairs)) = items.split_first() else {
            return Err(Error::unexpected(READ_SET.name, &items));
        };
        let mut tasks = Vec::with_capacity(pairs.len() / 2);
        for pair in pairs.chunks(2) {
            let [Value::BulkString(id), Value::BulkString(raw)] = pair else {
                return Err(Error::unexpected(READ_SET.name, &pair));
            };
            let message = TaskMessage::from_bytes(Bytes::copy_from_slice(raw)).ok();
            let message = message.filter(|message| message.id.as_bytes() == id && message.queue == queue);
            tasks.push(StagedTask { id: String::from_utf8_lossy(id).into_owned(), member: id.clone(), message });
        }
        Ok((tasks, usize::try_from(*dropped).unwrap_or(0)))
    }

    /// Stores the task that a set has become (`None`: there is none) and deletes the tasks of the set, in
    /// one step. `tasks` are all tasks of the set, as they were read.
    ///
    /// Of a set with more than [`MAX_BATCH`] tasks only the name is taken away in that step;
    /// [`delete_aggregated`](Self::delete_aggregated) deletes them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. After an [ambiguous](Error::is_ambiguous) error make the call
    /// again.
    pub async fn aggregate(
        &self,
        set: &StagedSet,
        tasks: &[StagedTask],
        task: Option<&Composed>,
        now_ns: i64,
    ) -> Result<Aggregated, Error> {
        let keys = QueueKeys::new(&set.queue);
        let set_key = set.key(&keys);
        let message = task.map(|task| &task.message);
        let (state, place, at) = match task {
            Some(task) => place_of(&keys, task, now_ns),
            None => ("", keys.pending(), 0),
        };
        let mut call = AGGREGATE.call(6);
        call.arg(&set_key).arg(keys.aggregation_sets()).arg(place).arg(keys.groups());
        call.arg(keys.aggregated()).arg(keys.aggregated_set(&set.id));
        call.arg(keys.task_prefix()).arg(set.count).arg(state);
        call.arg(message.map_or("", |message| &message.id));
        call.arg(message.map(TaskMessage::to_bytes).as_deref().unwrap_or_default());
        call.arg(message.map_or("", |message| &message.unique_key)).arg(task.map_or(0, |task| task.unique_ttl));
        call.arg(at).arg(message.map_or("", |message| &message.group_key));
        if set.count <= MAX_BATCH {
            for task in tasks {
                call.arg(&task.member).arg(task.lock(&keys));
            }
        }
        let reply = self.redis.run(&AGGREGATE, &call).await?;
        let aggregated = |word| match word {
            Word::Applied | Word::Same => Some(Aggregated::Done),
            Word::IdTaken => Some(Aggregated::IdTaken),
            Word::Locked => Some(Aggregated::Duplicate),
            Word::Changed => Some(Aggregated::Lost),
            _ => None,
        };
        Ok(verdicts(AGGREGATE.name, &reply, 1, aggregated)?[0])
    }

    /// Archives tasks of a set, 1 to [`MAX_BATCH`], with the messages to store (`None`: as it is). Whether
    /// it was done; not when the set was reclaimed.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn archive_staged(
        &self,
        set: &mut StagedSet,
        tasks: &[(&StagedTask, Option<&TaskMessage>)],
        now: i64,
    ) -> Result<bool, Error> {
        let keys = QueueKeys::new(&set.queue);
        let mut call = ARCHIVE_STAGED.call(3 + tasks.len());
        call.arg(set.key(&keys)).arg(keys.aggregation_sets()).arg(keys.archived());
        for (task, _) in tasks {
            call.arg([keys.task_prefix().as_bytes(), &task.member].concat());
        }
        counted(&mut call, &keys, now);
        call.arg(set.count);
        for (task, message) in tasks {
            let ends = task.message.as_ref().is_some_and(|message| UniqueUntil::of(message).ends_in_archive());
            call.arg(&task.member).arg("").arg("").arg(if ends { task.lock(&keys) } else { "" });
            call.arg(message.map(TaskMessage::to_bytes).as_deref().unwrap_or_default()).arg(now).arg("").arg("");
        }
        match self.redis.run(&ARCHIVE_STAGED, &call).await? {
            Value::Int(-1) => Ok(false),
            Value::Int(left) => {
                set.count = usize::try_from(left).unwrap_or(0);
                Ok(true)
            }
            reply => Err(Error::unexpected(ARCHIVE_STAGED.name, &reply)),
        }
    }

    /// Gives an aggregation time until `deadline` (Unix seconds). Whether the set is still there.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn extend_set(&self, set: &StagedSet, deadline: i64) -> Result<bool, Error> {
        let keys = QueueKeys::new(&set.queue);
        let mut call = EXTEND_SET.call(2);
        call.arg(set.key(&keys)).arg(keys.aggregation_sets()).arg(set.count).arg(deadline);
        Ok(self.integer(&EXTEND_SET, &call).await? == 1)
    }

    /// Deletes tasks that were aggregated in sets too large to be deleted at once, a few sets per call;
    /// returns how many tasks.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn delete_aggregated(&self, queue: &str) -> Result<usize, Error> {
        let keys = QueueKeys::new(queue);
        let (_, sets): (u64, Vec<String>) = self.redis.command("SSCAN", (keys.aggregated(), 0, "COUNT", 10)).await?;
        let mut deleted = 0;
        for set in sets {
            loop {
                let (tasks, _) = self.read_page(queue, &set, 0).await?;
                let mut call = DELETE_AGGREGATED.call(2);
                call.arg(&set).arg(keys.aggregated()).arg(keys.task_prefix());
                for task in &tasks {
                    call.arg(&task.member).arg(task.lock(&keys));
                }
                deleted += tasks.len();
                if self.integer(&DELETE_AGGREGATED, &call).await? == 0 {
                    break;
                }
            }
        }
        Ok(deleted)
    }
}

impl ReadyGroups {
    /// Adds an answer of `list_ready_groups`; returns the cursor of the next call, if there is one.
    fn add(&mut self, reply: &Value, now: i64) -> Result<Option<String>, Error> {
        let Value::Array(items) = reply else { return Err(Error::unexpected(LIST_READY_GROUPS.name, reply)) };
        let [Value::BulkString(cursor), Value::Int(next), groups @ ..] = &items[..] else {
            return Err(Error::unexpected(LIST_READY_GROUPS.name, reply));
        };
        self.next = self.next.into_iter().chain(Some(*next).filter(|next| *next >= 0)).min();
        for group in groups.chunks(2) {
            let [Value::BulkString(name), Value::Int(at)] = group else {
                return Err(Error::unexpected(LIST_READY_GROUPS.name, &group));
            };
            // A name that is not UTF-8 cannot be that of any task's group (R9).
            match String::from_utf8(name.clone()) {
                Ok(name) if *at <= now => self.ready.push(name),
                Ok(name) => self.soon.push((name, *at)),
                Err(_) => {}
            }
        }
        let cursor = String::from_utf8_lossy(cursor).into_owned();
        Ok(Some(cursor).filter(|cursor| cursor != "0"))
    }
}

pub(super) fn numbers(script: &Script, reply: &Value) -> Result<[i64; 2], Error> {
    match reply {
        Value::Array(items) => match items[..] {
            [Value::Int(first), Value::Int(second)] => Ok([first, second]),
            _ => Err(Error::unexpected(script.name, reply)),
        },
        _ => Err(Error::unexpected(script.name, reply)),
    }
}
