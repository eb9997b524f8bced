//! Waiting for tasks: [`TaskHandle`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_core::limits::WAITED_FOR_RETENTION;
use queue_core::progress::Progress;
use queue_core::task_log::TaskLog;
use queue_core::{IntoTask, TaskInfo, TaskOptions, TaskState};
use serde::de::DeserializeOwned;

use super::{Client, EnqueueError};
use crate::broker::{Canceled, TaskLook};
use crate::error::Error;
use crate::waits::{Seen, Wait};

/// The longest pause between attempts to read how a task has ended.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A task that was enqueued, wherever it is by now; cheap to clone.
///
/// ```no_run
/// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use queue_core::RawTask;
///
/// let handle = client.enqueue_to_wait(RawTask::new("sum").payload("[1,2]")).await?;
/// let sum: u64 = handle.result(Duration::from_secs(30)).await?;
/// # Ok(()) }
/// ```
///
/// All waits of a client and its clones share one connection, on which Redis tells of changes (client tracking): there is one
/// look at the task to begin with and one for each change, by whomever, Go's programs included. It is opened with the
/// first wait and closed 10 s after the last. Where Redis has no client tracking, or the user no right to it, each task is
/// looked at once a second.
#[derive(Debug, Clone)]
pub struct TaskHandle {
    client: Client,
    queue: String,
    id: String,
    enqueued: Option<Arc<TaskInfo>>,
}

/// How a task stands, again and again; see [`TaskHandle::changes`].
#[derive(Debug)]
pub struct TaskChanges(Wait);

impl TaskChanges {
    /// How the task stands: at the first call now, then when it has changed; `None` if there is no such task. It waits also while Redis
    /// cannot be reached.
    ///
    /// # Errors
    /// When Redis refuses.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not told yet is told by the next call.
    pub async fn next(&mut self) -> Result<Option<TaskLook>, Error> {
        loop {
            match self.0.next().await {
                Seen::Nothing => {}
                Seen::Task(look) => return Ok(Some(look)),
                Seen::Gone => return Ok(None),
                Seen::Refused(error) => return Err(error),
            }
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// It succeeded, and is kept with its result.
    Completed(TaskInfo),
    /// It was given up: its retries are used up, a handler or an operator has archived it.
    Archived(TaskInfo),
    /// There is no such task. It was revoked or deleted, or has succeeded without a retention, or it ended so long ago
    /// that its retention is over.
    Gone,
}

/// Why there is no end to tell, or no result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The task was not enqueued.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// It has not ended in time; it goes on.
    #[error("task {id:?} in queue {queue:?} has not ended within {waited:?}")]
    TimedOut {
        /// Task id.
        id: String,
        /// Queue name.
        queue: String,
        /// How long was waited.
        waited: Duration,
    },
    /// It was archived, so it has no result.
    #[error("task {id:?} in queue {queue:?} was archived: {error}")]
    Archived {
        /// Task id.
        id: String,
        /// Queue name.
        queue: String,
        /// Its last error; empty if there is none, as where an operator has archived it.
        error: String,
    },
    /// It is gone, so nothing is known about its result.
    #[error("task {id:?} is gone from queue {queue:?}: it was revoked or deleted, or its retention is over")]
    Gone {
        /// Task id.
        id: String,
        /// Queue name.
        queue: String,
    },
    /// The result is not what was asked for.
    #[error("cannot read the result of task {id:?} in queue {queue:?}: {error}")]
    Unreadable {
        /// Task id.
        id: String,
        /// Queue name.
        queue: String,
        /// What is wrong with it.
        error: String,
    },
    /// Redis refuses.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(WaitError);

impl Client {
    /// A task of this queue by its id. Nothing is asked: there may be none.
    pub fn handle(&self, queue: impl Into<String>, id: impl Into<String>) -> TaskHandle {
        TaskHandle { client: self.clone(), queue: queue.into(), id: id.into(), enqueued: None }
    }

    /// Enqueues a task that is to be waited for. One without a retention is kept for
    /// [60 s](queue_core::limits::WAITED_FOR_RETENTION) after its success, so that whoever waits can see it, and its
    /// result.
    ///
    /// # Errors
    /// See [`EnqueueError`].
    pub async fn enqueue_to_wait(&self, task: impl IntoTask) -> Result<TaskHandle, EnqueueError> {
        let task = task.into_task()?;
        let mut options = TaskOptions::new();
        if task.options.retention.unwrap_or_default().is_zero() {
            options = options.retention(WAITED_FOR_RETENTION);
        }
        let task = self.enqueue_with(task, options).await?;
        Ok(TaskHandle { enqueued: Some(Arc::new(task.clone())), ..self.handle(task.queue, task.id) })
    }

    /// Enqueues a task and waits up to this long for its end: [`enqueue_to_wait`](Self::enqueue_to_wait), then
    /// [`TaskHandle::wait`]. When the time is over, the task goes on.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use queue_core::RawTask;
    /// use queue_redis::Finished;
    ///
    /// match client.enqueue_and_wait(RawTask::new("sum").payload("[1,2]"), Duration::from_secs(30)).await? {
    ///     Finished::Completed(task) => println!("{:?}", task.result),
    ///     Finished::Archived(task) => println!("it failed: {}", task.last_error.unwrap_or_default()),
    ///     Finished::Gone => println!("somebody has deleted it"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`WaitError`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the task may be stored or not.
    pub async fn enqueue_and_wait(&self, task: impl IntoTask, up_to: Duration) -> Result<Finished, WaitError> {
        self.enqueue_to_wait(task).await?.wait(up_to).await
    }
}

impl TaskHandle {
    /// Task id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Queue name.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The task as it was when [`Client::enqueue_to_wait`] stored it; `None` for a handle that was made otherwise.
    pub fn enqueued(&self) -> Option<&TaskInfo> {
        self.enqueued.as_deref()
    }

    /// How the task stands now; `None` if there is no such task.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn look(&self) -> Result<Option<TaskLook>, Error> {
        self.client.broker().look_at(&self.queue, &self.id).await
    }

    /// How far the task is, as its handler says by `Job::progress`; `None` if it has said nothing, or there is no such
    /// task.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn progress(&self) -> Result<Option<Progress>, Error> {
        Ok(self.look().await?.and_then(|look| look.progress))
    }

