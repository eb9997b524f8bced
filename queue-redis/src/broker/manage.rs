//! What somebody who looks after a queue does to tasks that no worker has: `run_tasks.lua`,
//! `archive_tasks.lua`, `update_payload.lua`, `move_task.lua`.

use queue_core::keys::QueueKeys;
use queue_core::limits::{ARCHIVE_MAX, ARCHIVE_MAX_AGE_SECS};
use queue_core::{TaskMessage, TaskState};
use redis::{Cmd, Value};

use super::{Broker, verdicts};
use crate::error::Error;
use crate::script::{ARCHIVE_TASKS, MOVE_TASK, RUN_TASKS, UPDATE_PAYLOAD, Word};

/// What became of a task that was to be run, archived or deleted. All but [`Change::Applied`] and
/// [`Change::Dropped`] mean that nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was done.
    Applied,
    /// There is no such task.
    Gone,
    /// A worker has it.
    Active,
    /// It was pending, or archived, already.
    AlreadyThere,
    /// It is no longer in the state in which it was seen.
    MovedOn,
    /// It is not where its state says: it is being aggregated, or a tool left it behind.
    Misplaced,
    /// There was no task, but an id or a hash that was left of one; it was deleted.
    Dropped,
    /// It is pending, but not around the place where it was seen.
    Elsewhere,
}

impl Change {
    /// Whether something was done.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Applied | Self::Dropped)
    }
}

pub(super) fn change(word: Word) -> Option<Change> {
    match word {
        Word::Applied => Some(Change::Applied),
        Word::Missing => Some(Change::Gone),
        Word::WorkedOn => Some(Change::Active),
        Word::AlreadyThere => Some(Change::AlreadyThere),
        Word::Changed => Some(Change::MovedOn),
        Word::Misplaced => Some(Change::Misplaced),
        Word::Remains => Some(Change::Dropped),
        Word::Elsewhere => Some(Change::Elsewhere),
        _ => None,
    }
}

/// Where tasks were when somebody decided about them. Those that have left it since stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Not looked at: whichever state they are in. A pending task is searched for in the whole list, so this
    /// is for one at a time.
    Anywhere,
    /// The same, but for tasks that have succeeded: those stay as they are.
    Uncompleted,
    /// In one of the sorted sets.
    In(TaskState),
    /// In this group.
    InGroup(&'a str),
    /// In the pending list, the first of them at this place counted from the head, and the others within
    /// the hundred after it.
    PendingAt(usize),
}

impl Seen<'_> {
    pub(super) fn state(&self) -> &'static str {
        match self {
            Self::Anywhere => "",
            Self::Uncompleted => "uncompleted",
            Self::In(state) => state.as_str(),
            Self::InGroup(_) => TaskState::Aggregating.as_str(),
            Self::PendingAt(_) => TaskState::Pending.as_str(),
        }
    }

    pub(super) fn place(&self) -> usize {
        if let Self::PendingAt(place) = self { *place } else { 0 }
    }
}

/// A payload to be replaced by another.
#[derive(Debug, Clone)]
pub struct PayloadChange<'a> {
    /// Task id.
    pub id: &'a str,
    /// The message as it was read.
    pub old: &'a [u8],
    /// The message to write.
    pub new: &'a [u8],
    /// The locks of the old and the new payload, where the task has one that belongs to its payload.
    pub locks: Option<(&'a str, &'a str)>,
}

/// What became of a [`PayloadChange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadVerdict {
    /// It was written.
    Applied,
    /// There is no such task.
    Gone,
    /// A worker has it, or it is completed.
    Over,
    /// The task with this id holds the lock of the new payload.
    Locked(String),
    /// The message has changed since it was read.
    Changed,
    /// It is not where its state says: it is being aggregated, or a tool left it behind.
    Misplaced,
}

/// What became of a task that was to be put into another queue of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveVerdict {
    /// It is there.
    Moved,
    /// There is no such task.
    Gone,
    /// The other queue has a task of this id.
    IdTaken,
    /// It does not wait by itself: a worker has it, it is in a group, or it has ended.
    NotWaiting,
    /// The message has changed since it was read.
    Changed,
    /// It is not where its state says.
    Misplaced,
}

