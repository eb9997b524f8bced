//! Aggregations that fail, and those that are interrupted.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_worker::{Event, Failure, Group, Job, Router, ServerError, State, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::groups::{ended, joining, note};
use crate::support::{Events, Fixture, Lines, QUEUE, eventually, job};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(type = "job")]
struct Note {
    text: String,
}

#[tokio::test]
async fn a_failed_aggregation_is_told_and_tried_again_soon() {
    let fixture = Fixture::start().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let join = async |_: Group, tasks: Vec<RawTask>, State(tries): State<Arc<AtomicUsize>>| match tries
        .fetch_add(1, Ordering::SeqCst)
    {
        0 => Err(Failure::from("not today")),
        1 => panic!("not today either"),
        _ => Ok(RawTask::new("digest").payload(tasks.len().to_string()).task_id("sum").retention(HOUR)),
    };
    let told = <Events>::default();
    let hook = {
        let told = told.clone();
        move |aggregation: &queue_worker::Aggregation, failure: &Failure| {
            told.tell(format!("{} {} {failure}", aggregation.queue(), aggregation.group()));
            panic!("in the hook");
        }
    };
    let router = Router::new(tries).aggregate(join).fallback(async |_: Job| {});
    let seen = <Events>::default();
    let observer = {
        let seen = seen.clone();
        move |event: &Event<'_>| match event {
            Event::Aggregated { queue, group, tasks, .. } => seen.tell(format!("{tasks} of {group} in {queue}")),
            Event::AggregationFailed { failure, .. } => seen.tell(failure.to_string()),
            _ => {}
        }
    };
    let server = fixture.server(router).group_grace_period(SECOND).on_group_error(hook).observe(observer);
    let server = server.start().await.unwrap();
    fixture.enqueue([note("a", "g"), note("b", "g")]).await;
    assert_eq!(&fixture.in_state("sum", TaskState::Completed).await.payload[..], b"2");
    let told = told.all();
    assert_eq!(told[0], "q g not today");
    assert!(told[1].starts_with("q g panic [") && told[1].ends_with("not today either"), "{told:?}");
    assert_eq!(told.len(), 2);
    let seen = seen.wait(3).await;
    assert_eq!((seen[0].as_str(), seen[2].as_str(), seen.len()), ("not today", "2 of g in q", 3));
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_that_cannot_be_decoded_is_archived_and_the_others_go_on() {
    let fixture = Fixture::start().await;
    let (lines, _guard) = Lines::collect();
    let count = async |_: Group, notes: Vec<Note>| {
        RawTask::new("digest")
            .payload(notes.iter().map(|note| &*note.text).collect::<String>())
            .task_id("sum")
            .process_in(HOUR)
    };
    let torn = job("torn").group("g").payload("{");
    let strange = RawTask { task_type: "other".into(), ..job("strange").group("g") };
    let good = job("good").group("g").payload(r#"{"text":"hello"}"#);
    fixture.enqueue([torn, strange, good, job("unreadable").group("g"), note("alone", "bad")]).await;
    fixture.run("HSET asynq:{q}:t:unreadable msg \u{1}").await;
    let server = fixture.server(Router::new(()).aggregate(count)).group_grace_period(SECOND).start().await.unwrap();
    assert_eq!(&fixture.in_state("sum", TaskState::Scheduled).await.payload[..], b"hello");
    for (id, reason) in [
        ("torn", "failed to decode the payload of 1 bytes as JSON"),
        ("strange", r#"the task type is "other" and not "job""#),
        ("alone", "failed to decode the payload of 5 bytes as JSON"),
    ] {
        let archived = fixture.in_state(id, TaskState::Archived).await;
        let error = archived.last_error.unwrap();
        assert!(error.starts_with(reason), "{id}: {error}");
        assert_eq!((archived.retried, archived.group.as_deref()), (0, Some(if id == "alone" { "bad" } else { "g" })));
    }
    eventually("nothing is staged", async || fixture.broker.aggregation_sets(QUEUE).await.unwrap().is_empty()).await;
    let left = ended(&fixture, server).await;
    assert!(left.contains("{q}:archived unreadable") && left.contains("{q}:failed: 4"), "{left}");
    assert!(!left.contains("groups") && !left.contains(":g:"), "{left}");
    // Of the group of which all were archived.
    assert!(lines.all().iter().all(|line| !line.contains("given to somebody else")), "{:?}", lines.all());
}

#[tokio::test]
async fn the_aggregator_can_archive_or_drop_the_tasks() {
    let fixture = Fixture::start().await;
    let refuse = async |Group(group): Group, _: Vec<RawTask>| {
        Err::<RawTask, _>(match &*group {
            "archive" => Failure::archive("of no use"),
            _ => Failure::revoke("not wanted"),
        })
    };
    let server = fixture.server(Router::new(()).aggregate(refuse)).group_grace_period(SECOND).start().await.unwrap();
    fixture.enqueue((0..150).map(|n| note(&n.to_string(), "archive"))).await;
    fixture.enqueue((150..300).map(|n| note(&n.to_string(), "drop").unique(HOUR))).await;
    for id in ["0", "149"] {
        let archived = fixture.in_state(id, TaskState::Archived).await;
        assert_eq!(archived.last_error.as_deref(), Some("of no use"));
    }
    eventually("the others are gone", async || {
        fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await.len() == 150
    })
    .await;
    assert_eq!(fixture.count("failed").await, 150);
    let left = ended(&fixture, server).await;
    assert!(!left.contains(":g:") && !left.contains("unique:"), "{left}");
}

#[tokio::test]
async fn a_refused_aggregate_leaves_the_tasks_in_their_group() {
    let fixture = Fixture::start().await;
    let events = <Events>::default();
    let digest = async |_: Group, _: Vec<RawTask>| RawTask::new("digest").task_id("taken");
    let told = events.clone();
    let server = fixture
        .server(Router::new(()).aggregate(digest))
        .group_grace_period(SECOND)
        .on_group_error(move |_, failure| told.tell(failure.to_string()));
    fixture.enqueue([job("taken").process_in(HOUR), note("a", "g")]).await;
    let before = fixture.keyspace().await;
    let server = server.start().await.unwrap();
    assert_eq!(events.wait(1).await, ["the id of the aggregated task is taken in its queue"]);
    server.shutdown().await;
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_shutdown_waits_for_an_aggregation() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let join = async |_: Group, _: Vec<RawTask>, State((events, door)): State<(Events, Arc<Notify>)>| {
        events.tell("began");
        door.notified().await;
        RawTask::new("digest").task_id("sum")
    };
    let router = Router::new((events.clone(), door.clone())).aggregate(join);
    let server = fixture.server(router).group_grace_period(SECOND).shutdown_timeout(HOUR).start().await.unwrap();
    fixture.enqueue([note("a", "g")]).await;
    events.wait(1).await;
    let ending = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown().await }
    });
    eventually("the server says that it closes", async || {
        fixture.inspector().servers().await.unwrap().iter().any(|server| server.status == "closed")
    })
    .await;
    door.notify_one();
    ending.await.unwrap();
    fixture.in_state("sum", TaskState::Pending).await;
    fixture.gone("a").await;
}

