//! Attempts that are started together, because those before them were short.

use std::sync::Arc;
use std::time::Duration;

use queue_worker::{Job, Router};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, job, with};

/// The tasks that are still there.
async fn left(fixture: &Fixture) -> Vec<String> {
    fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await
}

/// All of a take wait for one of them, which a server could only find out by starting it.
#[tokio::test]
async fn a_handler_that_waits_holds_up_nobody_although_those_before_it_were_short() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        if job.payload() == "waits" {
            door.notified().await;
        }
        events.tell(job.id());
    });
    fixture.enqueue((0..1_000).map(|n| job(&format!("short {n}")))).await;
    let server = fixture.server(Router::new(()).route("job", work)).concurrency(10).start().await.unwrap();
    events.wait(1_000).await;
    fixture.enqueue((0..9).map(|n| job(&format!("waits {n}")).payload("waits"))).await;
    fixture.enqueue((0..100).map(|n| job(&format!("after {n}")))).await;
    let ended = events.wait(1_100).await;
    assert!(!ended.iter().any(|id| id.starts_with("waits")), "{ended:?}");
    door.notify_waiters();
    events.wait(1_109).await;
    server.shutdown().await;
    assert!(left(&fixture).await.is_empty(), "each is done and reported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_panic_or_block_after_short_ones_are_reported_with_the_others() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        match job.payload().as_ref() {
            b"blocks" => std::thread::sleep(Duration::from_millis(20)),
            b"panics" => panic!("as it was told to"),
            _ => {}
        }
    });
    let work_of = |n: usize| match n % 50 {
        17 => "blocks",
        33 => "panics",
        _ => "short",
    };
    fixture.enqueue((0..1_000).map(|n| job(&format!("before {n}")))).await;
    fixture.enqueue((0..1_000).map(|n| job(&n.to_string()).payload(work_of(n)).max_retry(0))).await;
    let server = fixture.server(Router::new(()).route("job", work)).concurrency(50).start().await.unwrap();
    events.wait(2_000).await;
    server.shutdown().await;
    let mut ids = events.all();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2_000, "each ran once");
    assert_eq!(left(&fixture).await.len(), 20, "those that panicked are archived");
}
