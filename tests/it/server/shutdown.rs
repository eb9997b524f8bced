//! How a server ends.

use std::future::pending;
use std::time::Duration;

use queue_core::State;
use queue_worker::{Failure, Job, Router, ServerError};

use crate::support::{Events, Fixture, eventually, job, with};

/// Far beyond the patience of any test: whoever waits for it fails.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Tells the id and then never ends by itself.
fn hanging(events: &Events) -> Router {
    let hang = async |events: Events, job: Job| {
        events.tell(job.id());
        pending::<()>().await;
    };
    let listen = async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        Err::<(), Failure>(format!("stopped by {:?}", job.cancel_reason()).into())
    };
    Router::new(()).route("job", with(events, hang)).route("listening", with(events, listen))
}

#[tokio::test]
async fn an_idle_server_ends_without_waiting_for_its_intervals() {
    let fixture = Fixture::start().await;
    let server = fixture.server(Router::new(())).poll_interval(DAY).shutdown_timeout(DAY).lease(DAY).cancel_grace(DAY);
    let server = server.health_check(DAY, |_| {}).start().await.unwrap();
    assert_eq!(fixture.inspector().servers().await.unwrap()[0].id, server.server_id());
    let ended = tokio::time::timeout(Duration::from_secs(30), server.shutdown()).await;
    assert!(ended.is_ok(), "an idle server does not end");
    assert_eq!(fixture.keyspace().await.to_string(), "", "it leaves nothing behind");
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_and_takes_no_more() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let work = with(
        &(events.clone(), door.clone()),
        async |(events, door): (Events, std::sync::Arc<tokio::sync::Notify>), job: Job| {
            events.tell(job.id());
            door.notified().await;
        },
    );
    let server = fixture.server(Router::new(()).route("job", work)).shutdown_timeout(DAY).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    let ending = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown().await }
    });
    eventually("the server says that it closes", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "closed")
    })
    .await;
    fixture.enqueue([job("b")]).await;
    assert!(!ending.is_finished());
    door.notify_one();
    ending.await.unwrap();
    assert_eq!(events.all(), ["a"]);
    let left = fixture.keyspace().await;
    assert_eq!((left.get("{q}:pending"), left.get("{q}:active")), (Some("[b]"), None));
    assert_eq!(fixture.count("processed").await, 1);
}

#[tokio::test]
async fn what_has_not_ended_in_time_is_put_back_in_front_without_spending_a_retry() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(hanging(&events)).concurrency(2).shutdown_timeout(Duration::from_millis(100));
    let server = server.start().await.unwrap();
    let listening = queue_core::RawTask { kind: "listening".into(), ..job("b").max_retry(0) };
    fixture.enqueue([job("a").max_retry(0), listening]).await;
    events.wait(2).await;
    fixture.enqueue([job("c"), job("d")]).await;
    server.shutdown().await;
    for id in ["a", "b"] {
        let info = fixture.in_state(id, State::Pending).await;
        assert_eq!((info.retried, info.last_error), (0, None));
    }
    let left = fixture.keyspace().await;
    let pending = left.get("{q}:pending").unwrap();
    assert!(pending == "[d c a b]" || pending == "[d c b a]", "{pending}");
    assert_eq!((left.get("{q}:active"), left.get("{q}:processed"), left.get("{q}:retry")), (None, None, None));
    assert!(left.paths_with("owner").is_empty() && left.paths_with("lease").is_empty(), "{left}");
}

#[tokio::test]
async fn an_abort_puts_everything_back_at_once_also_when_a_shutdown_waits() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(hanging(&events)).shutdown_timeout(DAY).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    let ending = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown().await }
    });
    tokio::task::yield_now().await;
    server.abort().await;
    ending.await.unwrap();
    fixture.in_state("a", State::Pending).await;
    assert_eq!(fixture.inspector().servers().await.unwrap(), []);
}

#[tokio::test]
async fn a_shutdown_that_nobody_waits_for_any_more_can_be_waited_for_again() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(hanging(&events)).shutdown_timeout(Duration::from_millis(500)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    let impatient = tokio::time::timeout(Duration::from_millis(50), server.shutdown()).await;
    assert!(impatient.is_err());
    server.shutdown().await;
    fixture.in_state("a", State::Pending).await;
    assert_eq!(fixture.inspector().servers().await.unwrap(), []);
    server.shutdown().await;
}

#[tokio::test]
async fn a_quiet_server_finishes_its_tasks_and_takes_no_more() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let work = with(
        &(events.clone(), door.clone()),
        async |(events, door): (Events, std::sync::Arc<tokio::sync::Notify>), job: Job| {
            events.tell(job.id());
            door.notified().await;
        },
    );
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    server.quiet();
    eventually("the server says that it has stopped", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "stopped")
    })
    .await;
    fixture.enqueue([job("b")]).await;
    door.notify_one();
    fixture.gone("a").await;
    // Its other work goes on: what is due becomes pending, and stays so.
    fixture.enqueue([job("c").process_in(Duration::from_secs(1))]).await;
    fixture.in_state("c", State::Pending).await;
    server.shutdown().await;
    assert_eq!(events.all(), ["a"]);
    assert_eq!(fixture.keyspace().await.get("{q}:pending"), Some("[c b]"));
}

#[tokio::test]
async fn options_without_sense_are_refused_by_name() {
    let fixture = Fixture::start().await;
    let server = || fixture.server(Router::new(()));
    let refused = [
        (server().concurrency(0), "concurrency"),
        (server().concurrency(1_000_000), "concurrency"),
        (server().lease(Duration::from_secs(4)), "lease"),
        (server().poll_interval(Duration::ZERO), "poll_interval"),
        (server().poll_interval(Duration::MAX), "poll_interval"),
        (server().queues([("}", 1)]), "closing brace"),
        (server().queues([(" ", 1)]), "blank"),
    ];
    for (server, word) in refused {
        let error = server.start().await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn a_server_does_not_start_without_redis() {
    let nowhere =
        queue_redis::Redis::lazy("redis+unix:///nowhere/redis.sock", queue_redis::RedisOptions::default()).unwrap();
    let error = queue_worker::Server::new(nowhere, Router::new(())).start().await.unwrap_err();
    assert!(matches!(&error, ServerError::Redis(queue_redis::Error::Unreachable { .. })), "{error}");
    assert!(error.to_string().contains("/nowhere/redis.sock"), "{error}");
}