impl Broker {
    /// Puts a task that waits from a queue into another one of its family, which has to be [listed](Self::publish_queue)
    /// before. `old` is its message as it was read, and `message` the same decoded.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. Called again with what was read before, it finds out whether it was moved.
    pub async fn move_task(
        &self,
        (queue, to): (&str, &str),
        old: &[u8],
        mut message: TaskMessage,
        now_ns: i64,
    ) -> Result<MoveVerdict, Error> {
        let (from, other) = (QueueKeys::new(queue), QueueKeys::new(to));
        to.clone_into(&mut message.queue);
        let mut call = MOVE_TASK.call(2);
        call.arg(from.task(&message.id)).arg(other.task(&message.id));
        call.arg(&message.id).arg(from.prefix()).arg(other.prefix()).arg(old).arg(&message.to_bytes()[..]).arg(now_ns);
        let verdict = |word| match word {
            Word::Applied | Word::Same => Some(MoveVerdict::Moved),
            Word::Missing => Some(MoveVerdict::Gone),
            Word::IdTaken => Some(MoveVerdict::IdTaken),
            Word::WorkedOn => Some(MoveVerdict::NotWaiting),
            Word::Changed => Some(MoveVerdict::Changed),
            Word::Misplaced => Some(MoveVerdict::Misplaced),
            _ => None,
        };
        let reply = self.redis.run(&MOVE_TASK, &call).await?;
        verdicts(MOVE_TASK.name, &reply, 1, verdict).map(|mut verdicts| verdicts.remove(0))
    }

    /// Makes tasks pending that wait, or that have ended, in the order given; 1 to
    /// [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. Tasks before the one at which it refused may have been changed.
    pub async fn run_tasks<I: AsRef<[u8]>>(
        &self,
        queue: &str,
        seen: Seen<'_>,
        ids: &[I],
        now_ns: i64,
    ) -> Result<Vec<Change>, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = RUN_TASKS.call(2);
        call.arg(keys.pending()).arg(keys.groups());
        call.arg(keys.prefix()).arg(seen.state()).arg(now_ns);
        with_ids(&mut call, ids);
        verdicts(RUN_TASKS.name, &self.redis.run(&RUN_TASKS, &call).await?, ids.len(), change)
    }

    /// Archives tasks that no worker has; 1 to [`MAX_BATCH`](super::MAX_BATCH). Also returns how many older
    /// ones were deleted because the archive was full, or they were too old, at most as many.
    ///
    /// # Errors
    /// As [`run_tasks`](Self::run_tasks).
    pub async fn archive_tasks<I: AsRef<[u8]>>(
        &self,
        queue: &str,
        seen: Seen<'_>,
        ids: &[I],
        now: i64,
    ) -> Result<(Vec<Change>, u64), Error> {
        let keys = QueueKeys::new(queue);
        let mut call = ARCHIVE_TASKS.call(3);
        call.arg(keys.pending()).arg(keys.archived()).arg(keys.groups());
        call.arg(keys.prefix()).arg(seen.state()).arg(seen.place());
        call.arg(now).arg(now - ARCHIVE_MAX_AGE_SECS).arg(ARCHIVE_MAX);
        with_ids(&mut call, ids);
        let reply = self.redis.run(&ARCHIVE_TASKS, &call).await?;
        let Value::Array(parts) = &reply else { return Err(Error::unexpected(ARCHIVE_TASKS.name, &reply)) };
        let [Value::Int(trimmed), changes] = &parts[..] else {
            return Err(Error::unexpected(ARCHIVE_TASKS.name, &reply));
        };
        let changes = verdicts(ARCHIVE_TASKS.name, changes, ids.len(), change)?;
        Ok((changes, u64::try_from(*trimmed).unwrap_or(0)))
    }

    /// Replaces the payload of a task that no worker has; its uniqueness lock follows, with the time it has
    /// left.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then nothing is changed, unless the error
    /// [is ambiguous](Error::is_ambiguous).
    pub async fn update_payload(&self, queue: &str, change: &PayloadChange<'_>) -> Result<PayloadVerdict, Error> {
        let task = QueueKeys::new(queue).task(change.id);
        let (old_lock, new_lock) = change.locks.unwrap_or((&task, &task));
        let mut call = UPDATE_PAYLOAD.call(3);
        call.arg(&task).arg(old_lock).arg(new_lock).arg(change.id).arg(change.old).arg(change.new);
        let reply = self.redis.run(&UPDATE_PAYLOAD, &call).await?;
        let Value::Array(parts) = &reply else { return Err(Error::unexpected(UPDATE_PAYLOAD.name, &reply)) };
        let holder = match parts.get(1) {
            Some(Value::BulkString(id)) => String::from_utf8_lossy(id).into_owned(),
            _ => String::new(),
        };
        let verdict = |word| match word {
            Word::Applied => Some(PayloadVerdict::Applied),
            Word::Missing => Some(PayloadVerdict::Gone),
            Word::WorkedOn => Some(PayloadVerdict::Over),
            Word::Locked => Some(PayloadVerdict::Locked(holder.clone())),
            Word::Changed => Some(PayloadVerdict::Changed),
            Word::Misplaced => Some(PayloadVerdict::Misplaced),
            _ => None,
        };
        let mut verdict = verdicts(UPDATE_PAYLOAD.name, parts.first().unwrap_or(&Value::Nil), 1, verdict)?;
        Ok(verdict.remove(0))
    }
}

pub(super) fn with_ids<I: AsRef<[u8]>>(call: &mut Cmd, ids: &[I]) {
    for id in ids {
        call.arg(id.as_ref());
    }
}
