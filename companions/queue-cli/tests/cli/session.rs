//! Which Redis a command works on.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{Bench, eventually, finish, is_running, queuectl, signal};

/// Redis servers whose command line has this in it.
fn servers(part: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_running(*pid) && String::from_utf8_lossy(&line).contains(part)
    })
    .collect()
}

#[tokio::test]
async fn an_embedded_redis_keeps_its_data_in_its_directory_and_ends_with_the_command() {
    let bench = Bench::new().await;
    let run = async |arguments: &[&str]| {
        let mut command = queuectl();
        command.args(arguments).current_dir(bench.directory.path()).env("REDIS_URL", "redis://127.0.0.1:1");
        finish(command, b"").await
    };
    let data = bench.path("data");
    assert_eq!(run(&["--embedded", "./data", "enqueue", "t", "--task-id", "kept"]).await.ok(), "kept\n");
    let found = run(&["task", "ls", "--queue=default", "--state=pending", "--embedded=data", "--json"]).await.json();
    assert_eq!(found[0]["id"], "kept");
    // Without a directory, nothing is kept, and nothing found.
    assert!(run(&["--embedded", "queue", "ls"]).await.ok().starts_with("no queues yet"));
    eventually("the server has ended", || servers(data.to_str().unwrap()).is_empty()).await;
}

