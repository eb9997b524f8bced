use std::time::Duration;

use queue_core::TaskMessage;
use queue_redis::broker::Verdict::{self, AlreadyApplied, Applied, Gone, Lost};
use queue_redis::{
    Error,
    broker::{Delivery, Dequeued, Report, Side, Taken},
};

use crate::support::{Fixture, NOW, is_wrong_type, job, report};

async fn archive(fixture: &Fixture, delivery: &Delivery) -> Result<Verdict, Error> {
    let message = TaskMessage { error_msg: "boom".into(), last_failed_at: NOW, ..delivery.message.clone() };
    fixture.broker.archive(&report(delivery), &message.to_bytes(), NOW).await
}

#[tokio::test]
async fn archive_keeps_the_task_and_its_lock_and_counts_a_failure() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a").unique(Duration::from_secs(600))).await;
    let before = fixture.keyspace().await;
    assert_eq!(archive(&fixture, &task).await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         + {q}:archived a: score 4000000000
         + {q}:failed: 1
         + {q}:failed:2096-10-02: 1
         + {q}:failed:2096-10-02 expires: at 4007776000
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:
         + {q}:t:a msg: type=job id=a queue=q retry=25 error_msg=boom timeout=1800 unique_key=asynq:{q}:unique:job: last_failed_at=4000000000
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: archived",
    );
}

#[tokio::test]
async fn archive_sent_again_says_so_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    assert_eq!(archive(&fixture, &task).await.unwrap(), Applied);
    let before = fixture.keyspace().await;
    assert_eq!(archive(&fixture, &task).await.unwrap(), AlreadyApplied);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn archive_of_a_task_that_is_gone_or_not_leased_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    fixture.run("DEL asynq:{q}:t:a").await;
    fixture.run("ZREM asynq:{q}:lease b").await;
    let before = fixture.keyspace().await;
    assert_eq!(archive(&fixture, &tasks[0]).await.unwrap(), Gone);
    assert_eq!(archive(&fixture, &tasks[1]).await.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// A message that nobody can read is archived with its bytes as they are (W13).
#[tokio::test]
async fn an_unreadable_message_is_archived_as_it_is() {
    let fixture = Fixture::start().await;
    fixture.put([job("torn")]).await;
    fixture.run("HSET asynq:{q}:t:torn msg \u{1}").await;
    let Dequeued::Tasks(taken) = fixture.dequeue(1).await else { panic!("the queue is paused") };
    let [Taken::Poisoned(run, raw, _)] = &taken[..] else { panic!("{taken:?}") };
    let report = Report::by_owner(run.clone(), &TaskMessage::default(), Side::Oldest);
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.archive(&report, raw, NOW).await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [torn]
         + {q}:archived torn: score 4000000000
         + {q}:failed: 1
         + {q}:failed:2096-10-02: 1
         + {q}:failed:2096-10-02 expires: at 4007776000
         - {q}:lease torn: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:torn owner: run-1
         - {q}:t:torn state: active
         + {q}:t:torn state: archived",
    );
}

#[tokio::test]
async fn archive_fails_where_a_set_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:lease", "asynq:{q}:archived"] {
        let error = fixture.with_stray(key, async || archive(&fixture, &task).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn archive_does_its_work_where_statistics_or_list_have_another_type() {
    for key in ["processed", "processed:2096-10-02", "failed", "failed:2096-10-02", "active"] {
        let fixture = Fixture::start().await;
        let task = fixture.active(job("a")).await;
        let verdict = fixture.with_stray(&format!("asynq:{{q}}:{key}"), async || archive(&fixture, &task).await).await;
        assert_eq!(verdict.unwrap(), Applied, "{key}");
        let after = fixture.keyspace().await;
        assert_eq!(after.get("{q}:archived a"), Some("score 4000000000"), "{key}");
        assert_eq!(after.get("{q}:lease a"), None, "{key}");
    }
}

#[tokio::test]
async fn a_task_of_another_type_is_not_the_callers() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    let verdict = fixture.with_stray("asynq:{q}:t:a", async || archive(&fixture, &task).await).await;
    assert_eq!(verdict.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}
