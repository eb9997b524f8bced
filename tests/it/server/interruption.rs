//! Handlers that are told to stop.

use std::future::pending;
use std::time::{Duration, UNIX_EPOCH};

use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::broker::Broker;
use queue_worker::{CancelReason, Failure, Job, Router};

use crate::support::{Events, Fixture, Go, eventually, job, with};

const SECOND: Duration = Duration::from_secs(1);

/// Tells when it is dropped.
struct Tell(Events, &'static str);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.tell(self.1);
    }
}

fn of(task_type: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(task_type) }
}

/// Handlers that behave in all the ways a handler can when it is told to stop; each tells its type first.
fn router(events: &Events) -> Router {
    Router::new(())
        .route(
            "stubborn",
            with(events, async |events: Events, job: Job| {
                let _dropped = Tell(events.clone(), "dropped");
                events.tell(job.task_type());
                pending::<()>().await;
            }),
        )
        .route(
            "quick",
            with(events, async |events: Events, job: Job| {
                events.tell(job.task_type());
                job.cancellation().cancelled().await;
                events.tell(format!("{:?}", job.cancel_reason()));
                Err::<(), Failure>("I was interrupted".into())
            }),
        )
        .route(
            "finishing",
            with(events, async |events: Events, job: Job| {
                events.tell(job.task_type());
                job.cancellation().cancelled().await;
            }),
        )
        .route(
            "giving-up",
            with(events, async |events: Events, job: Job| {
                events.tell(job.task_type());
                job.cancellation().cancelled().await;
                Err::<(), _>(Failure::archive("no use"))
            }),
        )
}

#[tokio::test]
async fn a_timeout_stops_the_handler_and_spends_a_retry() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([of("stubborn").timeout(SECOND)]).await;
    let server = fixture.server(router(&events)).start().await.unwrap();
    let info = fixture.in_state("stubborn", TaskState::Retry).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (1, Some("context deadline exceeded")));
    assert_eq!(events.all(), ["stubborn", "dropped"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_handler_that_hears_of_its_timeout_may_still_decide() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let types = ["quick", "finishing", "giving-up"];
    fixture.enqueue(types.map(|task_type| of(task_type).timeout(SECOND))).await;
    let server = fixture.server(router(&events)).start().await.unwrap();
    let quick = fixture.in_state("quick", TaskState::Retry).await;
    assert_eq!((quick.retried, quick.last_error.as_deref()), (1, Some("context deadline exceeded")));
    assert!(events.all().contains(&"Some(Deadline)".to_owned()), "{events:?}");
    let giving_up = fixture.in_state("giving-up", TaskState::Archived).await;
    assert_eq!(giving_up.last_error.as_deref(), Some("no use"));
    fixture.gone("finishing").await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_deadline_that_has_passed_archives_without_calling_the_handler() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([of("stubborn").deadline(UNIX_EPOCH + SECOND)]).await;
    let server = fixture.server(router(&events)).start().await.unwrap();
    let info = fixture.in_state("stubborn", TaskState::Archived).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (0, Some("context deadline exceeded")));
    server.shutdown().await;
    assert_eq!(events.all(), Vec::<String>::new());
}

#[tokio::test]
async fn the_deadline_a_handler_sees_is_the_earlier_of_timeout_and_deadline() {
    let fixture = Fixture::start().await;
    let events = Events::<i64>::default();
    let tell = with(&events, async |events: Events<i64>, job: Job| events.tell(job.deadline().timestamp()));
    let server = fixture.server(Router::new(()).route("job", tell)).concurrency(1).start().await.unwrap();
    let now = SystemClock.now_secs();
    let at = |secs: i64| UNIX_EPOCH + Duration::from_secs(secs.unsigned_abs());
    fixture
        .enqueue([
            job("both").timeout(100 * SECOND).deadline(at(now + 50)),
            job("later").timeout(100 * SECOND).deadline(at(now + 500)),
        ])
        .await;
    let deadlines = events.wait(2).await;
    assert_eq!(deadlines[0], now + 50);
    assert!((now + 100..now + 130).contains(&deadlines[1]), "{deadlines:?}, now {now}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_canceled_task_is_retried_with_gos_error() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let types = ["stubborn", "quick", "finishing"];
    fixture.enqueue(types.map(of)).await;
    let server = fixture.server(router(&events)).start().await.unwrap();
    events.wait(3).await;
    let broker = Broker::new(fixture.redis());
    assert_eq!(broker.cancel("unknown").await.unwrap(), 1, "one server listens");
    for task_type in types {
        broker.cancel(task_type).await.unwrap();
    }
    for task_type in &types[..2] {
        let info = fixture.in_state(task_type, TaskState::Retry).await;
        assert_eq!((info.retried, info.last_error.as_deref()), (1, Some("context canceled")), "{task_type}");
    }
    fixture.gone("finishing").await;
    server.shutdown().await;
    assert!(events.all().contains(&"Some(Canceled)".to_owned()), "{events:?}");
}

/// Its task belongs to somebody else by now, who must not notice anything of the old attempt.
#[tokio::test]
async fn a_handler_whose_lease_was_lost_is_stopped_and_reports_nothing() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let types = ["stubborn", "quick", "giving-up"];
    fixture.enqueue(types.map(of)).await;
    let server = fixture.server(router(&events)).lease(Duration::from_secs(5)).start().await.unwrap();
    events.wait(3).await;
    let go = Go(&fixture);
    for task_type in types {
        let message = fixture.compose(of(task_type)).message;
        go.retry(&message, "asynq: task lease expired", 4_000_000_000, 4_000_000_001).await;
    }
    let recovered = fixture.keyspace().await.without_servers();
    eventually("all attempts have ended", async || server.active() == 0).await;
    server.shutdown().await;
    fixture.keyspace().await.without_servers().assert_unchanged_since(&recovered);
    let all = events.all();
    assert!(all.contains(&"dropped".to_owned()) && all.contains(&"Some(LeaseLost)".to_owned()), "{all:?}");
}

#[tokio::test]
async fn a_job_tells_why_it_was_stopped_and_only_the_first_reason_counts() {
    let fixture = Fixture::start().await;
    let reasons = Events::<Option<CancelReason>>::default();
    let handler = with(&reasons, async |reasons: Events<Option<CancelReason>>, job: Job| {
        reasons.tell(job.cancel_reason());
        job.cancellation().cancelled().await;
        reasons.tell(job.cancel_reason());
    });
    fixture.enqueue([job("a")]).await;
    let server = fixture.server(Router::new(()).route("job", handler)).start().await.unwrap();
    reasons.wait(1).await;
    Broker::new(fixture.redis()).cancel("a").await.unwrap();
    assert_eq!(reasons.wait(2).await, [None, Some(CancelReason::Canceled)]);
    server.shutdown().await;
}
