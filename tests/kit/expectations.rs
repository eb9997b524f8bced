//! Assertions about what is enqueued.

use std::time::Duration;

use queue_core::{RawTask, TaskOptions};
use queue_testing::{Expected, TestQueue, assert_enqueued, expected, refute_enqueued};

use crate::Welcome;

/// It was due half a second too early.
#[tokio::test]
async fn what_is_pending_is_due_now_also_between_two_seconds() {
    let queue = TestQueue::new();
    queue.advance(Duration::from_millis(500));
    queue.enqueue(Welcome { user: 7 }).await;
    queue.enqueue_with(Welcome { user: 8 }, TaskOptions::new().process_in(Duration::from_secs(90))).await;
    assert_enqueued!(queue, Welcome, |task| task.user == 7, at = queue.now());
    assert_enqueued!(queue, Welcome, |task| task.user == 8, at = queue.now() + Duration::from_secs(90));
}

#[tokio::test]
async fn every_kind_of_description_is_understood() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    let later = TaskOptions::new().process_in(Duration::from_secs(90)).header("tenant", "a");
    queue.enqueue_with(Welcome { user: 8 }, later).await;
    queue.enqueue(RawTask::new("image:resize").payload(r#"{"size":{"width":3,"height":4}}"#).group("images")).await;

    let found = assert_enqueued!(queue, Welcome);
    assert_eq!(found.len(), 2);
    assert_enqueued!(queue, Welcome, times = 2);
    assert_enqueued!(queue, Welcome, |task| task.user == 8, times = 1);
    assert_enqueued!(queue, Welcome, {"user": 8}, header = ("tenant", "a"), queue = "mail");
    assert_enqueued!(queue, crate::Welcome, at = queue.now() + Duration::from_secs(90), times = 1);
    assert_enqueued!(queue, Welcome, at = queue.now(), times = 1);
    assert_enqueued!(queue, "image:resize", {"size": {"width": 3}});
    assert_enqueued!(queue, "image:resize", |task| task.group.as_deref() == Some("images"));
    refute_enqueued!(queue, Welcome, |task| task.user == 9);
    refute_enqueued!(queue, Welcome, queue = "default");
    refute_enqueued!(queue, Welcome, {"user": 7}, header = ("tenant", "a"));
    refute_enqueued!(queue, "image:");
}

async fn complaint(queue: &TestQueue, expected: Expected) -> String {
    queue.find_enqueued(&expected).await.unwrap_err()
}

#[tokio::test]
async fn a_failure_says_what_there_is_and_why_it_is_not_enough() {
    let queue = TestQueue::starting_at(chrono::DateTime::from_timestamp(2_000_000_000, 0).unwrap());
    assert_eq!(
        complaint(&queue, expected!(Welcome)).await,
        "expected a task email:welcome; found 0\nnothing is enqueued"
    );
    queue.enqueue(Welcome { user: 7 }).await;
    queue.enqueue(RawTask::new("other").process_in(Duration::from_millis(1_500))).await;
    let text = complaint(&queue, expected!(Welcome, {"user": 8}, queue = "mail")).await;
    assert_eq!(
        text,
        "expected a task email:welcome, payload {\"user\":8}, in queue mail; found 0\n\
         what is enqueued:\n  \
         email:welcome in mail, pending, due 2033-05-18T03:33:20+00:00: \"{\\\"user\\\":7}\" (payload.user is 7)\n  \
         other in default, scheduled, due 2033-05-18T03:33:22+00:00: \"\" (another type)"
    );
    let text = complaint(&queue, expected!(Welcome, times = 2)).await;
    assert!(text.starts_with("expected 2 tasks email:welcome; found 1\n"), "{text}");
    for (expected, why) in [
        (expected!(Welcome, |task| task.user == 8), "the condition does not hold"),
        (expected!(Welcome, queue = "default"), "it is in queue mail"),
        (expected!("other", at = queue.now()), "it is due at 2033-05-18T03:33:22+00:00"),
        (expected!("other", {"a": 1}), "the payload is not JSON"),
        (expected!("other", header = ("a", "b")), "its header a is None"),
    ] {
        let text = complaint(&queue, expected).await;
        assert!(text.contains(&format!("({why})")), "{why}: {text}");
    }
    let text = queue.find_none_enqueued(&expected!(Welcome)).await.unwrap_err();
    assert!(text.starts_with("expected no task email:welcome; found 1\nwhat is enqueued:\n  email:welcome"), "{text}");
}

#[tokio::test]
#[should_panic(expected = "expected a task email:welcome; found 0")]
async fn assert_enqueued_fails_without_the_task() {
    assert_enqueued!(TestQueue::new(), Welcome);
}

#[tokio::test]
#[should_panic(expected = "expected no task email:welcome; found 1")]
async fn refute_enqueued_fails_with_the_task() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    refute_enqueued!(queue, Welcome);
}

#[tokio::test]
async fn test_queues_share_nothing() {
    let (first, second) = (TestQueue::new(), TestQueue::new());
    first.enqueue(Welcome { user: 7 }).await;
    refute_enqueued!(second, Welcome);
    assert_enqueued!(first.clone(), Welcome);
}
