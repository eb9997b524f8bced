//! `queuectl enqueue --batch`.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use queue_admin::Page;
use queue_core::TaskState;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{Bench, queuectl};

#[tokio::test]
async fn refused_lines_are_reported_by_number_and_the_others_enqueued() {
    let bench = Bench::new().await;
    let batch = br#"{"type":"a","payload":{"z":1, "a":2.50},"task_id":"one"}
{"type":"a","quue":"mail"}

{"type":"a","payload":"text","task_id":"four","headers":{"k":"v"}}
{"type":"a","task_id":"one"}
nonsense
{"type":" "}
{"type":"a","unique":"1m"}
{"type":"a","unique":"1m"}
{"type":"a","in":"1h","task_id":"ten"}"#;
    let done = bench.run_with(&["enqueue", "--batch", "-"], batch).await;
    assert_eq!(done.stdout.lines().count(), 4);
    assert!(done.stdout.starts_with("one\nfour\n") && done.stdout.ends_with("\nten\n"), "{}", done.stdout);
    let stderr = done.failed(1);
    let expected = [
        "queuectl: line 2: unknown field `quue`",
        "queuectl: line 5: task ID conflicts with another task: \"one\"",
        "queuectl: line 6: it is not JSON",
        "queuectl: line 7: the task type is blank",
        "queuectl: line 9: task already exists",
        "queuectl: error: 5 of 9 tasks were refused",
    ];
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{stderr}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "{line}");
    }
    assert_eq!(bench.task("one").await.payload, &br#"{"z":1, "a":2.50}"#[..]);
    assert_eq!(bench.task("four").await.payload, &b"text"[..]);
    assert_eq!(bench.task("ten").await.state, TaskState::Scheduled);
}

#[tokio::test]
async fn a_file_that_is_enqueued_again_is_told_from_one_that_fails() {
    let bench = Bench::new().await;
    let batch = b"{\"type\":\"a\",\"task_id\":\"one\"}\n{\"type\":\"a\",\"unique\":\"1m\"}\n";
    bench.run_with(&["enqueue", "--batch", "-"], batch).await.ok();
    let stderr = bench.run_with(&["enqueue", "--batch", "-"], batch).await.failed(4);
    assert!(stderr.contains("2 of 2 tasks were refused, because others are in their way"), "{stderr}");
    let mixed = [&batch[..], b"nonsense\n"].concat();
    bench.run_with(&["enqueue", "--batch", "-"], &mixed).await.failed(1);
}

#[tokio::test]
async fn a_long_file_streams_in_order() {
    let bench = Bench::new().await;
    let batch = (0..3_500).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, r#"{{"type":"a","payload":{number},"task_id":"t{number}"}}"#);
        text
    });
    std::fs::write(bench.path("batch"), batch).unwrap();
    let stdout = bench.run(&["enqueue", "--batch", "batch", "--json"]).await.ok();
    let lines: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3_500);
    assert!(lines.iter().enumerate().all(|(n, line)| line["line"] == n + 1 && line["id"] == format!("t{n}")));
    let first = bench.inspector.tasks("default", TaskState::Pending, Page { skip: 0, size: 2 }).await.unwrap();
    assert_eq!(first.iter().map(|task| &*task.id).collect::<Vec<_>>(), ["t0", "t1"]);
}

#[tokio::test]
async fn a_slow_writer_sees_each_task_enqueued_at_once() {
    let bench = Bench::new().await;
    let mut command = queuectl();
    command
        .args(["--redis", bench.redis.url(), "enqueue", "--batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in ["a", "b"] {
        stdin.write_all(format!("{{\"type\":\"t\",\"task_id\":\"{id}\"}}\n{{\"type\":").as_bytes()).await.unwrap();
        let line = tokio::time::timeout(Duration::from_secs(20), stdout.next_line()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some(id));
        stdin.write_all(b"\"t\"}\n").await.unwrap();
        stdout.next_line().await.unwrap();
    }
    drop(stdin);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn tasks_go_in_although_nobody_reads_their_ids() {
    let bench = Bench::new().await;
    let batch = "{\"type\":\"t\"}\n".repeat(2_500);
    std::fs::write(bench.path("batch"), batch).unwrap();
    let mut command = queuectl();
    command.args(["--redis", bench.redis.url(), "enqueue", "--batch"]).arg(bench.path("batch"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 2_500);
}

#[tokio::test]
async fn a_missing_file_is_an_error() {
    let bench = Bench::new().await;
    let stderr = bench.run(&["enqueue", "--batch", "no"]).await.failed(1);
    assert!(stderr.starts_with("queuectl: error: cannot read no: "), "{stderr}");
    assert_eq!(bench.run_with(&["enqueue", "--batch", "-"], b"\n\n").await.ok(), "");
}
