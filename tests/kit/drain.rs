//! Draining.

use std::time::Duration;

use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::Client;
use queue_scheduler::Entry;
use queue_testing::{Drain, End, TestQueue, assert_enqueued, refute_enqueued};
use queue_worker::{Failure, Group, Job, RetryPolicy, Router, State, Unhandled};

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

/// They were snoozed, and an attempt was noted with each.
#[tokio::test]
async fn what_is_left_to_others_stays_pending_as_with_a_server() {
    let queue = TestQueue::new();
    let router = || Router::new(()).route("ours", async |_: Job| {}).route("mine:", async |_: Job| {});
    for n in 0..250 {
        let of = if n == 120 {
            "ours"
        } else if n == 249 {
            "mine:last"
        } else {
            "theirs"
        };
        queue.enqueue(RawTask::new(of)).await;
    }
    let before = queue.tasks(TaskState::Pending).await;
    let drained = queue.drain_with(router(), Drain::new().unhandled(Unhandled::Leave)).await;
    drained.assert_succeeded(2);
    assert_eq!((&*drained[0].task.task_type, &*drained[1].task.task_type), ("ours", "mine:last"));
    let left: Vec<_> = before.into_iter().filter(|task| task.task_type == "theirs").map(|task| task.id).collect();
    let pending = async || queue.tasks(TaskState::Pending).await.into_iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!((pending().await, left.len()), (left, 248));
}

/// It was retried, and archived later without a word of who had canceled it.
#[tokio::test]
async fn a_task_that_its_own_handler_cancels_for_good_ends_as_with_a_server() {
    let queue = TestQueue::new();
    let inspector = queue.inspector();
    let router = Router::new(()).route("t", move |job: Job| {
        let inspector = inspector.clone();
        async move {
            inspector.cancel_for_good(job.queue(), job.id(), "ann").await?;
            Err::<(), Failure>("stopped".into())
        }
    });
    let follow_up = TaskOptions::new().on_exhausted("given-up");
    let task = queue.enqueue_with(RawTask::new("t"), follow_up).await;
    let drained = queue.drain(router).await;
    assert_eq!((drained.len(), drained[0].end), (1, End::Archived), "{drained}");
    assert_eq!(drained[0].error.as_deref(), Some("canceled by ann"));
    let archived = queue.tasks(TaskState::Archived).await;
    assert_eq!(
        (archived[0].id.as_str(), archived[0].last_error.as_deref()),
        (task.id.as_str(), Some("canceled by ann"))
    );
    assert!(queue.enqueued().await.is_empty(), "nothing follows what somebody wanted to end");
}

