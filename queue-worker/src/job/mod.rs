//! One attempt at one task, as its handler sees it.

mod notes;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::TaskMessage;
use queue_core::clock::UnixMilli;
use queue_redis::{
    Error, Permit, Semaphore,
    broker::{Broker, Delivery, Run, Verdict},
};
use tokio_util::sync::CancellationToken;

pub use self::notes::CheckpointError;
use self::notes::Notes;
use crate::work::Undecodable;

/// Why a handler was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CancelReason {
    /// The attempt's timeout or the task's deadline has passed.
    Deadline = 1,
    /// Somebody canceled the task (`asynq task cancel`, asynqmon, [`Broker::cancel`]).
    Canceled = 2,
    /// The lease was lost: another server may have the task by now.
    LeaseLost = 3,
    /// The server is shutting down, and its time to wait is over.
    Shutdown = 4,
}

/// Why a result was not stored.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// It is larger than the server keeps ([`Server::max_result_bytes`](crate::Server::max_result_bytes)).
    #[error(
        "the result has {bytes} bytes, and this server keeps {limit} at the most; store it elsewhere and keep its address, or raise the limit (Server::max_result_bytes)"
    )]
    TooLarge {
        /// Bytes of the result.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Redis could not be asked, or refused.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(ResultError);

/// One attempt at one task; cheap to clone. Also an extractor, and the request that layers see.
#[derive(Debug, Clone)]
pub struct Job {
    inner: Arc<Inner>,
    /// What a layer has put in place of the payload.
    payload: Option<Bytes>,
    /// What layers have added, the last one first.
    extensions: Option<Arc<Extended>>,
}

/// A value that a layer has added, and those that were there before. A list, because there are few, and because
/// whoever is outside of the layer must not see it.
struct Extended {
    value: Box<dyn Any + Send + Sync>,
    before: Option<Arc<Extended>>,
}

impl fmt::Debug for Extended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extended")
    }
}

#[derive(Debug)]
struct Inner {
    message: TaskMessage,
    run: Run,
    pending_since_ns: Option<i64>,
    started_ns: i64,
    began: Instant,
    deadline_ns: i64,
    /// Made by the first who asks for it: most handlers end before.
    token: OnceLock<CancellationToken>,
    reason: AtomicU8,
    /// Whether its handler was called.
    has_begun: AtomicBool,
    broker: Broker,
    slot: Weak<dyn Any + Send + Sync>,
    max_result_bytes: usize,
    undecodable: Undecodable,
    /// Made by the first who says something.
    notes: OnceLock<Box<Notes>>,
}

impl Job {
    pub(crate) fn new(
        delivery: Delivery,
        started_ns: i64,
        broker: Broker,
        slot: Weak<dyn Any + Send + Sync>,
        max_result_bytes: usize,
        (timeout, undecodable): (Duration, Undecodable),
    ) -> Self {
        let Delivery { message, run, pending_since_ns } = delivery;
        let deadline_ns = queue_core::outcome::attempt_deadline_ns(&message, timeout, started_ns);
        let inner = Inner {
            message,
            run,
            pending_since_ns,
            started_ns,
            began: Instant::now(),
            deadline_ns,
            token: OnceLock::new(),
            reason: AtomicU8::new(0),
            has_begun: AtomicBool::new(false),
            broker,
            slot,
            max_result_bytes,
            undecodable,
            notes: OnceLock::new(),
        };
        Self { inner: Arc::new(inner), payload: None, extensions: None }
    }

    /// Task id, unique within its queue.
    pub fn id(&self) -> &str {
        &self.inner.message.id
    }

    /// Task type.
    pub fn task_type(&self) -> &str {
        &self.inner.message.r#type
    }

    /// Queue name.
    pub fn queue(&self) -> &str {
        &self.inner.message.queue
    }

    /// Payload bytes.
    pub fn payload(&self) -> &Bytes {
        self.payload.as_ref().unwrap_or(&self.inner.message.payload)
    }

    /// Whether a layer has put another payload in place of the one that is stored.
    pub(crate) fn has_other_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// The same attempt with another payload, for layers that unpack or decrypt it: handlers inside see this
    /// one. What is stored when the task is retried or archived is the payload it came with.
    #[must_use]
    pub fn with_payload(self, payload: impl Into<Bytes>) -> Self {
        Self { payload: Some(payload.into()), ..self }
    }

