//! Tasks and servers in real time, and what becomes of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::{Clock as _, RawTask, RetryPolicy, SystemClock, TaskInfo, TaskState};
use queue_redis::Client;
use queue_worker::{Job, Router, Server};

use super::{Fixture, QUEUE, eventually, wait_for};

impl Fixture {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.redis())
    }

    pub(crate) fn inspector(&self) -> Inspector {
        Inspector::new(self.redis())
    }

    /// A server for the queue of the tests. What fails stays where it is for an hour.
    pub(crate) fn server<S: Clone + Send + Sync + 'static>(&self, router: Router<S>) -> Server {
        Server::new(self.redis(), router)
            .queues([(QUEUE, 1)])
            .concurrency(4)
            .cancel_grace(Duration::from_millis(50))
            .retry_policy(RetryPolicy::Fixed(Duration::from_secs(3_600)))
    }

    pub(crate) async fn enqueue(&self, tasks: impl IntoIterator<Item = RawTask>) {
        for outcome in self.client().enqueue_many(tasks).await {
            outcome.unwrap();
        }
    }

    /// Waits until the task is in this state.
    #[track_caller]
    pub(crate) fn in_state(&self, id: &str, state: TaskState) -> impl Future<Output = TaskInfo> {
        let (inspector, id) = (self.inspector(), id.to_owned());
        wait_for(format!("task {id} is {state}"), move || {
            let (inspector, id) = (inspector.clone(), id.clone());
            async move { inspector.task(QUEUE, &id).await.ok().filter(|info| info.state == state) }
        })
    }

    /// Waits until the task has left Redis.
    #[track_caller]
    pub(crate) fn gone(&self, id: &str) -> impl Future<Output = ()> {
        let key = queue_core::keys::QueueKeys::new(QUEUE).task(id);
        eventually(format!("task {id} is gone"), move || {
            let key = key.clone();
            async move { self.cmd::<i64>(&["EXISTS", &key]).await == 0 }
        })
    }

    /// Lets all leases look as they do some minutes after they ran out.
    pub(crate) async fn expire_leases(&self) {
        let leased: Vec<String> = self.cmd(&["ZRANGE", "asynq:{q}:lease", "0", "-1"]).await;
        let long_ago = (SystemClock.now_secs() - 300).to_string();
        for id in leased {
            self.run(&format!("ZADD asynq:{{q}}:lease XX {long_ago} {id}")).await;
        }
    }

    /// A counter of the queue, 0 if it was never used.
    pub(crate) async fn count(&self, counter: &str) -> u64 {
        self.cmd::<Option<u64>>(&["GET", &format!("asynq:{{q}}:{counter}")]).await.unwrap_or(0)
    }
}

/// A handler that gets a clone of a value with each job.
pub(crate) fn with<T, F, Fut>(value: &T, handler: F) -> impl Fn(Job) -> Fut + Clone + Send + Sync + use<T, F, Fut>
where
    T: Clone + Send + Sync,
    F: Fn(T, Job) -> Fut + Clone + Send + Sync,
{
    let value = value.clone();
    move |job| handler(value.clone(), job)
}

/// What handlers tell, in order.
#[derive(Debug, Clone)]
pub(crate) struct Events<T = String>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Events<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + std::fmt::Debug> Events<T> {
    pub(crate) fn tell(&self, event: impl Into<T>) {
        self.0.lock().unwrap().push(event.into());
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until so many things were told, and returns all.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> impl Future<Output = Vec<T>> {
        let events = self.clone();
        wait_for(format!("{count} events are told"), move || {
            let events = events.clone();
            async move { Some(events.all()).filter(|all| all.len() >= count) }
        })
    }
}

/// How many run now, and the most that ever did.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

impl Gauge {
    pub(crate) fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}
