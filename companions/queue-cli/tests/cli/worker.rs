//! `queuectl worker`: rules, queues, and what is refused at the start.

use std::io::BufRead as _;
use std::time::Duration;

use queue_core::{RawTask, TaskState};
use rustix::process::Signal;

use crate::support::{Bench, PATIENCE, signal};

#[tokio::test]
async fn the_longest_pattern_wins_and_a_type_fits_itself_alone() {
    let bench = Bench::new().await;
    let rules = ["email:send=echo exact", "email:*=echo email", "email:se*=echo se", "*=echo any"];
    let arguments: Vec<&str> = rules.into_iter().flat_map(|rule| ["--exec", rule]).collect();
    let _worker = bench.worker(&arguments).await;
    for (task_type, winner) in [
        ("email:send", "exact"),
        ("email:send:now", "se"),
        ("email:receive", "email"),
        ("email", "any"),
        ("image", "any"),
    ] {
        bench.enqueue(task_type, task_type).await;
        let task = bench.wait_for(task_type, &[TaskState::Completed]).await;
        assert_eq!(task.result.as_deref(), Some(winner.as_bytes()), "{task_type}");
    }
}

#[tokio::test]
async fn the_fate_of_tasks_that_fit_no_pattern_can_be_chosen() {
    for (choice, state, retried) in [
        ("putback", TaskState::Retry, 0),
        ("fail", TaskState::Retry, 1),
        ("archive", TaskState::Archived, 0),
        ("leave", TaskState::Pending, 0),
    ] {
        let bench = Bench::new().await;
        let _worker = bench.worker(&["--exec", "known=true", "--unhandled", choice]).await;
        bench.enqueue("unknown", "unknown").await;
        bench.enqueue("known", "known").await;
        bench.wait_for("known", &[TaskState::Completed]).await;
        let task = bench.wait_for("unknown", &[state]).await;
        assert_eq!(task.retried, retried, "{choice}");
    }
}

#[tokio::test]
async fn strict_queues_are_worked_in_their_order() {
    let bench = Bench::new().await;
    for (queue, id) in [("low", "1"), ("low", "2"), ("high", "3"), ("high", "4")] {
        bench.client.enqueue(RawTask::new("a").queue(queue).task_id(id)).await.unwrap();
    }
    let script = "*=sh -c 'echo $TASK_ID >> order'";
    let worker = bench
        .worker(&["--strict", "--queue", "low", "--queue", "high=9", "--concurrency", "1", "--exec", script])
        .await;
    crate::support::eventually("all are worked", || {
        std::fs::read_to_string(bench.path("order")).is_ok_and(|order| order.lines().count() == 4)
    })
    .await;
    assert_eq!(std::fs::read_to_string(bench.path("order")).unwrap(), "3\n4\n1\n2\n");
    let servers = bench.run(&["server", "ls", "--json"]).await.json();
    assert_eq!(servers[0]["queues"], serde_json::json!({"high": 9, "low": 1}));
    assert_eq!((&servers[0]["strict_priority"], &servers[0]["concurrency"]), (&true.into(), &1.into()));
    worker.stop().await;
    assert_eq!(bench.run(&["server", "ls"]).await.ok(), "no server is running\n");
}

#[tokio::test]
async fn log_lines_can_be_json_including_what_programs_say() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--log-format", "json", "--exec", "*=sh -c 'echo \"a \\\"word\\\"\" >&2'"]).await;
    bench.enqueue("a", "id").await;
    let line = worker.wait_for_line("word").await;
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&json["task"], &json["line"]), (&"id".into(), &"a \"word\"".into()), "{line}");
    let done = worker.wait_for_line("task done").await;
    assert!(serde_json::from_str::<serde_json::Value>(&done).is_ok(), "{done}");
}

