//! Many tasks at once.

use std::cell::Cell;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use queue_core::{OptionError, TaskInfo, TaskState};
use queue_redis::EnqueueError;

use crate::support::{Fixture, PATIENCE, job};

const LOCK: Duration = Duration::from_secs(60);

/// What became of a task, in a word.
fn word(outcome: &Result<TaskInfo, EnqueueError>) -> String {
    match outcome {
        Ok(info) => info.state.to_string(),
        Err(EnqueueError::TaskIdConflict { .. }) => "id taken".into(),
        Err(EnqueueError::DuplicateTask { .. }) => "duplicate".into(),
        Err(EnqueueError::Option(_)) => "bad option".into(),
        Err(other) => other.to_string(),
    }
}

#[tokio::test]
async fn each_task_has_its_outcome_in_order() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    client.enqueue(job("old").payload("1").unique(LOCK)).await.unwrap();
    let outcomes = client
        .enqueue_many([
            job("a"),
            job("old"),
            job("b").process_in(LOCK),
            job("c").group("g"),
            job(" "),
            job("d").payload("1").unique(LOCK),
            job("e").payload("2").unique(LOCK),
            job("f").payload("2").unique(LOCK),
            job("a"),
            job("b").process_in(LOCK),
            job("c").group("g").payload("x"),
            job("a").queue("other"),
            job("g").payload("1").queue("other").unique(LOCK),
        ])
        .await;
    let expected = [
        "pending",
        "id taken",
        "scheduled",
        "aggregating",
        "bad option",
        "duplicate",
        "pending",
        "duplicate",
        "id taken",
        "id taken",
        "id taken",
        "pending",
        "pending",
    ];
    assert_eq!(outcomes.iter().map(word).collect::<Vec<_>>(), expected);
    assert!(matches!(&outcomes[4], Err(EnqueueError::Option(OptionError::BlankTaskId))));
    for (outcome, id) in outcomes.iter().zip(["a", "", "b", "c", "", "", "e", "", "", "", "", "a", "g"]) {
        assert_eq!(outcome.as_ref().map_or("", |info| info.id.as_str()), id);
    }
    let after = fixture.keyspace().await;
    assert_eq!((after.get("{q}:pending"), after.get("{other}:pending")), (Some("[e a old]"), Some("[g a]")));
    assert_eq!((after.get("queues q"), after.get("queues other")), (Some("member"), Some("member")));
}

#[tokio::test]
async fn a_large_batch_is_stored_whole_and_in_order() {
    let fixture = Fixture::start().await;
    let outcomes = fixture.client().enqueue_many((0..2_050).map(|n| job(&n.to_string()))).await;
    assert_eq!(outcomes.len(), 2_050);
    for (n, outcome) in outcomes.iter().enumerate() {
        let info = outcome.as_ref().unwrap();
        assert_eq!((info.id.clone(), info.state), (n.to_string(), TaskState::Pending));
    }
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert_eq!(pending, (0..2_050).rev().map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_batch_of_nothing_writes_nothing() {
    let fixture = Fixture::start().await;
    assert!(fixture.client().enqueue_many(Vec::<queue_core::RawTask>::new()).await.is_empty());
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn one_queue_that_is_refused_does_not_hinder_the_others() {
    let fixture = Fixture::start().await;
    let tasks = || [job("a").queue("broken"), job("b"), job("c").queue("broken"), job("d").process_in(LOCK)];
    let enqueue = async || fixture.client().enqueue_many(tasks()).await;
    let outcomes = fixture.with_stray("asynq:{broken}:pending", enqueue).await;
    let words: Vec<String> = outcomes.iter().map(word).collect();
    assert_eq!((words[1].as_str(), words[3].as_str()), ("pending", "scheduled"));
    for refused in [&words[0], &words[2]] {
        assert!(refused.contains("\"asynq:{broken}:pending\" is a stream and should be a list"), "{refused}");
    }
}

/// A million tasks took a gigabyte.
#[tokio::test]
async fn a_stream_of_any_length_is_stored_in_order_and_only_a_part_of_it_held() {
    let fixture = Fixture::start().await;
    let (produced, mut answered, mut most) = (Cell::new(0), 0, 0);
    let tasks = (0..20_000).map(|n| {
        produced.set(n + 1);
        job(&n.to_string())
    });
    let mut answers = std::pin::pin!(fixture.client().enqueue_stream(stream::iter(tasks)));
    while let Some(answer) = answers.next().await {
        assert_eq!(answer.unwrap().id, answered.to_string());
        answered += 1;
        most = most.max(produced.get() - answered);
    }
    assert_eq!(answered, 20_000);
    assert!(most < 12_000, "{most} tasks were held at once");
    let pending: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
    assert!(pending.iter().rev().enumerate().all(|(n, id)| *id == n.to_string()));
}

#[tokio::test]
async fn large_tasks_of_a_stream_are_held_by_their_bytes() {
    let fixture = Fixture::start().await;
    let (produced, mut answered, mut most) = (Cell::new(0), 0, 0);
    let payload = bytes::Bytes::from(vec![b'x'; 1024 * 1024]);
    let tasks = (0..40).map(|n| {
        produced.set(n + 1);
        job(&n.to_string()).payload(payload.clone())
    });
    let mut answers = std::pin::pin!(fixture.client().enqueue_stream(stream::iter(tasks)));
    while let Some(answer) = answers.next().await {
        answer.unwrap();
        answered += 1;
        most = most.max(produced.get() - answered);
    }
    assert_eq!(answered, 40);
    assert!(most <= 12, "{most} MB were held at once");
}

#[tokio::test]
async fn a_task_of_a_stream_does_not_wait_for_the_next_one() {
    let fixture = Fixture::start().await;
    let (send, mut tasks) = tokio::sync::mpsc::channel(1);
    let tasks = stream::poll_fn(move |context| tasks.poll_recv(context));
    let mut answers = std::pin::pin!(fixture.client().enqueue_stream(tasks));
    for id in ["a", "b"] {
        send.send(job(id)).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await.expect("it waits for another task");
        assert_eq!(answer.unwrap().unwrap().id, id);
    }
    send.send(job("a")).await.unwrap();
    assert!(matches!(answers.next().await, Some(Err(EnqueueError::TaskIdConflict { .. }))));
    drop(send);
    assert!(answers.next().await.is_none());
}
