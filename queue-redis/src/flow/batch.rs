//! Batches as applications make them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use queue_core::clock::{secs_ceil, unix_secs_ceil};
use queue_core::flow::{self, Event, FlowId, FlowIdError, MemberId, MemberOutcome, MemberState, Part};
use queue_core::keys;
use queue_core::options::{Placement, compose};
use queue_core::{EncodeError, IntoTask, OptionError, RawTask, TaskOptions, TaskState};

use super::{BatchStatus, Flows, duty};
use crate::broker::{Opening, Seen};
use crate::client::{Client, EnqueueError};
use crate::error::Error;
use crate::script::Word;

/// The most bytes of payloads that are gathered for one reservation.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// How often somebody who waits for a batch looks, at first and at the most.
const LOOK_AFTER: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why something could not be done with a batch.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// There is no batch of this id; it may have been over for so long that it was forgotten.
    #[error("there is no batch {id}; was it forgotten, or is it on another Redis?")]
    Unknown {
        /// The id.
        id: String,
    },
    /// The batch was committed, cancelled, or is over. After the commit, only its running members and callbacks may add
    /// to it.
    #[error("batch {id} is closed: after the commit only running members and callbacks of the batch can add to it")]
    Closed {
        /// The id.
        id: String,
    },
    /// A task cannot be a member, or a callback.
    #[error("task {position} cannot belong to a batch: {reason}")]
    Unsuitable {
        /// Which, from 0; of a callback its event.
        position: String,
        /// Why.
        reason: &'static str,
    },
    /// A task cannot be enqueued. The tasks before it may have been.
    #[error("task {position} of the batch was refused: {source}")]
    Refused {
        /// Which, from 0.
        position: u64,
        /// Why.
        source: EnqueueError,
    },
    /// The id cannot be one.
    #[error(transparent)]
    Id(#[from] FlowIdError),
    /// The batch was not over in time.
    #[error("batch {id} was not over within {waited:?}; {live} members are live")]
    TimedOut {
        /// The id.
        id: String,
        /// How long was waited.
        waited: Duration,
        /// Members from which something is still to come.
        live: u64,
    },
    /// The task that runs is no member or callback of a batch.
    #[error("task {id:?} belongs to no batch")]
    NoMember {
        /// Task id.
        id: String,
    },
    /// Redis could not be asked, or refused.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(BatchError);

/// How many members were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Added {
    /// Members that are enqueued, now or by an earlier addition with the same key.
    pub members: u64,
    /// Tasks that were left out, because others hold their uniqueness locks.
    pub duplicates: u64,
}

/// A batch that is about to be made; see [`Client::batch`].
#[derive(Debug, Clone)]
#[must_use = "a batch is made by `add_all` or `open`"]
pub struct BatchBuilder {
    client: Client,
    /// The batch that it is to be a child of.
    parent: Option<Batch>,
    name: String,
    texts: Vec<(&'static str, Bytes)>,
    callbacks: Vec<(Event, Result<RawTask, Arc<EncodeError>>)>,
    deadline: Option<SystemTime>,
    linger: Duration,
}

impl BatchBuilder {
    pub(crate) fn new(client: Client) -> Self {
        let (name, texts, callbacks) = Default::default();
        Self { client, parent: None, name, texts, callbacks, deadline: None, linger: Duration::ZERO }
    }

    /// The id of the batch, or of a child its name within its parent: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`. Made a second
    /// time by this id, the batch is the one that is there. Defaults to 16 random characters.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.name = id.into();
        self
    }

