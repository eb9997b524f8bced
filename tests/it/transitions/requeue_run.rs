use queue_redis::Error;

use crate::support::{Fixture, Go, NOW, NOW_NS, QUEUE, is_wrong_type, job};

async fn requeue_run(fixture: &Fixture, token: &str) -> Result<u64, Error> {
    fixture.broker.requeue_run(QUEUE, token, NOW + 30, NOW_NS).await
}

#[tokio::test]
async fn requeue_run_puts_back_the_tasks_of_one_take_in_their_order() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b"].map(job)).await; // run-1
    fixture.active_batch(["c", "d", "e"].map(job)).await; // run-2
    fixture.active(job("f")).await; // run-3
    fixture.put([job("g")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(requeue_run(&fixture, "run-2").await.unwrap(), 3);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [f e d c b a]
         + {q}:active: [f b a]
         - {q}:lease c: score 4000000030
         - {q}:lease d: score 4000000030
         - {q}:lease e: score 4000000030
         - {q}:pending: [g]
         + {q}:pending: [g e d c]
         - {q}:t:c owner: run-2
         + {q}:t:c pending_since: 4000000000000000000
         - {q}:t:c state: active
         + {q}:t:c state: pending
         - {q}:t:d owner: run-2
         + {q}:t:d pending_since: 4000000000000000000
         - {q}:t:d state: active
         + {q}:t:d state: pending
         - {q}:t:e owner: run-2
         + {q}:t:e pending_since: 4000000000000000000
         - {q}:t:e state: active
         + {q}:t:e state: pending",
    );
    assert_eq!(fixture.take().await.run.id, "c");
}

#[tokio::test]
async fn requeue_run_of_a_take_that_never_arrived_changes_nothing() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b"].map(job)).await;
    let before = fixture.keyspace().await;
    assert_eq!(requeue_run(&fixture, "run-9").await.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn requeue_run_leaves_what_is_no_longer_of_that_take() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b", "c", "d"].map(job)).await;
    fixture.run("HSET asynq:{q}:t:a owner run-2").await;
    fixture.run("ZREM asynq:{q}:lease b").await;
    fixture.run("DEL asynq:{q}:t:c").await;
    let before = fixture.keyspace().await;
    let back = fixture.with_stray("asynq:{q}:t:d", async || requeue_run(&fixture, "run-1").await).await;
    assert_eq!(back.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// It may be asked for long after the lost take, and Go leaves the owner as it was.
#[tokio::test]
async fn requeue_run_leaves_a_task_that_go_works_on_since() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let go = Go(&fixture);
    go.retry(&task.message, "asynq: task lease expired", NOW + 60, NOW + 90).await;
    go.forward("a").await;
    go.dequeue(NOW + 120).await;
    let before = fixture.keyspace().await;
    assert_eq!(requeue_run(&fixture, "run-1").await.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn requeue_run_where_a_key_has_another_type_leaves_each_task_in_one_place() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b"].map(job)).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:active", "asynq:{q}:pending", "asynq:{q}:lease"] {
        let error = fixture.with_stray(key, async || requeue_run(&fixture, "run-1").await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

/// It looked at the 500 youngest only.
#[tokio::test]
async fn requeue_run_finds_its_tasks_however_many_younger_ones_are_active() {
    let fixture = Fixture::start().await;
    fixture.active_batch(["a", "b"].map(job)).await; // run-1
    for from in (0..700).step_by(100) {
        fixture.active_batch((from..from + 100).map(|n| job(&n.to_string()))).await;
    }
    assert_eq!(requeue_run(&fixture, "run-1").await.unwrap(), 2);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:pending"), Some("[b a]"));
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await, 700);
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:lease"]).await, 700);
}
