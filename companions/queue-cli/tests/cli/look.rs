//! `queuectl queue`, `task`, `server`, `stats`.

use std::process::Stdio;
use std::time::Duration;

use queue_core::{RawTask, TaskState};
use serde_json::{Value, json};

use crate::support::{Bench, queuectl};

/// One task in each state, all in the queue `default`.
async fn all_states() -> (Bench, crate::support::Worker) {
    let bench = Bench::new().await;
    let hour = Duration::from_secs(3_600);
    let worker = bench
        .worker(&[
            "--unhandled",
            "leave",
            "--exec",
            "a=sh -c 'sleep 600'",
            "--exec",
            "c=echo fine",
            "--exec",
            "r=false",
            "--exec",
            "x=sh -c 'exit 65'",
        ])
        .await;
    for (task_type, id) in [("a", "active"), ("c", "completed"), ("r", "retry"), ("x", "archived"), ("p", "pending")] {
        bench.enqueue(task_type, id).await;
    }
    bench.enqueue_task(RawTask::new("s").process_in(hour), "scheduled").await;
    bench.enqueue_task(RawTask::new("g").group("team"), "aggregating").await;
    for state in TaskState::ALL {
        bench.wait_for(state.as_str(), &[state]).await;
    }
    (bench, worker)
}

#[tokio::test]
async fn every_state_can_be_seen() {
    let (bench, _worker) = all_states().await;
    for state in TaskState::ALL {
        let table = bench.run(&["task", "ls", "--queue", "default", "--state", state.as_str()]).await.ok();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 2, "{table}");
        assert!(rows[0].starts_with("ID") && rows[1].starts_with(state.as_str()), "{table}");
        let tasks = bench.run(&["--json", "task", "ls", "--queue", "default", "--state", state.as_str()]).await.json();
        assert_eq!((&tasks[0]["id"], &tasks[0]["state"]), (&json!(state), &json!(state)));
        let facts = bench.run(&["task", "inspect", "--queue", "default", "--id", state.as_str()]).await.ok();
        assert!(
            facts.contains(&format!("State        {state}")) || facts.contains(&format!("State      {state}")),
            "{facts}"
        );
    }
    // What a server has in hand comes with its next heartbeat.
    let stats = loop {
        let stats = bench.run(&["stats", "--json"]).await.json();
        if stats["busy_workers"] == 1 {
            break stats;
        }
    };
    let queues = bench.run(&["queue", "ls", "--json"]).await.json();
    for counts in [&stats, &queues[0]] {
        assert!(TaskState::ALL.iter().all(|state| counts[state.as_str()] == 1), "{counts}");
    }
    assert!(stats["redis_info"]["redis_version"].is_string(), "{stats}");
    assert_eq!((&stats["servers"], &stats["failed_today"]), (&json!(1), &json!(2)));
    let servers = bench.run(&["server", "ls", "--json"]).await.json();
    assert_eq!((&servers[0]["status"], &servers[0]["workers"][0]["task_id"]), (&json!("active"), &json!("active")));
    for table in [&["stats"][..], &["queue", "ls"], &["server", "ls"]] {
        let table = bench.run(table).await.ok();
        assert!(table.contains("default"), "{table}");
        // The address of this Redis is a path of any length.
        let lines = || table.lines().filter(|line| !line.starts_with("Redis "));
        assert!(lines().all(|line| line.chars().count() <= 80 && line == line.trim_end()), "{table}");
    }
}

#[tokio::test]
async fn long_lists_have_pages() {
    let bench = Bench::new().await;
    for id in 0..5 {
        bench.enqueue("t", &id.to_string()).await;
    }
    let page = async |page: &str| -> Vec<Value> {
        let arguments = ["task", "ls", "--queue=default", "--state=pending", "--size=2", "--page", page, "--json"];
        bench.run(&arguments).await.json().as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
    };
    assert_eq!(page("1").await, ["0", "1"]);
    assert_eq!(page("3").await, ["4"]);
    assert!(page("4").await.is_empty());
    assert!(page("4294967295").await.is_empty());
    bench.run(&["task", "ls", "--queue=default", "--state=pending", "--page=0"]).await.failed(2);
}

