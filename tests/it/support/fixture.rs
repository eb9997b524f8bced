//! A private Redis with the ways into it, and tasks in the states a test begins with.
//!
//! With `QUEUE_TESTS_STORE=memory` it is the testing kit's store; `conformance.rs` runs tests that way.

use std::sync::Arc;

use queue_core::options::{Composed, Placement, compose};
use queue_core::{RawTask, TaskMessage, TaskOptions};
use queue_redis::embedded::RedisServer;
use queue_redis::{
    Error, InProcess as _, Redis,
    broker::{Broker, Delivery, Dequeued, EnqueueVerdict, ExpiredLease, Recovery, Report, Side, Taken, Verdict},
};
use queue_testing::Store;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisConnectionInfo, ToRedisArgs};

use super::Keyspace;
use super::connection::patient;

/// The queue of the tests of transitions.
pub(crate) const QUEUE: &str = "q";
/// Their time, in the year 2096: Redis deletes at once what expires before its own time.
pub(crate) const NOW: i64 = 4_000_000_000;
pub(crate) const NOW_NS: i64 = NOW * 1_000_000_000;

/// A private Redis. It ends with the fixture.
pub(crate) struct Fixture {
    pub(crate) broker: Broker,
    raw: MultiplexedConnection,
    home: Home,
    takes: std::cell::Cell<u64>,
}

/// Where the tasks are.
enum Home {
    Redis(Box<RedisServer>),
    InProcess(Store),
}

/// A task of type `job` in the queue of the tests.
pub(crate) fn job(id: &str) -> RawTask {
    RawTask::new("job").queue(QUEUE).task_id(id)
}

/// The owner's report on a run.
pub(crate) fn report(delivery: &Delivery) -> Report {
    Report::by_owner(delivery.run.clone(), &delivery.message, Side::Oldest)
}