    /// The same attempt with a value that handlers inside of a layer can ask for: by
    /// [`Extension`](crate::Extension), or by [`extension`](Self::extension). Of several values of a type the last
    /// one counts.
    #[must_use]
    pub fn with_extension<T: Send + Sync + 'static>(self, value: T) -> Self {
        let extended = Extended { value: Box::new(value), before: self.extensions };
        Self { extensions: Some(Arc::new(extended)), ..self }
    }

    /// What a layer has added of this type.
    pub fn extension<T: 'static>(&self) -> Option<&T> {
        let all = std::iter::successors(self.extensions.as_deref(), |extended| extended.before.as_deref());
        all.filter_map(|extended| extended.value.downcast_ref()).next()
    }

    /// The Redis that the task came from.
    pub(crate) fn redis(&self) -> &queue_redis::Redis {
        self.inner.broker.redis()
    }

    /// User metadata.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.inner.message.headers
    }

    /// How often the task was retried before this attempt; 0 at the first.
    pub fn retried(&self) -> u32 {
        u32::try_from(self.inner.message.retried).unwrap_or(0)
    }

    /// The number of this attempt, from 1. Snoozed attempts, which spend no retry, do not count.
    pub fn attempt(&self) -> u32 {
        self.retried().saturating_add(1)
    }

    /// How often it may be retried.
    pub fn max_retry(&self) -> u32 {
        u32::try_from(self.inner.message.retry).unwrap_or(0)
    }

    /// When this attempt must end.
    pub fn deadline(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_nanos(self.inner.deadline_ns)
    }

    /// Triggers when the handler should stop; [`cancel_reason`](Self::cancel_reason) tells why. A handler
    /// that does not return within the server's grace time is dropped.
    pub fn cancellation(&self) -> &CancellationToken {
        let token = self.inner.token.get_or_init(CancellationToken::new);
        // Who has cancelled it meanwhile may have found none.
        if self.inner.reason.load(Ordering::SeqCst) != 0 {
            token.cancel();
        }
        token
    }

    /// Why the handler was told to stop; `None` while it was not.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        match self.inner.reason.load(Ordering::Acquire) {
            1 => Some(CancelReason::Deadline),
            2 => Some(CancelReason::Canceled),
            3 => Some(CancelReason::LeaseLost),
            4 => Some(CancelReason::Shutdown),
            _ => None,
        }
    }

    /// The handler is called now.
    pub(crate) fn begin(&self) {
        self.inner.has_begun.store(true, Ordering::Relaxed);
    }

    /// Whether its handler was called: not if there is none, or the time was over before.
    pub(crate) fn has_begun(&self) -> bool {
        self.inner.has_begun.load(Ordering::Relaxed)
    }

    /// Whether a result of this task is kept after its success: it has a retention.
    pub fn keeps_result(&self) -> bool {
        self.message().retention > 0
    }

    /// Stores what the task has to show so far; the last write wins. Only tasks with a retention, and
    /// those that end in the archive, can be looked at after they have ended.
    ///
    /// # Errors
    /// See [`ResultError`]. Returns `false`, having written nothing, when the task is no longer this handler's.
    pub async fn write_result(&self, result: impl AsRef<[u8]>) -> Result<bool, ResultError> {
        let (bytes, limit) = (result.as_ref().len(), self.inner.max_result_bytes);
        if bytes > limit {
            return Err(ResultError::TooLarge { bytes, limit });
        }
        let verdict = self.inner.broker.write_result(&self.inner.run, result.as_ref()).await?;
        Ok(matches!(verdict, Verdict::Applied | Verdict::AlreadyApplied))
    }

    /// Takes a token of a semaphore in the name of the task, until the deadline of this attempt; `None` when
    /// none is free. Hold the permit as long as the work takes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use queue_worker::{Failure, Job, State};
    /// # use queue_redis::Semaphore;
    /// async fn print(job: Job, State(printer): State<Semaphore>) -> Result<(), Failure> {
    ///     let Some(_permit) = job.acquire(&printer).await? else {
    ///         return Err(Failure::snooze(Duration::from_secs(5), "the printer is busy")); // spends no retry
    ///     };
    ///     Ok(()) // print
    /// }
    /// ```
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn acquire(&self, semaphore: &Semaphore) -> Result<Option<Permit>, Error> {
        let now = self.now();
        semaphore.acquire_as_of(self.id(), now, self.deadline()).await
    }

    /// By the server's clock, in which the deadline is meant.
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_nanos(self.inner.started_ns) + self.inner.began.elapsed()
    }

    pub(crate) fn now_milli(&self) -> UnixMilli {
        UnixMilli(self.now().timestamp_millis())
    }

    pub(crate) fn notes(&self) -> &Notes {
        self.inner.notes.get_or_init(Box::default)
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.inner.broker
    }

    /// Only the first reason counts.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        let first = self.inner.reason.compare_exchange(0, reason as u8, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok()
            && let Some(token) = self.inner.token.get()
        {
            token.cancel();
        }
    }

    pub(crate) fn message(&self) -> &TaskMessage {
        &self.inner.message
    }

    pub(crate) fn run(&self) -> &Run {
        &self.inner.run
    }

    /// Since when the task was pending, in Unix nanoseconds; known only to servers that are observed.
    pub(crate) fn pending_since_ns(&self) -> Option<i64> {
        self.inner.pending_since_ns
    }

    pub(crate) fn undecodable(&self) -> Undecodable {
        self.inner.undecodable
    }

    pub(crate) fn started_ns(&self) -> i64 {
        self.inner.started_ns
    }

    pub(crate) fn deadline_ns(&self) -> i64 {
        self.inner.deadline_ns
    }

    /// The slot, for a thread that outlives the handler's future.
    pub(crate) fn hold_slot(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.slot.upgrade()
    }
}
