//! The archive is kept small: by `archive` in small steps, and by `trim_archived`.

use std::time::Duration;

use queue_core::TaskMessage;
use queue_redis::broker::Verdict::Applied;
use queue_redis::broker::{Delivery, SHORT_BATCH};

use crate::support::{Fixture, NOW, QUEUE, is_wrong_type, job, report};

const MAX_AGE: i64 = 90 * 24 * 60 * 60;
/// asynq's nominal 10 000 are 9 999 in effect.
const MOST: usize = 9_999;

/// Adds archived tasks `<prefix>1` and so on, with scores that begin at `score` and grow by `step`.
async fn archived(fixture: &Fixture, prefix: &str, count: usize, score: i64, step: i64) {
    let fill = "for n = 1, ARGV[2] do
        redis.call('ZADD', 'asynq:{q}:archived', ARGV[3] + n * ARGV[4], ARGV[1] .. n)
        redis.call('HSET', 'asynq:{q}:t:' .. ARGV[1] .. n, 'msg', 'm', 'state', 'archived')
    end";
    let numbers = [count.to_string(), score.to_string(), step.to_string()];
    let _: redis::Value = fixture.cmd(&["EVAL", fill, "0", prefix, &numbers[0], &numbers[1], &numbers[2]]).await;
}

async fn archive(fixture: &Fixture, delivery: &Delivery) {
    let message = TaskMessage { error_msg: "boom".into(), last_failed_at: NOW, ..delivery.message.clone() };
    assert_eq!(fixture.broker.archive(&report(delivery), &message.to_bytes(), NOW).await.unwrap(), Applied);
}

/// Lets the janitor trim for as long as there is anything to trim; how many tasks it deleted.
async fn trim(fixture: &Fixture) -> usize {
    let mut deleted = 0;
    loop {
        match fixture.broker.trim_archived(QUEUE, NOW).await.unwrap() {
            0 => return deleted,
            more => deleted += more,
        }
    }
}

async fn count(fixture: &Fixture) -> usize {
    fixture.cmd(&["ZCARD", "asynq:{q}:archived"]).await
}

async fn keys(fixture: &Fixture) -> usize {
    fixture.cmd(&["DBSIZE"]).await
}

/// asynq fails here, with the task out of the active list and not yet archived (W15).
#[tokio::test]
async fn archive_works_with_more_than_8_000_expired_tasks() {
    let fixture = Fixture::start().await;
    archived(&fixture, "old", 9_000, NOW - MAX_AGE - 9_000, 1).await;
    let task = fixture.active(job("a")).await;
    archive(&fixture, &task).await;
    assert_eq!(count(&fixture).await, 9_001 - SHORT_BATCH);
    assert_eq!(trim(&fixture).await, 9_000 - SHORT_BATCH);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:archived a"), Some("score 4000000000"));
    assert_eq!(after.paths_with("a"), ["{q}:archived a", "{q}:t:a msg", "{q}:t:a state"]);
    assert_eq!(keys(&fixture).await, 6, "the set, one task and four counters: {after}");
}

#[tokio::test]
async fn archive_and_janitor_keep_the_youngest_9_999() {
    let fixture = Fixture::start().await;
    archived(&fixture, "t", MOST + 150, NOW - 20_000, 1).await;
    let task = fixture.active(job("a")).await;
    archive(&fixture, &task).await;
    assert_eq!(count(&fixture).await, MOST + 151 - SHORT_BATCH);
    assert_eq!(trim(&fixture).await, 151 - SHORT_BATCH);
    let youngest: Vec<String> = fixture.cmd(&["ZRANGE", "asynq:{q}:archived", "0", "0"]).await;
    assert_eq!(youngest, ["t152"]);
    assert_eq!(keys(&fixture).await, MOST + 5, "tasks, the set and four counters");
}

/// The clock of the worker may be behind those of all others.
#[tokio::test]
async fn archive_does_not_trim_the_task_it_archives() {
    let fixture = Fixture::start().await;
    archived(&fixture, "t", MOST, NOW + 1_000, 1).await;
    let task = fixture.active(job("a")).await;
    archive(&fixture, &task).await;
    let after: Option<String> = fixture.cmd(&["HGET", "asynq:{q}:t:a", "state"]).await;
    assert_eq!(after.as_deref(), Some("archived"), "the task that was just archived is gone");
}

#[tokio::test]
async fn trimmed_tasks_give_their_locks_back_but_not_those_of_others() {
    let fixture = Fixture::start().await;
    let lock = Duration::from_secs(600);
    for (id, payload) in [("own", "1"), ("taken-over", "2"), ("young", "3")] {
        let task = fixture.active(job(id).payload(payload).unique(lock)).await;
        archive(&fixture, &task).await;
    }
    let old = NOW - MAX_AGE;
    fixture.run(&format!("ZADD asynq:{{q}}:archived {old} own {old} taken-over {} young", old + 1)).await;
    let taken_over: String = fixture.cmd(&["HGET", "asynq:{q}:t:taken-over", "unique_key"]).await;
    fixture.run(&format!("SET {taken_over} other KEEPTTL")).await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.trim_archived(QUEUE, NOW).await.unwrap(), 2);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:archived own: score 3992224000
         - {q}:archived taken-over: score 3992224000
         - {q}:t:own msg: type=job payload=1 id=own queue=q retry=25 error_msg=boom timeout=1800 unique_key=asynq:{q}:unique:job:c4ca4238a0b923820dcc509a6f75849b last_failed_at=4000000000
         - {q}:t:own state: archived
         - {q}:t:own unique_key: asynq:{q}:unique:job:c4ca4238a0b923820dcc509a6f75849b
         - {q}:t:taken-over msg: type=job payload=2 id=taken-over queue=q retry=25 error_msg=boom timeout=1800 unique_key=asynq:{q}:unique:job:c81e728d9d4c2f636f067f89cc14862c last_failed_at=4000000000
         - {q}:t:taken-over state: archived
         - {q}:t:taken-over unique_key: asynq:{q}:unique:job:c81e728d9d4c2f636f067f89cc14862c
         - {q}:unique:job:c4ca4238a0b923820dcc509a6f75849b: own
         - {q}:unique:job:c4ca4238a0b923820dcc509a6f75849b expires: in about 600 s",
    );
}

#[tokio::test]
async fn trimming_an_empty_archive_changes_nothing() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    assert_eq!(fixture.broker.trim_archived(QUEUE, NOW).await.unwrap(), 0);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn trimming_fails_where_the_archive_has_another_type() {
    let fixture = Fixture::start().await;
    let trim = async || fixture.broker.trim_archived(QUEUE, NOW).await;
    let error = fixture.with_stray("asynq:{q}:archived", trim).await.unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
}
