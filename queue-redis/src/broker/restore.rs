//! Storing what was read in another Redis: `restore.lua`, `restore_queue.lua`.

use bytes::Bytes;
use queue_core::keys::QueueKeys;
use queue_core::limits::ARCHIVE_MAX;
use queue_core::{TaskState, UniqueUntil};
use redis::Value;

use super::{Broker, StoredCounter, StoredQueue, StoredTask};
use crate::error::Error;
use crate::script::{RESTORE, RESTORE_QUEUE};

/// How long the note lives that an export was imported: 30 days since the last call.
const RECORD_TTL_SECS: i64 = 30 * 24 * 60 * 60;
/// More counters than 90 days can have; one call of the script takes no more.
const MAX_COUNTERS: usize = 200;

/// What became of a task that was to be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreVerdict {
    /// It is stored.
    Stored,
    /// Its id is taken by the task with this message, perhaps by itself.
    IdTaken(Bytes),
    /// Another task holds its uniqueness lock.
    Duplicate,
    /// It is gone, and its window is open still: it was stored in this window before.
    InWindow,
    /// It is archived, and the archive is full.
    ArchiveFull,
}

/// What a call to restore tasks did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// A verdict for each task.
    Done(Vec<RestoreVerdict>),
    /// Nothing: the import stands at this line. At a later one, an answer was lost, or somebody else imports the same;
    /// at an earlier one, Redis has lost what it had stored.
    StandsAt(u64),
}

/// How far an import came, in all its attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreNote {
    /// The line at which it stands; 0 when it has not begun.
    pub line: u64,
    /// How many tasks were not stored.
    pub refused: u64,
    /// How many of these were there already. An import that died may have made it too few.
    pub present: u64,
}

impl RestoreNote {
    /// How many tasks were left out, because their ids or locks were taken by others, or the archive was full.
    pub fn left_out(&self) -> u64 {
        self.refused.saturating_sub(self.present)
    }
}

impl Broker {
    /// How far the import of an export into this queue came.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn restore_note(&self, queue: &str, export_id: &str) -> Result<RestoreNote, Error> {
        let record = QueueKeys::new(queue).import_record(export_id);
        let [line, refused, present]: [Option<u64>; 3] =
            self.redis.command("HMGET", (record, ["line", "refused", "present"].as_slice())).await?;
        let [line, refused, present] = [line, refused, present].map(Option::unwrap_or_default);
        Ok(RestoreNote { line, refused, present })
    }

    /// Notes that so many tasks were refused because they are there already.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn note_present(&self, queue: &str, export_id: &str, tasks: u64) -> Result<(), Error> {
        let record = QueueKeys::new(queue).import_record(export_id);
        self.redis.command("HINCRBY", (record, "present", tasks)).await
    }

    /// Forgets how far the import of an export got, so that it can be done once more.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn forget_restored(&self, queue: &str, export_id: &str) -> Result<(), Error> {
        let record = QueueKeys::new(queue).import_record(export_id);
        self.redis.command("HDEL", (record, ["line", "refused", "present"].as_slice())).await
    }

    /// Stores tasks that [fit](StoredTask::unfit) the queue as they are, at most [`MAX_BATCH`](super::MAX_BATCH),
    /// if the import stands at the line `from`; then it stands at the line `to`. `now_ms` tells how much of the
    /// locks is left.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then nothing is stored, unless the error
    /// [is ambiguous](Error::is_ambiguous).
    pub async fn restore(
        &self,
        queue: &str,
        export_id: &str,
        (from, to): (u64, u64),
        tasks: &[StoredTask],
        now_ms: i64,
    ) -> Result<Restored, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = RESTORE.call(2 + 3 * tasks.len());
        call.arg(keys.import_record(export_id)).arg(keys.groups());
        let ttls: Vec<(String, i64)> = tasks.iter().map(|task| lock(task, now_ms)).collect();
        for (task, (lock, _)) in tasks.iter().zip(&ttls) {
            let key = keys.task(&task.id);
            let lock = if lock.is_empty() { key.clone() } else { lock.clone() };
            let group = task.group.as_deref().unwrap_or_default();
            let container = keys.container(task.state).unwrap_or_else(|| keys.group(group));
            call.arg(key).arg(lock).arg(container);
        }
        call.arg(from).arg(to).arg(RECORD_TTL_SECS).arg(ARCHIVE_MAX);
        for (task, (_, ttl)) in tasks.iter().zip(&ttls) {
            // A group is listed while a task waits in it.
            let group = task.group.as_deref().filter(|_| task.state == TaskState::Aggregating).unwrap_or_default();
            call.arg(&task.id).arg(task.state.as_str()).arg(task.score).arg(task.score.is_none().then_some(""));
            call.arg(group).arg(*ttl).arg(2 * task.fields.len());
            for (field, value) in &task.fields {
                call.arg(field).arg(&value[..]);
            }
        }
        match self.redis.run(&RESTORE, &call).await? {
            Value::Int(line) => Ok(Restored::StandsAt(u64::try_from(line).unwrap_or(0))),
            Value::Array(verdicts) if verdicts.len() == tasks.len() => {
                let verdict = |value: Value| match value {
                    Value::BulkString(text) if text == b"a" => Ok(RestoreVerdict::Stored),
                    Value::BulkString(text) if text == b"l" => Ok(RestoreVerdict::Duplicate),
                    Value::BulkString(text) if text == b"w" => Ok(RestoreVerdict::InWindow),
                    Value::BulkString(text) if text == b"x" => Ok(RestoreVerdict::ArchiveFull),
                    Value::BulkString(message) => Ok(RestoreVerdict::IdTaken(message.into())),
                    other => Err(Error::unexpected(RESTORE.name, &other)),
                };
                Ok(Restored::Done(verdicts.into_iter().map(verdict).collect::<Result<_, _>>()?))
            }
            other => Err(Error::unexpected(RESTORE.name, &other)),
        }
    }

    /// Adds the counters of a queue to those that are there, and pauses it if it was; once for each export.
    /// Returns whether it was done now. Counters that are none are left out.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn restore_queue(&self, export_id: &str, stored: &StoredQueue) -> Result<bool, Error> {
        let keys = QueueKeys::new(&stored.queue);
        let counters: Vec<&StoredCounter> =
            stored.counters.iter().filter(|counter| counter.is_known()).take(MAX_COUNTERS).collect();
        let mut call = RESTORE_QUEUE.call(2 + counters.len());
        call.arg(keys.import_record(export_id)).arg(keys.paused());
        for counter in &counters {
            call.arg(format!("{}{}", keys.prefix(), counter.name));
        }
        call.arg(stored.paused.as_deref().unwrap_or_default()).arg(RECORD_TTL_SECS);
        for counter in &counters {
            call.arg(counter.value).arg(counter.expires_at.unwrap_or(0));
        }
        Ok(self.integer(&RESTORE_QUEUE, &call).await? == 1)
    }
}

/// The lock that a task holds still, and for how many seconds as scripts are told; nothing and 0 for none.
fn lock(task: &StoredTask, now_ms: i64) -> (String, i64) {
    let left_ms = task.lock_expires_at_ms.map_or(0, |expires_at| expires_at.saturating_sub(now_ms));
    match task.message() {
        // Redis takes whole seconds here (R18); a lock must not end early.
        Ok(message) if left_ms > 0 && !message.unique_key.is_empty() => {
            let ttl = UniqueUntil::of(&message).ttl(left_ms.saturating_add(999) / 1_000);
            (message.unique_key, ttl)
        }
        _ => (String::new(), 0),
    }
}
