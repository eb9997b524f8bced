//! Real servers on a store inside this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_core::{RawTask, TaskOptions, TaskState};
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
