use queue_redis::broker::Verdict::{self, Applied, Gone, Lost};
use queue_redis::{Error, broker::Delivery};

use crate::support::{Fixture, NOW_NS, is_wrong_type, job, report};

async fn requeue(fixture: &Fixture, delivery: &Delivery) -> Result<Verdict, Error> {
    fixture.broker.requeue(&report(delivery), NOW_NS).await
}

#[tokio::test]
async fn requeue_puts_the_task_back_to_be_taken_next() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    fixture.put([job("c")]).await;
    let before = fixture.keyspace().await;
    assert_eq!(requeue(&fixture, &tasks[0]).await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [b a]
         + {q}:active: [b]
         - {q}:lease a: score 4000000030
         - {q}:pending: [c]
         + {q}:pending: [c a]
         - {q}:t:a owner: run-1
         + {q}:t:a pending_since: 4000000000000000000
         - {q}:t:a state: active
         + {q}:t:a state: pending",
    );
    assert_eq!(fixture.take().await.run.id, "a");
}

#[tokio::test]
async fn requeue_of_what_is_not_the_callers_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c", "d"].map(job)).await;
    assert_eq!(requeue(&fixture, &tasks[0]).await.unwrap(), Applied);
    fixture.run("DEL asynq:{q}:t:b").await;
    fixture.run("ZREM asynq:{q}:lease c").await;
    let before = fixture.keyspace().await;
    assert_eq!(requeue(&fixture, &tasks[0]).await.unwrap(), Lost, "a second time");
    assert_eq!(requeue(&fixture, &tasks[1]).await.unwrap(), Gone);
    assert_eq!(requeue(&fixture, &tasks[2]).await.unwrap(), Lost);
    let stray = fixture.with_stray("asynq:{q}:t:d", async || requeue(&fixture, &tasks[3]).await).await;
    assert_eq!(stray.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn requeue_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:lease", "asynq:{q}:pending"] {
        let error = fixture.with_stray(key, async || requeue(&fixture, &task).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn requeue_does_its_work_where_the_active_list_has_another_type() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let verdict = fixture.with_stray("asynq:{q}:active", async || requeue(&fixture, &task).await).await;
    assert_eq!(verdict.unwrap(), Applied);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:pending"), Some("[a]"));
    assert_eq!(after.get("{q}:lease a"), None);
}