    /// What the batch is for; shown by tools.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.texts.push(("description", text.into().into()));
        self
    }

    fn callback(mut self, event: Event, task: impl IntoTask) -> Self {
        self.callbacks.retain(|(known, _)| *known != event);
        self.callbacks.push((event, task.into_task().map_err(Arc::new)));
        self
    }

    /// A task that is enqueued once, when every member and the callback of [`on_complete`](Self::on_complete) have succeeded.
    pub fn on_success(self, task: impl IntoTask) -> Self {
        self.callback(Event::Success, task)
    }

    /// A task that is enqueued once, when every member has been attempted: some may have failed, and be tried again.
    pub fn on_complete(self, task: impl IntoTask) -> Self {
        self.callback(Event::Complete, task)
    }

    /// A task that is enqueued when the first member dies or is removed; once more only if all was well in between.
    pub fn on_death(self, task: impl IntoTask) -> Self {
        self.callback(Event::Death, task)
    }

    /// A task that is enqueued when nothing is left to be done, however it ended; after all other callbacks.
    pub fn on_settled(self, task: impl IntoTask) -> Self {
        self.callback(Event::Settled, task)
    }

    /// Cancels the batch if it is not over by then; to the second. Defaults to never.
    pub fn deadline(mut self, at: impl Into<SystemTime>) -> Self {
        self.deadline = Some(at.into());
        self
    }

    /// How long the batch is kept when it is over; to the second. Defaults to an hour if all went well, else to 90 days. Children are
    /// kept as long as the root.
    pub fn linger(mut self, duration: Duration) -> Self {
        self.linger = duration;
        self
    }

    /// Makes the batch without members; they are [added](Batch::add_all), and then it has to be [committed](Batch::commit).
    ///
    /// # Errors
    /// See [`BatchError`]; then there is no batch, unless the error is of Redis.
    pub async fn open(self) -> Result<Batch, BatchError> {
        Ok(self.make("", 0, false).await?.0)
    }

    /// Makes the batch, adds these members, and commits it. Members run as soon as they are enqueued. However many there are,
    /// no more than ten thousand are in memory at once. A batch without members succeeds at once.
    ///
    /// If this process dies before the end, nobody commits the batch: it settles as abandoned after half an hour, without success.
    ///
    /// # Errors
    /// See [`BatchError`]. What was enqueued until then stays in the batch, which is not committed.
    pub async fn add_all<T: IntoTask>(self, tasks: impl IntoIterator<Item = T>) -> Result<Batch, BatchError> {
        self.add_stream(stream::iter(tasks)).await
    }

    /// The same for tasks that come as a stream.
    ///
    /// # Errors
    /// As [`add_all`](Self::add_all).
    pub async fn add_stream<S: Stream<Item: IntoTask>>(self, tasks: S) -> Result<Batch, BatchError> {
        let mut tasks = Box::pin(tasks.fuse());
        let first = Chunk::gather(&self.client, &mut tasks, 0).await?;
        // Most batches are small: then one call makes it, gives out its numbers and commits it.
        if let Some(queue) = first.only_queue()
            && first.is_last
        {
            let count = first.tasks.len() as u32;
            let queue = queue.to_owned();
            let (batch, fresh) = self.make(&queue, count, true).await?;
            if let Some(number) = fresh {
                batch.enqueue(first.tasks, number, 0).await?;
                return Ok(batch);
            }
            return Ok(batch);
        }
        let (batch, fresh) = self.make("", 0, false).await?;
        if fresh.is_some() {
            batch.add_chunks(first, tasks).await?;
            batch.commit().await?;
        }
        Ok(batch)
    }

    /// Makes the flow; also the first number that was given out, if the flow is new.
    async fn make(self, queue: &str, count: u32, commit: bool) -> Result<(Batch, Option<u32>), BatchError> {
        let now_ns = self.client.now_ns();
        let mut opening = Opening {
            count,
            queue: queue.to_owned(),
            commit,
            deadline: self.deadline.map_or(0, unix_secs_ceil),
            linger: secs_ceil(self.linger),
            ..Opening::default()
        };
        let mut queues = vec![queue.to_owned()];
        opening.texts.extend(self.texts.into_iter().map(|(field, text)| (field.to_owned(), text)));
        for (event, task) in self.callbacks {
            let unsuitable = |reason| BatchError::Unsuitable { position: format!("on_{event}"), reason };
            let refused = |source| BatchError::Refused { position: 0, source };
            let task = task.map_err(|_| unsuitable("its payload cannot be encoded"))?;
            check(&task, &unsuitable)?;
            if task.options.process.is_some() || task.options.unique.is_some() {
                return Err(unsuitable("a callback is enqueued at once; it has no delay and no uniqueness lock"));
            }
            let task = as_member(task, String::new());
            let mut composed = compose(task, TaskOptions::new().task_id(flow::PREFIX), now_ns)
                .map_err(|error| refused(EnqueueError::from(error)))?;
            self.client.prepare(&mut composed).map_err(refused)?;
            queues.push(composed.message.queue.clone());
            opening.texts.push((format!("message:{event}"), composed.message.to_bytes()));
        }
        let flows = self.client.flows();
        let (root, parent) = match &self.parent {
            Some(parent) => {
                opening.parent = Some(parent.id.number());
                opening.name = self.name;
                if !opening.name.is_empty() {
                    FlowId::root_named(&opening.name)?;
                }
                opening.behalf = parent.behalf.as_ref().map(MemberId::behalf).unwrap_or_default();
                (parent.id.sibling(0), Some(parent))
            }
            None if self.name.is_empty() => (FlowId::root_named(&random_name())?, None),
            None => {
                opening.has_chosen_name = true;
                (FlowId::root_named(&self.name)?, None)
            }
        };
        flows.list(&root, queues.iter().filter(|queue| !queue.is_empty()), now_ns).await?;
        let opened = flows.broker.flow_open(root.root(), &opening).await?;
        let known = |parent: &Batch| parent.id.to_string();
        match opened.word {
            Word::Applied | Word::Same => {}
            Word::Closed => return Err(BatchError::Closed { id: parent.map(known).unwrap_or_default() }),
            _ => return Err(BatchError::Unknown { id: parent.map(known).unwrap_or_default() }),
        }
        let fresh = (opened.word == Word::Applied).then_some(opened.first);
        let born = parent.map_or(opened.born, |parent| parent.born);
        flows.carry_out(root.root(), born, opened.claimed).await?;
        let behalf = self.parent.and_then(|parent| parent.behalf);
        let id = root.sibling(opened.number);
        Ok((Batch { client: self.client, id, born, behalf, key: None, additions: Arc::default() }, fresh))
    }
}

