//! Each option of a task, and each reason to refuse one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use queue_core::clock::ManualClock;
use queue_core::{OptionError, RawTask, TaskOptions, TaskState};
use queue_redis::{Client, EnqueueError};
use serde::{Deserialize, Serialize};

use crate::support::{Fixture, NOW, job};

/// A client that lives at [`NOW`].
fn client(fixture: &Fixture) -> Client {
    Client::with_clock(fixture.redis(), Arc::new(ManualClock::at_secs(NOW)))
}

fn at(secs: i64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_secs(secs.unsigned_abs())
}

#[tokio::test]
async fn a_task_without_options_has_asynqs_defaults() {
    let fixture = Fixture::start().await;
    let info = client(&fixture).enqueue(RawTask::new("mail")).await.unwrap();
    assert_eq!((info.queue.as_str(), info.state, info.max_retry), ("default", TaskState::Pending, 25));
    assert_eq!(info.timeout, Some(Duration::from_secs(1_800)));
    assert_eq!(info.next_process_at.map(|at| at.timestamp()), Some(NOW));
    let id = &info.id;
    fixture.keyspace().await.assert_changes_since(
        &Fixture::start().await.keyspace().await,
        &format!(
            "+ queues default: member
             + {{default}}:pending: [{id}]
             + {{default}}:t:{id} msg: type=mail id={id} queue=default retry=25 timeout=1800
             + {{default}}:t:{id} pending_since: 4000000000000000000
             + {{default}}:t:{id} state: pending"
        ),
    );
}

#[tokio::test]
async fn every_option_is_stored_and_told() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let task = RawTask::new("mail")
        .payload("p")
        .queue("low")
        .task_id("a")
        .max_retry(3)
        .timeout(Duration::from_secs(90))
        .deadline(at(NOW + 500))
        .process_in(Duration::from_secs(60))
        .unique(Duration::from_secs(600))
        .retention(Duration::from_secs(7_200))
        .group("g")
        .header("k1", "v1")
        .header("k2", "v2");
    let info = client(&fixture).enqueue(task).await.unwrap();
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ queues low: member
         + {low}:scheduled a: score 4000000060
         + {low}:t:a msg: type=mail payload=p id=a queue=low retry=3 timeout=90 deadline=4000000500 unique_key=asynq:{low}:unique:mail:83878c91171338902e0fe0fb97a8c47a retention=7200 group_key=g headers=k1:v1,k2:v2
         + {low}:t:a state: scheduled
         + {low}:t:a unique_key: asynq:{low}:unique:mail:83878c91171338902e0fe0fb97a8c47a
         + {low}:t:a x_group: g
         + {low}:unique:mail:83878c91171338902e0fe0fb97a8c47a: a
         + {low}:unique:mail:83878c91171338902e0fe0fb97a8c47a expires: in about 660 s",
    );
    assert_eq!((info.id.as_str(), info.queue.as_str(), info.task_type.as_str()), ("a", "low", "mail"));
    assert_eq!((info.payload.as_ref(), info.state, info.max_retry), (&b"p"[..], TaskState::Scheduled, 3));
    assert_eq!((info.timeout, info.retention), (Some(Duration::from_secs(90)), Duration::from_secs(7_200)));
    assert_eq!(info.deadline.map(|at| at.timestamp()), Some(NOW + 500));
    assert_eq!(info.next_process_at.map(|at| at.timestamp()), Some(NOW + 60));
    assert_eq!((info.group.as_deref(), info.headers.len()), (Some("g"), 2));
}