#[tokio::test]
async fn drain_works_what_handlers_enqueue() {
    let queue = TestQueue::new();
    // A handler gets the client as it gets anything else: by the router's state.
    #[derive(serde::Serialize, serde::Deserialize, queue_worker::Task)]
    #[task(type = "countdown")]
    struct Countdown(u32);
    let router = Router::new(queue.client().clone()).task(
        async |Countdown(left): Countdown, State(client): State<Client>| -> Result<(), Failure> {
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
    let archived = queue.tasks(TaskState::Archived).await;
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
async fn drain_tells_tasks_that_it_cannot_work() {
    let queue = TestQueue::new();
    queue.enqueue(RawTask::new("unknown").task_id("1")).await;
    let drained = queue.drain(Welcome::router()).await;
    assert_eq!(drained[0].end, End::Snoozed);
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
    let router = Router::new(()).route("again", async |_: Job| Err::<(), _>(Failure::snooze(Duration::ZERO, "busy")));
    let _ = queue.drain_with(router, Drain::new().most(50)).await;
}

#[tokio::test]
async fn a_task_whose_worker_went_silent_is_recovered() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    // A worker that dies after its take.
    let expires = queue.now().timestamp() + 30;
    queue.broker().dequeue(&"mail".into(), 1, &"lost".into(), expires).await.unwrap();
    // A server takes it over 7 s after the end of its lease.
    assert!(queue.drain_for(Duration::from_secs(36), Welcome::router()).await.is_empty());
    let drained = queue.drain_for(MINUTE, Welcome::router()).await;
    drained.assert_succeeded(1);
    assert_eq!(drained[0].task.last_error.as_deref(), Some("asynq: task lease expired"));
}

#[tokio::test]
async fn a_task_that_kills_its_workers_is_archived_when_its_crash_budget_is_spent() {
    let queue = TestQueue::new();
    queue.enqueue(Welcome { user: 7 }).await;
    for crashes in 1..=2 {
        let expires = queue.now().timestamp() + 30;
        queue.broker().dequeue(&"mail".into(), 1, &"lost".into(), expires).await.unwrap();
        queue.advance(MINUTE);
        // Nobody takes it while the queue is paused.
        let options = Drain::new().max_crashes(1).queues(["mail"]);
        queue.inspector().pause("mail").await.unwrap();
        assert!(queue.drain_with(Welcome::router(), options).await.is_empty());
        queue.inspector().unpause("mail").await.unwrap();
        assert_eq!(queue.tasks(TaskState::Archived).await.len(), usize::from(crashes > 1));
    }
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

/// Joins the texts of a group, but fails as often as this says.
fn digesting(failures: u32) -> Router {
    let left = std::sync::atomic::AtomicU32::new(failures);
    let left = std::sync::Arc::new(left);
    let digest = move |Group(group): Group, tasks: Vec<RawTask>| {
        let left = left.clone();
        async move {
            use std::sync::atomic::Ordering::SeqCst;
            if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(Failure::from("no paper"));
            }
            Ok(RawTask::new("digest").payload(format!("{} for {group}", tasks.len())))
        }
    };
    Router::new(()).aggregate_in("mail", "user:", digest).route("digest", async |_: Job| {})
}

async fn grouped() -> TestQueue {
    let queue = TestQueue::new();
    let note = |group: &str| RawTask::new("note").queue("mail").group(group);
    for group in ["user:7", "user:7", "user:8", "team:1"] {
        queue.enqueue(note(group)).await;
    }
    queue
}

#[tokio::test]
async fn a_drain_aggregates_groups_when_they_are_ready() {
    let queue = grouped().await;
    assert!(queue.drain(digesting(0)).await.groups().is_empty(), "they have to be quiet for a minute");
    let drained = queue.drain_for(2 * MINUTE, digesting(0)).await;
    let groups: Vec<&str> = drained.groups().iter().map(|group| group.group.as_str()).collect();
    assert_eq!(groups, ["user:7", "user:8"]);
    drained.assert_succeeded(2);
    let payloads: Vec<_> = drained.of_type("digest").map(|attempt| attempt.task.payload.clone()).collect();
    assert_eq!(payloads, ["2 for user:7", "1 for user:8"]);
    let left = queue.enqueued().await;
    assert_eq!((left.len(), left[0].task_type.as_str()), (1, "note"), "the router has no aggregator for it: {left:?}");
}

#[tokio::test]
async fn a_full_group_is_aggregated_at_once() {
    let queue = grouped().await;
    let drained = queue.drain_with(digesting(0), Drain::new().group_max_size(2)).await;
    assert_eq!(drained.groups().len(), 1);
    drained.assert_succeeded(1);
}

#[tokio::test]
async fn a_group_whose_aggregation_fails_is_tried_again_while_time_passes() {
    let queue = grouped().await;
    let drained = queue.drain_for(MINUTE + MINUTE / 2, digesting(2)).await;
    let errors: Vec<_> = drained.groups().iter().map(|group| group.error.as_deref()).collect();
    assert_eq!(errors, [Some("no paper"), Some("no paper"), None, None]);
    assert!(drained.to_string().starts_with("  group user:7 in mail: not aggregated (no paper)"), "{drained}");
    drained.assert_succeeded(2);
}

#[tokio::test]
async fn ticks_of_a_scheduler_come_while_a_drain_lets_time_pass() {
    let start = chrono::DateTime::from_timestamp(2_000_000_000, 0).unwrap();
    let queue = TestQueue::starting_at(start);
    let scheduler = queue.scheduler().build();
    scheduler.register(Entry::new("@every 24h", RawTask::new("report").queue("reports")).name("daily")).unwrap();
    scheduler.register(Entry::new("30 * * * *", RawTask::new("clean")).name("hourly")).unwrap();
    let router =
        || Router::new(()).fallback(async |job: Job| assert!(job.task_type() != "clean" || !job.id().is_empty()));
    let options = Drain::new().scheduler(&scheduler);
    assert!(queue.drain_with(router(), options.clone()).await.is_empty(), "no tick has come yet");
    let drained = queue.drain_for_with(3 * 24 * 60 * MINUTE, router(), options.clone()).await;
    assert_eq!((drained.of_type("report").count(), drained.of_type("clean").count()), (3, 72));
    drained.assert_succeeded(75);
    let enqueued = drained.of_type("report").map(|attempt| attempt.task.id.clone()).collect::<Vec<_>>();
    // Ticks of @every are multiples of its length, so that all schedulers have the same.
    assert_eq!(enqueued[0], format!("daily:{}", 23_149 * 24 * 3_600));
    // A paused entry has no ticks.
    queue.inspector().pause_cron("daily").await.unwrap();
    let drained = queue.drain_for_with(24 * 60 * MINUTE, router(), options).await;
    assert_eq!((drained.of_type("report").count(), drained.of_type("clean").count()), (0, 24));
}
