//! Tasks that are canceled for good: wherever they are, they end, and are not tried again.

use queue_admin::{Cancellation, Filter};
use queue_core::TaskState;
use queue_worker::{Failure, Job, RetryPolicy, Router};

use crate::support::{Events, Fixture, QUEUE, WorkerProcess, eventually, job, with};

/// A handler that tells when it starts, and waits until it is told to stop.
fn router(events: &Events) -> Router {
    let hang = with(events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        Err::<(), Failure>("interrupted".into())
    });
    Router::new(()).route("job", hang)
}

#[tokio::test]
async fn a_task_that_runs_is_stopped_and_archived_and_the_record_goes() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.enqueue([job("a")]).await;
    let server = fixture.server(router(&events)).retry_policy(RetryPolicy::Fixed(std::time::Duration::ZERO));
    let server = server.start().await.unwrap();
    events.wait(1).await;
    let inspector = fixture.inspector();
    eventually("it listens and is listed", async || {
        fixture.broker.cancel("nobody").await.unwrap() > 0 && !inspector.servers().await.unwrap().is_empty()
    })
    .await;
    // Although it has not listed the task yet.
    let answer = fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap();
    assert!(matches!(answer, Cancellation::Told { .. }), "{answer:?}");
    let info = fixture.in_state("a", TaskState::Archived).await;
    assert_eq!(info.last_error.as_deref(), Some("canceled by ann"));
    for key in ["asynq:x:cancels", "asynq:x:duties"] {
        eventually("nothing is left of it", async || !fixture.cmd::<bool>(&["EXISTS", key]).await).await;
    }
    server.shutdown().await;
    assert_eq!(events.count(), 1, "it was not tried again");
    assert_eq!(
        fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap(),
        Cancellation::Ended(TaskState::Archived)
    );
}

/// The channel by which servers hear of it names no queue.
#[tokio::test]
async fn a_task_of_the_same_id_in_another_queue_goes_on() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.enqueue([job("a"), job("a").queue("other")]).await;
    let server = fixture.server(router(&events)).queues([(QUEUE, 1), ("other", 1)]).start().await.unwrap();
    events.wait(2).await;
    eventually("it listens", async || fixture.broker.cancel("nobody").await.unwrap() > 0).await;
    fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap();
    fixture.in_state("a", TaskState::Archived).await;
    fixture.broker.cancel("nobody").await.unwrap();
    let state: String = fixture.cmd(&["HGET", "asynq:{other}:t:a", "state"]).await;
    assert_eq!(state, "active");
    eventually("the record is gone", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:x:cancels"]).await).await;
    // Asynq's own way is for all of them.
    fixture.broker.cancel("a").await.unwrap();
    eventually("it was interrupted", async || {
        fixture.cmd::<String>(&["HGET", "asynq:{other}:t:a", "state"]).await == "retry"
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_that_nobody_works_on_is_archived_at_once_and_never_starts() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    for state in [TaskState::Pending, TaskState::Scheduled, TaskState::Retry, TaskState::Aggregating] {
        fixture.put_in(state, job(state.as_str())).await;
        fixture.broker.publish_queue(QUEUE).await.unwrap();
        let answer = fixture.inspector().cancel_for_good(QUEUE, state.as_str(), "ann").await.unwrap();
        assert_eq!(answer, Cancellation::Done, "{state}");
        fixture.in_state(state.as_str(), TaskState::Archived).await;
    }
    assert!(!fixture.cmd::<bool>(&["EXISTS", "asynq:x:cancels"]).await, "nothing is recorded");
    let server = fixture.server(router(&events)).start().await.unwrap();
    fixture.enqueue([job("other")]).await;
    assert_eq!(events.wait(1).await, ["other"]);
    server.abort().await;
}

/// Nobody heard of it: its worker was gone, and it waits again.
#[tokio::test]
async fn a_server_does_not_start_a_task_that_was_canceled_while_nobody_listened() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let task = fixture.active(job("a")).await;
    let answer = fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap();
    assert_eq!(answer, Cancellation::Recorded);
    fixture.broker.requeue(&crate::support::report(&task), crate::support::NOW_NS).await.unwrap();
    fixture.enqueue([job("other")]).await;
    let server = fixture.server(router(&events)).concurrency(2).start().await.unwrap();
    fixture.in_state("a", TaskState::Archived).await;
    assert_eq!(events.wait(1).await, ["other"]);
    server.abort().await;
    assert_eq!(events.count(), 1);
}

/// The signal of asynq is lost; what is recorded is read when the server listens again.
#[tokio::test]
async fn a_server_whose_listener_is_cut_off_hears_of_it_when_it_is_back() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.enqueue([job("a")]).await;
    let server = fixture.server(router(&events)).retry_policy(RetryPolicy::Fixed(std::time::Duration::ZERO));
    let server = server.start().await.unwrap();
    events.wait(1).await;
    fixture.run("CLIENT KILL TYPE pubsub").await;
    fixture.broker.request_cancel(QUEUE, "a", "ann", crate::support::NOW_NS / 1_000_000).await.unwrap();
    let info = fixture.in_state("a", TaskState::Archived).await;
    assert_eq!(info.last_error.as_deref(), Some("canceled by ann"));
    server.shutdown().await;
    assert_eq!(events.count(), 1, "it was not tried again");
}

