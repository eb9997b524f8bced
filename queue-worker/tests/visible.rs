//! What a server says when the program collects no log lines, and what it never says.
//!
//! Each case runs in a process of its own, because subscribers, loggers and standard error are the
//! process's: the test starts itself again, to run `speaker` alone.

use std::process::{Command, Stdio};
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::{RawTask, TaskState};
use queue_redis::Client;
use queue_redis::embedded::RedisServer;
use queue_worker::{Failure, Job, Router, Server};

const SECRET: &str = "s3cret";
const MODE: &str = "VISIBLE_TEST_MODE";

/// What a process writes to standard error whose server meets a failure, an archived and an unreadable task.
fn stderr_of(mode: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "speaker", "--nocapture"])
        .env(MODE, mode)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    stderr
}

fn error() -> String {
    format!("cannot reach redis://app:{SECRET}@db:6379/0")
}

#[tokio::test]
async fn speaker() {
    match std::env::var(MODE).unwrap_or_default().as_str() {
        "off" => queue_worker::log_to_stderr(false),
        "subscriber" => tracing::subscriber::set_global_default(Deaf).unwrap(),
        "logger" => {
            log::set_logger(&Logger).unwrap();
            log::set_max_level(log::LevelFilter::Info);
        }
        _ => {}
    }
    let redis = RedisServer::start().await.unwrap();
    let client = Client::new(redis.redis());
    let unreadable = client.enqueue(RawTask::new("job").task_id("unreadable").payload(SECRET)).await.unwrap();
    let key = queue_core::keys::QueueKeys::new("default").task(&unreadable.id);
    let raw = ::redis::Client::open(redis.url()).unwrap();
    let mut raw = raw.get_multiplexed_async_connection().await.unwrap();
    let mut damage = ::redis::cmd("HSET");
    damage.arg(key).arg("msg").arg(format!("\u{7f}{SECRET}")).arg("state").arg("pending");
    let () = damage.query_async(&mut raw).await.unwrap();
    for id in ["fail", "archive"] {
        client.enqueue(RawTask::new(id).task_id(id).payload(SECRET)).await.unwrap();
    }
    let router = Router::new(())
        .route("fail", async |_: Job| Err::<(), Failure>(error().into()))
        .route("archive", async |_: Job| Err::<(), Failure>(Failure::archive(error())));
    let server = Server::new(redis.redis(), router).start().await.unwrap();
    let inspector = Inspector::new(redis.redis());
    let archived = || async { inspector.queue("default").await.unwrap().archived };
    while archived().await < 2 || inspector.task("default", "fail").await.unwrap().state != TaskState::Retry {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stored = inspector.task("default", "fail").await.unwrap().last_error.unwrap();
    assert_eq!(stored, "cannot reach redis://app:***@db:6379/0");
    server.shutdown().await;
}

/// A subscriber that throws everything away, as a program may want it.
struct Deaf;

impl tracing::Subscriber for Deaf {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("logger: {}", record.args());
    }

    fn flush(&self) {}
}

#[test]
fn without_a_subscriber_what_matters_goes_to_standard_error() {
    let stderr = stderr_of("plain");
    let line = |words: &[&str]| {
        let found = stderr.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?} in:\n{stderr}");
    };
    line(&[" INFO queue_worker: server started", "concurrency="]);
    line(&[" WARN queue_worker: task failed", r#"task="fail" task_type="fail" queue="default" attempt=1"#, ":***@db"]);
    line(&[
        "ERROR queue_worker: task failed; archived",
        r#"task="archive" task_type="archive" queue="default" attempt=1"#,
    ]);
    line(&["ERROR queue_worker: task cannot be read", r#"task="unreadable""#]);
    line(&[" INFO queue_worker: server stopped"]);
    assert!(!stderr.contains(SECRET), "{stderr}");
}

#[test]
fn a_program_can_switch_that_off_or_collect_the_lines_itself() {
    for mode in ["off", "subscriber", "logger"] {
        let stderr = stderr_of(mode);
        assert!(!stderr.contains("queue_worker: "), "{mode}: {stderr}");
        assert_eq!(stderr.contains("logger: server started"), mode == "logger", "{mode}: {stderr}");
        assert!(!stderr.contains(SECRET), "{mode}: {stderr}");
    }
}
