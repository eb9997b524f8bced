//! `queuectl doctor`: what scripts rely on.

use std::os::unix::fs::PermissionsExt as _;

use queue_core::{RawTask, TaskState};
use serde_json::{Value, json};

use crate::support::{Bench, finish, queuectl};

/// A Redis with a lost task and an id without one.
async fn damaged() -> Bench {
    let bench = Bench::new().await;
    for id in ["lost", "here"] {
        bench.enqueue("t", id).await;
    }
    bench.ask::<i64>(&["LREM", "asynq:{default}:pending", "0", "lost"]).await;
    bench.ask::<i64>(&["ZADD", "asynq:{default}:retry", "5", "ghost"]).await;
    bench
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_sound_redis_is_code_0_and_one_with_findings_code_1() {
    let bench = Bench::new().await;
    bench.enqueue("t", "a").await;
    let told = bench.run(&["doctor"]).await.ok();
    assert!(told.contains("looked at 1 tasks: all is in order"), "{told}");
    let bench = damaged().await;
    let done = bench.run(&["doctor"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("error: queue \"default\", \"lost\": a task is in no list"), "{done:?}");
    assert!(done.stdout.contains("the repair takes the id out of the lists"), "{done:?}");
    assert!(done.stderr.contains("2 findings are left; --fix --dump FILE repairs what can be"), "{done:?}");
    // Nothing was changed.
    assert_eq!(bench.run(&["doctor"]).await.stdout, done.stdout);
    let done = bench.run(&["doctor", "--json"]).await;
    let summary = lines(&done.stdout).pop().unwrap();
    assert_eq!(
        (done.code, &summary["healthy"], &summary["findings"]),
        (Some(1), &json!(false), &json!(2)),
        "{summary}"
    );
}

#[tokio::test]
async fn only_the_queues_that_are_named_count() {
    let bench = damaged().await;
    bench.enqueue_task(RawTask::new("t").queue("other"), "a").await;
    let done = bench.run(&["doctor", "--queue", "other"]).await;
    assert!(done.stderr.is_empty(), "{done:?}");
    assert!(done.ok().contains("looked at 1 tasks: all is in order"));
    bench.run(&["doctor", "--queue", "other", "--queue", "default"]).await.failed(1);
    let done = bench.run(&["doctor", "--queue", "missing"]).await;
    assert!(done.stderr.contains("queue \"missing\" is not listed"), "{done:?}");
}

#[tokio::test]
async fn doctor_ends_with_2_where_it_cannot_check() {
    let mut command = queuectl();
    command.args(["--redis", "redis+unix:///nowhere/redis.sock", "doctor"]);
    let stderr = finish(command, b"").await.failed(2);
    assert!(stderr.contains("cannot reach Redis"), "{stderr}");
    let bench = Bench::new().await;
    bench.run(&["doctor", "--dump", "f"]).await.failed(2);
    bench.run(&["doctor", "--restore", "missing"]).await.failed(2);
    bench.run(&["doctor", "--fix", "--dump", "no/such/directory"]).await.failed(2);
}

#[tokio::test]
async fn fix_mends_after_a_dump_and_restore_puts_back() {
    let bench = damaged().await;
    bench.ask::<i64>(&["HSET", "asynq:{default}:t:stub", "result", "\u{1}x"]).await;
    // An id that is no text.
    let add = r"return redis.call('ZADD', KEYS[1], 6, '\255\254')";
    bench.ask::<i64>(&["EVAL", add, "1", "asynq:{default}:retry"]).await;
    let done = bench.run(&["doctor", "--fix"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("3 findings are left; repairs that delete something need --dump FILE"), "{done:?}");
    assert_eq!(bench.task("lost").await.state, TaskState::Pending);
    let told = bench.run(&["doctor", "--fix", "--dump", "dump.jsonl", "--json"]).await.ok();
    let told = lines(&told);
    let summary = told.last().unwrap();
    assert_eq!((&summary["healthy"], &summary["mended"]), (&json!(true), &json!(3)), "{told:?}");
    let ghost = told.iter().find(|line| line["subject"] == "ghost").unwrap();
    assert_eq!((&ghost["fault"], &ghost["outcome"]), (&json!("no-task"), &json!("mended")));
    bench.run(&["doctor"]).await.ok();
    let dump = std::fs::read_to_string(bench.path("dump.jsonl")).unwrap();
    assert_eq!(dump.lines().count(), 3, "{dump}");
    let mode = std::fs::metadata(bench.path("dump.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "payloads are for nobody else");
    let told = bench.run(&["doctor", "--restore", "dump.jsonl"]).await.ok();
    assert!(told.contains("3 put back, 0 left out"), "{told}");
    assert_eq!(bench.ask::<f64>(&["ZSCORE", "asynq:{default}:retry", "ghost"]).await, 5.0);
    let find = r"return redis.call('ZSCORE', KEYS[1], '\255\254')";
    assert_eq!(bench.ask::<f64>(&["EVAL", find, "1", "asynq:{default}:retry"]).await, 6.0);
    assert_eq!(bench.ask::<String>(&["HGET", "asynq:{default}:t:stub", "result"]).await, "\u{1}x");
    let told = bench.run(&["doctor", "--restore", "dump.jsonl"]).await.ok();
    assert!(told.contains("0 put back, 3 left out"), "{told}");
    std::fs::write(bench.path("dump.jsonl"), "{\"line\":").unwrap();
    bench.run(&["doctor", "--restore", "dump.jsonl"]).await.failed(1);
}

/// The line behind it was lost with it, and what it held was deleted.
#[tokio::test]
async fn a_dump_whose_last_line_was_cut_off_keeps_those_that_follow() {
    let bench = damaged().await;
    std::fs::write(bench.path("dump.jsonl"), "{\"line\":\"entry\",\"at\":").unwrap();
    bench.run(&["doctor", "--fix", "--dump", "dump.jsonl"]).await.ok();
    let restored = bench.run(&["doctor", "--restore", "dump.jsonl"]).await;
    assert!(restored.code == Some(1) && restored.stderr.contains("line 1 is damaged"), "{restored:?}");
    assert_eq!(bench.ask::<f64>(&["ZSCORE", "asynq:{default}:retry", "ghost"]).await, 5.0);
}

#[tokio::test]
async fn a_thousand_of_a_kind_are_counted_and_not_listed() {
    let bench = Bench::new().await;
    let tasks = (0..1_000).map(|n| RawTask::new("t").task_id(n.to_string()));
    assert!(bench.client.enqueue_many(tasks).await.iter().all(Result::is_ok));
    bench.ask::<i64>(&["DEL", "asynq:{default}:pending"]).await;
    let done = bench.run(&["doctor"]).await;
    assert!(done.stdout.contains("… and 980 more of no-place"), "{done:?}");
    assert_eq!(done.stdout.matches("a task is in no list").count(), 20, "{done:?}");
    let told = bench.run(&["doctor", "--fix"]).await.ok();
    assert!(told.contains("1,000 findings, 1,000 of them mended"), "{told}");
    assert_eq!(bench.ask::<i64>(&["LLEN", "asynq:{default}:pending"]).await, 1_000);
}

#[tokio::test]
async fn settings_of_redis_that_lose_tasks_are_named() {
    let bench = Bench::new().await;
    bench.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let done = bench.run(&["doctor", "--json"]).await;
    assert_eq!(done.code, Some(1));
    assert_eq!(lines(&done.stdout)[0]["fault"], "eviction-without-limit");
    bench.ask::<()>(&["CONFIG", "SET", "maxmemory", "100000000"]).await;
    let done = bench.run(&["doctor", "--json"]).await;
    assert_eq!(lines(&done.stdout)[0]["fault"], "eviction");
}
