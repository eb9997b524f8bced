//! `queuectl task wait`.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Bench, Done, PATIENCE, finish};

/// Starts to wait, and returns once the command has looked at the task.
async fn waiting(bench: &Bench, arguments: &[&str]) -> JoinHandle<Done> {
    let before = bench.calls("hmget").await;
    let mut command = bench.command();
    command.args(["task", "wait"]).args(arguments);
    let waiting = tokio::spawn(finish(command, b""));
    let end = Instant::now() + PATIENCE;
    while bench.calls("hmget").await == before {
        assert!(Instant::now() < end, "the command does not look");
        sleep(Duration::from_millis(10)).await;
    }
    waiting
}

#[tokio::test]
async fn a_task_that_completes_gives_its_result_to_the_byte() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    let waiting = waiting(&bench, &["id", "--timeout", "30s"]).await;
    let _worker = bench.worker(&["--exec", "t=printf 'a\\nb\\n'"]).await;
    assert_eq!(waiting.await.unwrap().ok(), "a\nb");
    // It is over already, and has no bearing on the answer.
    assert_eq!(bench.run(&["task", "wait", "id"]).await.ok(), "a\nb");
    let answer = bench.run(&["task", "wait", "id", "--json"]).await.json();
    assert_eq!((&answer["outcome"], &answer["task"]["result"]), (&json!("completed"), &json!("a\nb")));
}

#[tokio::test]
async fn each_end_has_its_exit_code() {
    let bench = Bench::new().await;
    bench.enqueue("bad", "archived").await;
    bench.client.enqueue(RawTask::new("good").task_id("gone")).await.unwrap();
    bench.enqueue_task(RawTask::new("good").process_in(Duration::from_secs(3_600)), "late").await;
    let gone = waiting(&bench, &["gone"]).await;
    let _worker = bench.worker(&["--exec", "good=true", "--exec", "bad=sh -c 'echo broken >&2; exit 65'"]).await;
    let stderr = gone.await.unwrap().failed(6);
    assert!(stderr.contains("a task without a retention leaves no trace"), "{stderr}");
    bench.wait_for("archived", &[TaskState::Archived]).await;
    let stderr = bench.run(&["task", "wait", "archived"]).await.failed(5);
    assert!(stderr.contains("was archived: broken"), "{stderr}");
    let stderr = bench.run(&["task", "wait", "late", "--timeout", "100ms"]).await.failed(124);
    assert!(stderr.contains("it is scheduled"), "{stderr}");
    let done = bench.run(&["task", "wait", "late", "--timeout", "100ms", "--json"]).await;
    assert!(done.stdout.starts_with("{\"outcome\":\"timeout\""), "{done:?}");
    done.failed(124);
    let stderr = bench.run(&["task", "wait", "never"]).await.failed(3);
    assert!(stderr.contains("not found") && stderr.contains("may have ended already"), "{stderr}");
    bench.run(&["task", "wait", "late", "--queue", "no"]).await.failed(3);
    bench.run(&["task", "wait"]).await.failed(2);
    bench.run(&["task", "wait", "late", "--timeout", "5"]).await.failed(2);
}

#[tokio::test]
async fn a_change_is_told_by_redis_and_not_found_by_polling() {
    let bench = Bench::new().await;
    bench.enqueue_task(RawTask::new("t").process_in(Duration::from_secs(3_600)), "id").await;
    let before = bench.calls("hmget").await;
    let waiting = waiting(&bench, &["id", "--queue", "default"]).await;
    let end = Instant::now() + PATIENCE;
    while bench.calls("hmget").await - before < 2 {
        assert!(Instant::now() < end, "the command does not ask to be told");
        sleep(Duration::from_millis(10)).await;
    }
    let _: u64 = bench.ask(&["DEL", "asynq:{default}:t:id"]).await;
    waiting.await.unwrap().failed(6);
    // One look at the whole task, one that asks to be told, and one after the change.
    assert_eq!(bench.calls("hmget").await - before, 3);
}

