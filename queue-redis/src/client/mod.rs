//! Enqueuing tasks.

mod handle;
mod intercept;
mod many;
mod merge;
mod once;
mod patience;
mod publish;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, stream};
use queue_core::clock::Clock;
use queue_core::options::{Composed, Placement, compose};
use queue_core::{EncodeError, IntoTask, OptionError, SystemClock, TaskInfo, TaskOptions, TaskState};

pub use self::handle::{Finished, TaskChanges, TaskHandle, WaitError};
use self::intercept::Interceptors;
pub use self::intercept::{Interceptor, Outgoing};
use self::many::CHUNK_TASKS;
pub(crate) use self::many::GATHERED_AT_ONCE;
use self::merge::Merger;
pub use self::once::{EnqueuedOnce, OnceClaim};
use self::patience::Attempts;
pub use self::publish::{Publish, Published};
use crate::broker::{Broker, EnqueueVerdict, SET_BATCH, SHORT_BATCH};
use crate::connection::Redis;
use crate::error::Error;
use crate::waits::Waits;

pub use queue_core::limits::MAX_TASK_BYTES;

/// Why a task was not enqueued.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// Another task of the same type and payload holds the uniqueness lock.
    #[error(
        "task already exists: a task of type {task_type:?} with this payload, or this key of its own, is waiting in queue {queue:?}, was not yet worked, or began a window that is not over{}",
        holder.as_ref().map(|id| format!("; it is {id:?}")).unwrap_or_default()
    )]
    DuplicateTask {
        /// Task type.
        task_type: String,
        /// Queue name.
        queue: String,
        /// Id of the task that holds the lock. It is asked for afterwards: `None` when the lock was free by then, or
        /// could not be asked for.
        holder: Option<String>,
    },
    /// The id is taken in this queue, by a task in any state.
    #[error("task ID conflicts with another task: {id:?} is taken in queue {queue:?}")]
    TaskIdConflict {
        /// Task id.
        id: String,
        /// Queue name.
        queue: String,
    },
    /// An option cannot be honoured.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The payload cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The payload and headers are larger than this client sends.
    #[error(
        "the task has {bytes} bytes of payload and headers, and this client sends {limit} at the most; store large data elsewhere and put its address into the payload, or raise the limit (Client::max_task_bytes)"
    )]
    TooLarge {
        /// Bytes of the payload and the headers.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Redis could not be asked, or refused. After an [ambiguous](Error::is_ambiguous) error the task may
    /// have been stored; enqueue it again with the same task id to find out.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(EnqueueError);

/// Enqueues tasks; cheap to clone, and safe to share.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use queue_core::RawTask;
/// use queue_redis::Client;
///
/// let client = Client::connect("redis://127.0.0.1:6379").await?;
/// let task = RawTask::new("email:welcome").payload(r#"{"user":7}"#).queue("mail");
/// let info = client.enqueue(task.process_in(Duration::from_secs(60))).await?;
/// println!("{} is {}", info.id, info.state);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    store: Store,
    merger: Arc<Merger>,
    waits: Arc<Waits>,
    clock: Arc<dyn Clock>,
    interceptors: Interceptors,
    max_task_bytes: usize,
    patience: Duration,
}

/// Where a task goes; tasks of one queue and one place can travel in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Pending,
    Front,
    Scheduled,
    Group,
}

impl Place {
    fn of(task: &Composed) -> Self {
        match task.placement {
            Placement::Pending => Place::Pending,
            Placement::Front => Place::Front,
            Placement::Scheduled { .. } => Place::Scheduled,
            Placement::Aggregating => Place::Group,
        }
    }

    /// How many tasks one call stores.
    fn batch_size(self) -> usize {
        match self {
            Self::Pending | Self::Front => SHORT_BATCH,
            Self::Scheduled => SET_BATCH,
            // Groups are keys of their own, so that each task needs its own call.
            Self::Group => 1,
        }
    }
}

