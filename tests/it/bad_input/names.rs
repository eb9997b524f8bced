//! Names of queues, types, tasks and groups that nobody should choose: our client refuses those that break keys or
//! lists; what Go has written with them is worked all the same.

use std::time::Duration;

use queue_admin::Page;
use queue_core::options::MAX_NAME_LEN;
use queue_core::{RawTask, TaskMessage, TaskOptions, TaskState};
use queue_redis::EnqueueError;
use queue_worker::{Job, Router, Server};
use redis::ToRedisArgs as _;

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

#[tokio::test]
async fn a_client_refuses_names_that_break_keys_or_lists_and_sends_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let long = "x".repeat(10_000);
    let refusal = async |task: RawTask| match client.enqueue(task).await {
        Err(EnqueueError::Option(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    for (task, text) in [
        (job("a").queue(""), "the queue name is blank"),
        (job("a").queue(" \t"), "the queue name is blank"),
        (job("a").queue("a\nb"), "the queue name \"a\\nb\" contains a control character; leave it out"),
        (job("a").queue("}a"), "the queue name \"}a\" begins with a closing brace"),
        (job("a").queue("q}:t:x"), "the queue name \"q}:t:x\" contains \"}:\", which makes its keys those of another"),
        (job("a").queue(&long), "the queue name is 10000 bytes long, and 1024 are the most"),
        (job(&long), "the task id is 10000 bytes long"),
        (job("\u{1b}[2J"), "the task id \"\\u{1b}[2J\" contains a control character"),
        (job("a").group(&long), "the group name is 10000 bytes long"),
        (job("a").group("a\r"), "the group name \"a\\r\" contains a control character"),
        (RawTask { task_type: long.clone(), ..job("a") }, "the task type is 10000 bytes long"),
        (
            RawTask { task_type: "a\u{7f}".into(), ..job("a") },
            "the task type \"a\\u{7f}\" contains a control character",
        ),
    ] {
        let error = refusal(task).await;
        assert!(error.starts_with(text), "{error}");
        assert!(error.len() < 400, "{} bytes of error", error.len());
    }
    let left = fixture.keyspace().await;
    assert_eq!(left.to_string(), "", "something was sent");
}

#[tokio::test]
async fn unusual_names_that_break_nothing_work() {
    let fixture = Fixture::start().await;
    let longest = "é".repeat(MAX_NAME_LEN / 2);
    let names = ["{a", "a}", "a}b", "a{b}c", "a:b", "a b", "*", "[a]?", "a\\b", "\"", "привет", "🦀", longest.as_str()];
    let events = Events::default();
    let router = Router::new(()).fallback(with(&events, async |events: Events, job: Job| {
        events.tell(format!("{}|{}|{}", job.queue(), job.task_type(), job.id()));
    }));
    for name in names {
        let task = RawTask::new(name).queue(name).task_id(name).unique(Duration::from_secs(60));
        fixture.client().enqueue(task).await.unwrap();
    }
    let inspector = fixture.inspector();
    for name in names {
        assert_eq!(inspector.queue(name).await.unwrap().size(), 1, "{name}");
        assert_eq!(inspector.task(name, name).await.unwrap().task_type, name);
    }
    let queues: Vec<(&str, u32)> = names.iter().map(|name| (*name, 1)).collect();
    let server = Server::new(fixture.redis(), router).queues(queues).start().await.unwrap();
    let mut ran = events.wait(names.len()).await;
    server.shutdown().await;
    ran.sort();
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name}|{name}|{name}")).collect();
    expected.sort();
    assert_eq!(ran, expected);
    for name in names {
        assert_eq!(inspector.remove_queue(name, true).await.unwrap(), 0, "{name}");
    }
    assert_eq!(inspector.queues().await.unwrap(), Vec::<String>::new());
}

/// Stores a task as Go does, whatever it is called.
async fn as_go(fixture: &Fixture, message: &TaskMessage) {
    let prefix = format!("asynq:{{{}}}:", message.queue);
    let bytes = message.to_bytes();
    for words in [
        vec![b"SADD".to_vec(), b"asynq:queues".to_vec(), message.queue.clone().into_bytes()],
        vec![
            b"HSET".to_vec(),
            format!("{prefix}t:{}", message.id).into_bytes(),
            b"msg".to_vec(),
            bytes.to_vec(),
            b"state".to_vec(),
            b"pending".to_vec(),
        ],
        vec![b"LPUSH".to_vec(), format!("{prefix}pending").into_bytes(), message.id.clone().into_bytes()],
    ] {
        let words: Vec<Vec<u8>> = words.iter().flat_map(|word| word.to_redis_args()).collect();
        let _: i64 = fixture.cmd(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn tasks_that_go_has_written_with_such_names_are_worked() {
    let fixture = Fixture::start().await;
    let long = "x".repeat(10_000);
    let names = ["a\nb", "\u{1b}[31mred", "a}:b", long.as_str(), "\u{0}"];
    for name in names {
        let mut message = fixture.compose(job("x")).message;
        (message.queue, message.id, message.r#type) = (name.to_owned(), name.to_owned(), name.to_owned());
        as_go(&fixture, &message).await;
    }
    let events = Events::default();
    let router = Router::new(()).fallback(with(&events, async |events: Events, job: Job| events.tell(job.queue())));
    let server = Server::new(fixture.redis(), router).queues(names.map(|name| (name, 1))).start().await.unwrap();
    let mut ran = events.wait(names.len()).await;
    for name in names {
        let inspector = fixture.inspector();
        eventually("nothing is left of the task", async || inspector.queue(name).await.unwrap().size() == 0).await;
    }
    server.shutdown().await;
    ran.sort();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(ran, expected);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_replaced_and_hinder_nobody() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("fine")]).await;
    for words in [
        [&b"SADD"[..], b"asynq:queues", b"q\xff"],
        [b"LPUSH", b"asynq:{q}:pending", b"id\xff"],
        [b"SADD", b"asynq:{q}:groups", b"g\xff"],
    ] {
        let _: i64 = fixture.cmd(&words).await;
    }
    let zadd = [&b"ZADD"[..], b"asynq:{q}:scheduled", b"1", b"due\xff"];
    let _: i64 = fixture.cmd(&zadd).await;
    let inspector = fixture.inspector();
    assert!(inspector.queues().await.unwrap().iter().any(|name| name == QUEUE));
    assert_eq!(inspector.tasks(QUEUE, TaskState::Scheduled, Page::default()).await.unwrap(), []);
    inspector.queue(QUEUE).await.unwrap();
    inspector.groups(QUEUE).await.unwrap();
    let server = fixture.server(Router::new(()).route("job", async |_: Job| {})).start().await.unwrap();
    fixture.gone("fine").await;
    eventually("ids without tasks are dropped", async || {
        let pending: i64 = fixture.cmd(&["LLEN", "asynq:{q}:pending"]).await;
        let scheduled: i64 = fixture.cmd(&["ZCARD", "asynq:{q}:scheduled"]).await;
        pending + scheduled == 0
    })
    .await;
    server.shutdown().await;
}

/// The options of a type are checked like those of a call.
#[tokio::test]
async fn of_many_tasks_those_with_bad_names_are_refused_alone() {
    let fixture = Fixture::start().await;
    let outcomes = fixture.client().enqueue_many([job("a"), job("\n"), job("b")]).await;
    let stored: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true]);
    let refused = fixture.client().enqueue_with(job("c"), TaskOptions::new().queue("\n")).await;
    assert!(matches!(refused, Err(EnqueueError::Option(_))), "{refused:?}");
}
