//! Limits and followers: the kit frees slots and starts what follows, as servers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queue_core::limit::{Limit, LimitKey};
use queue_core::{PublishOutcome, RawTask};
use queue_testing::{Drain, TestQueue};
use queue_worker::{Failure, Job, Router, Unhandled};

const MINUTE: Duration = Duration::from_secs(60);

async fn with(limit: Limit, tasks: usize) -> TestQueue {
    let queue = TestQueue::new();
    queue.inspector().set_limit("mail", limit).await.unwrap();
    for n in 0..tasks {
        queue.enqueue(RawTask::new("send").queue("mail").task_id(n.to_string())).await;
    }
    queue
}

fn send() -> Router {
    Router::new(()).route("send", async |_: Job| {})
}

#[tokio::test]
async fn a_slot_is_free_for_the_next_task_when_the_one_before_has_ended() {
    let queue = with(Limit::new("one", LimitKey::Type).concurrency(1), 5).await;
    assert_eq!(queue.drain(send()).await.len(), 5);
}

/// The drain panicked.
#[tokio::test]
async fn nothing_is_taken_under_a_limit_where_other_types_are_left_to_others_as_with_a_server() {
    let queue = with(Limit::new("one", LimitKey::Type).concurrency(1), 2).await;
    queue.enqueue(RawTask::new("send").queue("free")).await;
    let drained = queue.drain_with(send(), Drain::new().unhandled(Unhandled::Leave)).await;
    assert_eq!((drained.len(), &*drained[0].task.queue), (1, "free"));
    queue.inspector().remove_limits("mail").await.unwrap();
    queue.drain_with(send(), Drain::new().unhandled(Unhandled::Leave)).await.assert_succeeded(2);
}

#[tokio::test]
async fn tasks_start_no_faster_than_a_rate_allows_as_time_passes() {
    let queue = with(Limit::new("slow", LimitKey::Type).rate(1, MINUTE), 4).await;
    assert_eq!(queue.drain(send()).await.len(), 1);
    assert_eq!(queue.drain_for(MINUTE / 2, send()).await.len(), 0);
    assert_eq!(queue.drain_for(2 * MINUTE, send()).await.len(), 2);
    assert_eq!(queue.drain_for(MINUTE, send()).await.len(), 1);
}

#[tokio::test]
async fn a_handler_that_is_told_too_many_stops_its_limit() {
    let queue = with(Limit::new("api", LimitKey::Type).concurrency(5), 3).await;
    let told = Arc::new(AtomicBool::new(false));
    let router = Router::new(()).route("send", move |_: Job| {
        let is_first = !told.swap(true, Ordering::Relaxed);
        async move { if is_first { Err(Failure::too_many("api", 10 * MINUTE)) } else { Ok(()) } }
    });
    assert_eq!(queue.drain(router.clone()).await.len(), 1, "the others wait for the limit");
    assert_eq!(queue.drain_for(9 * MINUTE, router.clone()).await.len(), 0);
    assert_eq!(queue.drain_for(2 * MINUTE, router).await.len(), 3);
}

#[tokio::test]
async fn tenants_of_a_fair_limit_take_turns() {
    let queue = TestQueue::new();
    queue.inspector().set_limit("mail", Limit::new("tenant", LimitKey::header("tenant")).fair()).await.unwrap();
    for (tenant, tasks) in [("big", 100), ("small", 3)] {
        for n in 0..tasks {
            let task = RawTask::new("send").queue("mail").task_id(format!("{tenant}-{n:03}"));
            queue.enqueue(task.header("tenant", tenant)).await;
        }
    }
    let drained = queue.drain(send()).await;
    let small: Vec<usize> = (0..drained.len()).filter(|n| drained[*n].task.id.starts_with("small")).collect();
    assert_eq!((drained.len(), small.len()), (103, 3));
    assert!(small[2] < 10, "{small:?}");
}

#[tokio::test]
async fn a_task_that_follows_another_starts_when_that_has_ended() {
    let queue = TestQueue::new();
    let client = queue.client();
    let publish = || client.publish(RawTask::new("send").queue("mail")).key("k").coalesce();
    publish().await.unwrap();
    let expires = queue.now().timestamp() + 30;
    let worker = queue.broker().dequeue(&"mail".into(), 1, &"worker".into(), expires).await.unwrap();
    assert_eq!(worker.into_tasks().len(), 1);
    publish().await.unwrap();
    assert_eq!(queue.drain(send()).await.len(), 0, "it waits for the one that runs");
    // Its worker is gone: the task is recovered, worked, and what follows it starts at once.
    assert_eq!(queue.drain_for(2 * MINUTE, send()).await.len(), 2);
}

#[tokio::test]
async fn tasks_of_a_key_in_strict_order_wait_for_the_retry_of_the_one_at_turn() {
    let queue = with(Limit::new("order", LimitKey::Type).strict_order(), 3).await;
    let router = Router::new(()).route("send", async |job: Job| match (job.id(), job.attempt()) {
        ("1", 1) => Err(Failure::retry_in(MINUTE, "not yet")),
        _ => Ok(()),
    });
    assert_eq!(queue.drain(router.clone()).await.len(), 2);
    let drained = queue.drain_for(2 * MINUTE, router).await;
    let ids: Vec<&str> = drained.iter().map(|attempt| attempt.task.id.as_str()).collect();
    assert_eq!(ids, ["1", "2"]);
}

#[tokio::test]
async fn windows_and_quiet_times_of_publishes_go_by_the_clock_of_the_test() {
    let queue = TestQueue::new();
    let publish = |key: &str| queue.client().publish(RawTask::new("send").queue("mail")).key(key);
    let throttled = async || publish("window").throttle(MINUTE).await.unwrap().outcome;
    assert_eq!(throttled().await, PublishOutcome::Stored);
    assert_eq!(queue.drain(send()).await.len(), 1);
    assert_eq!(throttled().await, PublishOutcome::Suppressed);
    queue.advance(MINUTE);
    assert_eq!(throttled().await, PublishOutcome::Stored);
    assert_eq!(queue.drain(send()).await.len(), 1);

    publish("quiet").debounce(MINUTE).await.unwrap();
    assert_eq!(queue.drain(send()).await.len(), 0);
    assert_eq!(queue.drain_for(2 * MINUTE, send()).await.len(), 1);
}

#[tokio::test]
async fn a_drain_goes_by_the_names_of_queues_and_not_by_priorities_or_targets() {
    let queue = TestQueue::new();
    let task = |id: &str| RawTask::new("send").queue("mail").task_id(id);
    queue.enqueue(task("urgent").priority(9)).await;
    queue.enqueue(task("plain")).await;
    queue.enqueue(task("mine").only("web-1")).await;
    let drained = queue.drain(send()).await;
    let ids: Vec<&str> = drained.iter().map(|attempt| attempt.task.id.as_str()).collect();
    assert_eq!(ids, ["plain", "mine", "urgent"]);
}