impl Client {
    /// Connects to `redis://`, `rediss://` or a Unix socket (`redis+unix:///path?db=1`).
    ///
    /// # Errors
    /// When the URL is not one of these, or Redis cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self::new(Redis::connect(url).await?))
    }

    /// A client on existing connections.
    pub fn new(redis: Redis) -> Self {
        Self::with_clock(redis, Arc::new(SystemClock))
    }

    /// A client with a clock of its own, for tests.
    pub fn with_clock(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        let store = Store { broker: Broker::new(redis) };
        let (merger, waits, interceptors) = (Arc::default(), Arc::default(), Interceptors::default());
        let (max_task_bytes, patience) = (MAX_TASK_BYTES, Duration::ZERO);
        Self { store, merger, waits, clock, interceptors, max_task_bytes, patience }
    }

    /// A client that refuses tasks with more bytes of payload and headers than this. Defaults to
    /// [`MAX_TASK_BYTES`], 16 MiB. More than 512 MB Redis refuses by itself, unless its `proto-max-bulk-len` is
    /// raised, and then the connection is closed. Clones made before are not changed.
    #[must_use]
    pub fn max_task_bytes(mut self, bytes: usize) -> Self {
        self.max_task_bytes = bytes;
        self
    }

    /// The connections it uses.
    pub fn redis(&self) -> &Redis {
        self.store.broker.redis()
    }

    /// A client that does something with every task before it is sent, such as adding a header. Others that
    /// were added before come first. Clones made before are not changed.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use queue_redis::{Client, Outgoing};
    ///
    /// let client = Client::connect("redis://127.0.0.1:6379").await?;
    /// let client = client.intercept(|task: &mut Outgoing<'_>| task.set_header("tenant", "acme"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn intercept(mut self, interceptor: impl Interceptor + 'static) -> Self {
        self.interceptors = self.interceptors.and(Arc::new(interceptor));
        self
    }

    /// A client that waits for a Redis that is away, up to this long for each call, before it fails: Redis cannot
    /// be reached, does not answer, or refuses for a reason that passes (it loads its data, is out of memory, has
    /// just become a replica), or for the password, which may be about to be changed. It tries again after 20 ms, then ever more seldom, up to every 5 s, with jitter; each
    /// caller's task stays in memory meanwhile. Clones made before are not changed.
    ///
    /// Defaults to zero: a call fails fast, after three more attempts within 0.6 s, or as soon as Redis has not
    /// answered for the time limits of [`RedisOptions`](crate::RedisOptions).
    #[must_use]
    pub fn wait_for_redis(mut self, up_to: Duration) -> Self {
        self.patience = up_to;
        // Calls that travel together wait together: none of another client's.
        self.merger = Arc::default();
        self
    }

    /// When a call that begins now has waited long enough; in a century, if that is later.
    fn until(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.patience).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 86_400))
    }

    /// Enqueues a task: pending at once, scheduled if its time is in the future, or into its group.
    ///
    /// When the connection breaks before the answer comes, the call is sent again, up to three times;
    /// a task that turns out to be stored already counts as enqueued. [`wait_for_redis`](Self::wait_for_redis)
    /// has it wait for longer.
    ///
    /// # Errors
    /// See [`EnqueueError`].
    pub async fn enqueue(&self, task: impl IntoTask) -> Result<TaskInfo, EnqueueError> {
        self.enqueue_with(task, TaskOptions::new()).await
    }

    /// Enqueues a task with options that win over its own.
    ///
    /// # Errors
    /// See [`EnqueueError`].
    pub async fn enqueue_with(&self, task: impl IntoTask, options: TaskOptions) -> Result<TaskInfo, EnqueueError> {
        let now_ns = self.clock.now_ns();
        let mut composed = composed(task, options, now_ns)?;
        let (under_way, seen) = self.interceptors.see(&mut composed);
        let stored = match seen.map_err(EnqueueError::from).and_then(|()| self.check_size(&composed)) {
            Ok(()) => self.merger.store(&self.store, composed, now_ns, self.until()).await.map_err(EnqueueError::from),
            Err(refusal) => Err(refusal),
        };
        let outcome = match stored {
            Ok((verdict, composed)) => self.settle(verdict, composed, now_ns).await,
            Err(error) => Err(error),
        };
        under_way.end(outcome)
    }

    /// Enqueues many tasks, [`SHORT_BATCH`] per call to Redis ([`SET_BATCH`] scheduled ones) and several calls at a time,
    /// and tells for each what became of it, in order. One that is refused does not hinder the others.
    ///
    /// The answers take memory, one [`TaskInfo`] for each task; where there are a great many, use
    /// [`enqueue_stream`](Self::enqueue_stream).
    pub async fn enqueue_many<T: IntoTask>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Vec<Result<TaskInfo, EnqueueError>> {
        let compose = |task: T, now_ns| composed(task, TaskOptions::new(), now_ns);
        many::enqueue(self.clone(), stream::iter(tasks), CHUNK_TASKS, compose, Some(self.until())).collect().await
    }

    /// The same for tasks that are composed, members of batches too.
    pub(crate) async fn enqueue_composed(&self, tasks: Vec<Composed>) -> Vec<Result<TaskInfo, EnqueueError>> {
        many::enqueue_chunk(self, tasks).await
    }

    /// The same for tasks that come as a stream, in chunks of `most`.
    pub(crate) fn enqueue_composed_stream<S: Stream<Item = Composed>>(
        &self,
        tasks: S,
        most: usize,
    ) -> impl Stream<Item = Result<TaskInfo, EnqueueError>> + use<S> {
        many::enqueue(self.clone(), tasks, most, |task, _| Ok(task), None)
    }

    /// [`enqueue_many`](Self::enqueue_many) for any number of tasks: they come as a stream, what became of them goes as one,
    /// in the same order, and no more than some thousands, or some 8 MB of payloads, are in memory at once. Nothing is sent
    /// that nobody waits for: read the answers to their end. An iterator becomes a stream by `futures_util::stream::iter`.
    ///
    /// A task that comes alone is sent at once, without waiting for others. [`wait_for_redis`](Self::wait_for_redis)
    /// counts anew for every few thousand tasks. `examples/examples/many.rs` runs.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) {
    /// use futures_util::{StreamExt as _, stream};
    /// use queue_core::RawTask;
    ///
    /// let tasks = stream::iter((0..1_000_000).map(|user| RawTask::new("email:news").payload(user.to_string())));
    /// let refused = client.enqueue_stream(tasks).filter_map(async |outcome| outcome.err());
    /// println!("{} tasks were refused", refused.count().await);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When the stream is dropped, tasks that were taken from theirs and not yet told about may be stored or not.
    pub fn enqueue_stream<S: Stream<Item: IntoTask>>(
        &self,
        tasks: S,
    ) -> impl Stream<Item = Result<TaskInfo, EnqueueError>> + use<S> {
        let compose = |task: S::Item, now_ns| composed(task, TaskOptions::new(), now_ns);
        many::enqueue(self.clone(), tasks, CHUNK_TASKS, compose, None)
    }

    /// What the caller is told; who holds the lock of a duplicate is asked for only then.
    async fn settle(&self, verdict: EnqueueVerdict, composed: Composed, now_ns: i64) -> Result<TaskInfo, EnqueueError> {
        let lock = match verdict {
            EnqueueVerdict::Duplicate | EnqueueVerdict::AlreadyStored => composed.message.unique_key.clone(),
            _ => String::new(),
        };
        let mut outcome = judge(verdict, composed, now_ns);
        if let Err(EnqueueError::DuplicateTask { holder, .. }) = &mut outcome {
            *holder = self.store.broker.lock_holder(&lock).await.unwrap_or(None);
        }
        outcome
    }

    /// Waits until those who listen to [events](crate::events::Events) have been told what was enqueued, for so long at the most. For programs that end
    /// right after they have enqueued something; others need not call it.
    pub async fn events_told(&self, patience: Duration) {
        self.store.broker.events_told(patience).await;
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.store.broker
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// What is done with every task before it is stored, for one that is stored later.
    pub(crate) fn prepare(&self, task: &mut Composed) -> Result<(), EnqueueError> {
        let (_, seen) = self.interceptors.see(task);
        seen?;
        self.check_size(task)
    }

    /// To be asked after the interceptors, who may add to it.
    pub(crate) fn check_size(&self, task: &Composed) -> Result<(), EnqueueError> {
        let headers: usize = task.message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let (bytes, limit) = (task.message.payload.len() + headers, self.max_task_bytes);
        if bytes > limit { Err(EnqueueError::TooLarge { bytes, limit }) } else { Ok(()) }
    }
}

