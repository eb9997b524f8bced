//! What operations have deleted, and how it comes back.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{ARCHIVE_MAX, BIN_KEPT_SECS, BIN_PIECE, MAX_BATCH};
use queue_core::{Clock as _, TaskInfo, TaskMessage, TaskState};
use queue_redis::broker::{Bin, Undeleted};
use serde::Serialize;

use super::run::{BIN_BATCH, Step};
use super::{Operation, PIECE};
use crate::bulk::{Cursor, Direction, Drive as _, Filter, Listing, Searched, question};
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
        for operation in self.operations_to(-1).await? {
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

    /// The next page of the tasks in the bin of an operation to which a filter applies, as they were, in the order in which they were
    /// deleted: at most `limit` of them, and after looking at no more than about `look_at`. What is restored between two pages makes the second
    /// one leave out as many. One whose message cannot be read is left out.
    ///
    /// # Errors
    /// As [`bin`](Self::bin); [`Error::BadCursor`].
    pub async fn binned_tasks(
        &self,
        id: &str,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
        look_at: usize,
    ) -> Result<Listing, Error> {
        let bin = self.bin(id).await?;
        let question = question(id, filter, Direction::Oldest);
        let (first, next, mut looked_at) =
            cursor.map(|cursor| cursor.as_plain(question)).transpose()?.unwrap_or_default();
        let (left, until) = (bin.left(), looked_at.saturating_add(look_at.max(1) as u64));
        let now = self.clock.now();
        let mut connection = self.redis.pooled().await?;
        let (mut tasks, mut goes_on) = (Vec::new(), None);
        'all: for (queue, last) in bin.operation.pieces.iter().filter(|(queue, _)| queue.as_str() >= first) {
            let keys = QueueKeys::new(queue);
            // The place in all lists of the queue, each of which has so many ids at the most.
            let mut at = if queue == first { next } else { 0 };
            while (at / BIN_PIECE) as u64 <= *last {
                let (piece, offset) = (at / BIN_PIECE, at % BIN_PIECE);
                let size = MAX_BATCH.min(BIN_PIECE - offset);
                let ids = self.binned_ids(&keys.bin_piece(id, piece as u64), offset, size).await?;
                if ids.is_empty() {
                    at = (piece + 1) * BIN_PIECE;
                    continue;
                }
                type Fields = (Option<Vec<u8>>, Option<String>, Option<f64>);
                let (prefix, fields) = (keys.bin_prefix(id), ["msg", "state", "x_bin_score"]);
                let found: Vec<Option<Fields>> =
                    connection.read_tasks(&prefix, ids.iter().map(|id| &id[..]), &fields).await?;
                for (message, state, score) in found.into_iter().map(Option::unwrap_or_default) {
                    if tasks.len() >= limit || looked_at >= until {
                        goes_on = Some(Cursor::plain(question, queue, at, looked_at));
                        break 'all;
                    }
                    (at, looked_at) = (at + 1, looked_at + 1);
                    let state = state.and_then(|state| state.parse::<TaskState>().ok());
                    let message = message.and_then(|message| TaskMessage::from_bytes(message.into()).ok());
                    if let (Some(state), Some(message)) = (state, message)
                        && filter.applies(state, &message, score.map(|score| score as i64), now)
                    {
                        tasks.push(TaskInfo::new(message, state));
                    }
                }
            }
        }
        let searched = Searched { looked_at, of: left.max(looked_at), complete: goes_on.is_none() };
        Ok(Listing { tasks, unread: Vec::new(), next: goes_on, searched, moved: false })
    }

    async fn binned_ids(&self, piece: &str, from: usize, count: usize) -> Result<Vec<Bytes>, Error> {
        Ok(self.redis.command("LRANGE", (piece, from, from + count.max(1) - 1)).await?)
    }

    pub(super) async fn empty_bin(&self, operation: &Operation) -> Result<u64, Error> {
        let mut deleted = 0;
        for (queue, last) in &operation.pieces {
            let keys = QueueKeys::new(queue);
            for piece in 0..=*last {
                let list = keys.bin_piece(&operation.id, piece);
                let ids = self.binned_ids(&list, 0, BIN_PIECE).await?;
                for ids in ids.chunks(MAX_BATCH) {
                    let prefix = keys.bin_prefix(&operation.id);
                    let tasks: Vec<Vec<u8>> = ids.iter().map(|id| [prefix.as_bytes(), id].concat()).collect();
                    deleted += self.redis.command::<u64>("UNLINK", tasks).await?;
                }
                // Behind its tasks: they are found through it.
                self.redis.command::<()>("UNLINK", list).await?;
            }
            self.redis.command::<()>("HDEL", (keys::operation(&operation.id), format!("{PIECE}{queue}"))).await?;
        }
        Ok(deleted)
    }
}

impl Step<'_> {
    /// Brings back what another operation has put into the bin of a queue, all or what has these ids. The order is the one in which
    /// they were deleted. That an archive is full is said at the end: the others can come back all the same.
    pub(super) async fn restore(&mut self, queue: &str, from: &str, named: &[String]) -> Result<(), Error> {
        let source = self.inspector.operation(from).await?;
        let Some(last) = source.pieces.get(queue) else { return Ok(()) };
        let named: HashSet<&[u8]> = named.iter().map(|id| id.as_bytes()).collect();
        let of = match named.len() as u64 {
            0 => self.inspector.bin_sizes(&source).await?.get(queue).copied().unwrap_or(0),
            named => named,
        };
        let mut progress = Progress { of, ..Progress::default() };
        self.inspector.broker().publish_queue(queue).await?;
        for piece in 0..=*last {
            let list = QueueKeys::new(queue).bin_piece(from, piece);
            let mut stay = 0;
            loop {
                // Those that cannot come back stay at the head, and so do those that nobody has named.
                let size = if named.is_empty() { MAX_BATCH } else { BIN_PIECE };
                let mut ids = self.inspector.binned_ids(&list, stay, size).await?;
                if ids.is_empty() {
                    break;
                }
                let all = ids.len();
                ids.retain(|id| named.is_empty() || named.contains(&id[..]));
                stay += all - ids.len();
                for page in ids.chunks(MAX_BATCH) {
                    stay += self.restore_page(queue, Bin::new(from, piece), page, &mut progress).await?;
                    if !self.go_on(progress).await? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings these back; how many of them stay in the bin.
    async fn restore_page(
        &mut self,
        queue: &str,
        bin: Bin<'_>,
        ids: &[Bytes],
        progress: &mut Progress,
    ) -> Result<usize, Error> {
        let mut stay = 0;
        for ids in ids.chunks(BIN_BATCH) {
            self.inspector.look_at_the_clock().await?;
            for word in self.inspector.broker().undelete_tasks(queue, ids, bin, self.inspector.clock.now_ms()).await? {
                let so_far = &mut progress.so_far;
                match word {
                    Undeleted::Restored => so_far.changed += 1,
                    // Somebody else has brought it back meanwhile.
                    Undeleted::Gone => continue,
                    word => {
                        if word == Undeleted::Full {
                            self.full.get_or_insert_with(|| Error::ArchiveFull {
                                queue: queue.to_owned(),
                                archived: ARCHIVE_MAX.into(),
                            });
                        }
                        so_far.skipped += 1;
                        stay += 1;
                    }
                }
                so_far.matched += 1;
            }
            progress.looked_at += ids.len() as u64;
        }
        Ok(stay)
    }
}