    /// What the task has written down so far, by `Job::log`: its last lines, of all attempts. It is empty if there is no such
    /// task.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn log(&self) -> Result<TaskLog, Error> {
        self.client.broker().log(&self.queue, &self.id).await
    }

    /// How the task stands now, and then at each change: of its state, its progress or anything else. Of changes that come
    /// faster than somebody looks, the last one is told.
    pub fn changes(&self) -> TaskChanges {
        TaskChanges(self.client.waits.wait(self.client.redis(), &self.queue, &self.id))
    }

    /// Waits up to this long for the end of the task; `Duration::MAX` is for ever. It is waited for also while Redis
    /// cannot be reached. A task that is archived has ended, although an operator may run it again.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`]; [`WaitError::Unreadable`] where the task has ended and its result has not come by then; or Redis refuses.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed by waiting.
    pub async fn wait(&self, up_to: Duration) -> Result<Finished, WaitError> {
        let has_ended = AtomicBool::new(false);
        let (id, queue) = (self.id.clone(), self.queue.clone());
        match tokio::time::timeout(up_to, self.end(&has_ended)).await {
            Ok(end) => end,
            Err(_) if has_ended.into_inner() => {
                let error = format!("it has ended, and its result has not come within {up_to:?}");
                Err(WaitError::Unreadable { id, queue, error })
            }
            Err(_) => Err(WaitError::TimedOut { id, queue, waited: up_to }),
        }
    }

    async fn end(&self, has_ended: &AtomicBool) -> Result<Finished, WaitError> {
        let mut pause = Duration::from_millis(50);
        let mut wait = self.client.waits.wait(self.client.redis(), &self.queue, &self.id);
        loop {
            match wait.next().await {
                Seen::Gone => return Ok(Finished::Gone),
                Seen::Refused(error) => return Err(error.into()),
                Seen::Task(TaskLook { state: Some(TaskState::Completed | TaskState::Archived), .. }) => {}
                Seen::Task(_) => {
                    has_ended.store(false, Ordering::Relaxed);
                    continue;
                }
                Seen::Nothing => continue,
            }
            has_ended.store(true, Ordering::Relaxed);
            match self.client.broker().task_info(&self.queue, &self.id).await {
                Ok(None) => return Ok(Finished::Gone),
                Ok(Some(task)) if task.state == TaskState::Completed => return Ok(Finished::Completed(task)),
                Ok(Some(task)) if task.state == TaskState::Archived => return Ok(Finished::Archived(task)),
                // Somebody has run it again meanwhile.
                Ok(Some(_)) => has_ended.store(false, Ordering::Relaxed),
                // A look of those that wait for Redis to come back.
                Err(error) if error.is_transient() => {
                    wait = self.client.waits.wait(self.client.redis(), &self.queue, &self.id);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits up to this long for the end of the task, and reads its result as JSON, as handlers store it by
    /// `Output(value)`. A task without a result has `null`.
    ///
    /// # Errors
    /// See [`WaitError`].
    pub async fn result<T: DeserializeOwned>(&self, up_to: Duration) -> Result<T, WaitError> {
        let (id, queue) = (self.id.clone(), self.queue.clone());
        match self.wait(up_to).await? {
            Finished::Completed(task) => {
                let unreadable =
                    |error: serde_json::Error| WaitError::Unreadable { id, queue, error: error.to_string() };
                serde_json::from_slice(task.result.as_deref().unwrap_or(b"null")).map_err(unreadable)
            }
            Finished::Archived(task) => {
                Err(WaitError::Archived { id, queue, error: task.last_error.unwrap_or_default() })
            }
            Finished::Gone => Err(WaitError::Gone { id, queue }),
        }
    }

    /// Ends the task for good, in whatever state it is. What nobody works on is archived at once. A server that works on it
    /// is told, and the request is recorded, so that it counts also where nobody hears of it; a handler that succeeds all
    /// the same has succeeded. `by` stands in the error of a task that was working. [`wait`](Self::wait) tells how it ended.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. It may have been done all the same.
    pub async fn cancel(&self, by: &str) -> Result<Canceled, Error> {
        self.client.broker().cancel_for_good(&self.queue, &self.id, by, self.client.now_ns()).await
    }
}
