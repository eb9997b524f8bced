//! What Redis refuses inside a script: it must not be taken for a task that is not there, whose id would be
//! dropped, or for a key of another type.

use queue_core::State;
use queue_redis::Error;

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, job};

/// Does something without the right to read fields, and sees that it is refused and changes nothing.
async fn is_refused<T: std::fmt::Debug>(fixture: &Fixture, act: impl AsyncFnOnce() -> Result<T, Error>) {
    let before = fixture.keyspace().await;
    fixture.run("ACL SETUSER default -hget -hmget").await;
    let done = act().await;
    fixture.run("ACL SETUSER default +hget +hmget").await;
    assert!(matches!(&done, Err(Error::Refused { code, .. }) if code == "NOPERM"), "{done:?}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c"].map(job)).await;
    for count in [1, 2] {
        is_refused(&fixture, async || fixture.broker.dequeue(&QUEUE.into(), count, &"run".into(), NOW + 30).await)
            .await;
    }
}

#[tokio::test]
async fn forward_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").process_in(std::time::Duration::from_secs(1))]).await;
    is_refused(&fixture, async || fixture.broker.forward(QUEUE, State::Scheduled, NOW_NS + 1_000_000_000, 0).await)
        .await;
}

#[tokio::test]
async fn list_expired_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    is_refused(&fixture, async || fixture.broker.list_expired(QUEUE, NOW + 30, 0).await).await;
}

#[tokio::test]
async fn requeue_run_says_that_it_may_not_look() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    is_refused(&fixture, async || fixture.broker.requeue_run(QUEUE, "run-1", NOW + 30, NOW_NS).await).await;
}

/// It looked like a group of another type.
#[tokio::test]
async fn forward_out_of_memory_fails_instead_of_leaving_tasks_behind() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").process_in(std::time::Duration::from_secs(5)).group("g")]).await;
    let before = fixture.keyspace().await;
    fixture.run("CONFIG SET maxmemory 1").await;
    let error = fixture.broker.forward(QUEUE, State::Scheduled, NOW_NS + 5_000_000_000, 0).await.unwrap_err();
    fixture.run("CONFIG SET maxmemory 0").await;
    assert!(matches!(&error, Error::Refused { code, .. } if code == "OOM"), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}