#[tokio::test]
async fn lists_are_lists_in_json_and_instants_are_dates() {
    let bench = Bench::new().await;
    let rules = ["--exec", "list=sh -c 'echo \"[1]\" >&2; exit 1'", "--queue", "default", "--queue", "ma\"il"];
    let worker = bench.worker(&[&["--log-format", "json"], &rules[..]].concat()).await;
    bench.enqueue("list", "id").await;
    let json = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let started = json(worker.wait_for_line("server started").await);
    let mut queues: Vec<&str> =
        started["queues"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    queues.sort_unstable();
    assert_eq!(queues, ["default", "ma\"il"], "{started}");
    assert_eq!((&started["level"], &started["concurrency"]), (&"INFO".into(), &8.into()));
    assert!(started["timestamp"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().is_ok(), "{started}");
    let failed = json(worker.wait_for_line("task failed").await);
    // What a program says stays text, whatever it looks like.
    assert_eq!(failed["error"], "[1]");
    assert!(failed["retry_at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().is_ok(), "{failed}");
}

#[tokio::test]
async fn a_worker_that_is_told_to_end_says_what_it_waits_for_and_until_when() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "*=sleep 600", "--shutdown-timeout", "1h"]).await;
    for id in ["one", "two"] {
        bench.enqueue("nap", id).await;
        bench.wait_for(id, &[TaskState::Active]).await;
    }
    worker.signal(rustix::process::Signal::TERM);
    let line = worker.wait_for_line("waiting for what it works on").await;
    assert!(line.contains(r#"tasks=2 oldest=["one (nap)", "two (nap)"]"#), "{line}");
    let until = line.split("until=").nth(1).unwrap().split(' ').next().unwrap();
    let until = until.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let now: Vec<i64> = bench.ask(&["TIME"]).await;
    assert!((3_000..=3_601).contains(&(until.timestamp() - now[0])), "{line}");
    // The second one does not wait.
    assert_eq!(worker.stop().await.0, Some(0));
}

#[tokio::test]
async fn worker_refuses_to_start_with_settings_that_cannot_work() {
    let bench = Bench::new().await;
    for (arguments, code, reason) in [
        (&["--exec", "a=no-such-program"][..], 1, "there is no program \"no-such-program\" on the PATH"),
        (&["--exec", "a=./missing x"], 1, "there is no program ./missing"),
        (&["--exec", "a=true", "--exec", "a=false"], 2, "the pattern \"a\" is given twice"),
        (&["--exec", "a=true", "--http", "a=http://h/"], 2, "the pattern \"a\" is given twice"),
        (&["--exec", "true"], 2, "PATTERN=COMMAND"),
        (&["--exec", "=true"], 2, "the pattern is blank"),
        (&["--exec", "a*b=true"], 2, "a * that is not its end"),
        (&["--exec", "a="], 2, "the command is empty"),
        (&["--exec", "a=sh -c 'x"], 2, "is not closed"),
        (&["--http", "a=ftp://user:secret@h"], 2, "only http:// and https://"),
        (&["--http", "a=nothing"], 2, "this is no URL"),
        (&["--exec", "a=true", "--queue", "q=x"], 2, "is not a number"),
        (&["--exec", "a=true", "--queue", "q", "--queue", "q=2"], 2, "given twice"),
        (&["--exec", "a=true", "--concurrency", "0"], 2, "0"),
        (&["--exec", "a=true", "--retry-delay", "soon"], 2, "10s..1h"),
        (&["--exec", "a=true", "--retry-delay", "1h..1s"], 2, "1h is longer than 1s"),
        (&["--exec", "a=true", "--lease", "1s"], 2, "lease"),
        (&["--exec", "a=true", "--http-header", "a=X: y"], 2, "goes with no --http"),
        (&["--http", "a=http://h", "--http-header", "b=X: s3cr3t"], 2, "goes with no --http"),
        (&["--http", "a=http://h", "--http-header", "X: s3cr3t=="], 2, "goes with no --http"),
        (&["--http", "a=http://h", "--http-header", "X: *s3cr3t=="], 2, "there is no PATTERN="),
        (&["--http", "a=http://h", "--http-header", "X: s3cr3t"], 2, "there is no PATTERN="),
        (&["--http", "a=http://h", "--http-header", "a=s3cr3t"], 2, "PATTERN=NAME: VALUE"),
        (&["--http", "a=http://h", "--http-header", "a=X Y: s3cr3t"], 2, "no name of a header"),
        (&["--http", "a=http://h", "--http-header", "a=X-Task-Id: s3cr3t"], 2, "is set by the worker"),
        (&["--http", "a=http://h", "--http-header", "a=@missing"], 1, "cannot read missing"),
        (&["--queue", "q"], 2, "--exec <PATTERN=COMMAND>|--http <PATTERN=URL>"),
    ] {
        let words: Vec<&str> = ["worker"].into_iter().chain(arguments.iter().copied()).collect();
        let stderr = bench.run(&words).await.failed(code);
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("s3cr3t"), "{stderr}");
    }
}

#[tokio::test]
async fn a_crashed_program_does_not_stop_the_worker() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "crash=sh -c 'kill -SEGV $$'", "--exec", "fine=true"]).await;
    bench.enqueue("crash", "crash").await;
    bench.wait_for("crash", &[TaskState::Retry]).await;
    bench.enqueue("fine", "fine").await;
    bench.wait_for("fine", &[TaskState::Completed]).await;
}

