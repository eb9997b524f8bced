//! `queuectl worker --exec` where there are too few files to start programs.

use std::time::Duration;

use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use tokio::time::sleep;

use crate::support::{Bench, Worker, queuectl};

/// So many open files it may have from now on; returns how many before.
fn take_files(worker: &Worker, files: Option<u64>) -> Option<u64> {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    prlimit(Some(worker.pid()), Resource::Nofile, Rlimit { current: files, maximum }).unwrap().current
}

/// A worker that runs two programs at once, and has run one.
async fn worker(bench: &Bench, arguments: &[&str]) -> Worker {
    let all = [&["--concurrency", "2", "--exec", "*=true"], arguments].concat();
    let worker = bench.worker(&all).await;
    bench.enqueue("a", "before").await;
    bench.wait_for("before", &[TaskState::Completed]).await;
    worker
}

/// It put off one task after the other, and a healthy worker beside it had none.
#[tokio::test]
async fn a_worker_without_files_takes_no_more_than_it_has_room_for_and_runs_them_when_there_are_some() {
    let bench = Bench::new().await;
    let worker = worker(&bench, &[]).await;
    let files = take_files(&worker, Some(3));
    for id in ["0", "1", "2"] {
        bench.enqueue("a", id).await;
    }
    worker.wait_for_line("LimitNOFILE=").await;
    sleep(Duration::from_secs(2)).await;
    let info = bench.inspector.queue("default").await.unwrap();
    assert_eq!((info.active, info.pending, info.retry), (2, 1, 0));
    take_files(&worker, files);
    for id in ["0", "1", "2"] {
        let task = bench.wait_for(id, &[TaskState::Completed, TaskState::Retry]).await;
        assert_eq!(task.state, TaskState::Completed, "{:?}", task.last_error);
    }
    assert_eq!(worker.all_lines().iter().filter(|line| line.contains("LimitNOFILE=")).count(), 1);
}

#[tokio::test]
async fn a_task_whose_program_could_not_be_started_for_long_or_in_its_time_is_snoozed() {
    let bench = Bench::new().await;
    let worker = worker(&bench, &[]).await;
    take_files(&worker, Some(3));
    bench.enqueue_task(RawTask::new("a").timeout(Duration::from_secs(1)), "brief").await;
    bench.enqueue("a", "first").await;
    bench.enqueue("a", "second").await;
    for id in ["brief", "first", "second"] {
        let task = bench.wait_for(id, &[TaskState::Retry, TaskState::Archived, TaskState::Completed]).await;
        assert_eq!((task.state, task.retried), (TaskState::Retry, 0), "{id}");
        // Soon, for others may have what it takes.
        assert!(task.next_process_at.unwrap() <= SystemClock.now() + Duration::from_secs(6), "{id}");
        let error = task.last_error.unwrap();
        assert!(error.starts_with("cannot run \"true\": Too many open files"), "{id}: {error}");
    }
}

#[tokio::test]
async fn a_task_whose_program_was_not_started_is_pending_again_when_the_worker_ends() {
    let bench = Bench::new().await;
    let worker = worker(&bench, &["--shutdown-timeout", "100ms"]).await;
    take_files(&worker, Some(3));
    for id in ["first", "second"] {
        bench.enqueue("a", id).await;
        bench.wait_for(id, &[TaskState::Active, TaskState::Retry]).await;
    }
    worker.signal(Signal::TERM);
    for id in ["first", "second"] {
        assert_eq!(bench.wait_for(id, &[TaskState::Pending, TaskState::Retry]).await.state, TaskState::Pending);
    }
}

/// With 1,024, as most systems have it, 500 programs at once were too many.
#[tokio::test]
async fn the_limit_of_open_files_is_raised_for_as_many_programs_as_may_run_at_once() {
    let bench = Bench::new().await;
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    for (concurrency, expected) in [("8", 512), ("2..100", 1_456)] {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "ulimit -Sn 512; exec \"$0\" \"$@\""]).arg(queuectl().as_std().get_program());
        command.args(["--redis", bench.redis.url(), "worker", "--exec", "*=sh -c 'ulimit -Sn'"]);
        command.args(["--concurrency", concurrency]).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let worker = Worker::start(command, "server started").await;
        bench.enqueue("a", concurrency).await;
        let task = bench.wait_for(concurrency, &[TaskState::Completed, TaskState::Retry]).await;
        let told = String::from_utf8(task.result.unwrap().to_vec()).unwrap();
        assert_eq!(told, expected.min(hard).to_string());
        worker.stop().await;
    }
}
