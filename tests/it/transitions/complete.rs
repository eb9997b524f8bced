use std::time::Duration;

use bytes::Bytes;
use queue_core::RawTask;
use queue_redis::broker::Verdict::{self, AlreadyApplied, Applied, Gone, Lost};
use queue_redis::broker::{Completion, Delivery};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, report};

const LOCK: Duration = Duration::from_secs(600);

fn kept(id: &str) -> RawTask {
    job(id).retention(Duration::from_secs(60))
}

async fn complete(
    fixture: &Fixture,
    deliveries: &[(&Delivery, Option<&str>)],
) -> Result<Vec<Verdict>, queue_redis::Error> {
    let reports: Vec<_> = deliveries
        .iter()
        .map(|(delivery, result)| {
            let message = queue_core::TaskMessage { completed_at: NOW, ..delivery.message.clone() };
            let result = result.map(|text| Bytes::copy_from_slice(text.as_bytes()));
            Completion { report: report(delivery), message, expires_at: NOW + 60, result }
        })
        .collect();
    fixture.broker.complete(QUEUE, &reports, NOW).await
}

#[tokio::test]
async fn complete_keeps_the_task_with_its_result_and_frees_its_lock() {
    let fixture = Fixture::start().await;
    let task = fixture.active(kept("a").unique(LOCK)).await;
    let before = fixture.keyspace().await;
    assert_eq!(complete(&fixture, &[(&task, Some("42"))]).await.unwrap(), [Applied]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         + {q}:completed a: score 4000000060
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job: retention=60
         + {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job: retention=60 completed_at=4000000000
         - {q}:t:a owner: run-1
         + {q}:t:a result: 42
         - {q}:t:a state: active
         + {q}:t:a state: completed
         - {q}:unique:job:: a
         - {q}:unique:job: expires: in about 600 s",
    );
}

#[tokio::test]
async fn complete_without_a_result_leaves_one_that_was_written_before() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch([kept("a"), kept("b"), kept("c")]).await;
    for task in &tasks[..2] {
        assert_eq!(fixture.broker.write_result(&task.run, b"so far").await.unwrap(), Applied);
    }
    let reports = [(&tasks[0], None), (&tasks[1], Some("")), (&tasks[2], None)];
    assert_eq!(complete(&fixture, &reports).await.unwrap(), [Applied; 3]);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:t:a result"), Some("so far"));
    assert_eq!(after.get("{q}:t:b result"), Some(""));
    assert_eq!(after.get("{q}:t:c result"), None);
}

#[tokio::test]
async fn complete_judges_each_task_of_a_batch_by_itself() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c", "d"].map(kept)).await;
    let [a, b, c, d] = &tasks[..] else { panic!("{tasks:?}") };
    fixture.run("ZADD asynq:{q}:lease 4000000120 b").await;
    fixture.run("DEL asynq:{q}:t:c").await;
    fixture.run("ZREM asynq:{q}:lease c d").await;
    let before = fixture.keyspace().await;
    let reports = [(b, Some("x")), (a, None), (c, Some("x")), (d, Some("x")), (a, None)];
    assert_eq!(complete(&fixture, &reports).await.unwrap(), [Lost, Applied, Gone, Lost, AlreadyApplied]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [d c b a]
         + {q}:active: [d c b]
         + {q}:completed a: score 4000000060
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 retention=60
         + {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 retention=60 completed_at=4000000000
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: completed",
    );
}

#[tokio::test]
async fn complete_sent_again_says_so_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(kept("a")).await;
    assert_eq!(complete(&fixture, &[(&task, Some("42"))]).await.unwrap(), [Applied]);
    let before = fixture.keyspace().await;
    assert_eq!(complete(&fixture, &[(&task, Some("42"))]).await.unwrap(), [AlreadyApplied]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn complete_fails_where_a_set_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch([kept("a"), kept("b")]).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:lease", "asynq:{q}:completed"] {
        let both = [(&tasks[0], None), (&tasks[1], None)];
        let error = fixture.with_stray(key, async || complete(&fixture, &both).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn complete_does_its_work_where_statistics_list_or_lock_have_another_type() {
    for key in ["processed", "processed:2096-10-02", "unique:job:", "active"] {
        let fixture = Fixture::start().await;
        let task = fixture.active(kept("a").unique(LOCK)).await;
        let complete = async || complete(&fixture, &[(&task, None)]).await.unwrap();
        assert_eq!(fixture.with_stray(&format!("asynq:{{q}}:{key}"), complete).await, [Applied], "{key}");
        let after = fixture.keyspace().await;
        assert_eq!(after.get("{q}:completed a"), Some("score 4000000060"), "{key}");
        assert_eq!(after.get("{q}:lease a"), None, "{key}");
    }
}

#[tokio::test]
async fn a_task_of_another_type_is_not_the_callers() {
    let fixture = Fixture::start().await;
    let task = fixture.active(kept("a")).await;
    let before = fixture.keyspace().await;
    let complete = async || complete(&fixture, &[(&task, None)]).await.unwrap();
    assert_eq!(fixture.with_stray("asynq:{q}:t:a", complete).await, [Lost]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}
