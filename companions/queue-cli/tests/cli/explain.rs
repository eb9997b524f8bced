//! `queuectl explain`: what it says, and its exit codes.

use std::time::Duration;

use queue_core::{RawTask, TaskState};

use crate::support::Bench;

/// What is said of a task.
async fn told(bench: &Bench, id: &str) -> String {
    bench.run(&["explain", id]).await.ok()
}

#[track_caller]
fn assert_says(told: &str, expected: &[&str]) {
    for text in expected {
        assert!(told.contains(text), "not {text:?} but\n{told}");
    }
}

#[tokio::test]
async fn a_task_that_waits_says_what_for() {
    let bench = Bench::new().await;
    let hour = Duration::from_secs(3_600);
    bench.enqueue("t", "first").await;
    bench.enqueue("t", "second").await;
    bench.enqueue_task(RawTask::new("t").process_in(hour), "later").await;
    bench.enqueue_task(RawTask::new("t").group("g:1"), "grouped").await;
    assert_says(
        &told(&bench, "first").await,
        &["task \"first\" in queue \"default\", type \"t\", pending", "no server"],
    );
    assert_says(&told(&bench, "second").await, &["no server", "one task is before it"]);
    assert_says(&told(&bench, "later").await, &["waits for its time, 2"]);
    assert_says(&told(&bench, "grouped").await, &["waits in group \"g:1\", which has 1 tasks"]);
    bench.run(&["queue", "pause", "default"]).await.ok();
    assert_says(&told(&bench, "second").await, &["its queue is paused since 2", "queuectl queue resume"]);
    bench.run(&["task", "archive", "-q", "default", "-i", "first"]).await.ok();
    assert_says(&told(&bench, "first").await, &["it was given up at 2"]);
    let json = bench.run(&["explain", "second", "--queue", "default", "--json"]).await.json();
    assert_eq!(json[0]["reasons"][0]["reason"], "paused");
    assert_eq!(json[0]["state"], "pending");
}

#[tokio::test]
async fn a_task_that_a_worker_has_or_had_says_so() {
    let bench = Bench::new().await;
    bench.enqueue("t", "runs").await;
    bench.enqueue_task(RawTask::new("fails").payload("x"), "fails").await;
    let worker = bench.worker(&["--exec", "t=sh -c 'sleep 600'", "--exec", "fails=sh -c 'echo no >&2; exit 1'"]).await;
    bench.wait_for("runs", &[TaskState::Active]).await;
    bench.wait_for("fails", &[TaskState::Retry]).await;
    assert_says(&told(&bench, "runs").await, &["a worker has it", "its lease ends at 2", "unless it is renewed"]);
    assert_says(&told(&bench, "fails").await, &["was retried 1 of 25 times", "the last error: "]);
    bench.ask::<i64>(&["ZADD", "asynq:{default}:lease", "5", "runs"]).await;
    assert_says(&told(&bench, "runs").await, &["is silent: its lease ended at 1970-01-01T00:00:05Z"]);
    drop(worker);
}

#[tokio::test]
async fn explain_tells_remains_of_a_task_and_ends_with_3_where_there_are_none() {
    let bench = Bench::new().await;
    bench.enqueue("t", "here").await;
    let stderr = bench.run(&["explain", "nobody"]).await.failed(3);
    assert!(stderr.contains("not found in any queue"), "{stderr}");
    let done = bench.run(&["explain", "nobody", "-q", "default"]).await;
    assert_eq!(done.code, Some(3));
    assert_says(&done.stdout, &["there is no such task"]);
    bench.ask::<()>(&["SET", "asynq:{default}:unique:t:x", "nobody", "EX", "600"]).await;
    let done = bench.run(&["explain", "nobody"]).await;
    assert_eq!(done.code, Some(3));
    assert_says(&done.stdout, &["asynq:{default}:unique:t:x", "still names it"]);
    bench.ask::<i64>(&["LPUSH", "asynq:{default}:pending", "ghost"]).await;
    let done = bench.run(&["explain", "ghost"]).await;
    assert_eq!(done.code, Some(3));
    assert_says(&done.stdout, &["an id is listed and has no task"]);
    bench.ask::<i64>(&["LREM", "asynq:{default}:pending", "0", "here"]).await;
    assert_says(&told(&bench, "here").await, &["a task is in no list"]);
}

#[tokio::test]
async fn a_task_whose_type_nobody_handles_is_told_of_by_explain_and_doctor() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "known=true"]).await;
    bench.enqueue("unknown", "round").await;
    bench.wait_for("round", &[TaskState::Retry]).await;
    assert_says(&told(&bench, "round").await, &["has no handler for its type, \"unknown\"; it goes round"]);
    let doctor = bench.run(&["doctor"]).await;
    assert_eq!(doctor.code, Some(1));
    assert_says(&doctor.stdout, &["tasks go round", "unknown", "1 task"]);
}