#[tokio::test]
async fn payloads_that_are_no_text_are_shown_all_the_same() {
    let bench = Bench::new().await;
    let pack = rmp_serde::to_vec_named(&json!({"user": 7})).unwrap();
    bench.enqueue_task(RawTask::new("t").payload(pack), "pack").await;
    bench.enqueue_task(RawTask::new("t").payload(vec![0xff, 0x1b]), "binary").await;
    let text = RawTask::new("t").payload("{\"a\":\n\"ü\"}").header("k", "\x1b");
    bench.enqueue_as_go("t\x1b[2J", text, "text").await;
    let table = bench.run(&["task", "ls", "--queue=default", "--state=pending"]).await.ok();
    assert!(table.contains("<MessagePack, 7 bytes>") && table.contains("<binary, 2 bytes>"), "{table}");
    assert!(table.contains("{\"a\": \"ü\"}") && !table.contains('\x1b'), "{table:?}");
    let inspect = async |id: &str, json: bool| {
        let mut arguments = vec!["task", "inspect", "--queue=default", "--id", id];
        arguments.extend(json.then_some("--json"));
        bench.run(&arguments).await
    };
    assert!(inspect("pack", false).await.ok().contains("Payload, 7 bytes:\n{\n  \"user\": 7\n}\n"));
    assert!(inspect("binary", false).await.ok().contains("<binary, 2 bytes>"));
    let text = inspect("text", false).await.ok();
    assert!(text.contains("{\"a\":\n\"ü\"}") && !text.contains('\x1b'), "{text:?}");
    let pack = inspect("pack", true).await.json();
    assert_eq!(pack["payload"], json!({"base64": "gaR1c2VyBw==", "message_pack": {"user": 7}}));
    assert_eq!(inspect("text", true).await.json()["payload"], "{\"a\":\n\"ü\"}");
}

#[tokio::test]
async fn queues_are_paused_and_resumed() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    assert_eq!(bench.run(&["queue", "pause", "default"]).await.ok(), "queue \"default\" is paused\n");
    assert_eq!(bench.run(&["queue", "pause", "default"]).await.ok(), "queue \"default\" is paused already\n");
    assert!(bench.inspector.queue("default").await.unwrap().paused);
    assert!(bench.run(&["queue", "ls"]).await.ok().contains("paused"));
    let _worker = bench.worker(&["--exec", "*=true"]).await;
    let resumed = bench.run(&["queue", "resume", "default", "--json"]).await.json();
    assert_eq!(resumed, json!({"queue": "default", "paused": false, "changed": true, "exists": true}));
    bench.wait_for("id", &[TaskState::Completed]).await;
    assert_eq!(bench.run(&["queue", "unpause", "default"]).await.ok(), "queue \"default\" is running already\n");
    assert!(bench.run(&["queue", "pause", "typo"]).await.ok().contains("is this the right name?"));
    assert!(bench.run(&["queue", "pause", " "]).await.failed(2).contains("the queue name is blank"));
}

#[tokio::test]
async fn commands_say_what_is_missing_and_what_to_do() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    for (arguments, code, reason) in [
        ("task ls --queue no --state pending", 3, "queue \"no\" not found; `queuectl queue ls`"),
        ("task inspect --queue default --id no", 3, "task \"no\" not found in queue \"default\""),
        ("task cancel --attempt id", 4, "is pending and not running, so there is nothing to interrupt"),
        ("task cancel no", 3, "task \"no\" not found in any queue that is listed"),
        ("task ls --queue default --state done", 2, "unknown task state"),
    ] {
        let stderr = bench.run(&arguments.split(' ').collect::<Vec<_>>()).await.failed(code);
        assert!(stderr.contains(reason), "{arguments}: {stderr}");
    }
    assert_eq!(
        Bench::new().await.run(&["queue", "ls"]).await.ok(),
        "no queues yet; `queuectl enqueue TYPE` makes one\n"
    );
}