#[tokio::test]
async fn a_task_starts_at_once_at_a_time_or_in_its_group() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    for (task, state) in [
        (job("at").process_at(at(NOW + 1)), TaskState::Scheduled),
        (job("past").process_at(at(NOW - 1)), TaskState::Pending),
        (job("now").process_in(Duration::ZERO), TaskState::Pending),
        (job("last wins").process_at(at(NOW + 1)).process_in(Duration::ZERO), TaskState::Pending),
        (job("group").group("g"), TaskState::Aggregating),
        (job("past group").group("g").process_at(at(NOW - 1)), TaskState::Aggregating),
    ] {
        let info = client.enqueue(task.clone()).await.unwrap();
        assert_eq!(info.state, state, "{task:?}");
        let stored = fixture.inspector().task("q", &info.id).await.unwrap();
        assert_eq!(stored.state, state, "{task:?}");
    }
}

#[tokio::test]
async fn options_that_cannot_be_honoured_are_refused_and_nothing_is_written() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    let before = fixture.keyspace().await;
    let refused: [(RawTask, OptionError); 7] = [
        (RawTask::new(" "), OptionError::BlankType),
        (job("a").queue(""), OptionError::BlankQueue),
        (job("a").queue("}"), OptionError::QueueBreaksHashTag("}".into())),
        (job(" "), OptionError::BlankTaskId),
        (job("a").group("\n"), OptionError::BlankGroup),
        (job("a").unique(Duration::from_millis(999)), OptionError::UniqueTooShort(Duration::from_millis(999))),
        (job("a").process_in(Duration::MAX), OptionError::TimeTooFar { option: "process_in" }),
    ];
    for (task, expected) in refused {
        match client.enqueue(task.clone()).await {
            Err(EnqueueError::Option(error)) => assert_eq!(error, expected),
            other => panic!("{task:?}: {other:?}"),
        }
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn conflicts_are_told_apart_and_named() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    client.enqueue(job("a").payload("p").unique(Duration::from_secs(60))).await.unwrap();
    let conflict = client.enqueue(job("a").payload("other")).await.unwrap_err();
    assert!(matches!(&conflict, EnqueueError::TaskIdConflict { id, queue } if id == "a" && queue == "q"), "{conflict}");
    let again = client.enqueue(job("a").payload("p").unique(Duration::from_secs(60))).await.unwrap_err();
    assert!(matches!(again, EnqueueError::DuplicateTask { .. }), "as in Go, the lock is looked at first: {again}");
    let unlocked = client.enqueue(job("a").payload("p")).await.unwrap_err();
    assert!(matches!(unlocked, EnqueueError::TaskIdConflict { .. }), "{unlocked}");
    let duplicate = client.enqueue(job("b").payload("p").unique(Duration::from_secs(60))).await.unwrap_err();
    let EnqueueError::DuplicateTask { task_type, queue, holder } = &duplicate else { panic!("{duplicate}") };
    assert_eq!((&**task_type, &**queue, holder.as_deref()), ("job", "q", Some("a")));
    let text = "task already exists: a task of type \"job\" with this payload, or this key of its own, is waiting in queue \"q\", was not yet worked, or began \
                a window that is not over; it is \"a\"";
    assert_eq!(duplicate.to_string(), text);
    // What `main` prints of an error that it returns.
    let returned: Box<dyn std::error::Error> = duplicate.into();
    assert_eq!(format!("{returned:?}"), text);
    let unique = |id: &str| job(id).payload("p").unique(Duration::from_secs(60));
    let many = client.enqueue_many([unique("e"), job("f"), unique("g")]).await;
    let holders = many.into_iter().map(|outcome| match outcome {
        Err(EnqueueError::DuplicateTask { holder, .. }) => holder,
        outcome => Some(format!("{} is stored", outcome.unwrap().id)),
    });
    assert_eq!(holders.flatten().collect::<Vec<_>>(), ["a", "f is stored", "a"]);
    // The id is free in another queue, and the lock is for this payload alone.
    client.enqueue(job("a").queue("other")).await.unwrap();
    client.enqueue(job("c").unique(Duration::from_secs(60))).await.unwrap();
    client.enqueue(job("d").payload("").unique(Duration::from_secs(60))).await.unwrap();
}

