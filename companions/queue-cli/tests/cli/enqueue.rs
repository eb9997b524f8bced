//! `queuectl enqueue` with one task.

use std::time::Duration;

use queue_core::TaskState;
use serde_json::json;

use crate::support::{Bench, finish, queuectl};

async fn payload_of(bench: &Bench, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let id = bench.run_with(arguments, input).await.ok();
    bench.task(id.trim_end()).await.payload.to_vec()
}

#[tokio::test]
async fn the_id_stands_alone_on_its_line() {
    let bench = Bench::new().await;
    let stdout = bench.run(&["enqueue", "email:welcome", "--payload", "x"]).await.ok();
    let id = stdout.strip_suffix('\n').unwrap();
    assert_eq!(bench.task(id).await.task_type, "email:welcome");
    assert_eq!(bench.run(&["enqueue", "t", "--task-id", "mine"]).await.ok(), "mine\n");
}

#[tokio::test]
async fn payloads_come_from_the_command_line_a_file_or_standard_input() {
    let bench = Bench::new().await;
    std::fs::write(bench.path("p"), [0, 255, b'\n']).unwrap();
    assert_eq!(payload_of(&bench, &["enqueue", "t", "--payload", "-5"], b"").await, b"-5");
    assert_eq!(payload_of(&bench, &["enqueue", "t", "--payload", "-"], b"no").await, b"-");
    assert_eq!(payload_of(&bench, &["enqueue", "t", "--payload-file", "p"], b"no").await, [0, 255, b'\n']);
    assert_eq!(payload_of(&bench, &["enqueue", "t", "--payload-file", "-"], b"in\n").await, b"in\n");
    assert_eq!(payload_of(&bench, &["enqueue", "t", "-", "--queue", "default"], b"in\0").await, b"in\0");
    assert_eq!(payload_of(&bench, &["enqueue", "t"], b"not asked for").await, b"");
    for two in [["-", "--payload=x"], ["--payload=x", "--payload-file=p"]] {
        bench.run(&[&["enqueue", "t"], &two[..]].concat()).await.failed(2);
    }
    let missing = bench.run(&["enqueue", "t", "--payload-file", "no"]).await.failed(1);
    assert!(missing.starts_with("queuectl: error: cannot read no: "), "{missing}");
}

#[tokio::test]
async fn no_payload_and_an_empty_one_are_unique_apart() {
    let bench = Bench::new().await;
    for arguments in [&["enqueue", "t", "--unique", "1m"][..], &["enqueue", "t", "--unique", "1m", "--payload="]] {
        bench.run(arguments).await.ok();
        let refused = bench.run(arguments).await.failed(4);
        assert!(refused.contains("task already exists"), "{refused}");
    }
}

#[tokio::test]
async fn every_option_arrives() {
    let bench = Bench::new().await;
    let arguments = "enqueue t --payload p --queue q --max-retry 3 --timeout 90s --deadline 2100-01-31T18:00:00+01:00 --in 1h30m \
                     --unique 10m --retention 7d --task-id i --group g --max-crashes 2 --max-snoozes 50 \
                     --give-up-after 24h --backoff 10s..1h \
                     --on-exhausted alert --on-exhausted-queue ops --header a=1 --header b=x=y --json";
    let answer = bench.run(&arguments.split_whitespace().collect::<Vec<_>>()).await.json();
    assert_eq!(answer["id"], "i");
    assert_eq!(answer["state"], "scheduled");
    let task = bench.inspector.task("q", "i").await.unwrap();
    assert_eq!((task.max_retry, task.timeout), (3, Some(Duration::from_secs(90))));
    assert_eq!(task.deadline.unwrap().to_rfc3339(), "2100-01-31T17:00:00+00:00");
    assert_eq!(task.retention, Duration::from_secs(7 * 86_400));
    assert_eq!(task.group.as_deref(), Some("g"));
    let headers: Vec<_> = task.headers.iter().map(|(header, text)| format!("{header}={text}")).collect();
    let budgets = ["x-backoff=10s..1h0m0s", "x-give-up-after=24h0m0s", "x-max-crashes=2", "x-max-snoozes=50"];
    let follow_up = ["x-on-exhausted=alert", "x-on-exhausted-queue=ops"];
    assert_eq!(headers, [&["a=1", "b=x=y"], &budgets[..], &follow_up].concat());
    let shown = bench.run(&["task", "show", "-q", "q", "-i", "i"]).await.ok();
    let budgets = "0 of 2 crashes, 0 of 50 snoozes, given up 24h0m0s after its first failure, waits 10s..1h0m0s, followed by \
                   alert in the queue ops when it is archived";
    assert!(shown.contains(budgets), "{shown}");
    let explained = bench.run(&["explain", "i"]).await.ok();
    assert!(explained.contains(&format!("it has budgets of its own: {budgets}")), "{explained}");
    let json = bench.run(&["task", "show", "-q", "q", "-i", "i", "--json"]).await.json();
    assert_eq!((&json["budgets"]["max_snoozes"], &json["budgets"]["give_up_after_secs"]), (&json!(50), &json!(86_400)));
    let follow_up = (&json["budgets"]["on_exhausted"], &json["budgets"]["on_exhausted_queue"]);
    assert_eq!(follow_up, (&json!("alert"), &json!("ops")));
    let unique = bench.run(&["enqueue", "t", "--payload", "p", "--queue", "q", "--unique", "1m"]).await.failed(4);
    assert!(unique.contains("task already exists"), "{unique}");

    let at = bench.run(&["enqueue", "t", "--at", "4102444800", "--json"]).await.json();
    assert_eq!(at["next_process_at"], json!("2100-01-01T00:00:00Z"));
    let id = bench.run(&["enqueue", "t", "--group", "g"]).await.ok();
    assert_eq!(bench.task(id.trim_end()).await.state, TaskState::Aggregating);
}