#[tokio::test]
async fn a_directory_that_is_in_use_is_refused_with_the_way_in() {
    let bench = Bench::new().await;
    let mut first = queuectl();
    first.args(["--embedded", "./data", "enqueue", "t", "-"]).current_dir(bench.directory.path());
    let mut first = first.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lock = bench.path("data/queuectl.lock");
    eventually("the first has started", || std::fs::read_to_string(&lock).is_ok_and(|url| !url.is_empty())).await;
    let url = std::fs::read_to_string(&lock).unwrap();
    let mut second = queuectl();
    second.args(["--embedded=data", "stats"]).current_dir(bench.directory.path());
    let stderr = finish(second, b"").await.failed(1);
    assert!(stderr.contains(&format!("use that one with --redis {url}")), "{stderr}");
    let mut second = queuectl();
    second.args(["stats", "--redis", &url]);
    finish(second, b"").await.ok();
    drop(first.stdin.take());
    assert!(first.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_signal_ends_a_waiting_command_and_its_redis() {
    let bench = Bench::new().await;
    let mut command = queuectl();
    command.args(["--embedded=data", "enqueue", "t", "-"]).current_dir(bench.directory.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lock = bench.path("data/queuectl.lock");
    eventually("it has started", || std::fs::read_to_string(&lock).is_ok_and(|url| !url.is_empty())).await;
    let data = bench.path("data");
    eventually("its Redis runs", || !servers(data.to_str().unwrap()).is_empty()).await;
    let started = Instant::now();
    signal(child.id().unwrap(), Signal::INT);
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(10));
    eventually("its Redis has ended", || servers(data.to_str().unwrap()).is_empty()).await;
}

#[tokio::test]
async fn redis_url_counts_and_yields_to_the_flag() {
    let bench = Bench::new().await;
    let run = async |environment: &str, arguments: &[&str]| {
        let mut command = queuectl();
        command.env("REDIS_URL", environment).args(arguments);
        finish(command, b"").await
    };
    run(bench.redis.url(), &["enqueue", "t", "--task-id", "a"]).await.ok();
    run("redis://127.0.0.1:1", &["--redis", bench.redis.url(), "enqueue", "t", "--task-id", "b"]).await.ok();
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 2);
    run(bench.redis.url(), &["queue", "ls", "--response-timeout", "20s"]).await.ok();
    let refused = run(bench.redis.url(), &["queue", "ls", "--response-timeout", "soon"]).await.failed(2);
    assert!(refused.contains("invalid duration \"soon\""), "{refused}");
}

#[tokio::test]
async fn the_response_timeout_that_is_given_counts() {
    let bench = Bench::new().await;
    bench.ask::<String>(&["CLIENT", "PAUSE", "100000", "WRITE"]).await;
    let error = bench.run(&["enqueue", "t", "--response-timeout", "700ms"]).await.failed(1);
    assert!(error.contains("did not answer within 700ms"), "{error}");
}

/// asynq's CLI takes each of its flags from a variable of the same name, so that the login name becomes the user.
#[tokio::test]
async fn variables_that_mean_something_else_do_not_count() {
    let bench = Bench::new().await;
    let mut command = queuectl();
    for (name, value) in [
        ("URI", "127.0.0.1:1"),
        ("USERNAME", "ada"),
        ("PASSWORD", "secret"),
        ("DB", "3"),
        ("TLS", "h"),
        ("CLUSTER", "true"),
    ] {
        command.env(name, value);
    }
    command.env("REDIS_URL", bench.redis.url()).args(["enqueue", "t", "--task-id", "a"]);
    finish(command, b"").await.ok();
    assert_eq!(bench.inspector.queue("default").await.unwrap().pending, 1);
}

#[tokio::test]
async fn passwords_do_not_show_and_both_kinds_of_redis_exclude_each_other() {
    for (arguments, code, reason) in [
        ("--redis redis://u:secret@127.0.0.1:1/2 stats", 1, "cannot reach Redis at 127.0.0.1:1/2"),
        ("--redis redis://u:secret@[x stats", 1, "invalid Redis URL"),
        ("--redis ftp://u:secret@h stats", 1, "invalid Redis URL"),
        ("--redis redis://u:secret@h stats --embedded", 2, "exclude each other"),
        ("--embedded --redis redis://u:secret@h stats", 2, "exclude each other"),
        ("-u 127.0.0.1:1 -U u -p secret -n 2 stats", 1, "cannot reach Redis at 127.0.0.1:1/2"),
        ("-u 127.0.0.1:1 --redis redis://u:secret@h stats", 2, "exclude each other"),
        ("--embedded stats -p secret", 2, "exclude each other"),
        ("--redis redis+unix:///no?pass=secret --tls stats", 2, "not for Unix sockets"),
        ("-u h:1 -p secret --insecure stats", 2, "needs --tls"),
    ] {
        let mut command = queuectl();
        command.args(arguments.split(' '));
        let stderr = finish(command, b"").await.failed(code);
        assert!(stderr.contains(reason) && !stderr.contains("secret"), "{stderr}");
    }
}

#[tokio::test]
async fn asynqs_connection_flags_name_the_database() {
    let bench = Bench::new().await;
    bench.run(&["enqueue", "t", "--task-id", "other", "-n", "3"]).await.ok();
    assert!(bench.run(&["queue", "ls"]).await.ok().starts_with("no queues yet"));
    let tasks = bench.run(&["task", "list", "-q", "default", "-s", "pending", "--db", "3", "--json"]).await.json();
    assert_eq!(tasks[0]["id"], "other");
    let keys: u64 = bench.ask(&["DBSIZE"]).await;
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn a_redis_that_deletes_tasks_is_refused_unless_one_wants_it() {
    let bench = Bench::new().await;
    for setting in [["maxmemory-policy", "allkeys-lru"], ["maxmemory", "1gb"]] {
        bench.ask::<()>(&["CONFIG", "SET", setting[0], setting[1]]).await;
    }
    std::fs::write(bench.path("cron.toml"), "").unwrap();
    for command in [&["worker", "--exec", "t=true"][..], &["scheduler", "--config", "cron.toml"]] {
        let stderr = bench.run(command).await.failed(1);
        assert!(stderr.contains("set maxmemory-policy to noeviction"), "{stderr}");
    }
    let worker = bench.worker(&["--exec", "t=true", "--no-start-check"]).await;
    worker.wait_for_line("maxmemory-policy is allkeys-lru").await;
    assert_eq!(worker.stop().await.0, Some(0));
    // Whoever looks, or enqueues, is let through.
    bench.run(&["enqueue", "t"]).await.ok();
}
