//! What becomes of a task by what its handler answers.

use std::time::Duration;

use bytes::Bytes;
use queue_core::RawTask;
use queue_core::TaskState;
use queue_worker::{Failure, Job, Output, RetryPolicy, Router, State};
use serde::{Deserialize, Serialize};

use crate::support::{Events, Fixture, eventually, job, with};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn success_deletes_the_task_and_its_lock() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR)]).await;
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).start().await.unwrap();
    fixture.gone("a").await;
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert_eq!(left.paths_with("a"), Vec::<String>::new());
    assert_eq!(left.get("queues q"), Some("member"));
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1, 0));
    assert_eq!(left.paths_with("unique"), Vec::<String>::new());
}

#[tokio::test]
async fn success_with_a_retention_keeps_the_task_and_its_result() {
    let fixture = Fixture::start().await;
    let kept =
        |task_type: &str| RawTask { task_type: task_type.to_owned(), ..job(task_type).retention(HOUR).payload("x") };
    fixture.enqueue(["nothing", "json", "bytes", "written"].map(kept)).await;
    let router = Router::new(())
        .route("nothing", async |_: Job| {})
        .route("json", async |_: Job| Output(vec![1, 2]))
        .route("bytes", async |job: Job| Ok::<Bytes, Failure>(job.payload().clone()))
        .route("written", async |job: Job| {
            assert!(job.write_result("half").await?);
            assert!(job.write_result("whole").await?);
            Ok::<(), Failure>(())
        });
    let server = fixture.server(router).start().await.unwrap();
    for (id, result) in [("nothing", None), ("json", Some("[1,2]")), ("bytes", Some("x")), ("written", Some("whole"))] {
        let info = fixture.in_state(id, TaskState::Completed).await;
        assert_eq!(info.result.as_deref(), result.map(str::as_bytes), "{id}");
        assert!(info.completed_at.is_some(), "{id}");
    }
    server.shutdown().await;
    assert_eq!(fixture.count("processed").await, 4);
}

#[tokio::test]
async fn an_error_is_retried_after_the_delay_of_the_policy() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let router = Router::new(()).route("job", async |_: Job| Err::<(), Failure>("boom".into()));
    let server = fixture.server(router).start().await.unwrap();
    let info = fixture.in_state("a", TaskState::Retry).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (1, Some("boom")));
    let delay = info.next_process_at.unwrap() - info.last_failed_at.unwrap();
    assert_eq!(delay.num_seconds(), 3_600);
    server.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1, 1));
}

#[tokio::test]
async fn a_failure_can_name_its_delay() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let fail = async |_: Job| Err::<(), Failure>(Failure::retry_in(Duration::from_millis(59_001), "later"));
    let server = fixture.server(Router::new(()).route("job", fail)).start().await.unwrap();
    let info = fixture.in_state("a", TaskState::Retry).await;
    let delay = info.next_process_at.unwrap() - info.last_failed_at.unwrap();
    assert_eq!((info.retried, delay.num_seconds()), (1, 60), "rounded up");
    server.shutdown().await;
}

#[tokio::test]
async fn retries_are_spent_one_by_one_and_then_the_task_is_archived() {
    let fixture = Fixture::start().await;
    let attempts = Events::<(u32, u32)>::default();
    let fail = with(&attempts, async |attempts: Events<(u32, u32)>, job: Job| {
        attempts.tell((job.retried(), job.max_retry()));
        Err::<(), Failure>(format!("boom {}", job.retried()).into())
    });
    let router = Router::new(()).route("job", fail);
    let now = RetryPolicy::Fixed(Duration::ZERO);
    let server = fixture.server(router).retry_policy(now).start().await.unwrap();
    fixture.enqueue([job("a").max_retry(2)]).await;
    let info = fixture.in_state("a", TaskState::Archived).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (2, Some("boom 2")));
    assert_eq!(attempts.all(), [(0, 2), (1, 2), (2, 2)]);
    server.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (3, 3));
}

