use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_redis::{
    Error,
    broker::{Forwarded, SHORT_BATCH},
};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job};

const DUE: i64 = NOW + 10;

fn due_in(secs: u64, id: &str) -> RawTask {
    job(id).process_in(Duration::from_secs(secs))
}

/// FORWARD at [`DUE`].
async fn forward(fixture: &Fixture, from: TaskState) -> Result<Forwarded, Error> {
    fixture.broker.forward(QUEUE, from, DUE * 1_000_000_000 + 5, 0).await
}

fn forwarded(moved: u64, dropped: u64, next_due: Option<i64>) -> Forwarded {
    Forwarded { moved, dropped, stayed: 0, next_due }
}

#[tokio::test]
async fn forward_makes_due_tasks_pending_in_the_order_of_their_times() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "b"), due_in(5, "a"), due_in(11, "c")]).await;
    fixture.put([job("z")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(2, 0, Some(NOW + 11)));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:pending: [z]
         + {q}:pending: [b a z]
         - {q}:scheduled a: score 4000000005
         - {q}:scheduled b: score 4000000010
         + {q}:t:a pending_since: 4000000010000000005
         - {q}:t:a state: scheduled
         + {q}:t:a state: pending
         + {q}:t:b pending_since: 4000000010000000005
         - {q}:t:b state: scheduled
         + {q}:t:b state: pending",
    );
}

#[tokio::test]
async fn forward_of_nothing_due_changes_nothing() {
    let fixture = Fixture::start().await;
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(0, 0, None));
    fixture.put([due_in(11, "a")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(0, 0, Some(NOW + 11)));
    assert_eq!(forward(&fixture, TaskState::Retry).await.unwrap(), forwarded(0, 0, None));
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn forward_makes_retried_tasks_pending() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let message = task.message.to_bytes();
    fixture.broker.retry(&crate::support::report(&task), &message, NOW + 10, false, NOW).await.unwrap();
    let before = fixture.keyspace().await;
    assert_eq!(forward(&fixture, TaskState::Retry).await.unwrap(), forwarded(1, 0, None));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [a]
         - {q}:retry a: score 4000000010
         + {q}:t:a pending_since: 4000000010000000005
         - {q}:t:a state: retry
         + {q}:t:a state: pending",
    );
}

/// asynq does not list the group, so that nobody looks after it (W20).
#[tokio::test]
async fn forward_moves_a_task_with_a_group_into_the_group_and_lists_it() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "a").group("g")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(1, 0, None));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:g:g a: score 4000000010
         + {q}:groups g: member
         - {q}:scheduled a: score 4000000010
         + {q}:t:a group: g
         - {q}:t:a state: scheduled
         + {q}:t:a state: aggregating
         - {q}:t:a x_group: g",
    );
}

/// A task that was in a group and failed, and one that an earlier release has scheduled.
#[tokio::test]
async fn forward_moves_a_task_whose_hash_names_a_group_as_go_does() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "a")]).await;
    fixture.run("HSET asynq:{q}:t:a group g").await;
    let before = fixture.keyspace().await;
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(1, 0, None));
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:g:g a: score 4000000010
         + {q}:groups g: member
         - {q}:scheduled a: score 4000000010
         - {q}:t:a state: scheduled
         + {q}:t:a state: aggregating",
    );
}

/// Go's forwarder has made it pending; without a handler for its type it comes round.
#[tokio::test]
async fn a_scheduled_task_that_go_has_forwarded_joins_its_group_when_it_is_tried_again() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "a").group("g")]).await;
    for command in ["ZREM @scheduled a", "ZADD @retry 4000000010 a", "HSET @t:a state retry"] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    assert_eq!(forward(&fixture, TaskState::Retry).await.unwrap(), forwarded(1, 0, None));
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:g:g a"), Some("score 4000000010"));
    assert_eq!((after.get("{q}:groups g"), after.get("{q}:t:a group")), (Some("member"), Some("g")));
    assert_eq!(after.get("{q}:t:a x_group"), None);
}

#[tokio::test]
async fn forward_moves_a_batch_per_call() {
    let fixture = Fixture::start().await;
    fixture.put((0..SHORT_BATCH + 1).map(|n| due_in(10, &n.to_string()))).await;
    let first = forward(&fixture, TaskState::Scheduled).await.unwrap();
    assert_eq!(first, forwarded(SHORT_BATCH as u64, 0, None), "none is waiting for its time");
    assert_eq!(forward(&fixture, TaskState::Scheduled).await.unwrap(), forwarded(1, 0, None));
}

#[tokio::test]
async fn forward_drops_ids_without_tasks() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "a")]).await;
    fixture.run("HSET asynq:{q}:t:stub state scheduled").await;
    fixture.run("ZADD asynq:{q}:scheduled 4000000001 ghost 4000000001 stub 4000000001 stray").await;
    let found = fixture.with_stray("asynq:{q}:t:stray", async || forward(&fixture, TaskState::Scheduled).await).await;
    assert_eq!(found.unwrap(), forwarded(1, 3, None));
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:pending"), Some("[a]"));
    for id in ["ghost", "stub", "stray"] {
        assert_eq!(after.paths_with(id), Vec::<String>::new());
    }
}

#[tokio::test]
async fn forward_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(10, "a"), due_in(10, "b")]).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:scheduled", "asynq:{q}:pending"] {
        let error = fixture.with_stray(key, async || forward(&fixture, TaskState::Scheduled).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_task_whose_group_has_another_type_keeps_waiting_and_holds_up_nobody() {
    let fixture = Fixture::start().await;
    fixture.put([due_in(5, "a").group("g"), due_in(10, "b")]).await;
    let before = fixture.keyspace().await;
    let found = fixture.with_stray("asynq:{q}:g:g", async || forward(&fixture, TaskState::Scheduled).await).await;
    assert_eq!(found.unwrap(), Forwarded { stayed: 1, ..forwarded(1, 0, None) });
    fixture.keyspace().await.assert_changes_since(
        &before,
        "+ {q}:pending: [b]
         - {q}:scheduled b: score 4000000010
         + {q}:t:b pending_since: 4000000010000000005
         - {q}:t:b state: scheduled
         + {q}:t:b state: pending",
    );
}

/// A hundred of them hid all that came later.
#[tokio::test]
async fn forward_leaves_out_tasks_that_had_to_stay_before() {
    let fixture = Fixture::start().await;
    fixture.put((0..SHORT_BATCH).map(|n| due_in(5, &n.to_string()).group("g"))).await;
    fixture.put([due_in(10, "behind"), due_in(11, "later")]).await;
    let (first, second) = fixture
        .with_stray("asynq:{q}:g:g", async || {
            let first = forward(&fixture, TaskState::Scheduled).await.unwrap();
            let second = fixture.broker.forward(QUEUE, TaskState::Scheduled, DUE * 1_000_000_000, first.stayed).await;
            (first, second.unwrap())
        })
        .await;
    assert_eq!(first, Forwarded { stayed: SHORT_BATCH as u64, ..forwarded(0, 0, Some(NOW + 11)) });
    assert_eq!(second, forwarded(1, 0, Some(NOW + 11)));
    assert_eq!(fixture.keyspace().await.get("{q}:pending"), Some("[behind]"));
}
