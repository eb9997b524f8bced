//! What changes tasks and queues.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use serde_json::json;

use crate::support::Bench;

const HOUR: Duration = Duration::from_secs(3_600);

/// Some scheduled tasks.
async fn scheduled(ids: &[&str]) -> Bench {
    let bench = Bench::new().await;
    for id in ids {
        bench.enqueue_task(RawTask::new("t").payload("{\"user\":{\"id\":7}}").process_in(HOUR), id).await;
    }
    bench
}

#[tokio::test]
async fn tasks_are_run_archived_and_deleted_by_their_ids() {
    let bench = scheduled(&["a", "b", "c", "d"]).await;
    assert_eq!(bench.run(&["task", "run", "-q", "default", "-i", "a"]).await.ok(), "task \"a\" is pending now\n");
    assert_eq!(bench.task("a").await.state, TaskState::Pending);
    let archived = bench.run(&["task", "archive", "--queue=default", "--id=b", "--id=c", "--json"]).await.ok();
    let lines: Vec<serde_json::Value> = archived.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1], json!({"action": "archive", "queue": "default", "id": "c"}));
    assert_eq!(bench.task("b").await.state, TaskState::Archived);
    for (verb, id) in [("delete", "b"), ("remove", "c"), ("rm", "d")] {
        bench.run(&["task", verb, "-q", "default", "-i", id]).await.ok();
    }
    assert_eq!(bench.inspector.queue("default").await.unwrap().size(), 1);
}

#[tokio::test]
async fn a_change_that_a_state_forbids_has_its_own_exit_code() {
    let bench = scheduled(&["archived"]).await;
    bench.enqueue("p", "pending").await;
    bench.enqueue("a", "active").await;
    bench.inspector.archive_task("default", "archived").await.unwrap();
    let _worker = bench.worker(&["--unhandled=leave", "--exec", "a=sh -c 'sleep 600'"]).await;
    bench.wait_for("active", &[TaskState::Active]).await;
    for (arguments, code, reason) in [
        ("task run -q default -i pending", 4, "is pending already"),
        ("task archive -q default -i archived", 4, "is archived already"),
        ("task delete -q default -i active", 4, "is being worked on; cancel it"),
        ("task run -q default -i nothing", 3, "not found"),
        ("task delete -q nowhere -i archived", 3, "queue \"nowhere\" not found"),
        ("task update -q default -i active --payload x", 4, "is being worked on"),
        ("task run -q default", 2, "--state"),
        ("task run -i a", 2, "--queue"),
        ("task update -q default -i pending", 2, "--payload"),
        ("task frobnicate", 2, "frobnicate"),
    ] {
        let stderr = bench.run(&arguments.split(' ').collect::<Vec<_>>()).await.failed(code);
        assert!(stderr.contains(reason), "{arguments}: {stderr}");
    }
}

#[tokio::test]
async fn a_payload_is_replaced() {
    let bench = scheduled(&["a"]).await;
    bench.run(&["task", "update", "-q", "default", "-i", "a", "--payload", "new"]).await.ok();
    assert_eq!(&bench.task("a").await.payload[..], b"new");
    let arguments = ["task", "update", "-q", "default", "-i", "a", "--payload-file", "-", "--json"];
    let answer = bench.run_with(&arguments, &[0, 255]).await.json();
    assert_eq!(answer, json!({"queue": "default", "id": "a", "payload_bytes": 2}));
    assert_eq!(&bench.task("a").await.payload[..], [0, 255]);
}

#[tokio::test]
async fn groups_and_their_tasks_are_listed() {
    let bench = Bench::new().await;
    for (id, group) in [("1", "b"), ("2", "a"), ("3", "b")] {
        bench.enqueue_task(RawTask::new("t").group(group), id).await;
    }
    let groups = bench.run(&["group", "list", "-q", "default", "--json"]).await.json();
    assert_eq!(groups, json!([{"group": "a", "size": 1}, {"group": "b", "size": 2}]));
    assert_eq!(bench.run(&["group", "ls", "-q", "default"]).await.ok(), "GROUP  TASKS\na          1\nb          2\n");
    let tasks = bench.run(&["task", "ls", "-q", "default", "-s", "aggregating", "-g", "b", "--json"]).await.json();
    assert_eq!(tasks.as_array().unwrap().len(), 2);
    bench.run(&["group", "ls", "-q", "nowhere"]).await.failed(3);
    bench.run(&["group", "ls"]).await.failed(2);
}