#[tokio::test]
async fn a_failure_can_archive_revoke_or_snooze() {
    let fixture = Fixture::start().await;
    let router = Router::new(())
        .route("archive", async |_: Job| Err::<(), _>(Failure::archive("no use")))
        .route("revoke", async |_: Job| Err::<(), _>(Failure::revoke("obsolete")))
        .route("put-back", async |_: Job| Err::<(), _>(Failure::snooze(HOUR, "busy")));
    let of = |task_type: &str| RawTask {
        task_type: task_type.to_owned(),
        ..job(task_type).retention(HOUR).unique(HOUR).max_retry(0)
    };
    fixture.enqueue(["archive", "revoke", "put-back"].map(of)).await;
    let server = fixture.server(router).start().await.unwrap();
    let archived = fixture.in_state("archive", TaskState::Archived).await;
    assert_eq!((archived.retried, archived.last_error.as_deref()), (0, Some("no use")));
    let back = fixture.in_state("put-back", TaskState::Retry).await;
    assert_eq!((back.retried, back.last_error.as_deref()), (0, Some("busy")));
    fixture.gone("revoke").await;
    server.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (2, 1));
    assert_eq!(fixture.keyspace().await.get("{q}:unique:revoke:"), None);
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_place_and_the_server_lives_on() {
    let fixture = Fixture::start().await;
    let panics = async |job: Job| assert!(job.id() != "a", "the {} broke at line {}", job.task_type(), line!());
    let server = fixture.server(Router::new(()).route("job", panics)).concurrency(1).start().await.unwrap();
    fixture.enqueue([job("a"), job("b")]).await;
    let error = fixture.in_state("a", TaskState::Retry).await.last_error.unwrap();
    let line = error.rsplit(' ').next().unwrap();
    assert_eq!(error, format!("panic [{}:{line}]: the job broke at line {line}", file!()));
    fixture.gone("b").await;
    server.shutdown().await;
}

#[derive(Debug, Serialize, Deserialize, queue_worker::Task)]
#[task(type = "typed", queue = "q")]
struct Typed {
    number: u8,
}

#[tokio::test]
async fn a_payload_that_cannot_be_decoded_is_archived_without_calling_the_handler() {
    let fixture = Fixture::start().await;
    let calls = Events::<u8>::default();
    let tell = async |task: Typed, State(calls): State<Events<u8>>| calls.tell(task.number);
    let router = Router::new(calls.clone()).task(tell);
    let server = fixture.server(router).start().await.unwrap();
    let typed = |id: &str| RawTask { task_type: "typed".into(), ..job(id) };
    fixture
        .enqueue([typed("bad").payload(r#"{"number":300}"#), typed("none"), typed("good").payload(r#"{"number":3}"#)])
        .await;
    for (id, start) in [
        ("bad", "failed to decode the payload of 14 bytes as JSON"),
        ("none", "failed to decode the payload of 0 bytes"),
    ] {
        let info = fixture.in_state(id, TaskState::Archived).await;
        assert!(info.last_error.as_ref().is_some_and(|error| error.starts_with(start)), "{info:?}");
        assert_eq!(info.retried, 0);
    }
    assert_eq!(calls.wait(1).await, [3]);
    server.shutdown().await;
    assert_eq!(calls.all(), [3]);
}

#[tokio::test]
async fn dequeue_skips_ids_without_a_readable_task() {
    let fixture = Fixture::start().await;
    fixture.put([job("torn"), job("misplaced")]).await;
    fixture.run("HSET asynq:{q}:t:torn msg \u{1}").await;
    let other = fixture.compose(job("another")).message.to_bytes();
    let words: [&[u8]; 4] = [b"HSET", b"asynq:{q}:t:misplaced", b"msg", &other];
    let _: i64 = fixture.cmd(&words).await;
    fixture.run("LPUSH asynq:{q}:pending ghost").await;
    fixture.enqueue([job("fine")]).await;
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).concurrency(1).start().await.unwrap();
    fixture.gone("fine").await;
    eventually("both are archived", async || fixture.cmd::<u8>(&["ZCARD", "asynq:{q}:archived"]).await == 2).await;
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert_eq!((left.get("{q}:active"), left.get("{q}:pending")), (None, None));
    assert_eq!(left.paths_with("ghost"), Vec::<String>::new());
    assert_eq!(left.get("{q}:t:torn msg"), Some("unreadable 0x01"));
}
