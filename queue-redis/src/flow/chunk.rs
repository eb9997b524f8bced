//! Tasks on their way into a batch.

use bytes::Bytes;
use futures_util::stream::{BoxStream, Fuse};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use queue_core::clock::secs_ceil;
use queue_core::flow;
use queue_core::limits;
use queue_core::options::{Composed, compose};
use queue_core::{EncodeError, IntoTask, RawTask, TaskOptions};

use super::batch::BatchError;
use crate::client::{Client, EnqueueError, GATHERED_AT_ONCE};

/// The most bytes of payloads that are gathered for one reservation.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// The most tasks that are gathered where nobody has to find the same chunks again: a million of them cost 150 calls more, and half
/// the memory.
const CHUNK_TASKS: usize = 4_000;

/// Tasks as they come. Their source has no type here: a future that holds an iterator with closures of its caller is `Send` only
/// where the compiler can show that for all lifetimes at once, which it cannot for `rows.iter().map(|row| …)`.
pub(super) type Tasks<'a> = Fuse<BoxStream<'a, Result<RawTask, EncodeError>>>;

pub(super) fn erased<'a>(tasks: impl Stream<Item: IntoTask> + Send + 'a) -> Tasks<'a> {
    tasks.map(IntoTask::into_task).boxed().fuse()
}

/// Tasks of one queue, each with its place among those that are added.
pub(super) type Group = (String, Vec<(u64, Composed)>);

pub(super) fn by_queue(tasks: impl IntoIterator<Item = (u64, Composed)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (position, task) in tasks {
        match groups.iter_mut().find(|(known, _)| *known == task.message.queue) {
            Some((_, tasks)) => tasks.push((position, task)),
            None => groups.push((task.message.queue.clone(), vec![(position, task)])),
        }
    }
    groups
}

/// Tasks that were checked, to be added together.
pub(super) struct Chunk {
    /// Each still without an id.
    pub(super) tasks: Vec<Composed>,
    /// Whether no more come.
    pub(super) is_last: bool,
}

impl Chunk {
    /// Gathers tasks as they come, no more than one reservation gives out; the first has this position. Where they have a key, who adds them
    /// again has to find the same chunks, however fast they come: so it waits until the chunk is full.
    pub(super) async fn gather(
        client: &Client,
        tasks: &mut Tasks<'_>,
        position: u64,
        has_key: bool,
    ) -> Result<Self, BatchError> {
        let (mut chunk, mut bytes, now_ns) = (Self { tasks: Vec::new(), is_last: false }, 0, client.now_ns());
        let most = if has_key { limits::FLOW_MAX_RESERVATION as usize } else { CHUNK_TASKS };
        while chunk.tasks.len() < most && bytes < CHUNK_BYTES {
            let next = match tasks.next().now_or_never() {
                Some(next) => next,
                None if !has_key && !chunk.tasks.is_empty() => return Ok(chunk),
                None => tasks.next().await,
            };
            let Some(task) = next else {
                chunk.is_last = true;
                return Ok(chunk);
            };
            let at = position + chunk.tasks.len() as u64;
            let task = task.map_err(|error| BatchError::Refused { position: at, source: error.into() })?;
            bytes += task.payload.as_ref().map_or(0, Bytes::len);
            let mut checked = checked(client, task, at, now_ns)?;
            checked.message.id = String::new();
            chunk.tasks.push(checked);
            if chunk.tasks.len().is_multiple_of(GATHERED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        Ok(chunk)
    }

    /// The queue of all of them; none if there are several. An empty chunk has any.
    pub(super) fn only_queue(&self) -> Option<&str> {
        let first = self.tasks.first().map_or("", |task| &task.message.queue);
        self.tasks.iter().all(|task| task.message.queue == first).then_some(first)
    }
}

/// A task as it is stored, if it can be a member.
pub(super) fn checked(client: &Client, task: RawTask, position: u64, now_ns: i64) -> Result<Composed, BatchError> {
    let refused = |source: EnqueueError| BatchError::Refused { position, source };
    check(&task, &|reason| BatchError::Unsuitable { position: position.to_string(), reason })?;
    let composed = as_member(task, now_ns).map_err(refused)?;
    client.check_size(&composed).map_err(refused)?;
    Ok(composed)
}

/// What a task of a batch cannot have.
pub(super) fn check(task: &RawTask, unsuitable: &dyn Fn(&'static str) -> BatchError) -> Result<(), BatchError> {
    if task.options.task_id.is_some() {
        return Err(unsuitable("it has an id of its own; the id says which member it is"));
    }
    if task.options.group.is_some() {
        return Err(unsuitable("it has a group; what is aggregated is no longer the task that the batch waits for"));
    }
    if task.options.front {
        return Err(unsuitable("it is to be in front; members go behind what is pending"));
    }
    Ok(())
}

/// A task that belongs to a batch, as it is stored, still without the rest of its id: it has the retention that keeps it where Go leaves it, and
/// the one that its user asked for in a header.
pub(super) fn as_member(mut task: RawTask, now_ns: i64) -> Result<Composed, EnqueueError> {
    if let Some(keep) = task.options.retention.filter(|keep| !keep.is_zero()) {
        task = task.header(flow::HEADER, format!("keep={}", secs_ceil(keep)));
    }
    let task = task.retention(flow::MEMBER_RETENTION).task_id(flow::PREFIX);
    Ok(compose(task, TaskOptions::new(), now_ns)?)
}
