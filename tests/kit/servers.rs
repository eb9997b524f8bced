//! Real servers on a store inside this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_admin::{Actor, Admin, Heeded, Inspector, Role, ServerVerb};
use queue_core::registry::Order;
use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::broker::{Canceled, Change};
use queue_testing::TestQueue;
use queue_worker::{Job, Router};

use crate::Welcome;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Waits for a condition. With tokio's time paused, this is a matter of turns and not of time.
async fn eventually<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    for _ in 0..3_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_the_work_and_each_task_runs_once() {
    let queue = TestQueue::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let router = Router::new(ran.clone()).route("t", {
        let ran = ran.clone();
        move |_: Job| {
            ran.fetch_add(1, Ordering::SeqCst);
            async {}
        }
    });
    let first = queue.server(router.clone()).concurrency(5).start().await.unwrap();
    let second = queue.server(router).concurrency(5).start().await.unwrap();
    let tasks = (0..500).map(|_| RawTask::new("t"));
    assert!(queue.client().enqueue_many(tasks).await.iter().all(Result::is_ok));
    eventually(async || queue.inspector().queue("default").await.unwrap().processed_total == 500).await;
    first.shutdown().await;
    second.shutdown().await;
    assert_eq!(ran.load(Ordering::SeqCst), 500);
    assert!(queue.inspector().servers().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_notices_at_once_that_the_clock_was_moved() {
    let queue = TestQueue::new();
    let server = queue.server(Welcome::router()).queues([("mail", 1)]).start().await.unwrap();
    queue.enqueue_with(Welcome { user: 7 }, TaskOptions::new().process_in(24 * HOUR).retention(HOUR)).await;
    assert_eq!(queue.tasks(TaskState::Scheduled).await.len(), 1);
    let began = tokio::time::Instant::now();
    queue.advance(24 * HOUR);
    eventually(async || queue.tasks(TaskState::Completed).await.len() == 1).await;
    // In tokio's time, which no slow machine changes. By itself it would have looked after 5 s.
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
    server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_runs_with_tokios_time_paused() {
    let queue = TestQueue::new();
    let server = queue.server(Welcome::router()).queues([("mail", 1)]).start().await.unwrap();
    queue.enqueue(Welcome { user: 0 }).await;
    eventually(async || queue.tasks(TaskState::Retry).await.len() == 1).await;
    let mut retries = 0;
    while queue.tasks(TaskState::Archived).await.is_empty() {
        queue.advance(HOUR);
        tokio::time::sleep(Duration::from_secs(60)).await;
        retries += 1;
        assert!(retries < 10, "{:?}", queue.enqueued().await);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_running_task_can_be_canceled() {
    let queue = TestQueue::new();
    let router = Router::new(()).route("t", async |job: Job| {
        job.cancellation().cancelled().await;
        Err::<(), _>("told to stop")
    });
    let server = queue.server(router).start().await.unwrap();
    let task = queue.enqueue(RawTask::new("t").max_retry(0)).await;
    eventually(async || {
        queue.tasks(TaskState::Active).await.len() == 1 && queue.broker().cancel(&task.id).await.unwrap() == 1
    })
    .await;
    eventually(async || !queue.tasks(TaskState::Archived).await.is_empty()).await;
    assert_eq!(queue.tasks(TaskState::Archived).await[0].last_error.as_deref(), Some("context canceled"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_is_canceled_for_good_whether_it_waits_or_runs() {
    let queue = TestQueue::new();
    let waiting = queue.client().enqueue_to_wait(RawTask::new("t")).await.unwrap();
    assert_eq!(waiting.cancel("ann").await.unwrap(), Canceled::Archived(Change::Applied));
    let router = Router::new(()).route("t", async |job: Job| {
        job.cancellation().cancelled().await;
        Err::<(), _>("told to stop")
    });
    let server = queue.server(router).start().await.unwrap();
    let running = queue.client().enqueue_to_wait(RawTask::new("t")).await.unwrap();
    eventually(async || queue.tasks(TaskState::Active).await.len() == 1).await;
    assert_eq!(running.cancel("ann").await.unwrap(), Canceled::Asked(1));
    eventually(async || queue.tasks(TaskState::Archived).await.len() == 2).await;
    let errors: Vec<_> =
        queue.tasks(TaskState::Archived).await.into_iter().filter_map(|task| task.last_error).collect();
    assert_eq!(errors, ["canceled by ann"], "that of the one that ran");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_goes_by_orders() {
    let queue = TestQueue::new();
    let router = Router::new(()).route("t", async |_: Job| {});
    let server = queue.server(router).name("web-1").start().await.unwrap();
    let actor = Actor { name: "ann".to_owned(), role: Role::Admin, via: "test", address: None };
    let admin = Admin::new(Inspector::new(queue.redis().clone()), actor);
    let order = async |verb| {
        let given = admin.order(verb, "web-1", &Order::default()).await.unwrap();
        eventually(async || {
            let heeded = admin.inspector().heeded(&given).await.unwrap();
            heeded.iter().all(|(_, heeded)| matches!(heeded, Heeded::Applied { .. }))
        })
        .await;
    };
    order(ServerVerb::Quiet).await;
    queue.enqueue(RawTask::new("t")).await;
    assert_eq!(queue.tasks(TaskState::Pending).await.len(), 1);
    order(ServerVerb::Resume).await;
    eventually(async || queue.tasks(TaskState::Pending).await.is_empty()).await;
    server.shutdown().await;
}