#[tokio::test]
async fn a_queue_is_inspected_and_has_a_history() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "good=true", "--exec", "bad=false"]).await;
    bench.enqueue("good", "1").await;
    bench.enqueue("bad", "2").await;
    bench.wait_for("1", &[TaskState::Completed]).await;
    bench.wait_for("2", &[TaskState::Retry]).await;
    worker.stop().await;
    let queues = bench.run(&["queue", "inspect", "default", "--json"]).await.json();
    assert_eq!((&queues[0]["size"], &queues[0]["processed_today"]), (&json!(2), &json!(2)));
    assert!(queues[0]["memory_bytes"].as_u64().unwrap() > 0);
    let facts = bench.run(&["queue", "inspect", "default"]).await.ok();
    assert!(facts.contains("completed    1\n") && facts.contains("2 processed, 1 failed (50.00 %)"), "{facts}");
    let history = bench.run(&["queue", "history", "default", "-x", "3", "--json"]).await.json();
    assert_eq!(history.as_array().unwrap().len(), 3);
    let sum = |name: &str| history.as_array().unwrap().iter().map(|day| day[name].as_u64().unwrap()).sum::<u64>();
    // The test may run over midnight.
    assert_eq!((sum("processed"), sum("failed")), (2, 1));
    assert!(bench.run(&["queue", "history", "default"]).await.ok().contains("50.00 %"));
    for (arguments, code) in [
        ("queue inspect nowhere", 3),
        ("queue history nowhere", 3),
        ("queue history default -x 0", 2),
        ("queue inspect", 2),
    ] {
        bench.run(&arguments.split(' ').collect::<Vec<_>>()).await.failed(code);
    }
}

#[tokio::test]
async fn asynqs_spelling_of_enqueue_works() {
    let bench = Bench::new().await;
    let line = "task enqueue -t t -l payload --queue q --retry 3 --id i --timeout 90s --deadline 2100-01-31T18:00:00+01:00 \
                --unique 10m --process_in 1h30m --retention 24h --group g";
    assert_eq!(bench.run(&line.split_whitespace().collect::<Vec<_>>()).await.ok(), "i\n");
    let task = bench.inspector.task("q", "i").await.unwrap();
    assert_eq!((&task.payload[..], task.max_retry, task.state), (&b"payload"[..], 3, TaskState::Scheduled));
    assert_eq!((task.timeout, task.retention), (Some(Duration::from_secs(90)), 24 * HOUR));
    assert_eq!(task.group.as_deref(), Some("g"));
    bench.run(&["task", "enqueue", "--type_name=t", "--process_at=2100-01-31T18:00:00Z"]).await.ok();
    bench.run(&["task", "enqueue", "-l", "x"]).await.failed(2);
    bench.run(&["task", "enqueue", "-t", "t", "--process_at=2100-01-31T18:00:00Z", "--process_in=1s"]).await.failed(2);
}

#[tokio::test]
async fn the_backtrace_of_the_last_attempt_stands_below_the_attempts() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    let entry = "3500 2500 failed web-1:7:u boom";
    let backtrace = "1 0: dial\n\u{1b}[2J1: main";
    let key = "asynq:{default}:t:id";
    let _: u64 = bench.ask(&["HSET", key, "x_n", "1", "x_a0", entry, "x_trace", backtrace]).await;
    let show = ["task", "show", "--queue", "default", "--id", "id", "--attempts"];
    let shown = bench.run(&show).await.ok();
    let (_, below) = shown.split_once("the last 1 of 1:\n").unwrap();
    assert!(below.contains("web-1:7:u  boom\n\nBacktrace of the last:\n0: dial\n"), "{below}");
    assert!(below.ends_with("[2J1: main\n") && !below.contains('\u{1b}'), "{below:?}");
    let json = bench.run(&[&show[..], &["--json"]].concat()).await.json();
    assert_eq!(json["attempts"][0]["backtrace"], "0: dial\n\u{1b}[2J1: main");
    // One that a later attempt has left behind is not that one's.
    let _: u64 = bench.ask(&["HSET", key, "x_n", "2", "x_a1", entry]).await;
    assert!(!bench.run(&show).await.ok().contains("Backtrace"));
}