/// A task of a user, ready to be stored.
fn composed(task: impl IntoTask, options: TaskOptions, now_ns: i64) -> Result<Composed, EnqueueError> {
    let composed = compose(task.into_task()?, options, now_ns)?;
    if queue_core::flow::is_member(composed.message.id.as_bytes()) {
        return Err(OptionError::ReservedTaskId.into());
    }
    Ok(composed)
}

/// Stores composed tasks and keeps queues listed; clones share what they know.
#[derive(Debug, Clone)]
struct Store {
    broker: Broker,
}

impl Store {
    /// Stores tasks which all go to the same place of the same queue.
    async fn store(
        &self,
        queue: &str,
        place: Place,
        batch: &[Composed],
        now_ns: i64,
        until: Instant,
    ) -> Result<Vec<EnqueueVerdict>, Error> {
        let mut attempts = Attempts::begin(Instant::now(), until, self.broker.redis().options());
        // Why nobody knows whether the tasks are stored, as soon as that is so.
        let mut unsure: Option<Error> = None;
        loop {
            let error = match self.store_once(queue, place, batch, now_ns).await {
                Ok(mut verdicts) => {
                    if let Some(unsure) = unsure {
                        for (verdict, task) in verdicts.iter_mut().zip(batch) {
                            if self.is_ours(*verdict, task).await.map_err(|_| unsure.clone())? {
                                *verdict = EnqueueVerdict::Stored;
                            }
                        }
                    }
                    let stored = batch.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == EnqueueVerdict::Stored);
                    self.broker.tell_enqueued(stored.map(|(task, _)| (&task.message, task.placement.due())), now_ns);
                    return Ok(verdicts);
                }
                Err(error) => error,
            };
            if error.is_ambiguous() {
                unsure = Some(error.clone());
            }
            match attempts.next(&error, Instant::now(), fastrand::f64()) {
                Some(pause) => tokio::time::sleep(pause).await,
                // That Redis cannot be reached now, or refuses, does not undo what it may have done before.
                None => return Err(unsure.unwrap_or(error)),
            }
        }
    }

    /// Whether the task that is in the way of one that may have been stored before is that one.
    async fn is_ours(&self, verdict: EnqueueVerdict, task: &Composed) -> Result<bool, Error> {
        Ok(match verdict {
            EnqueueVerdict::Stored | EnqueueVerdict::AlreadyStored => true,
            // An id of our own making is taken by our own task, even if it has failed since and its message is
            // another one.
            EnqueueVerdict::IdTaken => task.generated_id,
            // Likewise, of a unique task its own lock is met first.
            EnqueueVerdict::Duplicate => {
                task.generated_id && self.broker.has_task(&task.message.queue, &task.message.id).await?
            }
        })
    }

    async fn store_once(
        &self,
        queue: &str,
        place: Place,
        batch: &[Composed],
        now_ns: i64,
    ) -> Result<Vec<EnqueueVerdict>, Error> {
        self.broker.list_queue(queue).await?;
        match place {
            Place::Pending => self.broker.enqueue(queue, batch, now_ns).await,
            Place::Front => self.broker.enqueue_front(queue, batch, now_ns).await,
            Place::Scheduled => self.broker.schedule(queue, batch).await,
            Place::Group => {
                let now = now_ns.div_euclid(1_000_000_000);
                let mut verdicts = Vec::with_capacity(batch.len());
                for task in batch {
                    verdicts.push(self.broker.add_to_group(task, now).await?);
                }
                Ok(verdicts)
            }
        }
    }

    /// The error of a call that the end of the runtime has cut off.
    fn gone(&self) -> Error {
        let target = self.broker.redis().target().to_owned();
        Error::Disconnected { target, source: Arc::new(std::io::Error::other("the runtime is shutting down")) }
    }
}

fn judge(verdict: EnqueueVerdict, composed: Composed, now_ns: i64) -> Result<TaskInfo, EnqueueError> {
    let message = composed.message;
    match verdict {
        EnqueueVerdict::Stored => {
            let now = chrono::DateTime::from_timestamp_nanos(now_ns);
            let (state, due) = match composed.placement {
                Placement::Pending | Placement::Front => (TaskState::Pending, Some(now)),
                Placement::Scheduled { at } => (TaskState::Scheduled, chrono::DateTime::from_timestamp(at, 0)),
                Placement::Aggregating => (TaskState::Aggregating, None),
            };
            Ok(TaskInfo::new(message, state).due_at(due))
        }
        // The very same message: of a unique task Go would find the lock first.
        EnqueueVerdict::AlreadyStored if message.unique_key.is_empty() => {
            Err(EnqueueError::TaskIdConflict { id: message.id, queue: message.queue })
        }
        EnqueueVerdict::Duplicate | EnqueueVerdict::AlreadyStored => {
            Err(EnqueueError::DuplicateTask { task_type: message.r#type, queue: message.queue, holder: None })
        }
        EnqueueVerdict::IdTaken => Err(EnqueueError::TaskIdConflict { id: message.id, queue: message.queue }),
    }
}
