//! How much runs at once, and for how long a task stays with its handler.

use std::sync::Arc;
use std::time::Duration;

use queue_core::TaskState;
use queue_worker::{Job, Router};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, Gauge, Hanging, eventually, job, with};

/// All of them were written every 5 s, as long as they were.
#[tokio::test]
async fn a_heartbeat_has_the_beginnings_of_large_payloads() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(job.id());
        door.notified().await;
    });
    fixture.enqueue([job("text").payload("é".repeat(1_000_000)), job("bytes").payload(vec![0xff; 100_000])]).await;
    fixture.enqueue([job("small").payload("{}")]).await;
    let server = fixture.server(Router::new(()).route("job", work)).concurrency(3).start().await.unwrap();
    events.wait(3).await;
    let shown = async || fixture.inspector().servers().await.unwrap().remove(0).workers;
    eventually("all three are told", async || shown().await.len() == 3).await;
    for worker in shown().await {
        match worker.task_id.as_str() {
            "text" => assert_eq!(worker.payload, format!("{}… (2000000 bytes in all)", "é".repeat(2_048))),
            "bytes" => assert_eq!(worker.payload, vec![0xff; 4_096]),
            _ => assert_eq!(worker.payload, "{}"),
        }
    }
    (0..3).for_each(|_| door.notify_one());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_run_at_once_than_allowed() {
    let fixture = Fixture::start().await;
    let (gauge, events) = (Gauge::default(), Events::default());
    let work = with(&(gauge.clone(), events.clone()), async |(gauge, events): (Gauge, Events), job: Job| {
        gauge.enter();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4))).await;
        gauge.leave();
        events.tell(job.id());
    });
    fixture.enqueue((0..1_000).map(|n| job(&n.to_string()).queue(if n % 2 == 0 { "q" } else { "other" }))).await;
    let router = Router::new(()).route("job", work);
    let server = fixture.server(router).queues([("q", 2), ("other", 1)]).concurrency(7).start().await.unwrap();
    events.wait(1_000).await;
    server.shutdown().await;
    assert_eq!(gauge.most(), 7);
}

#[tokio::test]
async fn a_server_takes_no_more_than_it_can_start() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(job.id());
        door.notified().await;
    });
    fixture.enqueue((0..9).map(|n| job(&n.to_string()))).await;
    let server = fixture.server(Router::new(()).route("job", work)).concurrency(3).start().await.unwrap();
    events.wait(3).await;
    for taken in 3..9 {
        // What has ended is in hand until its report is written.
        eventually("three are in hand", async || server.active() == 3).await;
        assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await, 3);
        assert_eq!(events.count(), taken, "one starts for each that ends");
        door.notify_one();
        events.wait(taken + 1).await;
    }
    door.notify_waiters();
    eventually("all are done", async || server.active() == 0).await;
    server.shutdown().await;
}

/// Redis reads 16 KiB of a client at a time: a report that is larger is executed after a renewal that was
/// sent later. The renewal changes the lease by which the report is fenced.
#[tokio::test]
async fn a_report_overtaken_by_a_renewal_is_written_all_the_same() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(job.id());
        door.notified().await;
        events.tell("reports");
    });
    let router = Router::new(()).route("job", work);
    let server = fixture.server(router).lease(Duration::from_secs(5)).start().await.unwrap();
    let large = job("a").payload(vec![b'x'; 64 * 1024]).retention(Duration::from_secs(600));
    fixture.enqueue([large.max_retry(0)]).await;
    events.wait(1).await;
    let lease = async || fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    let first = lease().await;
    // The connection of the renewals is open from now on.
    eventually("the lease has been prolonged", async || lease().await > first).await;
    let hanging = Hanging::begin(fixture.url()).await;
    door.notify_one();
    events.wait(2).await;
    // Nothing tells that a renewal was sent to a Redis that does not answer; it happens every 833 ms.
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    drop(hanging);
    fixture.in_state("a", TaskState::Completed).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_handler_that_runs_longer_than_the_lease_keeps_its_task() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(job.id());
        door.notified().await;
    });
    let router = Router::new(()).route("job", work);
    let server = fixture.server(router).lease(Duration::from_secs(5)).start().await.unwrap();
    fixture.enqueue([job("a").max_retry(0)]).await;
    events.wait(1).await;
    let lease = async || fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    let first = lease().await;
    eventually("the lease has been prolonged by more than its length", async || lease().await > first + 5).await;
    assert_eq!(server.active(), 1);
    door.notify_one();
    fixture.gone("a").await;
    server.shutdown().await;
    assert_eq!(events.all(), ["a"]);
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1, 0));
}
