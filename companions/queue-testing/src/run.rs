//! One task through its handler.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use queue_core::options::{Composed, Placement, compose};
use queue_core::{Clock as _, IntoTask, RetryPolicy, TaskInfo, TaskOptions, TaskState};
use queue_redis::broker::{Dequeued, Taken};
use queue_worker::inline::Inline;
use queue_worker::{Router, Unhandled, WorkOptions};

use crate::attempt::Attempt;
use crate::drain::describe;
use crate::queue::TestQueue;

/// Runs one task through the router, here and now: encoded, decoded, with layers and extractors. Nothing is
/// enqueued; the task's time, group and uniqueness play no part.
///
/// A type that no handler serves fails.
///
/// # Panics
/// When the payload cannot be encoded, or an option cannot be honoured.
pub async fn run_inline<S: Clone + Send + Sync + 'static>(task: impl IntoTask, router: Router<S>) -> Attempt {
    RunInline::new(task).run(router).await
}

/// [`run_inline`] with more to say about the attempt.
#[derive(Debug)]
#[must_use = "nothing runs before run() is called"]
pub struct RunInline<T> {
    task: T,
    retried: i32,
    work: WorkOptions,
    at: Option<DateTime<Utc>>,
}

impl<T: IntoTask> RunInline<T> {
    /// The first attempt at this task.
    pub fn new(task: T) -> Self {
        Self { task, retried: 0, work: WorkOptions::new(), at: None }
    }

    /// The attempt after so many retries.
    pub fn retried(mut self, times: u16) -> Self {
        self.retried = times.into();
        self
    }

    /// How long a failed task waits for its next attempt, unless the router says otherwise for its type. Defaults to
    /// asynq's formula.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.work = self.work.retry_policy(policy);
        self
    }

    /// The time of the attempt. Defaults to now.
    pub fn at(mut self, time: DateTime<Utc>) -> Self {
        self.at = Some(time);
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// When the payload cannot be encoded, or an option cannot be honoured.
    pub async fn run<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Attempt {
        // A store that nobody else sees takes what the handler writes.
        let queue = self.at.map_or_else(TestQueue::new, TestQueue::starting_at);
        let clock = queue.clock();
        let task = self.task.into_task().unwrap_or_else(|error| panic!("cannot encode the task: {error}"));
        let now = TaskOptions::new().process_at(std::time::UNIX_EPOCH);
        let mut composed =
            compose(task, now, clock.now_ns()).unwrap_or_else(|error| panic!("cannot run the task: {error}"));
        composed.message.retried = self.retried;
        composed.placement = Placement::Pending;
        composed.unique_ttl = 0;
        composed.message.unique_key.clear();
        let delivery = pass(&queue, composed).await;
        let info = TaskInfo::new(delivery.message.clone(), TaskState::Active);
        let inline = Inline::new(router, queue.broker(), self.work, Arc::new(clock)).unhandled(Unhandled::Fail);
        describe(info, &inline.attempt(delivery).await)
    }
}

/// Stores a task and takes it.
async fn pass(queue: &TestQueue, task: Composed) -> queue_redis::broker::Delivery {
    let (broker, clock) = (queue.broker(), queue.clock());
    let name = task.message.queue.clone();
    let stored = broker.enqueue(&name, &[task], clock.now_ns()).await;
    let taken = broker.dequeue(&name.into(), 1, &"inline".into(), clock.now_secs() + 30).await;
    match (stored, taken) {
        (Ok(_), Ok(Dequeued::Tasks(mut tasks) | Dequeued::Limited { mut tasks, .. })) => match tasks.pop() {
            Some(Taken::Task(delivery)) => delivery,
            other => panic!("the store has lost the task: {other:?}"),
        },
        (stored, taken) => panic!("the store does not work: {stored:?}, {taken:?}"),
    }
}