/// Takes a task from a worker that went silent: it waits until `retry_at`, or is archived.
pub(crate) async fn recovered(
    broker: &Broker,
    lease: &ExpiredLease,
    message: TaskMessage,
    retry_at: Option<i64>,
    now: i64,
) -> Verdict {
    let (lease, message) = (lease.clone(), message.to_bytes());
    let recovery = Recovery { lease, message, retry_at, crashes: None, attempt: None, follow_up: None };
    broker.recover(QUEUE, &[recovery], 0, now).await.unwrap()[0]
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        // What servers log is looked at by tests of its own.
        queue_redis::log_to_stderr(false);
        if std::env::var("QUEUE_TESTS_STORE").is_ok_and(|store| store == "memory") {
            return Self::in_process(Store::new()).await;
        }
        let server = RedisServer::start().await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let raw = client.get_multiplexed_async_connection_with_config(&patient()).await.unwrap();
        Self {
            broker: Broker::new(server.redis()),
            raw,
            home: Home::Redis(Box::new(server)),
            takes: std::cell::Cell::new(0),
        }
    }

    /// The same on the testing kit's store.
    pub(crate) async fn in_process(store: Store) -> Self {
        let settings = RedisConnectionInfo::default();
        let (raw, driver) = MultiplexedConnection::new_with_config(&settings, store.open(), patient()).await.unwrap();
        tokio::spawn(driver);
        Self { broker: Broker::new(store.redis()), raw, home: Home::InProcess(store), takes: std::cell::Cell::new(0) }
    }

    pub(crate) fn url(&self) -> &str {
        match &self.home {
            Home::Redis(server) => server.url(),
            Home::InProcess(_) => panic!("a store inside this process has no address"),
        }
    }

    /// A handle with connections of its own.
    pub(crate) fn another_redis(&self) -> Redis {
        match &self.home {
            Home::Redis(server) => server.redis(),
            Home::InProcess(store) => store.redis(),
        }
    }

    pub(crate) fn socket(&self) -> &std::path::Path {
        match &self.home {
            Home::Redis(server) => server.socket(),
            Home::InProcess(_) => panic!("a store inside this process has no socket"),
        }
    }

    pub(crate) fn redis(&self) -> Redis {
        self.broker.redis().clone()
    }

    /// Sends a command as it is.
    pub(crate) async fn cmd<T: FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> T {
        let mut cmd = redis::Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut self.raw.clone()).await.unwrap_or_else(|error| panic!("{cmd:?}: {error}"))
    }

    /// Sends a command that has bytes in it.
    #[cfg(measure)]
    pub(crate) async fn raw_query<T: FromRedisValue>(&self, cmd: &redis::Cmd) -> T {
        cmd.query_async(&mut self.raw.clone()).await.unwrap_or_else(|error| panic!("{cmd:?}: {error}"))
    }

    /// Sends a command whose words are separated by spaces.
    pub(crate) async fn run(&self, words: &str) {
        let _: redis::Value = self.cmd(&words.split(' ').collect::<Vec<_>>()).await;
    }

    pub(crate) async fn keyspace(&self) -> Keyspace {
        Keyspace::read(&mut self.raw.clone()).await
    }

    pub(crate) fn compose(&self, task: RawTask) -> Composed {
        compose(task, TaskOptions::new(), NOW_NS).unwrap()
    }

    /// Stores new tasks at [`NOW`], wherever each belongs.
    pub(crate) async fn put(&self, tasks: impl IntoIterator<Item = RawTask>) {
        for task in tasks {
            self.put_one(self.compose(task)).await;
        }
    }

    async fn put_one(&self, task: Composed) {
        let queue = task.message.queue.clone();
        let verdict = match task.placement {
            Placement::Pending => self.broker.enqueue(&queue, &[task], NOW_NS).await.unwrap()[0],
            Placement::Front => self.broker.enqueue_front(&queue, &[task], NOW_NS).await.unwrap()[0],
            Placement::Scheduled { .. } => self.broker.schedule(&queue, &[task]).await.unwrap()[0],
            Placement::Aggregating => self.broker.add_to_group(&task, NOW).await.unwrap(),
        };
        assert_eq!(verdict, EnqueueVerdict::Stored);
    }

    /// Takes up to `count` tasks at [`NOW`], for 30 s. The runs of each call are named `run-1`, `run-2` and
    /// so on.
    pub(crate) async fn dequeue(&self, count: usize) -> Dequeued {
        self.dequeue_at(NOW, count).await
    }

    /// The same at another time.
    pub(crate) async fn dequeue_at(&self, now: i64, count: usize) -> Dequeued {
        self.takes.set(self.takes.get() + 1);
        let token: Arc<str> = format!("run-{}", self.takes.get()).into();
        self.broker.dequeue(&QUEUE.into(), count, &token, now + 30).await.unwrap()
    }

    /// Takes one task, which has to be there.
    pub(crate) async fn take(&self) -> Delivery {
        self.take_at(NOW).await
    }

    /// Takes the one task of another queue.
    pub(crate) async fn take_from(&self, queue: &str) -> Delivery {
        match self.broker.dequeue(&queue.into(), 1, &"run-elsewhere".into(), NOW + 30).await.unwrap() {
            Dequeued::Tasks(tasks) => match tasks.into_iter().next() {
                Some(Taken::Task(delivery)) => delivery,
                other => panic!("took {other:?}"),
            },
            other => panic!("took {other:?}"),
        }
    }

    /// The same at another time.
    pub(crate) async fn take_at(&self, now: i64) -> Delivery {
        match self.dequeue_at(now, 1).await {
            Dequeued::Tasks(mut tasks) if tasks.len() == 1 => match tasks.remove(0) {
                Taken::Task(delivery) => delivery,
                other => panic!("took {other:?}"),
            },
            other => panic!("took {other:?}"),
        }
    }

    /// Stores a task and takes it.
    pub(crate) async fn active(&self, task: RawTask) -> Delivery {
        let id = task.options.task_id.clone();
        self.put([task]).await;
        let delivery = self.take().await;
        assert_eq!(Some(&delivery.run.id), id.as_ref(), "another task was waiting");
        delivery
    }

    /// Stores tasks and takes them all in one call, oldest first.
    pub(crate) async fn active_batch(&self, tasks: impl IntoIterator<Item = RawTask>) -> Vec<Delivery> {
        let tasks: Vec<RawTask> = tasks.into_iter().collect();
        let count = tasks.len();
        self.put(tasks).await;
        let Dequeued::Tasks(taken) = self.dequeue(count).await else { panic!("the queue is paused") };
        assert_eq!(taken.len(), count);
        taken
            .into_iter()
            .map(|taken| match taken {
                Taken::Task(delivery) => delivery,
                other => panic!("took {other:?}"),
            })
            .collect()
    }

    /// Does something while a key of another type stands in the place of one. Fails if that key changes.
    pub(crate) async fn with_stray<T>(&self, key: &str, act: impl AsyncFnOnce() -> T) -> T {
        let (saved, stray) = self.lay_stray(key).await;
        let done = act().await;
        self.take_stray(key, saved, &stray).await;
        done
    }

    async fn lay_stray(&self, key: &str) -> (bool, Vec<u8>) {
        let saved: bool = self.cmd::<i64>(&["EXISTS", key]).await == 1;
        if saved {
            self.run(&format!("RENAME {key} saved")).await;
        }
        // No key of asynq's is a stream.
        self.run(&format!("XADD {key} 1-1 field stray")).await;
        (saved, self.cmd(&["DUMP", key]).await)
    }

    async fn take_stray(&self, key: &str, saved: bool, stray: &[u8]) {
        let after: Vec<u8> = self.cmd(&["DUMP", key]).await;
        assert_eq!(after, stray, "the stray key {key} was changed");
        self.run(&format!("DEL {key}")).await;
        if saved {
            self.run(&format!("RENAME saved {key}")).await;
        }
    }
}

/// Whether Redis refused because of the type of a key.
/// The error of Redis that an operator's call has met.
pub(crate) fn of_redis(error: queue_admin::Error) -> Error {
    match error {
        queue_admin::Error::Redis(error) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_wrong_type(error: &Error) -> bool {
    matches!(error, Error::Refused { code, .. } if code == "WRONGTYPE")
}
