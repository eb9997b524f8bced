//! New tasks: `enqueue.lua`, `schedule.lua`, `add_to_group.lua`.

use queue_core::keys::QueueKeys;
use queue_core::options::{Composed, Placement};
use queue_core::wire::TaskMessage;

use super::{Broker, verdicts};
use crate::error::Error;
use crate::script::{ADD_TO_GROUP, ENQUEUE, SCHEDULE};

/// What became of a task that was to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueVerdict {
    /// It is stored.
    Stored,
    /// Its id is taken in this queue.
    IdTaken,
    /// Its id is taken by this very message. When the call was sent before and its answer was lost, that
    /// means success; otherwise it is an id conflict like any other.
    AlreadyStored,
    /// Another task holds the uniqueness lock.
    Duplicate,
}

fn verdict(byte: u8) -> Option<EnqueueVerdict> {
    match byte {
        b'1' => Some(EnqueueVerdict::Stored),
        b'0' => Some(EnqueueVerdict::IdTaken),
        b'2' => Some(EnqueueVerdict::AlreadyStored),
        b'3' => Some(EnqueueVerdict::Duplicate),
        _ => None,
    }
}

/// The lock key of a task; its own key stands for "none", because every key must be in the queue's slot.
pub(super) fn lock_or(message: &TaskMessage, task_key: &str) -> String {
    if message.unique_key.is_empty() { task_key.to_owned() } else { message.unique_key.clone() }
}

impl Broker {
    /// Stores tasks, all of this queue, and makes them pending; 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then none is stored, unless the error
    /// [is ambiguous](Error::is_ambiguous).
    pub async fn enqueue(&self, queue: &str, tasks: &[Composed], now_ns: i64) -> Result<Vec<EnqueueVerdict>, Error> {
        let keys = QueueKeys::new(queue);
        let locks = tasks.iter().any(|task| !task.message.unique_key.is_empty());
        let keys_per_task = match (tasks, locks) {
            (_, true) => 2,
            ([_], false) => 1,
            (_, false) => 0,
        };
        let mut call = ENQUEUE.call(1 + keys_per_task * tasks.len());
        call.arg(keys.pending());
        if keys_per_task > 0 {
            for task in tasks {
                let key = keys.task(&task.message.id);
                let lock = locks.then(|| lock_or(&task.message, &key));
                call.arg(key).arg(lock);
            }
        }
        call.arg(now_ns).arg((keys_per_task == 0).then(|| keys.task_prefix()));
        for task in tasks {
            call.arg(&task.message.id).arg(&task.message.to_bytes()[..]).arg(locks.then_some(task.unique_ttl));
        }
        verdicts(ENQUEUE.name, &self.redis.run(&ENQUEUE, &call).await?, tasks.len(), verdict)
    }

    /// Stores tasks, all of this queue and with [`Placement::Scheduled`], to be started later; 1 to
    /// [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub async fn schedule(&self, queue: &str, tasks: &[Composed]) -> Result<Vec<EnqueueVerdict>, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = SCHEDULE.call(1 + 2 * tasks.len());
        call.arg(keys.scheduled());
        for task in tasks {
            let key = keys.task(&task.message.id);
            let lock = lock_or(&task.message, &key);
            call.arg(key).arg(lock);
        }
        for task in tasks {
            let at = match task.placement {
                Placement::Scheduled { at } => at,
                Placement::Pending | Placement::Aggregating => 0,
            };
            call.arg(&task.message.id).arg(&task.message.to_bytes()[..]);
            call.arg(task.unique_ttl).arg(at).arg(&task.message.group_key);
        }
        verdicts(SCHEDULE.name, &self.redis.run(&SCHEDULE, &call).await?, tasks.len(), verdict)
    }

    /// Stores a task in the group it names.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub async fn add_to_group(&self, task: &Composed, now: i64) -> Result<EnqueueVerdict, Error> {
        let message = &task.message;
        let keys = QueueKeys::new(&message.queue);
        let key = keys.task(&message.id);
        let lock = lock_or(message, &key);
        let mut call = ADD_TO_GROUP.call(4);
        call.arg(keys.group(&message.group_key)).arg(keys.groups()).arg(key).arg(lock);
        call.arg(&message.id).arg(&message.to_bytes()[..]).arg(task.unique_ttl).arg(now).arg(&message.group_key);
        let reply = self.redis.run(&ADD_TO_GROUP, &call).await?;
        Ok(verdicts(ADD_TO_GROUP.name, &reply, 1, verdict)?[0])
    }
}