/// A batch: tasks that belong together, and callbacks that are enqueued when they have ended. Cheap to clone.
///
/// In a handler of a member or a callback, it is had as an argument (`queue_worker`'s extractor), and may be added to while that
/// task runs.
#[derive(Clone)]
pub struct Batch {
    client: Client,
    id: FlowId,
    born: Option<i64>,
    /// The task on whose behalf this is used.
    behalf: Option<MemberId>,
    /// The key of the next additions.
    key: Option<String>,
    /// How many additions were made on behalf of this run.
    additions: Arc<AtomicU32>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("id", &self.id.to_string()).finish_non_exhaustive()
    }
}

impl Batch {
    /// The batch of a task that runs, by its id: what is added to it is added on behalf of this task, and once, however often the task
    /// is tried.
    ///
    /// # Errors
    /// When the task belongs to no batch.
    pub fn of_task(client: Client, task_id: &str) -> Result<Self, BatchError> {
        let member = MemberId::of(task_id).ok_or_else(|| BatchError::NoMember { id: task_id.to_owned() })?;
        let (id, born, key) = (member.flow.clone(), member.born, Some(task_id.to_owned()));
        Ok(Self { client, id, born, behalf: Some(member), key, additions: Arc::default() })
    }

    pub(crate) async fn named(client: Client, id: &str) -> Result<Self, BatchError> {
        let id: FlowId = id.parse()?;
        let flows = client.flows();
        if flows.status(&id).await?.is_none() {
            return Err(BatchError::Unknown { id: id.to_string() });
        }
        let born = flows.born(id.root()).await?;
        Ok(Self { client, id, born, behalf: None, key: None, additions: Arc::default() })
    }