#[tokio::test]
async fn a_worker_whose_log_nobody_reads_goes_on() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "*=sh -c 'echo x >&2; exit 65'", "--exec", "fine=true"]).await;
    worker.stop_reading().await;
    for id in ["1", "2", "3"] {
        bench.enqueue("a", id).await;
        bench.wait_for(id, &[TaskState::Archived]).await;
    }
    bench.enqueue("fine", "fine").await;
    bench.wait_for("fine", &[TaskState::Completed]).await;
    assert_eq!(worker.stop().await.0, Some(0));
}

#[tokio::test]
async fn the_delay_between_attempts_can_be_chosen() {
    for (choice, shortest, longest) in [("10m", 600, 600), ("10m..1h", 300, 600), ("asynq", 15, 44)] {
        let bench = Bench::new().await;
        let _worker = bench.worker(&["--exec", "*=false", "--retry-delay", choice]).await;
        bench.enqueue("a", "id").await;
        let task = bench.wait_for("id", &[TaskState::Retry]).await;
        let delay = (task.next_process_at.unwrap() - task.last_failed_at.unwrap()).num_seconds();
        assert!((shortest..=longest).contains(&delay), "{choice}: {delay}");
    }
}

#[tokio::test]
async fn programs_wait_so_ten_run_at_once_by_default_and_a_lease_can_be_longer() {
    let bench = Bench::new().await;
    let _worker = bench
        .background(&["worker", "--kill-grace", "300ms", "--lease", "10m", "--exec", "*=sleep 600"], "server started")
        .await;
    let servers = bench.run(&["server", "ls", "--json"]).await.json();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(servers[0]["concurrency"], cpus.max(10));
    bench.enqueue("a", "id").await;
    bench.wait_for("id", &[TaskState::Active]).await;
    let lease: f64 = bench.ask(&["ZSCORE", "asynq:{default}:lease", "id"]).await;
    let now: Vec<f64> = bench.ask(&["TIME"]).await;
    assert!(lease > now[0] + 500.0, "{lease} {now:?}");
}

/// It stopped with the first line that did not fit into the pipe, with its renewals and its signals.
#[tokio::test]
async fn a_worker_whose_standard_error_nobody_reads_goes_on_and_ends_when_told() {
    let bench = Bench::new().await;
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = bench.command();
    command.args(["worker", "--concurrency", "4", "--shutdown-timeout", "0s", "--kill-grace", "300ms"]);
    command.args(["--exec", r"loud=sh -c 'head -c 3000000 /dev/zero | tr \\0 x >&2'"]);
    command.args(["--exec", "long=sleep 3600", "--exec", "quick=true"]);
    let mut worker = command.stderr(writer).spawn().unwrap();
    drop(command);
    bench.enqueue("long", "long").await;
    bench.wait_for("long", &[TaskState::Active]).await;
    bench.enqueue("loud", "loud").await;
    bench.wait_for("loud", &[TaskState::Completed]).await;
    let expiry = async || bench.ask::<i64>(&["ZSCORE", "asynq:{default}:lease", "long"]).await;
    let first = expiry().await;
    let renewed = async {
        while expiry().await == first {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.unwrap();
    bench.enqueue("quick", "quick").await;
    bench.wait_for("quick", &[TaskState::Completed]).await;
    signal(worker.id().unwrap(), Signal::TERM);
    assert_eq!(tokio::time::timeout(PATIENCE, worker.wait()).await.unwrap().unwrap().code(), Some(0));
    assert_eq!(bench.task("long").await.state, TaskState::Pending);
    drop(reader);
}

#[tokio::test]
async fn lines_that_nobody_has_read_are_counted_once_somebody_reads() {
    let bench = Bench::new().await;
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = bench.command();
    command.args(["worker", "--log-format", "json"]);
    command.args(["--exec", r"loud=sh -c 'head -c 3000000 /dev/zero | tr \\0 x >&2'"]);
    let _worker = command.stderr(writer).spawn().unwrap();
    drop(command);
    bench.enqueue("loud", "loud").await;
    bench.wait_for("loud", &[TaskState::Completed]).await;
    let dropped = tokio::task::spawn_blocking(move || {
        let mut lines = std::io::BufReader::new(reader).lines().map(Result::unwrap);
        lines.find(|line| line.contains("log lines were dropped"))
    });
    let line = tokio::time::timeout(PATIENCE, dropped).await.unwrap().unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(json["dropped"].as_u64().unwrap() > 100, "{line}");
}
