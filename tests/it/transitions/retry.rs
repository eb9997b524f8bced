use std::time::Duration;

use queue_core::{Step, TaskMessage, TaskState};
use queue_redis::broker::Verdict::{self, AlreadyApplied, Applied, Gone, Lost};
use queue_redis::{Error, broker::Delivery};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, report};

fn failed(delivery: &Delivery) -> TaskMessage {
    TaskMessage { retried: 1, error_msg: "boom".into(), last_failed_at: NOW, ..delivery.message.clone() }
}

async fn retry(fixture: &Fixture, delivery: &Delivery) -> Result<Verdict, Error> {
    fixture.broker.retry(&report(delivery), &failed(delivery).to_bytes(), NOW + 60, true, NOW).await
}

#[tokio::test]
async fn retry_moves_the_task_to_the_retry_set_keeps_its_lock_and_counts_a_failure() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a").unique(Duration::from_secs(600))).await;
    let before = fixture.keyspace().await;
    assert_eq!(retry(&fixture, &task).await.unwrap(), Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         + {q}:failed: 1
         + {q}:failed:2096-10-02: 1
         + {q}:failed:2096-10-02 expires: at 4007776000
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         + {q}:retry a: score 4000000060
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:
         + {q}:t:a msg: type=job id=a queue=q retry=25 retried=1 error_msg=boom timeout=1800 unique_key=asynq:{q}:unique:job: last_failed_at=4000000000
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: retry",
    );
}

#[tokio::test]
async fn retry_that_is_no_failure_counts_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    let message = TaskMessage { retried: 0, ..failed(&task) };
    let verdict = fixture.broker.retry(&report(&task), &message.to_bytes(), NOW + 60, false, NOW).await.unwrap();
    assert_eq!(verdict, Applied);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         - {q}:lease a: score 4000000030
         + {q}:retry a: score 4000000060
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800
         + {q}:t:a msg: type=job id=a queue=q retry=25 error_msg=boom timeout=1800 last_failed_at=4000000000
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         + {q}:t:a state: retry",
    );
}

#[tokio::test]
async fn retry_sent_again_says_so_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    assert_eq!(retry(&fixture, &task).await.unwrap(), Applied);
    let before = fixture.keyspace().await;
    assert_eq!(retry(&fixture, &task).await.unwrap(), AlreadyApplied);
    fixture.keyspace().await.assert_unchanged_since(&before);
    // Even when the task has run on since.
    fixture.broker.forward("q", TaskState::Retry, (NOW + 60) * 1_000_000_000, 0).await.unwrap();
    fixture.take().await;
    let before = fixture.keyspace().await;
    assert_eq!(retry(&fixture, &task).await.unwrap(), AlreadyApplied);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn retry_of_a_task_that_is_gone_or_not_leased_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    fixture.run("DEL asynq:{q}:t:a").await;
    fixture.run("ZREM asynq:{q}:lease b").await;
    let before = fixture.keyspace().await;
    assert_eq!(retry(&fixture, &tasks[0]).await.unwrap(), Gone);
    assert_eq!(retry(&fixture, &tasks[1]).await.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn retry_fails_where_a_set_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:lease", "asynq:{q}:retry"] {
        let error = fixture.with_stray(key, async || retry(&fixture, &task).await).await.unwrap_err();
        assert!(is_wrong_type(&error), "{key}: {error}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn retry_does_its_work_where_statistics_or_list_have_another_type() {
    for key in ["processed", "processed:2096-10-02", "failed", "failed:2096-10-02", "active"] {
        let fixture = Fixture::start().await;
        let task = fixture.active(job("a")).await;
        let verdict = fixture.with_stray(&format!("asynq:{{q}}:{key}"), async || retry(&fixture, &task).await).await;
        assert_eq!(verdict.unwrap(), Applied, "{key}");
        let after = fixture.keyspace().await;
        assert_eq!(after.get("{q}:retry a"), Some("score 4000000060"), "{key}");
        assert_eq!(after.get("{q}:lease a"), None, "{key}");
    }
}

#[tokio::test]
async fn a_task_of_another_type_is_not_the_callers() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    let verdict = fixture.with_stray("asynq:{q}:t:a", async || retry(&fixture, &task).await).await.unwrap();
    assert_eq!(verdict, Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn retry_and_archive_remember_the_last_five_attempts() {
    let fixture = Fixture::start().await;
    let inspector = queue_admin::Inspector::new(fixture.redis());
    let fail = async |n: i64, message: &TaskMessage, task: &Delivery| {
        let step = Step::Retry { message: message.clone(), at: NOW, is_failure: true };
        let mut report = report(task);
        let backtrace = format!("0: of {n}\n 1: main");
        report.ended(&step, n * 1_000_000_000, n * 1_500_000_000, (n != 6).then_some(&*backtrace));
        (report, message.to_bytes())
    };
    let mut task = fixture.active(job("a")).await;
    for n in 1..=7 {
        let message = TaskMessage { retried: 1, error_msg: format!("boom {n}"), ..task.message.clone() };
        let (report, bytes) = fail(n, &message, &task).await;
        assert_eq!(fixture.broker.retry(&report, &bytes, NOW, true, NOW).await.unwrap(), Applied);
        assert_ne!(fixture.broker.retry(&report, &bytes, NOW, true, NOW).await.unwrap(), Applied, "once only");
        fixture.broker.forward(QUEUE, TaskState::Retry, NOW * 1_000_000_000, 0).await.unwrap();
        task = fixture.take().await;
    }
    let (count, attempts) = inspector.attempts(QUEUE, "a").await.unwrap();
    assert_eq!(count, 7);
    let errors: Vec<&str> = attempts.iter().map(|attempt| &*attempt.error).collect();
    assert_eq!(errors, ["boom 3", "boom 4", "boom 5", "boom 6", "boom 7"]);
    assert_eq!(attempts[4].took, Some(Duration::from_millis(3_500)));
    assert!(attempts[4].server.starts_with("run-"), "{attempts:?}");
    let backtraces: Vec<_> = attempts.iter().map(|attempt| attempt.backtrace.as_deref()).collect();
    assert_eq!(backtraces, [None, None, None, None, Some("0: of 7\n 1: main")]);
    // What somebody else has written there stops nobody.
    fixture.run("HSET asynq:{q}:t:a x_n nonsense").await;
    let step = Step::Archive { message: failed(&task) };
    let mut report = report(&task);
    report.ended(&step, 0, 1_000_000, None);
    assert_eq!(fixture.broker.archive(&report, &failed(&task).to_bytes(), NOW).await.unwrap(), Applied);
    let (count, attempts) = inspector.attempts(QUEUE, "a").await.unwrap();
    assert_eq!((count, &*attempts[0].error, attempts[0].end.as_str()), (1, "boom", "archived"));
    assert_eq!(attempts[0].backtrace, None, "that is of the seventh");
}