#[tokio::test]
async fn aggregation_that_takes_too_long_returns_its_tasks_to_their_group() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let hang = async |_: Group, _: Vec<RawTask>, State(events): State<Events>| {
        events.tell("began");
        pending::<RawTask>().await
    };
    let router = Router::new(events.clone()).aggregate(hang);
    fixture.enqueue([note("a", "g"), note("b", "g")]).await;
    let before = fixture.keyspace().await;
    let server = fixture.server(router).group_grace_period(SECOND).shutdown_timeout(Duration::ZERO);
    let server = server.start().await.unwrap();
    events.wait(1).await;
    assert_eq!(fixture.keyspace().await.get("{q}:groups g"), None);
    server.shutdown().await;
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn an_aggregator_that_lost_its_tasks_changes_nothing() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), Arc::new(Notify::new()));
    let join = async |_: Group, tasks: Vec<RawTask>, State((events, door)): State<(Events, Arc<Notify>)>| {
        events.tell(tasks.len().to_string());
        door.notified().await;
        RawTask::new("digest").payload(tasks.len().to_string()).process_in(HOUR)
    };
    let router = Router::new((events.clone(), door.clone())).aggregate(join);
    let server = fixture.server(router).group_grace_period(SECOND).start().await.unwrap();
    fixture.enqueue([note("a", "g"), note("b", "g")]).await;
    events.wait(1).await;
    let set = fixture.broker.aggregation_sets(QUEUE).await.unwrap().remove(0);
    // Somebody thinks that it is lost; then it is aggregated again.
    assert_eq!(fixture.broker.reclaim(QUEUE, "g", &set.id, None).await.unwrap(), 2);
    events.wait(2).await;
    door.notify_one();
    door.notify_one();
    eventually("one digest waits", async || fixture.cmd::<u64>(&["ZCARD", "asynq:{q}:scheduled"]).await == 1).await;
    door.notify_waiters();
    server.shutdown().await;
    assert_eq!(fixture.cmd::<u64>(&["ZCARD", "asynq:{q}:scheduled"]).await, 1);
}

/// Collects log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_server_without_an_aggregator_says_once_that_groups_wait() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let fixture = Fixture::start().await;
    let server = fixture.server(Router::new(())).start().await.unwrap();
    fixture.enqueue([note("a", "g")]).await;
    let said = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap().matches("has no aggregator").count();
    eventually("it is said", async || said() > 0).await;
    fixture.enqueue([note("b", "h")]).await;
    tokio::time::sleep(8 * SECOND).await; // Longer than the pause between two looks.
    server.shutdown().await;
    assert_eq!(said(), 1);
}

#[tokio::test]
async fn options_of_groups_that_make_no_sense_are_refused() {
    let fixture = Fixture::start().await;
    let server = || fixture.server(Router::new(()));
    for (server, expected) in [
        (server().group_grace_period(Duration::from_millis(999)), "group_grace_period"),
        (server().group_max_size(10_001), "group_max_size"),
        (server().group_concurrency(0), "group_concurrency"),
    ] {
        match server.start().await {
            Err(ServerError::Option { option, .. }) => assert_eq!(option, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_queue_that_redis_refuses_does_not_keep_other_groups_waiting() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.run("SET asynq:{broken}:groups 1").await;
    fixture.run("SET asynq:{broken}:aggregation_sets 1").await;
    let server = fixture.server(joining(&events)).queues([("broken", 2), (QUEUE, 1)]).group_grace_period(SECOND);
    let server = server.start().await.unwrap();
    fixture.enqueue([note("a", "g")]).await;
    assert_eq!(events.wait(2).await, ["g: a", "digest a in q"]);
    server.shutdown().await;
}
