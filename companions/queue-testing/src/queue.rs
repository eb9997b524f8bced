//! A queue for one test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_admin::{Error, Inspector, Page};
use queue_core::{Clock as _, IntoTask, SystemClock, TaskInfo, TaskOptions, TaskState};
use queue_redis::embedded::{RedisServer, StartError};
use queue_redis::{Client, Redis, broker::Broker};
use queue_scheduler::{Scheduler, SchedulerBuilder};
use queue_worker::{Router, Server};

use crate::clock::TestClock;
use crate::store::Store;

/// Queues of its own for one test, with a clock that the test moves; clones are the same queues.
///
/// [`new`](Self::new) keeps them in this process, [`on_redis`](Self::on_redis) on a private `redis-server`. The
/// methods that do things panic when the store refuses, so that a test need not `unwrap`.
///
/// The log lines that the queue writes to standard error when there is no subscriber are switched off for the
/// process: tests let tasks fail on purpose.
#[derive(Clone)]
pub struct TestQueue {
    redis: Redis,
    clock: TestClock,
    client: Client,
    /// `None`: on Redis.
    store: Option<Store>,
    /// Ends with the last clone.
    _server: Option<Arc<RedisServer>>,
}

impl fmt::Debug for TestQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestQueue").field("redis", &self.redis).field("now", &self.now()).finish_non_exhaustive()
    }
}

#[expect(clippy::new_without_default, reason = "every queue is another one; a default would hide that")]
impl TestQueue {
    /// Queues inside this process. The clock stands at the current second.
    pub fn new() -> Self {
        Self::starting_at(now())
    }

    /// Queues inside this process, at a time that is the same in every run.
    pub fn starting_at(time: DateTime<Utc>) -> Self {
        let clock = TestClock::at(time);
        let store = Store::with_clock(Arc::new(clock.clone()));
        Self { store: Some(store.clone()), ..Self::build(store.redis(), clock) }
    }

    /// Queues on a private `redis-server`, which ends with the last clone. The clock stands at the current
    /// second.
    ///
    /// What Redis itself forgets in time (locks of unique tasks, the list of servers) goes by Redis' own
    /// time, and a running server notices within 5 s that the clock was moved, instead of at once.
    ///
    /// # Errors
    /// When there is no `redis-server`, or it does not come up.
    pub async fn on_redis() -> Result<Self, StartError> {
        let server = RedisServer::start().await?;
        let queue = Self::build(server.redis(), TestClock::at(now()));
        Ok(Self { _server: Some(Arc::new(server)), ..queue })
    }

    fn build(redis: Redis, clock: TestClock) -> Self {
        queue_redis::log_to_stderr(false);
        let client = Client::with_clock(redis.clone(), Arc::new(clock.clone()));
        Self { redis, clock, client, store: None, _server: None }
    }

    /// What code under test enqueues with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A handle for whatever else needs one.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The transitions of tasks, for tests that play a worker themselves.
    pub fn broker(&self) -> Broker {
        Broker::new(self.redis.clone())
    }

    /// A look at queues and tasks, by this clock.
    pub fn inspector(&self) -> Inspector {
        Inspector::with_clock(self.redis.clone(), Arc::new(self.clock.clone()))
    }

    /// A server on these queues, by this clock, to be configured and started. What it waits for (polling,
    /// timeouts of handlers, renewing leases) goes by tokio's time.
    pub fn server<S: Clone + Send + Sync + 'static>(&self, router: Router<S>) -> Server {
        Server::new(self.redis.clone(), router).clock(Arc::new(self.clock.clone()))
    }

    /// A scheduler on these queues, by this clock. Its ticks come while [`Drain::scheduler`](crate::Drain::scheduler)
    /// names it, or once it was started.
    pub fn scheduler(&self) -> SchedulerBuilder {
        Scheduler::builder(self.redis.clone()).clock(Arc::new(self.clock.clone()))
    }

    /// The clock, for handlers and code under test.
    pub fn clock(&self) -> TestClock {
        self.clock.clone()
    }

    /// The time.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Moves the clock. Nothing is worked by that; a running server notices what has become due.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
        if let Some(store) = &self.store {
            store.time_has_changed();
        }
    }

    /// Moves the clock to this time, unless it is later already.
    pub fn advance_to(&self, time: DateTime<Utc>) {
        self.advance((time - self.now()).to_std().unwrap_or_default());
    }

    /// Enqueues a task.
    ///
    /// # Panics
    /// When it is refused. To test refusals, use the [`client`](Self::client).
    pub async fn enqueue(&self, task: impl IntoTask) -> TaskInfo {
        self.enqueue_with(task, TaskOptions::new()).await
    }

    /// Enqueues a task with options that win over its own.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn enqueue_with(&self, task: impl IntoTask, options: TaskOptions) -> TaskInfo {
        self.client.enqueue_with(task, options).await.unwrap_or_else(|error| panic!("cannot enqueue: {error}"))
    }

    /// A task as it is now; `None` if there is none.
    ///
    /// # Panics
    /// When its message cannot be read, or the store refuses.
    pub async fn task(&self, queue: &str, id: &str) -> Option<TaskInfo> {
        match self.inspector().task(queue, id).await {
            Ok(task) => Some(task),
            Err(Error::TaskNotFound { .. } | Error::QueueNotFound(_)) => None,
            Err(error) => panic!("cannot look at task {id:?} in queue {queue:?}: {error}"),
        }
    }

    /// All tasks in one state, of all queues.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn tasks(&self, state: TaskState) -> Vec<TaskInfo> {
        self.read_tasks(state).await.unwrap_or_else(|error| panic!("cannot look at {state} tasks: {error}"))
    }

    async fn read_tasks(&self, state: TaskState) -> Result<Vec<TaskInfo>, Error> {
        const PAGE: usize = 1_000;
        let inspector = self.inspector();
        let mut tasks = Vec::new();
        for queue in inspector.queues().await? {
            let mut page = Page { skip: 0, size: PAGE };
            loop {
                let found = inspector.tasks(&queue, state, page).await?;
                // A message that cannot be read is left out, so that an emptier page need not be the last.
                let is_last = found.is_empty();
                tasks.extend(found);
                if is_last {
                    break;
                }
                page.skip += PAGE;
            }
        }
        Ok(tasks)
    }

    /// All tasks that wait to be worked: pending, scheduled, in a group, or for another attempt.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn enqueued(&self) -> Vec<TaskInfo> {
        let mut tasks = Vec::new();
        for state in [TaskState::Pending, TaskState::Scheduled, TaskState::Aggregating, TaskState::Retry] {
            tasks.extend(self.tasks(state).await);
        }
        tasks
    }
}

/// The current second. A whole one, because scores are.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(SystemClock.now_secs(), 0).unwrap_or_default()
}
