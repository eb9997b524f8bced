//! What goes by the clock of the test.

use std::time::Duration;

use chrono::DateTime;
use queue_core::{Clock as _, RawTask, TaskOptions, TaskState};
use queue_redis::EnqueueError;
use queue_testing::{TestQueue, refute_enqueued};

use crate::Welcome;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn the_clock_stands_still_until_it_is_moved() {
    let time = DateTime::from_timestamp(2_000_000_000, 0).unwrap();
    let queue = TestQueue::starting_at(time);
    let clock = queue.clock();
    assert_eq!((queue.now(), clock.now()), (time, time));
    queue.advance(Duration::from_millis(1_500));
    assert_eq!(clock.now_ns(), 2_000_000_001_500_000_000);
    queue.advance_to(time);
    assert_eq!(clock.now_secs(), 2_000_000_001, "it never goes back");
    queue.advance_to(time + HOUR);
    assert_eq!(queue.now(), time + HOUR);
}

#[tokio::test]
async fn the_lock_of_a_unique_task_ends_with_the_clock() {
    let queue = TestQueue::new();
    let unique = || RawTask::new("report").unique(HOUR);
    queue.enqueue(unique()).await;
    assert!(matches!(queue.client().enqueue(unique()).await, Err(EnqueueError::DuplicateTask { .. })));
    queue.advance(HOUR - Duration::from_secs(1));
    assert!(matches!(queue.client().enqueue(unique()).await, Err(EnqueueError::DuplicateTask { .. })));
    queue.advance(Duration::from_secs(1));
    queue.enqueue(unique()).await;
    assert_eq!(queue.tasks(TaskState::Pending).await.len(), 2);
}

#[tokio::test]
async fn retention_and_statistics_go_by_the_clock() {
    let queue = TestQueue::new();
    queue.enqueue_with(Welcome { user: 7 }, TaskOptions::new().retention(HOUR)).await;
    queue.drain(Welcome::router()).await.assert_succeeded(1);
    let done = &queue.tasks(TaskState::Completed).await[0];
    assert_eq!((done.completed_at, done.result.as_deref()), (Some(queue.now()), Some(&b"\"to 7\""[..])));
    assert_eq!(queue.inspector().queue("mail").await.unwrap().processed, 1);
    queue.drain_for(2 * HOUR, Welcome::router()).await.assert_succeeded(0);
    queue.drain(Welcome::router()).await.assert_succeeded(0);
    assert_eq!(queue.task("mail", &done.id).await, None);
    queue.advance(24 * HOUR);
    assert_eq!(queue.inspector().queue("mail").await.unwrap().processed, 0, "that was yesterday");
    refute_enqueued!(queue, Welcome);
}

#[tokio::test]
async fn a_deadline_passes_with_the_clock() {
    let queue = TestQueue::new();
    let deadline = std::time::UNIX_EPOCH + Duration::from_secs(queue.now().timestamp() as u64) + HOUR;
    queue.enqueue_with(Welcome { user: 7 }, TaskOptions::new().deadline(deadline)).await;
    queue.advance(2 * HOUR);
    let drained = queue.drain(Welcome::router()).await;
    assert_eq!(drained[0].error.as_deref(), Some("context deadline exceeded"));
    assert_eq!(queue.tasks(TaskState::Archived).await.len(), 1);
}
