//! What keeps queues moving: `forward.lua`, `list_expired.lua`, `delete_expired_completed.lua`.

use bytes::Bytes;
use queue_core::keys::QueueKeys;
use queue_core::{State, TaskMessage};
use redis::Value;

use super::{Broker, MAX_BATCH};
use crate::error::Error;
use crate::script::{DELETE_EXPIRED_COMPLETED, FORWARD, LIST_EXPIRED};

/// What one call of [`Broker::forward`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// Tasks that became pending, or joined their group.
    pub moved: u64,
    /// Ids without a task that were dropped.
    pub dropped: u64,
    /// The Unix second at which the next one is due.
    pub next_due: Option<i64>,
}

/// An active task whose lease has ended.
#[derive(Debug)]
pub struct ExpiredLease {
    /// Task id.
    pub id: String,
    /// When the lease ended: its score, as Redis printed it.
    pub expiry: String,
    /// The message as it is stored.
    pub raw: Bytes,
    /// The task; `None` when its message cannot be read.
    pub message: Option<TaskMessage>,
}

impl Broker {
    /// Makes up to [`MAX_BATCH`] tasks of `from` (scheduled or retry) pending whose time has come.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn forward(&self, queue: &str, from: State, now_ns: i64) -> Result<Forwarded, Error> {
        let keys = QueueKeys::new(queue);
        let source = if from == State::Retry { keys.retry() } else { keys.scheduled() };
        let mut call = FORWARD.call(3);
        call.arg(source).arg(keys.pending()).arg(keys.groups());
        call.arg(keys.task_prefix()).arg(keys.group_prefix());
        call.arg(now_ns.div_euclid(1_000_000_000)).arg(now_ns).arg(MAX_BATCH);
        let reply = self.redis.run(&FORWARD, &call).await?;
        let Value::Array(items) = &reply else { return Err(Error::unexpected(FORWARD.name, &reply)) };
        let [Value::Int(moved), Value::Int(dropped), Value::Int(next)] = items[..] else {
            return Err(Error::unexpected(FORWARD.name, &reply));
        };
        Ok(Forwarded {
            moved: u64::try_from(moved).unwrap_or(0),
            dropped: u64::try_from(dropped).unwrap_or(0),
            next_due: (next >= 0).then_some(next),
        })
    }

    /// The active tasks whose leases ended at `cutoff` (Unix seconds) or before, at most [`MAX_BATCH`],
    /// and the ids that had no task and were dropped.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_expired(&self, queue: &str, cutoff: i64) -> Result<(Vec<ExpiredLease>, Vec<String>), Error> {
        let keys = QueueKeys::new(queue);
        let mut call = LIST_EXPIRED.call(2);
        call.arg(keys.lease()).arg(keys.active());
        call.arg(keys.task_prefix()).arg(cutoff).arg(MAX_BATCH);
        let reply = self.redis.run(&LIST_EXPIRED, &call).await?;
        let Value::Array(items) = reply else { return Err(Error::unexpected(LIST_EXPIRED.name, &reply)) };
        let (mut expired, mut ghosts) = (Vec::new(), Vec::new());
        for entry in items.chunks_exact(3) {
            let [Value::BulkString(id), Value::BulkString(expiry), Value::BulkString(raw)] = entry else {
                return Err(Error::unexpected(LIST_EXPIRED.name, &entry));
            };
            let id = String::from_utf8_lossy(id).into_owned();
            if raw.is_empty() {
                ghosts.push(id);
                continue;
            }
            let raw = Bytes::copy_from_slice(raw);
            let message = TaskMessage::from_bytes(raw.clone()).ok();
            let expiry = String::from_utf8_lossy(expiry).into_owned();
            expired.push(ExpiredLease { id, expiry, raw, message });
        }
        Ok((expired, ghosts))
    }

    /// Deletes up to [`MAX_BATCH`] completed tasks whose retention has ended; returns how many.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn delete_expired_completed(&self, queue: &str, now: i64) -> Result<usize, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = DELETE_EXPIRED_COMPLETED.call(1);
        call.arg(keys.completed()).arg(keys.task_prefix()).arg(now).arg(MAX_BATCH);
        match self.redis.run(&DELETE_EXPIRED_COMPLETED, &call).await? {
            Value::Int(count) => Ok(usize::try_from(count).unwrap_or(0)),
            reply => Err(Error::unexpected(DELETE_EXPIRED_COMPLETED.name, &reply)),
        }
    }
}