#[tokio::test]
async fn a_task_is_found_in_whichever_queue_it_is() {
    let bench = Bench::new().await;
    bench.enqueue("other", "elsewhere").await;
    for (queue, id) in [("mail", "mine"), ("mail", "both"), ("media", "both")] {
        bench.client.enqueue(RawTask::new("t").queue(queue).task_id(id)).await.unwrap();
    }
    let stderr = bench.run(&["task", "wait", "mine", "--timeout", "100ms"]).await.failed(124);
    assert!(stderr.contains("\"mine\" has not ended in time; it is pending"), "{stderr}");
    let gone = waiting(&bench, &["mine"]).await;
    let _worker = bench.worker(&["--queue", "mail", "--exec", "*=true"]).await;
    let stderr = gone.await.unwrap().failed(6);
    assert!(stderr.contains("gone from queue \"mail\""), "{stderr}");
    let stderr = bench.run(&["task", "wait", "nobody"]).await.failed(3);
    assert!(stderr.contains("not found in any queue that is listed"), "{stderr}");
}

#[tokio::test]
async fn an_id_that_is_in_two_queues_needs_the_name_of_one() {
    let bench = Bench::new().await;
    for queue in ["mail", "media"] {
        bench.client.enqueue(RawTask::new("t").queue(queue).task_id("both")).await.unwrap();
    }
    let stderr = bench.run(&["task", "wait", "both"]).await.failed(2);
    assert!(stderr.contains("in the queues \"mail\" and \"media\"") && stderr.contains("--queue"), "{stderr}");
    bench.run(&["task", "wait", "both", "--queue", "mail", "--timeout", "100ms"]).await.failed(124);
}

#[tokio::test]
async fn enqueue_waits_for_the_end_of_its_task_if_it_is_told_to() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "good=echo hi", "--exec", "bad=sh -c 'echo broken >&2; exit 65'"]).await;
    assert_eq!(bench.run(&["enqueue", "good", "--wait"]).await.ok(), "hi");
    let answer = bench.run(&["enqueue", "good", "--wait", "--task-id", "x", "--json"]).await.json();
    assert_eq!((&answer["outcome"], &answer["task"]["id"]), (&json!("completed"), &json!("x")));
    assert_eq!(answer["task"]["retention_secs"], 60);
    let stderr = bench.run(&["enqueue", "bad", "--wait", "--wait-timeout", "30s"]).await.failed(5);
    assert!(stderr.contains("was archived: broken"), "{stderr}");
    let late = ["enqueue", "good", "--in", "1h", "--wait", "--wait-timeout", "100ms"];
    let stderr = bench.run(&late).await.failed(124);
    assert!(stderr.contains("it is scheduled"), "{stderr}");
    bench.run(&["enqueue", "good", "--wait-timeout", "1s"]).await.failed(2);
    bench.run(&["enqueue", "--batch", "-", "--wait"]).await.failed(2);
}

#[tokio::test]
async fn a_task_is_followed_until_it_has_ended() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    let key = "asynq:{default}:t:id";
    let before = bench.calls("hmget").await;
    let mut command = bench.command();
    command.args(["task", "show", "--queue", "default", "--id", "id", "--follow", "--json"]);
    let following = tokio::spawn(finish(command, b""));
    let end = Instant::now() + PATIENCE;
    // The whole task, then its first look.
    while bench.calls("hmget").await < before + 2 {
        assert!(Instant::now() < end, "the command does not look");
        sleep(Duration::from_millis(10)).await;
    }
    let _: u64 = bench.ask(&["HSET", key, "x_progress", "40 1700000000000 page 3"]).await;
    while bench.calls("hmget").await < before + 3 {
        assert!(Instant::now() < end, "the command does not look again");
        sleep(Duration::from_millis(10)).await;
    }
    let shown = bench.run(&["task", "show", "--queue", "default", "--id", "id"]).await.ok();
    assert!(shown.contains("40 %, page 3 ("), "{shown}");
    let _worker = bench.worker(&["--exec", "t=echo hi"]).await;
    let told = following.await.unwrap().ok();
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"state": "pending", "progress": null}));
    let progress = json!({"percent": 40, "at": "2023-11-14T22:13:20Z", "note": "page 3"});
    assert_eq!(lines[1], json!({"state": "pending", "progress": progress}));
    let last = lines.last().unwrap();
    assert_eq!((&last["outcome"], &last["task"]["progress"]), (&json!("completed"), &progress));
    bench.run(&["task", "show", "--queue", "default", "--id", "nobody", "--follow"]).await.failed(3);
}
