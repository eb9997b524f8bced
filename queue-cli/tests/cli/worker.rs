//! `queuectl worker`: rules, queues, and what is refused at the start.

use queue_core::{RawTask, State};

use crate::support::Bench;

#[tokio::test]
async fn the_longest_pattern_wins_and_a_type_fits_itself_alone() {
    let bench = Bench::new().await;
    let rules = ["email:send=echo exact", "email:*=echo email", "email:se*=echo se", "*=echo any"];
    let arguments: Vec<&str> = rules.into_iter().flat_map(|rule| ["--exec", rule]).collect();
    let _worker = bench.worker(&arguments).await;
    for (kind, winner) in [
        ("email:send", "exact\n"),
        ("email:send:now", "se\n"),
        ("email:receive", "email\n"),
        ("email", "any\n"),
        ("image", "any\n"),
    ] {
        bench.enqueue(kind, kind).await;
        let task = bench.wait_for(kind, &[State::Completed]).await;
        assert_eq!(task.result.as_deref(), Some(winner.as_bytes()), "{kind}");
    }
}

#[tokio::test]
async fn what_happens_to_tasks_that_fit_no_pattern_can_be_chosen() {
    for (choice, state, retried) in [
        ("putback", State::Retry, 0),
        ("fail", State::Retry, 1),
        ("archive", State::Archived, 0),
        ("leave", State::Pending, 0),
    ] {
        let bench = Bench::new().await;
        let _worker = bench.worker(&["--exec", "known=true", "--unhandled", choice]).await;
        bench.enqueue("unknown", "unknown").await;
        bench.enqueue("known", "known").await;
        bench.wait_for("known", &[State::Completed]).await;
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
async fn what_cannot_work_is_said_at_the_start() {
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
        (&["--queue", "q"], 2, "--exec"),
    ] {
        let words: Vec<&str> = ["worker"].into_iter().chain(arguments.iter().copied()).collect();
        let stderr = bench.run(&words).await.failed(code);
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[tokio::test]
async fn a_crashed_program_does_not_stop_the_worker() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "crash=sh -c 'kill -SEGV $$'", "--exec", "fine=true"]).await;
    bench.enqueue("crash", "crash").await;
    bench.wait_for("crash", &[State::Retry]).await;
    bench.enqueue("fine", "fine").await;
    bench.wait_for("fine", &[State::Completed]).await;
}

#[tokio::test]
async fn a_worker_whose_log_nobody_reads_goes_on() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "*=sh -c 'echo x >&2; exit 65'", "--exec", "fine=true"]).await;
    worker.stop_reading().await;
    for id in ["1", "2", "3"] {
        bench.enqueue("a", id).await;
        bench.wait_for(id, &[State::Archived]).await;
    }
    bench.enqueue("fine", "fine").await;
    bench.wait_for("fine", &[State::Completed]).await;
    assert_eq!(worker.stop().await.0, Some(0));
}
