//! How a server ends.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use queue_core::TaskState;
use queue_redis::Redis;
use queue_worker::{Failure, Job, Router, Server, ServerError, Unhandled};

use crate::support::{Events, Fixture, PATIENCE, Proxy, QUEUE, eventually, job, with};

/// Far beyond the patience of any test: whoever waits for it fails.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);

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
async fn tasks_that_outlast_the_shutdown_timeout_are_requeued_in_front_without_spending_a_retry() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(hanging(&events)).concurrency(2).shutdown_timeout(Duration::from_millis(100));
    let server = server.start().await.unwrap();
    let listening = queue_core::RawTask { task_type: "listening".into(), ..job("b").max_retry(0) };
    fixture.enqueue([job("a").max_retry(0), listening]).await;
    events.wait(2).await;
    fixture.enqueue([job("c"), job("d")]).await;
    server.shutdown().await;
    for id in ["a", "b"] {
        let info = fixture.in_state(id, TaskState::Pending).await;
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
    fixture.in_state("a", TaskState::Pending).await;
    assert_eq!(fixture.inspector().servers().await.unwrap(), []);
}

/// `select!` with the future of the shutdown and a second Ctrl-C.
#[tokio::test]
async fn an_abort_does_not_wait_for_a_shutdown_that_nobody_polls() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let server = fixture.server(hanging(&events)).shutdown_timeout(DAY).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    let mut shutdown = std::pin::pin!(server.shutdown());
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut shutdown).await.is_err());
    tokio::time::timeout(PATIENCE, server.abort()).await.expect("it waits for the shutdown");
    fixture.in_state("a", TaskState::Pending).await;
    shutdown.await;
}

#[tokio::test]
async fn a_server_whose_start_is_given_up_half_way_leaves_nothing_that_runs() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    let redis = Redis::connect(&proxy.url()).await.unwrap();
    // It is asked for after the first loops were started.
    proxy.lose_answers_to(Some("asynq:x:cancels"));
    let server = Server::new(redis, Router::new(())).queues([(QUEUE, 1)]);
    let mut start = Box::pin(server.start());
    let listed = async || !fixture.inspector().servers().await.unwrap().is_empty();
    let until_listed = async {
        eventually("it is listed", listed).await;
        tokio::time::sleep(SECOND).await;
    };
    tokio::select! {
        _ = &mut start => panic!("it needs an answer"),
        () = until_listed => drop(start),
    }
    proxy.lose_answers_to(None);
    eventually("its entry is written no more", async || !listed().await).await;
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
    fixture.in_state("a", TaskState::Pending).await;
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
    fixture.in_state("c", TaskState::Pending).await;
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

/// A take that was on its way had its tasks started, up to a hundred for each call.
#[tokio::test]
async fn a_take_that_ends_after_quiet_is_requeued_in_front_and_in_order() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let redis = fixture.another_redis();
    let handle = Arc::new(OnceLock::<queue_worker::Handle>::new());
    let requeued = Arc::new(AtomicBool::new(false));
    let (told, seen) = (handle.clone(), requeued.clone());
    // When the answer has come, and before anybody looks at it.
    redis.on_call(move |call| match (call.operation, told.get()) {
        ("dequeue", Some(server)) => server.quiet(),
        ("requeue_run", _) => seen.store(true, Ordering::SeqCst),
        _ => {}
    });
    fixture.enqueue(["a", "b", "c", "d"].map(job)).await;
    let server = queue_worker::Server::new(redis, Router::new(()).route("job", work)).queues([("q", 1)]);
    let server = server.concurrency(3).start().await.unwrap();
    // The server's parts run on this thread, so none has begun yet.
    handle.set(server.clone()).unwrap();
    eventually("the server was told to be quiet", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "stopped")
    })
    .await;
    eventually("all is back in order", async || fixture.keyspace().await.get("{q}:pending") == Some("[d c b a]")).await;
    assert_eq!(events.count(), 0);
    assert!(requeued.load(Ordering::SeqCst), "nothing was taken");
    for id in ["a", "b", "c"] {
        assert_eq!(fixture.inspector().task("q", id).await.unwrap().retried, 0);
    }
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert!(left.get("{q}:active").is_none() && left.paths_with("lease").is_empty(), "{left}");
}

/// It went on taking tasks, with nobody left to stop it.
#[tokio::test]
async fn dropping_run_stops_the_server_and_puts_its_tasks_back() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([job("a")]).await;
    let run = fixture.server(hanging(&events)).shutdown_timeout(DAY).run();
    tokio::select! {
        ended = run => panic!("{ended:?}"),
        _ = events.wait(1) => {}
    }
    fixture.in_state("a", TaskState::Pending).await;
    eventually("it is off the list", async || fixture.inspector().servers().await.unwrap().is_empty()).await;
    fixture.enqueue([job("b")]).await;
    let left = fixture.keyspace().await;
    assert_eq!((left.get("{q}:pending"), left.get("{q}:active")), (Some("[b a]"), None));
    assert_eq!(events.all(), ["a"]);
}

/// A lease of `Duration::MAX` was taken, and its tasks were stranded for ever.
#[tokio::test]
async fn durations_beyond_their_bounds_are_refused_before_anything_is_taken() {
    let fixture = Fixture::start().await;
    let server = || fixture.server(Router::new(()));
    let more = Duration::from_nanos(1);
    for (server, option) in [
        (server().lease(DAY + more), "lease"),
        (server().lease(Duration::MAX), "lease"),
        (server().lease(5 * SECOND - more), "lease"),
        (server().poll_interval(Duration::ZERO), "poll_interval"),
        (server().reconcile_interval(Duration::MAX), "reconcile_interval"),
        (server().shutdown_timeout(365 * DAY + more), "shutdown_timeout"),
        (server().cancel_grace(Duration::MAX), "cancel_grace"),
        (server().unhandled(Unhandled::Snooze(Duration::MAX)), "unhandled"),
        (server().health_check(Duration::ZERO, |_| {}), "health_check"),
        (server().group_grace_period(Duration::MAX), "group_grace_period"),
        (server().group_max_delay(Duration::MAX), "group_max_delay"),
    ] {
        match server.start().await {
            Err(ServerError::Option { option: refused, .. }) => assert_eq!(refused, option),
            other => panic!("{option}: {other:?}"),
        }
    }
    let longest = server().lease(DAY).shutdown_timeout(365 * DAY).cancel_grace(365 * DAY).start().await.unwrap();
    longest.shutdown().await;
    assert_eq!(fixture.keyspace().await.to_string(), "");
}
