//! New tasks: `enqueue.lua`, `enqueue_front.lua`, `schedule.lua`, `add_to_group.lua`; and their locks: `unlock.lua`.

use queue_core::keys::QueueKeys;
use queue_core::options::{Composed, Placement};
use queue_core::wire::TaskMessage;
use redis::Cmd;

use super::{Broker, verdicts};
use crate::error::Error;
use crate::script::{ADD_TO_GROUP, ENQUEUE, ENQUEUE_FRONT, SCHEDULE, Script, UNLOCK, Word};

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

fn verdict(word: Word) -> Option<EnqueueVerdict> {
    match word {
        Word::Applied => Some(EnqueueVerdict::Stored),
        Word::IdTaken => Some(EnqueueVerdict::IdTaken),
        Word::Same => Some(EnqueueVerdict::AlreadyStored),
        Word::Locked => Some(EnqueueVerdict::Duplicate),
        _ => None,
    }
}

/// The state of a new task, the list or set it goes into, and since when it is pending (nanoseconds), or its score.
pub(super) fn place_of(keys: &QueueKeys, task: &Composed, now_ns: i64) -> (&'static str, String, i64) {
    match task.placement {
        // Whoever asks has refused a task in front.
        Placement::Pending | Placement::Front => ("pending", keys.pending(), now_ns),
        Placement::Scheduled { at } => ("scheduled", keys.scheduled(), at),
        Placement::Aggregating => {
            ("aggregating", keys.group(&task.message.group_key), now_ns.div_euclid(1_000_000_000))
        }
    }
}

impl Broker {
    /// Stores tasks, all of this queue, and makes them pending; 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then none is stored, unless the error
    /// [is ambiguous](Error::is_ambiguous).
    pub async fn enqueue(&self, queue: &str, tasks: &[Composed], now_ns: i64) -> Result<Vec<EnqueueVerdict>, Error> {
        self.make_pending(&ENQUEUE, queue, tasks, now_ns).await
    }

    /// The same, in front of all that is pending; the last of them is taken first.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_front(
        &self,
        queue: &str,
        tasks: &[Composed],
        now_ns: i64,
    ) -> Result<Vec<EnqueueVerdict>, Error> {
        self.make_pending(&ENQUEUE_FRONT, queue, tasks, now_ns).await
    }

    async fn make_pending(
        &self,
        script: &'static Script,
        queue: &str,
        tasks: &[Composed],
        now_ns: i64,
    ) -> Result<Vec<EnqueueVerdict>, Error> {
        let keys = QueueKeys::new(queue);
        // Every argument costs Redis time.
        let locks = tasks.iter().any(|task| !task.message.unique_key.is_empty());
        let mut call = script.call(1);
        call.arg(keys.pending()).arg(keys.task_prefix()).arg(now_ns).arg(if locks { 4 } else { 2 });
        for task in tasks {
            call.arg(&task.message.id).arg(&task.message.to_bytes()[..]);
            if locks {
                call.arg(&task.message.unique_key).arg(task.unique_ttl);
            }
        }
        verdicts(script.name, &self.redis.run(script, &call).await?, tasks.len(), verdict)
    }

    /// Stores tasks, all of this queue and with [`Placement::Scheduled`], to be started later; 1 to
    /// [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub async fn schedule(&self, queue: &str, tasks: &[Composed]) -> Result<Vec<EnqueueVerdict>, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = SCHEDULE.call(1);
        call.arg(keys.scheduled()).arg(keys.task_prefix());
        for task in tasks {
            let at = match task.placement {
                Placement::Scheduled { at } => at,
                Placement::Pending | Placement::Front | Placement::Aggregating => 0,
            };
            with_place(&mut call, task, at);
        }
        verdicts(SCHEDULE.name, &self.redis.run(&SCHEDULE, &call).await?, tasks.len(), verdict)
    }

    /// Stores a task in the group it names.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub async fn add_to_group(&self, task: &Composed, now: i64) -> Result<EnqueueVerdict, Error> {
        let keys = QueueKeys::new(&task.message.queue);
        let mut call = ADD_TO_GROUP.call(2);
        call.arg(keys.group(&task.message.group_key)).arg(keys.groups()).arg(keys.task_prefix());
        with_place(&mut call, task, now);
        let reply = self.redis.run(&ADD_TO_GROUP, &call).await?;
        Ok(verdicts(ADD_TO_GROUP.name, &reply, 1, verdict)?[0])
    }
}

impl Broker {
    /// Frees the uniqueness lock of a task; returns whether it was the task's. One of another queue is left alone.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn unlock(&self, task: &TaskMessage) -> Result<bool, Error> {
        if !QueueKeys::new(&task.queue).may_own(&task.unique_key) {
            return Ok(false);
        }
        let mut call = UNLOCK.call(1);
        call.arg(&task.unique_key).arg(&task.id);
        Ok(self.integer(&UNLOCK, &call).await? == 1)
    }
}

/// A new task and its score in a sorted set.
fn with_place(call: &mut Cmd, task: &Composed, at: i64) {
    call.arg(&task.message.id).arg(&task.message.to_bytes()[..]).arg(&task.message.unique_key);
    call.arg(task.unique_ttl).arg(at).arg(&task.message.group_key);
}
