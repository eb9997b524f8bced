use std::time::Duration;

use queue_redis::broker::Verdict::{self, Applied, Gone, Lost};
use queue_redis::broker::{Delivery, Report};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, report};

const LOCK: Duration = Duration::from_secs(600);

async fn done(fixture: &Fixture, deliveries: &[&Delivery]) -> Vec<Verdict> {
    let reports: Vec<_> = deliveries.iter().map(|delivery| report(delivery)).collect();
    fixture.broker.done(QUEUE, &reports, NOW).await.unwrap()
}

#[tokio::test]
async fn done_deletes_the_task_frees_its_lock_and_counts() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a").unique(LOCK)).await;
    let before = fixture.keyspace().await;
    assert_eq!(done(&fixture, &[&task]).await, [Applied]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [a]
         - {q}:lease a: score 4000000030
         + {q}:processed: 1
         + {q}:processed:2096-10-02: 1
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job:
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         - {q}:t:a unique_key: asynq:{q}:unique:job:
         - {q}:unique:job:: a
         - {q}:unique:job: expires: in about 600 s",
    );
}

#[tokio::test]
async fn done_leaves_a_lock_that_names_another_task() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a").unique(LOCK)).await;
    fixture.run("SET asynq:{q}:unique:job: b").await;
    assert_eq!(done(&fixture, &[&task]).await, [Applied]);
    assert_eq!(fixture.keyspace().await.get("{q}:unique:job:"), Some("b"));
}

#[tokio::test]
async fn done_judges_each_task_of_a_batch_by_itself() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b", "c", "d", "e"].map(job)).await;
    let [a, b, c, d, e] = &tasks[..] else { panic!("{tasks:?}") };
    fixture.run("ZADD asynq:{q}:lease 4000000120 b").await; // somebody else has it
    fixture.run("DEL asynq:{q}:t:c").await;
    fixture.run("ZREM asynq:{q}:lease c d").await; // d is half-recovered
    let before = fixture.keyspace().await;
    assert_eq!(done(&fixture, &[b, a, c, d, e]).await, [Lost, Applied, Gone, Lost, Applied]);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:active: [e d c b a]
         + {q}:active: [d c b]
         - {q}:lease a: score 4000000030
         - {q}:lease e: score 4000000030
         + {q}:processed: 2
         + {q}:processed:2096-10-02: 2
         + {q}:processed:2096-10-02 expires: at 4007776000
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800
         - {q}:t:a owner: run-1
         - {q}:t:a state: active
         - {q}:t:e msg: type=job id=e queue=q retry=25 timeout=1800
         - {q}:t:e owner: run-1
         - {q}:t:e state: active",
    );
}

#[tokio::test]
async fn done_sent_again_finds_the_task_gone_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a").unique(LOCK)).await;
    assert_eq!(done(&fixture, &[&task]).await, [Applied]);
    let before = fixture.keyspace().await;
    assert_eq!(done(&fixture, &[&task]).await, [Gone]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_task_twice_in_one_batch_is_counted_once() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let verdicts = done(&fixture, &[&task, &task]).await;
    assert_eq!(verdicts[0], Applied);
    assert_eq!(fixture.keyspace().await.get("{q}:processed"), Some("1"), "{verdicts:?}");
}

#[tokio::test]
async fn a_batch_without_one_good_report_changes_nothing() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    fixture.run("ZADD asynq:{q}:lease 4000000120 a").await;
    fixture.run("ZREM asynq:{q}:lease b").await;
    fixture.run("DEL asynq:{q}:t:b").await;
    let before = fixture.keyspace().await;
    assert_eq!(done(&fixture, &[&tasks[0], &tasks[1]]).await, [Lost, Gone]);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn done_finds_the_task_from_either_side_of_the_list() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch((0..100).map(|n| job(&n.to_string()))).await;
    for (n, task) in tasks.into_iter().enumerate() {
        let mut report = report(&task);
        report.side = if n % 3 == 0 { queue_redis::broker::Side::Youngest } else { queue_redis::broker::Side::Oldest };
        assert_eq!(fixture.broker.done(QUEUE, &[report], NOW).await.unwrap(), [Applied]);
    }
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:active"), None);
    assert_eq!(after.get("{q}:processed"), Some("100"));
}

#[tokio::test]
async fn done_fails_where_the_leases_have_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let task = fixture.active(job("a")).await;
    let before = fixture.keyspace().await;
    let done = async || fixture.broker.done(QUEUE, &[report(&task)], NOW).await;
    let error = fixture.with_stray("asynq:{q}:lease", done).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn done_does_its_work_where_statistics_list_or_lock_have_another_type() {
    let fixture = Fixture::start().await;
    for key in ["processed", "processed:2096-10-02", "unique:job:", "active"] {
        let task = fixture.active(job("a").unique(LOCK)).await;
        let verdict = fixture.with_stray(&format!("asynq:{{q}}:{key}"), async || done(&fixture, &[&task]).await).await;
        assert_eq!(verdict, [Applied], "{key}");
        let after = fixture.keyspace().await;
        assert_eq!((after.get("{q}:lease a"), after.get("{q}:t:a state")), (None, None), "{key}: {after}");
        fixture.run("DEL asynq:{q}:unique:job: asynq:{q}:active").await;
    }
}

/// The lease says whose it is, and the work is done.
#[tokio::test]
async fn done_clears_away_whatever_stands_where_the_task_was() {
    let fixture = Fixture::start().await;
    for stray in ["SET asynq:{q}:t:a stray", "DEL asynq:{q}:t:a"] {
        let task = fixture.active(job("a")).await;
        fixture.run("DEL asynq:{q}:t:a").await;
        fixture.run(stray).await;
        assert_eq!(done(&fixture, &[&task]).await, [Applied]);
        assert_eq!(fixture.keyspace().await.paths_with("a"), Vec::<String>::new());
    }
}

/// Where two runs could have the same expiry, after a first sending, the token tells them apart.
#[tokio::test]
async fn done_sent_again_looks_at_the_token_too() {
    let fixture = Fixture::start().await;
    let tasks = fixture.active_batch(["a", "b"].map(job)).await;
    fixture.run("HSET asynq:{q}:t:a owner other").await;
    let before = fixture.keyspace().await;
    let again = |task| Report { resent: true, ..report(task) };
    assert_eq!(fixture.broker.done(QUEUE, &[again(&tasks[0])], NOW).await.unwrap(), [Lost]);
    fixture.keyspace().await.assert_unchanged_since(&before);
    let both = [again(&tasks[0]), again(&tasks[1])];
    assert_eq!(fixture.broker.done(QUEUE, &both, NOW).await.unwrap(), [Lost, Applied]);
    assert_eq!(fixture.keyspace().await.get("{q}:active"), Some("[a]"));
}