#[tokio::test]
async fn refusals_say_why_and_store_nothing() {
    let bench = Bench::new().await;
    bench.run(&["enqueue", "t", "--task-id", "taken"]).await.ok();
    for (arguments, code, reason) in [
        ("enqueue t --task-id taken", 4, "queuectl: error: task ID conflicts with another task: \"taken\""),
        ("enqueue t --unique 100ms", 2, "at least 1s"),
        ("enqueue t --give-up-after 100ms", 2, "\"x-give-up-after\" cannot be used: \"100ms\": it must be at least 1s"),
        ("enqueue t --header x-max-crashes=few", 2, "\"x-max-crashes\" cannot be used"),
        ("enqueue t --backoff fast", 2, "write asynq, 30s, 10s..1h or linear 10s..1h"),
        ("enqueue t --on-exhausted=", 2, "\"x-on-exhausted\" cannot be used"),
        ("enqueue t --on-exhausted-queue ops", 2, "--on-exhausted <TYPE>"),
        ("enqueue t --queue }x", 2, "begins with a closing brace"),
        ("enqueue", 2, "TYPE"),
        ("enqueue t --timeout 90", 2, "write it like 90s, 10m, 1h30m or 7d"),
        ("enqueue t --at tomorrow", 2, "not an instant"),
        ("enqueue t --in 1m --at 5", 2, "cannot be used with"),
        ("enqueue t --header x", 2, "KEY=VALUE"),
        ("enqueue t --max-retry -1", 2, "-1"),
        ("enqueue t --no-such-flag", 2, "--no-such-flag"),
        ("enqueue t payload", 2, "payload"),
        ("enqueue t --batch f", 2, "cannot be used with"),
        ("enqueue --batch f --queue q", 2, "cannot be used with"),
    ] {
        let done = bench.run(&arguments.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(done.stdout, "", "{arguments}");
        let stderr = done.failed(code);
        assert!(stderr.contains(reason), "{arguments}: {stderr}");
        assert!(code == 2 || stderr.lines().count() == 1, "{stderr}");
    }
    let blank = bench.run(&["enqueue", " "]).await.failed(2);
    assert!(blank.contains("the task type is blank"), "{blank}");
    assert_eq!(bench.inspector.queue("default").await.unwrap().size(), 1);
}

#[tokio::test]
async fn a_script_can_tell_a_duplicate_from_a_redis_that_is_down() {
    let bench = Bench::new().await;
    let enqueue = ["task", "enqueue", "-t", "t", "--id", "once"];
    bench.run(&enqueue).await.ok();
    bench.run(&enqueue).await.failed(4);
    let mut down = queuectl();
    down.args(["--redis", "redis://127.0.0.1:1"]).args(enqueue);
    finish(down, b"").await.failed(1);
}

#[tokio::test]
async fn what_is_published_tells_its_outcome_and_what_stays_as_it_is_exits_with_4() {
    let bench = Bench::new().await;
    let publish = async |arguments: &str| {
        let line = format!("enqueue t --key k {arguments}");
        bench.run(&line.split_whitespace().collect::<Vec<_>>()).await
    };
    assert_eq!(publish("--payload 1 --publish keep").await.ok(), "k stored\n");
    assert_eq!(publish("--payload 2 --publish keep").await.ok(), "k kept\n");
    assert_eq!(publish("--payload 3 --publish replace,restart").await.ok(), "k replaced\n");
    assert_eq!(bench.task("k").await.payload, "3");
    let refused = publish("--in 1h --publish reschedule").await.failed(4);
    assert!(refused.contains(r#"task "k" stays as it is: it is pending"#), "{refused}");
    let explained = bench.run(&["explain", "k"]).await.ok();
    assert!(explained.contains("it was published under its key 2 times since "), "{explained}");
    bench.inspector.delete_task("default", "k").await.unwrap();

    assert_eq!(publish("--coalesce").await.ok(), "k stored\n");
    assert_eq!(publish("--coalesce").await.ok(), "k replaced\n");
    bench.inspector.delete_task("default", "k").await.unwrap();

    let told = publish("--debounce 1h --max-wait 2h --json").await.json();
    assert_eq!((&told["outcome"], &told["id"], &told["state"]), (&json!("stored"), &json!("k"), &json!("scheduled")));
    assert_eq!((&told["type"], &told["queue"], &told["window_ms"]), (&json!("t"), &json!("default"), &json!(null)));
    bench.inspector.delete_task("default", "k").await.unwrap();

    assert_eq!(publish("--throttle 1h").await.ok(), "k stored\n");
    assert_eq!(publish("--throttle 1h").await.ok(), "k suppressed\n");
    bench.inspector.delete_task("default", "k").await.unwrap();
    let told = publish("--throttle 1h --json").await.json();
    assert_eq!((&told["outcome"], &told["state"]), (&json!("suppressed"), &json!(null)));
    assert!(told["window_ms"].as_u64().is_some_and(|left| (1..=3_600_000).contains(&left)), "{told}");

    for (wrong, why) in [
        ("--throttle 0s", "throttle is 0s"),
        ("--debounce 0s", "debounce is 0s"),
        ("--debounce 5s --max-wait 1s", "max_wait is 1s, which is shorter than the debounce of 5s"),
        ("--coalesce --front", "a task that is published under a key cannot be"),
        ("--coalesce --only web-1 --fallback 0s", "fallback is 0"),
    ] {
        let error = publish(wrong).await.failed(2);
        assert!(error.contains(why), "{wrong}: {error}");
    }
    for wrong in ["--debounce 1s --in 1s", "--max-wait 1s", "--publish never", "--wait --throttle 1s"] {
        publish(wrong).await.failed(2);
    }
    bench.run(&["enqueue", "t", "--publish", "keep"]).await.failed(2);
    let mut down = queuectl();
    down.args(["--redis", "redis://127.0.0.1:1", "enqueue", "t", "--key", "k", "--publish", "keep"]);
    finish(down, b"").await.failed(1);
}

#[tokio::test]
async fn a_task_in_front_is_taken_next() {
    let bench = Bench::new().await;
    bench.enqueue("t", "first").await;
    bench.run(&["enqueue", "t", "--task-id", "a", "--front"]).await.ok();
    let line = r#"{"type":"t","task_id":"b","front":true}"#;
    bench.run_with(&["enqueue", "--batch", "-"], line.as_bytes()).await.ok();
    let pending: Vec<String> = bench.ask(&["LRANGE", "asynq:{default}:pending", "0", "-1"]).await;
    assert_eq!(pending, ["first", "a", "b"], "the last one is taken first");
    for wrong in [&["--in", "1s"], &["--group", "g"]] {
        bench.run(&[&["enqueue", "t", "--front"], &wrong[..]].concat()).await.failed(2);
    }
    let line = r#"{"type":"t","front":true,"in":"1h"}"#;
    let refused = bench.run_with(&["enqueue", "--batch", "-"], line.as_bytes()).await.failed(1);
    assert!(refused.contains("line 1: front has a task taken next, and a task with a time cannot be"), "{refused}");
    let refused = bench.run_with(&["batch", "create", "--id", "b", "--from", "-"], line.as_bytes()).await.failed(1);
    assert!(refused.contains("it is to be in front"), "{refused}");
}

#[tokio::test]
async fn a_payload_is_read_no_further_than_a_task_takes() {
    let bench = Bench::new().await;
    let refused = bench.run(&["enqueue", "t", "--payload-file", "/dev/zero"]).await.failed(1);
    assert!(refused.contains("more than 16777216 bytes"), "{refused}");
    let refused = bench.run_with(&["enqueue", "t", "-"], &vec![0; (16 << 20) + 1]).await.failed(1);
    assert!(refused.contains("more than 16777216 bytes"), "{refused}");
}
