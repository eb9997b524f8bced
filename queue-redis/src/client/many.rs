//! Many tasks, in constant memory.
//!
//! They come as a stream and are sent in chunks: of what a chunk holds, one call carries as much of each queue as it can.
//! While one chunk is stored, the next one is gathered.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Instant;

use futures_util::future::join_all;
use futures_util::stream::Fuse;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use queue_core::TaskInfo;
use queue_core::options::Composed;
use tokio::sync::Semaphore;

use super::intercept::UnderWay;
use super::{Client, EnqueueError, Place};
use crate::broker::{MAX_BATCH_BYTES, next_batch};

/// How many calls are under way at once, so that many tasks do not wait for a round trip each batch.
const CALLS: usize = 8;

/// The most tasks of a chunk: so many that calls are full although the tasks go to many queues.
pub(super) const CHUNK_TASKS: usize = 4_000;

/// And bytes of their payloads, which ends a chunk of large tasks sooner.
const CHUNK_BYTES: usize = MAX_BATCH_BYTES;

/// After how many tasks the chunk before is looked after: its calls are answered in less time than it takes to gather a whole chunk. 1.06 of
/// the rate of 150,000 tasks in a stream.
pub(crate) const GATHERED_AT_ONCE: usize = 100;

type Outcome = Result<TaskInfo, EnqueueError>;

/// How a task of a stream becomes one that can be stored, at this nanosecond.
type Compose<T> = fn(T, i64) -> Result<Composed, EnqueueError>;

/// Enqueues what comes, in chunks of `most` tasks, and tells in the same order what became of it. All calls wait for Redis `until` then, or each
/// chunk for as long as the client does.
pub(super) fn enqueue<S: Stream>(
    client: Client,
    tasks: S,
    most: usize,
    compose: Compose<S::Item>,
    until: Option<Instant>,
) -> impl Stream<Item = Outcome> + use<S> {
    let calls = std::sync::Arc::new(Semaphore::new(CALLS));
    let storer = client.clone();
    let chunks = stream::unfold((client, Box::pin(tasks.fuse())), move |(client, mut tasks)| async move {
        let chunk = Chunk::gather(&client, &mut tasks, most, compose, until).await?;
        Some((chunk, (client, tasks)))
    });
    let stored = chunks.map(move |chunk| {
        let (client, calls) = (storer.clone(), calls.clone());
        // Of one type: what waits for it is compiled once, and not for each type of stream.
        async move { chunk.store(&client, &calls).await }.boxed()
    });
    stored.buffered(2).flat_map(stream::iter)
}

/// The same for tasks that are composed and in memory: all of them are one chunk.
pub(super) async fn enqueue_chunk(client: &Client, tasks: Vec<Composed>) -> Vec<Outcome> {
    let mut chunk = Chunk::new(client.clock.now_ns(), client.until());
    for task in tasks {
        chunk.add(client, Ok(task));
    }
    chunk.store(client, &Semaphore::new(CALLS)).await
}

/// Tasks that are composed and stored together.
struct Chunk {
    now_ns: i64,
    until: Instant,
    /// What is known already.
    outcomes: Vec<Option<Outcome>>,
    under_way: Vec<Option<UnderWay>>,
    /// One batch for each queue and each kind of place, because that is what one script serves.
    batches: HashMap<(String, Place), Vec<(usize, Composed)>>,
    bytes: usize,
}

impl Chunk {
    fn new(now_ns: i64, until: Instant) -> Self {
        let (outcomes, under_way, batches, bytes) = Default::default();
        Self { now_ns, until, outcomes, under_way, batches, bytes }
    }

    /// Waits for a task, and takes what else is there; `None` when there are no more.
    async fn gather<S: Stream>(
        client: &Client,
        tasks: &mut Pin<Box<Fuse<S>>>,
        most: usize,
        compose: Compose<S::Item>,
        until: Option<Instant>,
    ) -> Option<Self> {
        let first = tasks.next().await?;
        let (now_ns, until) = (client.clock.now_ns(), until.unwrap_or_else(|| client.until()));
        let mut chunk = Self::new(now_ns, until);
        chunk.add(client, compose(first, now_ns));
        // Nobody waits for a chunk to be full.
        while chunk.outcomes.len() < most
            && chunk.bytes < CHUNK_BYTES
            && let Some(Some(task)) = tasks.next().now_or_never()
        {
            chunk.add(client, compose(task, now_ns));
            if chunk.outcomes.len().is_multiple_of(GATHERED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        Some(chunk)
    }

    fn add(&mut self, client: &Client, task: Result<Composed, EnqueueError>) {
        let position = self.outcomes.len();
        let (under_way, outcome) = match task {
            Ok(mut composed) => {
                let (under_way, seen) = client.interceptors.see(&mut composed);
                let outcome = match seen.map_err(EnqueueError::from).and_then(|()| client.check_size(&composed)) {
                    Ok(()) => {
                        self.bytes += composed.message.payload.len();
                        let key = (composed.message.queue.clone(), Place::of(&composed));
                        self.batches.entry(key).or_default().push((position, composed));
                        None
                    }
                    Err(refusal) => Some(Err(refusal)),
                };
                (Some(under_way), outcome)
            }
            Err(error) => (None, Some(Err(error))),
        };
        self.outcomes.push(outcome);
        self.under_way.push(under_way);
    }

    /// Stores all that can be, and tells for each task what became of it.
    async fn store(self, client: &Client, calls: &Semaphore) -> Vec<Outcome> {
        let Self { now_ns, until, mut outcomes, under_way, batches, .. } = self;
        let batches = batches.into_iter().flat_map(|((queue, place), batch)| {
            let mut batch = batch.into_iter().peekable();
            std::iter::from_fn(move || {
                let tasks = next_batch(&mut batch, place.batch_size(), |(_, task)| task.message.payload.len());
                Some((queue.clone(), place, tasks)).filter(|(.., tasks)| !tasks.is_empty())
            })
        });
        // They set out in this order: whoever waits for a permit first has it first.
        let stored = join_all(batches.map(async |(queue, place, tasks)| {
            let (positions, tasks): (Vec<usize>, Vec<Composed>) = tasks.into_iter().unzip();
            // The semaphore is never closed.
            let _permit = calls.acquire().await;
            (client.store.store(&queue, place, &tasks, now_ns, until).await, positions, tasks)
        }));
        for (verdicts, positions, tasks) in stored.await {
            match verdicts {
                Ok(verdicts) => {
                    let settled = tasks.into_iter().zip(verdicts);
                    let settled = settled.map(|(task, verdict)| client.settle(verdict, task, now_ns));
                    for (position, outcome) in positions.into_iter().zip(join_all(settled).await) {
                        outcomes[position] = Some(outcome);
                    }
                }
                Err(error) => {
                    for position in positions {
                        outcomes[position] = Some(Err(EnqueueError::Redis(error.clone())));
                    }
                }
            }
        }
        let outcomes = outcomes.into_iter().zip(under_way).map(|(outcome, under_way)| match under_way {
            Some(under_way) => outcome.map(|outcome| under_way.end(outcome)),
            None => outcome,
        });
        outcomes.flatten().collect()
    }
}
