//! `queuectl demo`.

use std::process::Stdio;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_redis::Redis;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{Bench, eventually, finish, queuectl, signal};

#[tokio::test]
async fn every_task_ends_where_it_should() {
    let mut command = queuectl();
    command.arg("demo");
    let stdout = finish(command, b"").await.ok();
    assert!(stdout.contains("14 of 14 ended where they should"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    if std::process::Command::new("redis-cli").arg("--version").output().is_ok() {
        // The first two in the order in which they happened to end, within a second or not.
        assert!(stdout.contains("  3) \"invoice-1043\"\n") && stdout.contains("1) \"reminder-43\"\n"), "{stdout}");
    }
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn the_demo_in_memory_needs_no_redis_server() {
    let mut command = queuectl();
    command.args(["demo", "--memory"]).env("PATH", "");
    let stdout = finish(command, b"").await.ok();
    assert!(stdout.starts_with("queuectl demo on a store inside this process\n"), "{stdout}");
    assert!(stdout.contains("14 of 14 ended where they should"), "{stdout}");
    assert!(stdout.contains("The store has counted ") && !stdout.contains("read from Redis"), "{stdout}");
    assert!(stdout.contains("  3) \"invoice-1043\"\n") && stdout.contains("1) \"reminder-43\"\n"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
}

#[tokio::test]
async fn memory_excludes_a_redis() {
    for arguments in [&["demo", "--memory", "--embedded"][..], &["demo", "--memory", "--keep"]] {
        let mut command = queuectl();
        command.args(arguments);
        finish(command, b"").await.failed(2);
    }
}

#[tokio::test]
async fn json_tells_expected_and_found() {
    let mut command = queuectl();
    command.args(["demo", "--json"]);
    let report = finish(command, b"").await.json();
    assert_eq!((&report["ok"], &report["processed"]), (&true.into(), &report["expected_processed"]));
    let tasks = report["tasks"].as_array().unwrap();
    assert!(tasks.len() == 14 && tasks.iter().all(|task| task["expected"] == task["found"]), "{report}");
}

#[tokio::test]
async fn keep_leaves_the_redis_running_until_the_printed_command() {
    let mut command = queuectl();
    command.args(["demo", "--keep"]);
    let stdout = finish(command, b"").await.ok();
    let after = |start: &str| stdout.lines().find_map(|line| line.trim().strip_prefix(start)).unwrap().to_owned();
    let url = after("export REDIS_URL=");
    let inspector = Inspector::new(Redis::connect(&url).await.unwrap());
    assert_eq!(inspector.queue("demo-shop").await.unwrap().archived, 3);
    let stop = format!("redis-cli -s {}", after("redis-cli -s "));
    let socket = std::path::PathBuf::from(url.strip_prefix("redis+unix://").unwrap());
    assert!(tokio::process::Command::new("sh").arg("-c").arg(stop).status().await.unwrap().success());
    eventually("the directory is gone", || !socket.parent().unwrap().exists()).await;
    assert!(Redis::connect(&url).await.is_err());
}

#[tokio::test]
async fn a_redis_with_tasks_in_its_queues_is_refused_and_an_empty_one_is_not() {
    let bench = Bench::new().await;
    let report = bench.run(&["demo", "--json"]).await.json();
    assert_eq!(report["ok"], true);
    // Its own tasks are still there; so are somebody else's.
    let again = bench.run(&["demo"]).await.failed(1);
    assert!(again.contains("which the demo would use"), "{again}");
    bench.run(&["demo", "--keep"]).await.failed(2);
    let bench = Bench::new().await;
    bench.client.enqueue(RawTask::new("t").queue("demo-bulk")).await.unwrap();
    let used = bench.run(&["demo"]).await.failed(1);
    assert!(used.contains("1 tasks in queue \"demo-bulk\""), "{used}");
}

#[tokio::test]
async fn a_signal_ends_the_demo_quietly() {
    let mut command = queuectl();
    let mut child = command.arg("demo").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    // On a busy machine, what is active may be missed, and what is done is not.
    let is_at_work = |line: &str| line.ends_with("  active") || line.ends_with("  done");
    while !is_at_work(&stdout.next_line().await.unwrap().unwrap()) {}
    signal(child.id().unwrap(), Signal::INT);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(130), ""));
}
