//! What operations have deleted, and how it comes back.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{BIN_KEPT_SECS, CHANGE_BATCH, MAX_BATCH};
use queue_core::{TaskInfo, TaskMessage, TaskState};
use queue_redis::broker::{Bin, Undeleted};
use serde::Serialize;

use super::run::Step;
use super::{MOST, Operation, PIECE};
use crate::bulk::Drive as _;
use crate::error::Error;
use crate::{Inspector, Progress};

/// What can be restored of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BinInfo {
    /// The operation that has deleted the tasks.
    pub operation: Operation,
    /// How many tasks are left of them, by queue. Others were restored, or have expired.
    pub tasks: BTreeMap<String, u64>,
    /// Until when all of them are kept; they go within an hour after that.
    pub until: Option<DateTime<Utc>>,
}

impl BinInfo {
    /// How many tasks are left in it.
    pub fn left(&self) -> u64 {
        crate::lenient::total(self.tasks.values())
    }
}

impl Inspector {
    /// The bins that have something in them, the youngest first.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn bins(&self) -> Result<Vec<BinInfo>, Error> {
        let mut bins = Vec::new();
        for operation in self.operations(MOST).await? {
            if operation.pieces.is_empty() {
                continue;
            }
            let bin = self.bin_of(operation).await?;
            if bin.left() > 0 {
                bins.push(bin);
            }
        }
        Ok(bins)
    }

    /// What can be restored of an operation.
    ///
    /// # Errors
    /// [`Error::OperationNotFound`], [`Error::BinNotFound`] where there is nothing, or no longer; or Redis cannot be asked or refuses.
    pub async fn bin(&self, id: &str) -> Result<BinInfo, Error> {
        let bin = self.bin_of(self.operation(id).await?).await?;
        if bin.left() > 0 { Ok(bin) } else { Err(Error::BinNotFound(id.to_owned())) }
    }

    async fn bin_of(&self, operation: Operation) -> Result<BinInfo, Error> {
        let tasks = self.bin_sizes(&operation).await?;
        let until = operation.started_at.map(|at| at + TimeDelta::seconds(BIN_KEPT_SECS));
        Ok(BinInfo { operation, tasks, until })
    }

    pub(super) async fn bin_sizes(&self, operation: &Operation) -> Result<BTreeMap<String, u64>, Error> {
        let mut sizes = BTreeMap::new();
        let mut connection = self.redis.pooled().await?;
        for (queue, last) in &operation.pieces {
            let queue_keys = QueueKeys::new(queue);
            let mut count = redis::pipe();
            for piece in 0..=*last {
                count.cmd("LLEN").arg(queue_keys.bin_piece(&operation.id, piece));
            }
            let counts: Vec<u64> = connection.pipeline("LLEN", &count).await?;
            sizes.insert(queue.clone(), crate::lenient::total(&counts));
        }
        sizes.retain(|_, tasks| *tasks > 0);
        Ok(sizes)
    }

    /// Tasks in the bin of an operation, as they were, 1,000 of each queue at the most. One whose message cannot be read is left out.
    ///
    /// # Errors
    /// As [`bin`](Self::bin).
    pub async fn binned_tasks(&self, id: &str, most: usize) -> Result<Vec<TaskInfo>, Error> {
        let operation = self.bin(id).await?.operation;
        let mut tasks = Vec::new();
        let mut connection = self.redis.pooled().await?;
        for (queue, last) in &operation.pieces {
            let keys = QueueKeys::new(queue);
            for piece in 0..=*last {
                let left = most.saturating_sub(tasks.len());
                if left == 0 {
                    return Ok(tasks);
                }
                let ids = self.binned_ids(&keys.bin_piece(id, piece), 0, left).await?;
                if ids.is_empty() {
                    continue;
                }
                let mut fetch = redis::pipe();
                for task in &ids {
                    fetch.cmd("HMGET").arg([keys.bin_prefix(id).as_bytes(), task].concat()).arg("msg").arg("state");
                }
                let found: Vec<(Option<Vec<u8>>, Option<String>)> = connection.pipeline("HMGET", &fetch).await?;
                tasks.extend(found.into_iter().filter_map(|(message, state)| {
                    let state: TaskState = state?.parse().ok()?;
                    Some(TaskInfo::new(TaskMessage::from_bytes(message?.into()).ok()?, state))
                }));
            }
        }
        Ok(tasks)
    }

    async fn binned_ids(&self, piece: &str, from: usize, count: usize) -> Result<Vec<Bytes>, Error> {
        let mut range = redis::cmd("LRANGE");
        range.arg(piece).arg(from).arg(from + count.max(1) - 1);
        Ok(self.redis.query("LRANGE", &range).await?)
    }

    pub(super) async fn empty_bin(&self, operation: &Operation) -> Result<u64, Error> {
        let mut deleted = 0;
        for (queue, last) in &operation.pieces {
            let keys = QueueKeys::new(queue);
            for piece in 0..=*last {
                let list = keys.bin_piece(&operation.id, piece);
                let ids = self.binned_ids(&list, 0, queue_core::limits::BIN_PIECE).await?;
                for ids in ids.chunks(MAX_BATCH) {
                    let prefix = keys.bin_prefix(&operation.id);
                    let tasks: Vec<Vec<u8>> = ids.iter().map(|id| [prefix.as_bytes(), id].concat()).collect();
                    deleted += self.redis.query::<u64>("UNLINK", redis::cmd("UNLINK").arg(tasks)).await?;
                }
                // Behind its tasks: they are found through it.
                self.redis.query::<()>("UNLINK", redis::cmd("UNLINK").arg(list)).await?;
            }
            let mut forget = redis::cmd("HDEL");
            forget.arg(keys::operation(&operation.id)).arg(format!("{PIECE}{queue}"));
            self.redis.query::<()>("HDEL", &forget).await?;
        }
        Ok(deleted)
    }
}

impl<P: FnMut(Progress) + Send> Step<'_, P> {
    /// Brings back what another operation has put into the bin of a queue. The order of the ids is the one in which they were deleted.
    pub(super) async fn restore(&mut self, queue: &str, from: &str) -> Result<(), Error> {
        let source = self.inspector.operation(from).await?;
        let Some(last) = source.pieces.get(queue) else { return Ok(()) };
        let of = self.inspector.bin_sizes(&source).await?.get(queue).copied().unwrap_or(0);
        let mut progress = Progress { of, ..Progress::default() };
        let broker = self.inspector.broker();
        broker.publish_queue(queue).await?;
        for piece in 0..=*last {
            let list = QueueKeys::new(queue).bin_piece(from, piece);
            let mut refused = 0;
            loop {
                // Those that cannot come back stay at the head.
                let ids = self.inspector.binned_ids(&list, refused, CHANGE_BATCH).await?;
                if ids.is_empty() {
                    break;
                }
                self.inspector.look_at_the_clock().await?;
                let bin = Bin::new(from, piece);
                let words = broker.undelete_tasks(queue, &ids, bin, self.inspector.now_ms()).await?;
                for word in words {
                    let so_far = &mut progress.so_far;
                    so_far.matched += 1;
                    match word {
                        Undeleted::Restored => so_far.changed += 1,
                        Undeleted::Gone => so_far.skipped += 1,
                        _ => {
                            so_far.skipped += 1;
                            refused += 1;
                        }
                    }
                }
                progress.looked_at += ids.len() as u64;
                if !self.go_on(progress).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
