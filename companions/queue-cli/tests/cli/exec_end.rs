//! `queuectl worker --exec`: how programs are ended, and that none is left behind.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use tokio::time::Instant;

use crate::support::{Bench, eventually, is_running, pids};

/// A program with a child, both deaf to TERM; their process ids go into the file `pids`.
const DEAF: &str = r#"deaf=sh -c 'trap "" TERM; sh -c "trap \"\" TERM; echo \$\$ >> pids; while :; do sleep 1; done" & echo $$ >> pids; wait'"#;

async fn assert_gone(pids: &[i32]) {
    eventually("the processes are gone", || !pids.iter().any(|pid| is_running(*pid))).await;
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", DEAF]).await;
    bench.enqueue_task(RawTask::new("deaf").timeout(Duration::from_secs(1)), "id").await;
    let pids = pids(&bench.path("pids"), 2).await;
    assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
    let task = bench.wait_for("id", &[TaskState::Retry, TaskState::Completed, TaskState::Archived]).await;
    assert_eq!(
        (task.state, task.retried, task.last_error.as_deref()),
        (TaskState::Retry, 1, Some("context deadline exceeded"))
    );
    // Not soon: when the task is free for others, its processes have ended.
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
}

#[tokio::test]
async fn cancel_kills_the_whole_group() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", DEAF]).await;
    bench.enqueue("deaf", "id").await;
    let pids = pids(&bench.path("pids"), 2).await;
    let stdout = bench.run(&["task", "cancel", "--attempt", "id"]).await.ok();
    assert!(stdout.starts_with("asked 1 server to stop"), "{stdout}");
    let task = bench.wait_for("id", &[TaskState::Retry]).await;
    assert_eq!((task.retried, task.last_error.as_deref()), (1, Some("context canceled")));
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
}

#[tokio::test]
async fn a_shutdown_kills_what_does_not_end_and_puts_its_task_back() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", DEAF, "--shutdown-timeout", "100ms"]).await;
    bench.enqueue("deaf", "id").await;
    let pids = pids(&bench.path("pids"), 2).await;
    let (code, _) = worker.stop().await;
    assert_eq!(code, Some(0));
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
    let task = bench.task("id").await;
    assert_eq!((task.state, task.retried), (TaskState::Pending, 0));
}

#[tokio::test]
async fn a_shutdown_waits_for_programs_that_end_in_time() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "*=sh -c 'echo $$ >> pids; sleep 0.5'"]).await;
    bench.enqueue("a", "id").await;
    pids(&bench.path("pids"), 1).await;
    assert_eq!(worker.stop().await.0, Some(0));
    assert_eq!(bench.task("id").await.state, TaskState::Completed);
}

#[tokio::test]
async fn an_idle_worker_ends_at_once() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "*=true"]).await;
    let (code, took) = worker.stop().await;
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn success_after_term_is_no_success_but_a_clear_word_counts() {
    let bench = Bench::new().await;
    let script = "end:*=sh -c 'trap \"exit ${TASK_TYPE#end:}\" TERM; echo $$ >> pids; while :; do sleep 0.05; done'";
    let _worker = bench.worker(&["--exec", script, "--kill-grace", "10s"]).await;
    for task_type in ["end:0", "end:65", "end:75"] {
        bench.enqueue_task(RawTask::new(task_type).timeout(Duration::from_secs(1)), task_type).await;
    }
    let pids = pids(&bench.path("pids"), 3).await;
    for (id, state, retried) in
        [("end:0", TaskState::Retry, 1), ("end:65", TaskState::Archived, 0), ("end:75", TaskState::Retry, 0)]
    {
        let task = bench.wait_for(id, &[TaskState::Retry, TaskState::Completed, TaskState::Archived]).await;
        assert_eq!((task.state, task.retried), (state, retried), "{id}");
    }
    assert_gone(&pids).await;
}

#[tokio::test]
async fn processes_that_a_program_leaves_running_end_with_it() {
    let bench = Bench::new().await;
    // One holds the output open, the other does not; both must go, and the result is not waited for for ever.
    let script = "*=sh -c 'sleep 600 & echo $! >> pids; sleep 600 >/dev/null 2>&1 & echo $! >> pids; echo result'";
    let _worker = bench.worker(&["--exec", script]).await;
    let started = Instant::now();
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &[TaskState::Completed, TaskState::Retry]).await;
    assert_eq!(task.result.as_deref(), Some(&b"result"[..]), "{:?}", task.last_error);
    assert!(started.elapsed() < Duration::from_secs(20));
    let pids = pids(&bench.path("pids"), 2).await;
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
}

#[tokio::test]
async fn a_stopped_program_is_ended_as_well() {
    let bench = Bench::new().await;
    let _worker = bench.worker(&["--exec", "*=sh -c 'echo $$ >> pids; kill -STOP $$'"]).await;
    bench.enqueue_task(RawTask::new("a").timeout(Duration::from_secs(1)), "id").await;
    let pids = pids(&bench.path("pids"), 1).await;
    assert_eq!(bench.wait_for("id", &[TaskState::Retry, TaskState::Completed]).await.state, TaskState::Retry);
    assert_gone(&pids).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_leaves_no_program_behind() {
    let bench = Bench::new().await;
    let options = ["--exec", DEAF, "--exec", "short=true", "--kill-grace", "1h", "--lease", "6s"];
    let worker = bench.worker(&options).await;
    // Some come and go before, so that the list of those to end is not just what was ever started.
    for id in ["1", "2", "3"] {
        bench.enqueue("short", id).await;
        bench.wait_for(id, &[TaskState::Completed]).await;
    }
    bench.enqueue("deaf", "a").await;
    bench.enqueue("deaf", "b").await;
    let pids = pids(&bench.path("pids"), 4).await;
    worker.kill().await;
    assert_gone(&pids).await;
}