#[derive(Debug, PartialEq, Serialize, Deserialize, queue_worker::Task)]
#[task(
    type = "welcome",
    queue = "mail",
    max_retry = 5,
    timeout = "30s",
    retention = "1h",
    unique = "10m",
    max_crashes = 2,
    max_snoozes = 50,
    give_up_after = "1d",
    backoff = "linear 10s..1h",
    on_exhausted = "ops:alert",
    on_exhausted_queue = "ops",
    codec = "msgpack"
)]
struct Welcome {
    user: u64,
}

#[derive(Debug, Clone, queue_worker::Task)]
#[task(type = "blob", codec = "raw", group = "blobs")]
struct Blob(Bytes);

impl From<Bytes> for Blob {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Blob> for Bytes {
    fn from(blob: Blob) -> Self {
        blob.0
    }
}

#[derive(Debug, Serialize, Deserialize, queue_worker::Task)]
#[task(type = "plain")]
struct Odd {
    // JSON has no maps whose keys are not text.
    map: HashMap<Vec<u8>, u8>,
}

#[tokio::test]
async fn typed_tasks_bring_their_options_and_the_call_wins() {
    let fixture = Fixture::start().await;
    let client = client(&fixture);
    let info = client.enqueue(Welcome { user: 7 }).await.unwrap();
    assert_eq!((info.task_type.as_str(), info.queue.as_str(), info.max_retry), ("welcome", "mail", 5));
    assert_eq!((info.timeout, info.retention), (Some(Duration::from_secs(30)), Duration::from_secs(3_600)));
    assert_eq!(info.payload.as_ref(), b"\x81\xa4user\x07", "MessagePack, with names");
    let headers: Vec<_> = info.headers.iter().map(|(header, text)| format!("{header}: {text}")).collect();
    let budgets =
        ["x-backoff: linear 10s..1h0m0s", "x-give-up-after: 24h0m0s", "x-max-crashes: 2", "x-max-snoozes: 50"];
    let follow_up = ["x-on-exhausted: ops:alert", "x-on-exhausted-queue: ops"];
    assert_eq!(headers, [&budgets[..], &follow_up].concat());
    let duplicate = client.enqueue(Welcome { user: 7 }).await.unwrap_err();
    assert!(matches!(duplicate, EnqueueError::DuplicateTask { .. }));
    let options = TaskOptions::new().queue("other").max_retry(0).header("k", "v");
    let other = client.enqueue_with(Welcome { user: 7 }, options).await.unwrap();
    assert_eq!((other.queue.as_str(), other.max_retry, other.timeout), ("other", 0, Some(Duration::from_secs(30))));
    let blob = client.enqueue(Blob(Bytes::from_static(b"\0\xff"))).await.unwrap();
    assert_eq!((blob.payload.as_ref(), blob.state), (&b"\0\xff"[..], TaskState::Aggregating));
}

#[tokio::test]
async fn a_payload_without_a_form_is_refused() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let odd = Odd { map: HashMap::from([(vec![1], 1)]) };
    let error = client(&fixture).enqueue(odd).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Encode(_)), "{error:?}");
    assert!(error.to_string().starts_with("failed to encode the payload as JSON: "), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// Somebody removes the queue, or empties Redis, while a client lives; asynq's never lists it again (W27).
#[tokio::test]
async fn a_removed_queue_is_listed_again_when_tasks_are_worked() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    client.enqueue(job("a")).await.unwrap();
    fixture.run("FLUSHALL").await;
    client.enqueue(job("b")).await.unwrap();
    let router = queue_worker::Router::new(()).route("job", async |_: queue_worker::Job| {});
    let server = fixture.server(router).start().await.unwrap();
    fixture.gone("b").await;
    let listed = async || fixture.keyspace().await.get("queues q").is_some();
    crate::support::eventually("the queue is listed", listed).await;
    server.shutdown().await;
}