#[tokio::test]
async fn a_spoilt_queue_costs_the_others_nothing() {
    let bench = Bench::new().await;
    bench.enqueue("a", "id").await;
    bench.ask::<()>(&["SADD", "asynq:queues", "bad"]).await;
    bench.ask::<()>(&["SET", "asynq:{bad}:pending", "x"]).await;
    let forecast = ["queue", "forecast", "--over", "50ms"];
    for command in [&["queue", "ls"][..], &["stats"], &["queue", "ls", "--json"], &["stats", "--json"], &forecast] {
        let output = bench.run(command).await;
        assert!(output.stdout.contains("default"), "{output:?}");
        let stderr = output.failed(1);
        let told = "not all queues could be read: Redis refused counting a queue: \"WRONGTYPE\"";
        assert!(stderr.contains(told) && stderr.contains("\"asynq:{bad}:pending\" is a string"), "{stderr}");
    }
    let stderr = bench.run(&["queue", "inspect", "bad"]).await.failed(1);
    assert!(stderr.contains("\"asynq:{bad}:pending\" is a string"), "{stderr}");
}

#[tokio::test]
async fn a_cancelation_goes_on_after_an_id_that_nobody_has() {
    let bench = Bench::new().await;
    bench.enqueue("t", "runs").await;
    let worker = bench.worker(&["--exec", "*=sleep 600"]).await;
    bench.wait_for("runs", &[TaskState::Active]).await;
    let done = bench.run(&["task", "cancel", "--attempt", "nobody", "runs"]).await;
    assert!(done.stdout.starts_with("asked 1 server to stop working on task \"runs\""), "{done:?}");
    assert!(done.failed(3).contains("task \"nobody\" not found"));
    bench.wait_for("runs", &[TaskState::Retry]).await;
    let done = bench.run(&["task", "cancel", "nobody", "runs"]).await;
    assert_eq!(done.stdout, "task \"runs\" in queue \"default\": nobody worked on it; it is archived\n");
    assert!(done.failed(3).contains("task \"nobody\" not found"));
    for queue in ["one", "two"] {
        bench.run(&["enqueue", "t", "--task-id", "twin", "--queue", queue]).await.ok();
    }
    let stderr = bench.run(&["task", "cancel", "twin"]).await.failed(4);
    assert!(stderr.contains("is in several queues: one, two; say which with --queue"), "{stderr}");
    let told = bench.run(&["task", "cancel", "twin", "-q", "two"]).await.ok();
    assert_eq!(told, "task \"twin\" in queue \"two\": nobody worked on it; it is archived\n");
    assert!(bench.run(&["task", "inspect", "-q", "one", "-i", "twin"]).await.ok().contains("pending"));
    bench.run(&["task", "cancel", "--attempt", "twin", "-q", "two"]).await.failed(2);
    let again = bench.run(&["task", "cancel", "runs"]).await.ok();
    assert_eq!(again, "task \"runs\" in queue \"default\": it had ended before: it is archived\n");
    // One that no server hears of: its worker is gone, and its lease has not ended.
    bench.enqueue("t", "orphan").await;
    bench.wait_for("orphan", &[TaskState::Active]).await;
    worker.kill().await;
    let stderr = bench.run(&["task", "cancel", "--attempt", "orphan"]).await.failed(1);
    assert!(stderr.contains("no server is listening"), "{stderr}");
    let told = bench.run(&["task", "cancel", "orphan"]).await.ok();
    assert_eq!(told, "task \"orphan\" in queue \"default\": recorded; no server that works on it listens now\n");
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::new().await;
    bench.enqueue("t", "id").await;
    for arguments in [&["queue", "ls"][..], &["stats", "--json"], &["enqueue", "t"], &["--help"]] {
        let mut command = queuectl();
        command.args(["--redis", bench.redis.url()]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}