    /// Its id.
    pub fn id(&self) -> &FlowId {
        &self.id
    }

    /// The same batch, whose next addition has this key: made again with the same key, by a program that was started again, say, it
    /// adds what is missing and nothing twice. Additions from a handler of a member have keys by themselves.
    #[must_use]
    pub fn keyed(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self.additions = Arc::default();
        self
    }

    /// The batch that this one is a child of, to which the same task may add; `None` of a root.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn parent(&self) -> Result<Option<Self>, BatchError> {
        let status = self.status().await?;
        let Some(parent) = status.parent else { return Ok(None) };
        Ok(Some(Self { id: parent.parse()?, additions: Arc::default(), ..self.clone() }))
    }

    /// A batch within this one, which waits for it and its callbacks.
    pub fn child(&self) -> BatchBuilder {
        BatchBuilder { parent: Some(self.clone()), ..BatchBuilder::new(self.client.clone()) }
    }

    /// Adds members, in constant memory; they run as soon as they are enqueued.
    ///
    /// # Errors
    /// See [`BatchError`]. What was enqueued until then stays in the batch.
    pub async fn add_all<T: IntoTask>(&self, tasks: impl IntoIterator<Item = T>) -> Result<Added, BatchError> {
        self.add_stream(stream::iter(tasks)).await
    }

    /// The same for tasks that come as a stream.
    ///
    /// # Errors
    /// As [`add_all`](Self::add_all).
    pub async fn add_stream<S: Stream<Item: IntoTask>>(&self, tasks: S) -> Result<Added, BatchError> {
        let mut tasks = Box::pin(tasks.fuse());
        let first = Chunk::gather(&self.client, &mut tasks, 0).await?;
        self.add_chunks(first, tasks).await
    }

    async fn add_chunks<S: Stream<Item: IntoTask>>(
        &self,
        first: Chunk,
        mut tasks: std::pin::Pin<Box<stream::Fuse<S>>>,
    ) -> Result<Added, BatchError> {
        let addition = self.additions.fetch_add(1, Ordering::Relaxed);
        let (mut added, mut chunk, mut position, mut part) = (Added::default(), first, 0, 0);
        loop {
            let (is_last, count) = (chunk.is_last, chunk.tasks.len() as u64);
            let mut by_queue: Vec<(String, Vec<RawTask>)> = Vec::new();
            for (queue, task) in chunk.tasks {
                match by_queue.iter_mut().find(|(known, _)| *known == queue) {
                    Some((_, tasks)) => tasks.push(task),
                    None => by_queue.push((queue, vec![task])),
                }
            }
            for (queue, tasks) in by_queue {
                let key = self.key.as_ref().map(|key| format!("{key}#{addition}.{part}")).unwrap_or_default();
                part += 1;
                let more = self.add_to(&queue, tasks, &key, position).await?;
                added.members += more.members;
                added.duplicates += more.duplicates;
            }
            position += count;
            if is_last {
                return Ok(added);
            }
            chunk = Chunk::gather(&self.client, &mut tasks, position).await?;
        }
    }

    /// Adds members, all of one queue and no more than one reservation gives out.
    async fn add_to(&self, queue: &str, tasks: Vec<RawTask>, key: &str, position: u64) -> Result<Added, BatchError> {
        let (flows, now_ns) = (self.client.flows(), self.client.now_ns());
        flows.list_queue(queue, now_ns).await?;
        let behalf = self.behalf.as_ref().map(MemberId::behalf).unwrap_or_default();
        let (mut rest, mut key, mut added) = (tasks, key.to_owned(), Added::default());
        while !rest.is_empty() {
            let place = (self.id.root(), self.id.number());
            let reserved = flows.broker.flow_reserve(place, rest.len() as u32, queue, &key, &behalf).await?;
            match reserved.word {
                Word::Applied | Word::Same => {}
                Word::Closed => return Err(BatchError::Closed { id: self.id.to_string() }),
                _ => return Err(BatchError::Unknown { id: self.id.to_string() }),
            }
            // Known from an attempt before, the addition may have been of other length.
            let count = (reserved.count as usize).min(rest.len());
            let more = rest.split_off(count);
            if reserved.is_added {
                added.members += count as u64;
            } else {
                let is_sent = |number| reserved.bits(number) == MemberState::Sent as u8;
                let numbers = (reserved.first..).take(count);
                let missing =
                    numbers.zip(rest).filter(|(number, _)| reserved.word == Word::Applied || is_sent(*number));
                let missing: Vec<(u32, RawTask)> = missing.collect();
                let known = (count - missing.len()) as u64;
                let now = self.enqueue_numbers(missing, position).await?;
                added.members += known + now.members;
                added.duplicates += now.duplicates;
                let surplus: Vec<u32> = (reserved.first..).take(reserved.count as usize).skip(count).collect();
                self.void(&surplus).await?;
                if !key.is_empty() {
                    let (_, claimed) = flows.broker.flow_mark(place, "added", &key).await?;
                    flows.carry_out(self.id.root(), self.born, claimed).await?;
                }
            }
            rest = more;
            key = if key.is_empty() { key } else { key + "+" };
        }
        Ok(added)
    }

    async fn enqueue(&self, tasks: Vec<(String, RawTask)>, first: u32, position: u64) -> Result<Added, BatchError> {
        let tasks = (first..).zip(tasks.into_iter().map(|(_, task)| task)).collect();
        self.enqueue_numbers(tasks, position).await
    }

    /// Enqueues members whose numbers were given out.
    async fn enqueue_numbers(&self, tasks: Vec<(u32, RawTask)>, position: u64) -> Result<Added, BatchError> {
        let numbers: Vec<u32> = tasks.iter().map(|(number, _)| *number).collect();
        let members = tasks.into_iter().map(|(number, task)| as_member(task, self.member(number).to_string()));
        let members: Vec<RawTask> = members.collect();
        let outcomes = self.client.clone().for_members().enqueue_many(members).await;
        let (mut added, mut void, mut refused) = (Added::default(), Vec::new(), None);
        for (at, (number, outcome)) in numbers.into_iter().zip(outcomes).enumerate() {
            match outcome {
                // An id of ours is taken by this very member.
                Ok(_) | Err(EnqueueError::TaskIdConflict { .. }) => added.members += 1,
                Err(EnqueueError::DuplicateTask { .. }) => {
                    added.duplicates += 1;
                    void.push(number);
                }
                // It may have been stored: then its end will be told, and else somebody finds that it is missing.
                Err(EnqueueError::Redis(error)) => return Err(error.into()),
                Err(source) => {
                    void.push(number);
                    refused = refused.or(Some(BatchError::Refused { position: position + at as u64, source }));
                }
            }
        }
        self.void(&void).await?;
        refused.map_or(Ok(added), Err)
    }

    /// Numbers that were given out are no members.
    async fn void(&self, numbers: &[u32]) -> Result<(), BatchError> {
        let outcomes = numbers.iter().map(|number| (self.member(*number), MemberOutcome::Void));
        Ok(self.client.flows().record(outcomes.collect()).await?)
    }

    fn member(&self, number: u32) -> MemberId {
        MemberId { flow: self.id.clone(), born: self.born, part: Part::Member(number) }
    }

    async fn mark(&self, what: &'static str) -> Result<Word, BatchError> {
        let flows = self.client.flows();
        let (word, claimed) = flows.broker.flow_mark((self.id.root(), self.id.number()), what, "").await?;
        flows.carry_out(self.id.root(), self.born, claimed).await?;
        Ok(word)
    }

    /// Says that all members are there. From now on the batch can end. A second time does nothing.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn commit(&self) -> Result<(), BatchError> {
        match self.mark("committed").await? {
            Word::Applied | Word::Same => Ok(()),
            Word::Closed => Err(BatchError::Closed { id: self.id.to_string() }),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }

    /// Cancels the batch and its children, for good: what waits is deleted, servers are asked to stop what runs, also when it is
    /// tried again later. What succeeds meanwhile counts as succeeded. Then `settled` happens, and never `success`.
    /// Returns `false` if it was over before.
    ///
    /// # Errors
    /// See [`BatchError`]. Once the call was answered, servers go on with it, whatever becomes of this process.
    pub async fn cancel(&self) -> Result<bool, BatchError> {
        match self.mark("cancelled").await? {
            Word::Applied | Word::Same => Ok(true),
            Word::Closed => Ok(false),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }

    /// Runs the members again that are in the archive; returns how many.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn retry_dead(&self) -> Result<u64, BatchError> {
        let flows = self.client.flows();
        let mut again = 0;
        for (queue, id) in flows.members(&self.id, MemberState::Dead).await? {
            let changes =
                flows.broker.run_tasks(&queue, Seen::In(TaskState::Archived), &[&id], self.client.now_ns()).await?;
            if changes.first().is_some_and(|change| change.is_done())
                && let Some(member) = MemberId::of(&id)
            {
                flows.record(vec![(member, MemberOutcome::Again)]).await?;
                again += 1;
            }
        }
        Ok(again)
    }

    /// How it stands.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn status(&self) -> Result<BatchStatus, BatchError> {
        let status = self.client.flows().status(&self.id).await?;
        status.ok_or_else(|| BatchError::Unknown { id: self.id.to_string() })
    }

    /// Waits until it is over, callbacks included, and tells how it ended.
    ///
    /// # Errors
    /// [`BatchError::TimedOut`], or see [`BatchError`].
    pub async fn wait(&self, up_to: Duration) -> Result<BatchStatus, BatchError> {
        let (began, mut pause) = (tokio::time::Instant::now(), LOOK_AFTER);
        loop {
            let status = self.status().await?;
            let waited = began.elapsed();
            if status.is_over() {
                return Ok(status);
            }
            if waited >= up_to {
                return Err(BatchError::TimedOut { id: self.id.to_string(), waited, live: status.live() });
            }
            tokio::time::sleep(pause.min(up_to - waited)).await;
            pause = (pause * 2).min(LOOK_EVERY);
        }
    }
}

