//! `queuectl events`.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::support::{Bench, PATIENCE};
use crate::terminal::Terminal;

/// A command that listens.
struct Listening {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    /// Returns when Redis knows of it.
    async fn start(bench: &Bench, arguments: &[&str]) -> Self {
        let before = listeners(bench).await;
        let mut command = bench.command();
        command.arg("events").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let known = async {
            while listeners(bench).await == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, known).await.unwrap();
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap().unwrap()
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// The next event that a server tells: `enqueued` comes from another process, and may come before or after it.
    async fn of_server(&mut self) -> Value {
        loop {
            let told = self.json().await;
            if told["kind"] != "enqueued" {
                return told;
            }
        }
    }
}

async fn listeners(bench: &Bench) -> Vec<String> {
    bench.ask(&["HVALS", "asynq:x:watchers"]).await
}

#[tokio::test]
async fn events_are_lines_of_json_that_fit_the_filters_and_go_on_behind_a_cursor() {
    let bench = Bench::new().await;
    let mut events = Listening::start(&bench, &["--json", "--queue", "default", "--type", "a"]).await;
    let mut all = Listening::start(&bench, &[]).await;
    let worker = bench.worker(&["--exec", "*=true"]).await;
    bench.enqueue("b", "other").await;
    bench.enqueue("a", "id").await;
    let started = events.of_server().await;
    for (field, value) in
        [("kind", json!("started")), ("queue", json!("default")), ("id", json!("id")), ("type", json!("a"))]
    {
        assert_eq!(started[field], value, "{started}");
    }
    assert!(started["at"].as_i64().is_some_and(|at| at > 1_600_000_000_000), "{started}");
    let succeeded = events.of_server().await;
    assert_eq!((&succeeded["kind"], &succeeded["attempt"]), (&json!("succeeded"), &json!(1)));
    events.child.kill().await.unwrap();

    // In words, and what belongs to no queue.
    assert!(all.line().await.contains(" server_started "));
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains(" succeeded  default/id a attempt 1, took ")) {
        told.push(all.line().await);
    }
    bench.run(&["queue", "pause", "default"]).await.ok();
    while !told.iter().any(|line| line.contains(" operator   default queue.pause by ")) {
        told.push(all.line().await);
    }
    worker.stop().await;
    while !told.iter().any(|line| line.contains(" server_stopped ")) {
        told.push(all.line().await);
    }
    all.child.kill().await.unwrap();

    let since = started["cursor"].as_str().unwrap();
    let mut again = Listening::start(&bench, &["--json", "--since", since, "--queue", "default", "--type", "a"]).await;
    let mut next = again.of_server().await;
    if next["kind"] == "gap" {
        // This machine took more than 30 s for it.
        next = again.of_server().await;
    }
    assert_eq!(next["kind"], "succeeded");
    again.child.kill().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_and_so_does_ctrl_c() {
    let bench = Bench::new().await;
    let Listening { mut child, lines } = Listening::start(&bench, &["--json"]).await;
    drop(lines);
    bench.enqueue("a", "id").await;
    bench.run(&["queue", "pause", "default"]).await.ok();
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    let mut command = bench.command();
    command.arg("events");
    let mut terminal = Terminal::run(command);
    while listeners(&bench).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    bench.run(&["queue", "resume", "default"]).await.ok();
    terminal.wait_for("queue.resume").await;
    terminal.interrupt().await;
}

#[tokio::test]
async fn what_queuectl_enqueues_is_told() {
    let bench = Bench::new().await;
    let mut events = Listening::start(&bench, &["--json", "--kind", "enqueued"]).await;
    bench.run(&["enqueue", "a", "--task-id", "now"]).await.ok();
    let told = events.json().await;
    assert_eq!((&told["kind"], &told["id"], &told["due_at"]), (&json!("enqueued"), &json!("now"), &Value::Null));
    bench.run(&["enqueue", "a", "--task-id", "later", "--in", "1h"]).await.ok();
    let told = events.json().await;
    assert_eq!((&told["id"], told["due_at"].is_i64()), (&json!("later"), true), "{told}");
    events.child.kill().await.unwrap();
}

#[tokio::test]
async fn what_is_no_kind_and_no_cursor_is_wrong_usage() {
    let bench = Bench::new().await;
    assert!(bench.run(&["events", "--kind", "broken"]).await.failed(2).contains("archived"));
    assert!(bench.run(&["events", "--since", "yesterday"]).await.failed(2).contains("cursor"));
}
