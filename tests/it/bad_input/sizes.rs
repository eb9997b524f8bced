//! Payloads, results and numbers of things that are too large.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use queue_core::{RawTask, TaskState};
use queue_redis::{EnqueueError, MAX_TASK_BYTES};
use queue_worker::{Job, Router};

use crate::support::{Events, Fixture, QUEUE, job, with};

#[tokio::test]
async fn a_payload_beyond_the_limit_is_refused_before_it_is_sent() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let task = |bytes: usize| job("a").payload(vec![0; bytes]);
    let error = client.enqueue(task(MAX_TASK_BYTES + 1)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the task has 16777217 bytes of payload and headers, and this client sends 16777216 at the most; store large \
         data elsewhere and put its address into the payload, or raise the limit (Client::max_task_bytes)"
    );
    assert_eq!(fixture.keyspace().await.to_string(), "");
    // Headers count, and each task of a batch is judged by itself.
    let client = client.max_task_bytes(100);
    let outcomes =
        client.enqueue_many([task(100), task(90).task_id("b").header("k", "0123456789"), task(0).task_id("c")]).await;
    let stored: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true]);
    assert!(matches!(outcomes[1], Err(EnqueueError::TooLarge { bytes: 101, limit: 100 })));
    fixture.client().max_task_bytes(usize::MAX).enqueue(task(MAX_TASK_BYTES + 1).task_id("d")).await.unwrap();
}

#[tokio::test]
async fn a_payload_at_the_limit_goes_its_whole_way() {
    let fixture = Fixture::start().await;
    let payload: Bytes = vec![7; MAX_TASK_BYTES].into();
    fixture.client().enqueue(job("large").payload(payload)).await.unwrap();
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| events.tell(job.payload().len().to_string()));
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    assert_eq!(events.wait(1).await, [MAX_TASK_BYTES.to_string()]);
    fixture.gone("large").await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_result_beyond_the_limit_archives_the_task_with_the_reason() {
    let fixture = Fixture::start().await;
    let keep = Duration::from_secs(60);
    fixture.enqueue([job("large").retention(keep), job("fits").retention(keep), job("large-not-kept")]).await;
    let work = async |job: Job| Bytes::from(vec![0; if job.id() == "fits" { 100 } else { 101 }]);
    let server = fixture.server(Router::new(()).route("job", work)).max_result_bytes(100).start().await.unwrap();
    let info = fixture.in_state("large", TaskState::Archived).await;
    assert_eq!(
        info.last_error.as_deref(),
        Some(
            "the result has 101 bytes, and this server keeps 100 at the most; store it elsewhere and keep its address, or raise the limit (Server::max_result_bytes)"
        )
    );
    assert_eq!((info.retried, info.result), (0, None));
    assert_eq!(fixture.in_state("fits", TaskState::Completed).await.result.map(|result| result.len()), Some(100));
    // Nobody keeps it, so that it may be as long as it likes.
    fixture.gone("large-not-kept").await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_result_written_meanwhile_has_the_same_limit() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| {
        assert!(job.write_result([0; 100]).await.unwrap());
        events.tell(job.write_result([0; 101]).await.unwrap_err().to_string());
    });
    let server = fixture.server(Router::new(()).route("job", work)).max_result_bytes(100).start().await.unwrap();
    let told = events.wait(1).await;
    assert!(told[0].starts_with("the result has 101 bytes, and this server keeps 100 at the most"), "{told:?}");
    server.shutdown().await;
}

/// A type for each task, as those do who put data into the type.
#[tokio::test]
async fn a_hundred_thousand_task_types_are_worked_like_one() {
    const TYPES: usize = 100_000;
    let fixture = Fixture::start().await;
    let client = fixture.client();
    for chunk in 0..TYPES / 10_000 {
        let tasks = (0..10_000).map(|n| RawTask::new(format!("type-{}", chunk * 10_000 + n)).queue(QUEUE));
        for outcome in client.enqueue_many(tasks).await {
            outcome.unwrap();
        }
    }
    let events: Events<usize> = Events::default();
    let router = Router::new(()).fallback(with(&events, async |events: Events<usize>, job: Job| {
        events.tell(job.task_type().trim_start_matches("type-").parse::<usize>().unwrap());
    }));
    let router = (0..10_000).fold(router, |router, n| router.route(format!("type-{n}-"), async |_: Job| {}));
    let server = fixture.server(router).concurrency(100).start().await.unwrap();
    let ran: BTreeSet<usize> = events.wait(TYPES).await.into_iter().collect();
    server.shutdown().await;
    assert_eq!(ran.len(), TYPES);
}