/// Tasks that were checked, to be added together.
struct Chunk {
    /// With the queue of each.
    tasks: Vec<(String, RawTask)>,
    /// Whether no more come.
    is_last: bool,
}

impl Chunk {
    /// Gathers tasks as they come, no more than one reservation gives out; the first has this position.
    async fn gather<S>(
        client: &Client,
        tasks: &mut std::pin::Pin<Box<stream::Fuse<S>>>,
        position: u64,
    ) -> Result<Self, BatchError>
    where
        S: Stream<Item: IntoTask>,
    {
        let (mut chunk, mut bytes, now_ns) = (Self { tasks: Vec::new(), is_last: false }, 0, client.now_ns());
        while chunk.tasks.len() < flow::MAX_RESERVATION as usize && bytes < CHUNK_BYTES {
            let next = match tasks.next().now_or_never() {
                Some(next) => next,
                // Nobody waits for a chunk to be full.
                None if !chunk.tasks.is_empty() => return Ok(chunk),
                None => tasks.next().await,
            };
            let Some(task) = next else {
                chunk.is_last = true;
                return Ok(chunk);
            };
            let at = position + chunk.tasks.len() as u64;
            let refused = |source: EnqueueError| BatchError::Refused { position: at, source };
            let task = task.into_task().map_err(|error| refused(error.into()))?;
            check(&task, &|reason| BatchError::Unsuitable { position: at.to_string(), reason })?;
            bytes += task.payload.as_ref().map_or(0, Bytes::len);
            let composed = compose(task.clone(), TaskOptions::new(), now_ns).map_err(|error| refused(error.into()))?;
            client.check_size(&composed).map_err(refused)?;
            if composed.placement == Placement::Aggregating {
                return Err(BatchError::Unsuitable { position: at.to_string(), reason: "it has a group" });
            }
            chunk.tasks.push((composed.message.queue, task));
        }
        Ok(chunk)
    }

