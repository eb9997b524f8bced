//! Tasks with budgets of their own, worked by the kit as by servers.

use std::time::Duration;

use queue_core::exhausted::Exhausted;
use queue_core::{RawTask, RetryPolicy, TaskState};
use queue_testing::{Drain, End, TestQueue};
use queue_worker::{Failure, Job, Output, Router};

const MINUTE: Duration = Duration::from_secs(60);

fn task(task_type: &str) -> RawTask {
    RawTask::new(task_type).queue("mail").task_id(task_type)
}

/// The kit's store and a Redis do the same.
async fn spend(queue: TestQueue) {
    queue.enqueue(task("fails").give_up_after(10 * MINUTE).backoff(RetryPolicy::Fixed(3 * MINUTE))).await;
    queue.enqueue(task("busy").max_snoozes(2)).await;
    let router = Router::new(())
        .route("fails", async |_: Job| Err::<(), Failure>("boom".into()))
        .route("busy", async |_: Job| Err::<(), Failure>(Failure::snooze(MINUTE, "busy")));
    let drained = queue.drain_for(60 * MINUTE, router).await;
    let ends = |task_type: &str| drained.of_type(task_type).map(|attempt| attempt.end).collect::<Vec<_>>();
    assert_eq!(ends("busy"), [End::Snoozed, End::Snoozed, End::Archived]);
    // After 0, 3, 6, 9 and 12 minutes.
    assert_eq!(ends("fails"), [End::Retried, End::Retried, End::Retried, End::Retried, End::Archived]);
    let told = drained.of_type("fails").last().and_then(|attempt| attempt.error.clone()).unwrap();
    assert!(
        told.starts_with("boom; given up: it failed first at ") && told.ends_with("give_up_after is 10m0s"),
        "{told}"
    );
}

#[tokio::test]
async fn budgets_are_spent_in_the_store_of_the_kit() {
    spend(TestQueue::new()).await;
}

#[tokio::test]
async fn budgets_are_spent_in_a_private_redis() {
    spend(TestQueue::on_redis().await.unwrap()).await;
}

#[tokio::test]
async fn a_task_with_a_crash_budget_of_its_own_is_archived_by_its_first_crash() {
    let queue = TestQueue::new();
    queue.enqueue(task("kills").max_crashes(0)).await;
    let expires = queue.now().timestamp() + 30;
    queue.broker().dequeue(&"mail".into(), 1, &"lost".into(), expires).await.unwrap();
    queue.advance(MINUTE);
    let router = Router::new(()).route("kills", async |_: Job| {});
    assert!(queue.drain_with(router, Drain::new().max_crashes(5)).await.is_empty());
    let story = queue.tasks(TaskState::Archived).await[0].last_error.clone().unwrap();
    assert!(story.contains("given up after 1 crashes"), "{story}");
}

#[tokio::test]
async fn what_follows_an_archived_task_is_drained_too() {
    for queue in [TestQueue::new(), TestQueue::on_redis().await.unwrap()] {
        queue.enqueue(task("fails").max_retry(0).on_exhausted("alert")).await;
        let router = Router::new(()).route("fails", async |_: Job| Err::<(), Failure>("boom".into())).route(
            "alert",
            async |job: Job| {
                let Exhausted { id, error, .. } = serde_json::from_slice(job.payload()).unwrap();
                Output([id, error])
            },
        );
        let drained = queue.drain(router).await;
        assert_eq!((drained.count(End::Archived), drained.count(End::Succeeded)), (1, 1), "{drained}");
        let alert = drained.of_type("alert").next().unwrap();
        assert_eq!(alert.result.as_deref(), Some(&br#"["fails","boom"]"#[..]));
    }
}
