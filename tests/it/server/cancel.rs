//! Tasks that are canceled for good: wherever they are, they end, and are not tried again.

use queue_admin::Cancellation;
use queue_core::TaskState;
use queue_worker::{Failure, Job, RetryPolicy, Router};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

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
    let answer = fixture.inspector().cancel_for_good(QUEUE, "a", "ann").await.unwrap();
    assert!(matches!(answer, Cancellation::Told { .. } | Cancellation::Recorded), "{answer:?}");
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