    /// The queue of all of them; none if there are several. An empty chunk has any.
    fn only_queue(&self) -> Option<&str> {
        let first = self.tasks.first().map_or("", |(queue, _)| queue);
        self.tasks.iter().all(|(queue, _)| queue == first).then_some(first)
    }
}

/// What a task of a batch cannot have.
fn check(task: &RawTask, unsuitable: &dyn Fn(&'static str) -> BatchError) -> Result<(), BatchError> {
    if task.options.task_id.is_some() {
        return Err(unsuitable("it has an id of its own; the id says which member it is"));
    }
    if task.options.group.is_some() {
        return Err(unsuitable("it has a group; what is aggregated is no longer the task that the batch waits for"));
    }
    Ok(())
}

/// A task with the id of a member, the retention that keeps it where Go leaves it, and the one that its user asked for.
fn as_member(mut task: RawTask, id: String) -> RawTask {
    if let Some(keep) = task.options.retention.filter(|keep| !keep.is_zero()) {
        task = task.header(flow::HEADER, format!("keep={}", secs_ceil(keep)));
    }
    task = task.retention(flow::MEMBER_RETENTION);
    if id.is_empty() { task } else { task.task_id(id) }
}

/// 16 letters and digits.
fn random_name() -> String {
    let mut bits = uuid::Uuid::new_v4().as_u128();
    let letters = std::iter::repeat_with(|| {
        let letter = char::from_digit((bits % 36) as u32, 36).unwrap_or('0');
        bits /= 36;
        letter
    });
    letters.take(16).collect()
}

impl Flows {
    /// Lists a tree and its queues, so that somebody looks after them whatever becomes of this process.
    async fn list<'a>(
        &self,
        root: &FlowId,
        queues: impl Iterator<Item = &'a String>,
        now_ns: i64,
    ) -> Result<(), Error> {
        let now_ms = now_ns.div_euclid(1_000_000);
        let mut listing = redis::pipe();
        listing.cmd("ZADD").arg(keys::FLOWS).arg("NX").arg(now_ms / 1_000).arg(root.root()).ignore();
        let duty = |listing: &mut redis::Pipeline, name: &str, subject: &str, at_ms: i64| {
            listing.cmd("ZADD").arg(keys::DUTIES).arg("LT").arg(at_ms).arg(format!("{name} {subject}")).ignore();
        };
        let look_ms = i64::try_from(flow::STANDS_STILL_AFTER.as_millis()).unwrap_or(0);
        duty(&mut listing, duty::TREE, root.root(), now_ms + look_ms);
        for queue in queues {
            listing.cmd("SADD").arg(keys::QUEUES).arg(queue).ignore();
            duty(&mut listing, duty::MEMBERS, queue, now_ms);
        }
        self.broker.redis().pipeline("ZADD", &listing).await
    }

    async fn list_queue(&self, queue: &str, now_ns: i64) -> Result<(), Error> {
        self.broker.ask_for_duty(duty::MEMBERS, queue, now_ns.div_euclid(1_000_000)).await
    }
}

impl From<OptionError> for BatchError {
    fn from(error: OptionError) -> Self {
        Self::Refused { position: 0, source: error.into() }
    }
}
