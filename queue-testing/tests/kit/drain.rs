//! Draining.

use std::time::Duration;

use queue_core::{RawTask, State, TaskOptions};
use queue_redis::Client;
use queue_testing::{Drain, End, TestQueue, assert_enqueued, refute_enqueued};
use queue_worker::{Failure, Job, RetryPolicy, Router, State as Shared, Unhandled};

use crate::Welcome;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn drain_works_what_is_due_and_leaves_the_rest() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    queue.enqueue_with(Welcome { user: 8 }, TaskOptions::new().process_in(MINUTE)).await;
    let drained = queue.drain(Welcome::router()).await;
    drained.assert_succeeded(1);
    assert_eq!(drained[0].payload::<Welcome>(), Welcome { user: 7 });
    assert_eq!(drained[0].json(), "to 7");
    assert_enqueued!(queue, Welcome, |task| task.user == 8, at = queue.now() + MINUTE);
    queue.advance(MINUTE);
    queue.drain(Welcome::router()).await.assert_succeeded(1);
    assert!(queue.enqueued().await.is_empty());
}

#[tokio::test]
async fn drain_works_what_handlers_enqueue() {
    let queue = TestQueue::new();
    // A handler gets the client as it gets anything else: by the router's state.
    #[derive(serde::Serialize, serde::Deserialize, queue_worker::Task)]
    #[task(kind = "countdown")]
    struct Countdown(u32);
    let router = Router::new(queue.client().clone()).task(
        async |Countdown(left): Countdown, Shared(client): Shared<Client>| -> Result<(), Failure> {
            if left > 0 {
                client.enqueue(Countdown(left - 1)).await?;
            }
            Ok(())
        },
    );
    queue.enqueue(Countdown(3)).await;
    let drained = queue.drain(router).await;
    let left: Vec<u32> = drained.iter().map(|attempt| attempt.payload::<Countdown>().0).collect();
    assert_eq!(left, [3, 2, 1, 0]);
}

#[tokio::test]
async fn a_failed_task_waits_and_drain_for_lives_through_its_retries() {
    let queue = TestQueue::new();
    // Tasks that are due at the same second come in the order of their ids.
    queue.enqueue_with(Welcome { user: 0 }, TaskOptions::new().task_id("a")).await;
    queue.enqueue_with(Welcome { user: 1 }, TaskOptions::new().task_id("b")).await;
    let started = queue.now();
    let policy = Drain::new().retry_policy(RetryPolicy::Fixed(MINUTE));
    let drained = queue.drain_with(Welcome::router(), policy.clone()).await;
    assert_eq!(drained.count(End::Retried), 2);
    assert_eq!(drained[0].next, Some(started + MINUTE));
    assert!(queue.drain_with(Welcome::router(), policy.clone()).await.is_empty());

    let drained = queue.drain_for_with(10 * MINUTE, Welcome::router(), policy).await;
    assert_eq!(queue.now(), started + 10 * MINUTE);
    let ends: Vec<(u64, End)> =
        drained.of::<Welcome>().map(|attempt| (attempt.payload::<Welcome>().user, attempt.end)).collect();
    assert_eq!(ends, [(0, End::Retried), (1, End::Retried), (0, End::Archived), (1, End::Succeeded)]);
    let archived = queue.tasks(State::Archived).await;
    assert_eq!(archived[0].last_error.as_deref(), Some("no such user"));
    assert_eq!(archived[0].last_failed_at, Some(started + 2 * MINUTE));
}

#[tokio::test]
async fn drain_takes_the_queues_in_the_order_they_are_named() {
    let queue = TestQueue::new();
    for name in ["low", "high", "other"] {
        queue.enqueue(RawTask::new("t").queue(name)).await;
    }
    let router = || Router::new(()).route("t", async |_: Job| {});
    let drained = queue.drain_with(router(), Drain::new().queues(["low", "high"])).await;
    let order: Vec<&str> = drained.iter().map(|attempt| attempt.task.queue.as_str()).collect();
    assert_eq!(order, ["low", "high"]);
    assert_enqueued!(queue, "t", queue = "other", times = 1);
}

#[tokio::test]
async fn what_can_not_be_worked_is_told() {
    let queue = TestQueue::new();
    queue.enqueue(RawTask::new("unknown").task_id("1")).await;
    let drained = queue.drain(Welcome::router()).await;
    assert_eq!(drained[0].end, End::PutBack);
    assert!(drained.to_string().contains("handler not found for task \"unknown\""), "{drained}");
    queue.advance(MINUTE);
    let drained = queue.drain_with(Welcome::router(), Drain::new().unhandled(Unhandled::Archive)).await;
    assert_eq!(drained[0].end, End::Archived);

    queue.enqueue(RawTask::new("email:welcome").queue("mail").payload("not JSON")).await;
    let drained = queue.drain(Welcome::router()).await;
    assert_eq!((drained[0].end, drained[0].result.as_ref()), (End::Archived, None));
    let router = Router::new(()).route("email:", async |_: Job| -> Result<(), Failure> { panic!("on purpose") });
    queue.enqueue(Welcome { user: 1 }).await;
    let drained = queue.drain(router).await;
    assert!(drained[0].error.as_ref().unwrap().contains("on purpose"), "{drained}");
}

#[tokio::test]
async fn a_paused_queue_is_left_alone() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    queue.inspector().pause("mail").await.unwrap();
    assert!(queue.drain(Welcome::router()).await.is_empty());
    queue.inspector().unpause("mail").await.unwrap();
    queue.drain(Welcome::router()).await.assert_succeeded(1);
    refute_enqueued!(queue, Welcome);
}

#[tokio::test]
#[should_panic(expected = "does a handler enqueue its own task?")]
async fn a_drain_without_an_end_is_ended() {
    let queue = TestQueue::new();
    queue.enqueue(RawTask::new("again")).await;
    let router = Router::new(()).route("again", async |_: Job| Err::<(), _>(Failure::put_back(Duration::ZERO, "busy")));
    let _ = queue.drain_with(router, Drain::new().most(50)).await;
}

#[tokio::test]
async fn a_task_whose_worker_went_silent_is_recovered() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    // A worker that dies after its take.
    let expires = queue.now().timestamp() + 30;
    queue.broker().dequeue(&"mail".into(), 1, &"lost".into(), expires).await.unwrap();
    assert!(queue.drain_for(Duration::from_secs(59), Welcome::router()).await.is_empty());
    queue.advance(Duration::from_secs(1));
    let drained = queue.drain_for(MINUTE, Welcome::router()).await;
    drained.assert_succeeded(1);
    assert_eq!(drained[0].task.last_error.as_deref(), Some("asynq: task lease expired"));
}

#[tokio::test]
async fn a_private_redis_does_the_same() {
    let queue = TestQueue::on_redis().await.unwrap();
    queue.enqueue(Welcome { user: 1 }).await;
    queue.enqueue_with(Welcome { user: 8 }, TaskOptions::new().process_in(MINUTE)).await;
    assert_enqueued!(queue, Welcome, times = 2);
    let drained = queue.drain_for(20 * MINUTE, Welcome::router()).await;
    assert_eq!((drained.count(End::Retried), drained.count(End::Succeeded)), (2, 2), "{drained}");
    refute_enqueued!(queue, Welcome);
}