#[tokio::test]
async fn of_the_tasks_that_run_those_that_fit_are_ended_and_archived() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let other = |id: &str| queue_core::RawTask { task_type: "other".into(), ..job(id) };
    fixture.enqueue([job("a"), job("b"), other("c")]).await;
    let hang = async |job: Job| job.cancellation().cancelled().await;
    let server = fixture.server(router(&events).route("other", hang)).concurrency(3);
    let server = server.retry_policy(RetryPolicy::Fixed(std::time::Duration::ZERO)).start().await.unwrap();
    events.wait(2).await;
    fixture.in_state("c", TaskState::Active).await;
    // One that waits is not of those that run.
    fixture.put_in(TaskState::Scheduled, job("later")).await;
    let changed = fixture.inspector().cancel_all(QUEUE, &Filter::new().task_type("job"), "ann", |_| {}).await.unwrap();
    assert_eq!((changed.matched, changed.changed, changed.skipped), (2, 2, 0));
    for id in ["a", "b"] {
        let info = fixture.in_state(id, TaskState::Archived).await;
        assert_eq!(info.last_error.as_deref(), Some("canceled by ann"));
    }
    fixture.in_state("c", TaskState::Active).await;
    fixture.in_state("later", TaskState::Scheduled).await;
    eventually("nothing is left of it", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:x:cancels"]).await).await;
    server.abort().await;
    assert_eq!(events.count(), 2, "none was tried again");
}

/// A worker that is stopped hears nothing, and another one takes its task over when the lease is long over.
#[tokio::test]
async fn a_task_of_a_stopped_worker_ends_and_nobody_starts_it_again() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let hang = |id: &str| queue_core::RawTask { task_type: "hang".into(), ..job(id) };
    fixture.enqueue([hang("a")]).await;
    let worker = WorkerProcess::start(fixture.url(), 1).await;
    worker.told("start a").await;
    worker.signal("-STOP");
    let answer = fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap();
    // Redis still has the connection on which it would listen.
    assert!(matches!(answer, Cancellation::Told { .. } | Cancellation::Recorded), "{answer:?}");
    let explained = fixture.inspector().explain(QUEUE, "a").await.unwrap();
    let told = explained.reasons.iter().find(|reason| reason.as_str() == "cancel-requested").unwrap().to_string();
    let by_whom = format!(":{}", worker.id());
    assert!(told.starts_with("cancel requested by ann ") && told.contains(&by_whom), "{told}");
    assert!(told.ends_with(" has not confirmed yet"), "{told}");
    fixture.expire_leases().await;
    let start = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let router = Router::new(()).route("job", start.clone()).route("hang", start);
    let server = fixture.server(router).start().await.unwrap();
    fixture.in_state("a", TaskState::Archived).await;
    eventually("nothing is left of it", async || !fixture.cmd::<bool>(&["EXISTS", "asynq:x:cancels"]).await).await;
    fixture.enqueue([job("other")]).await;
    assert_eq!(events.wait(1).await, ["other"]);
    server.shutdown().await;
    // It goes on, and what it says of the task comes too late.
    worker.signal("-CONT");
    worker.told("end a").await;
    fixture.enqueue([hang("next")]).await;
    worker.told("start next").await;
    assert_eq!(fixture.in_state("a", TaskState::Archived).await.id, "a");
    assert_eq!(worker.events.all().iter().filter(|told| *told == "start a").count(), 1);
}
