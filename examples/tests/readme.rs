//! The programs of the README are run. `cargo test -p queue-examples` builds them first; with `--test readme` alone, those of the
//! last build are run.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use queue::admin::Inspector;
use queue::embedded::RedisServer;
use queue::testing::{End, TestQueue, assert_enqueued, refute_enqueued};
use queue::{Client, Failure, RawTask, Router, Task, TaskOptions, TaskState};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

/// A program of the README at work on a private Redis.
struct Program {
    redis: RedisServer,
    child: Child,
}

impl Program {
    async fn start(name: &str) -> Self {
        let redis = RedisServer::start().await.unwrap();
        // Examples are built beside the directory of the tests.
        let built: PathBuf = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples").join(name);
        let child =
            Command::new(&built).env("REDIS_URL", redis.url()).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!("{}: {error}; `cargo build -p queue-examples --examples`", built.display())
            });
        Self { redis, child }
    }

    fn inspector(&self) -> Inspector {
        Inspector::new(self.redis.redis())
    }

    /// Tells it to end; what it wrote.
    fn stop(&mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is there.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within 30 s");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_quick_start_works_its_task_at_its_first_run() {
    let mut program = Program::start("readme_quick_start").await;
    let inspector = program.inspector();
    let all = queue::admin::Page { skip: 0, size: 10 };
    let done = eventually("a welcome", async || {
        inspector.tasks("mail", TaskState::Completed, all).await.ok().filter(|done| !done.is_empty())
    });
    let done = done.await;
    assert_eq!(done[0].result.as_deref(), Some(&br#""us wrote to user 7, attempt 1""#[..]));
    assert_eq!(inspector.tasks("mail", TaskState::Scheduled, all).await.unwrap().len(), 1);
    program.stop();
}

#[tokio::test]
async fn the_worker_of_a_go_fleet_reads_what_go_writes_and_leaves_the_rest() {
    let mut program = Program::start("readme_go_fleet").await;
    let (client, inspector) = (Client::new(program.redis.redis()), program.inspector());
    let resize = RawTask::new("image:resize").payload(r#"{"Path":"/cat.png","Width":640}"#).header("tenant", "t1");
    for (id, task) in [("go", RawTask::new("known:to:go")), ("cut", RawTask::new("video:cut")), ("resize", resize)] {
        client.enqueue(task.queue("media").task_id(id)).await.unwrap();
    }
    for id in ["resize", "cut"] {
        eventually(id, async || match inspector.task("media", id).await {
            Err(queue::admin::Error::TaskNotFound { .. }) => Some(()),
            _ => None,
        })
        .await;
    }
    assert_eq!(inspector.task("media", "go").await.unwrap().state, TaskState::Pending);
    let said = program.stop();
    assert!(said.contains("/cat.png to 640 px for Some(\"t1\")\n") && said.contains("video:cut\n"), "{said}");
}

#[tokio::test]
async fn a_group_of_a_hundred_becomes_one_task() {
    let mut program = Program::start("readme_groups").await;
    let (client, inspector) = (Client::new(program.redis.redis()), program.inspector());
    let note = |n: u64| RawTask::new("notification").payload(format!(r#"{{"text":"{n}"}}"#)).group("user:7");
    for n in 0..100 {
        client.enqueue(note(n)).await.unwrap();
    }
    let page = queue::admin::Page { skip: 0, size: 10 };
    let done =
        eventually("a digest", async || inspector.tasks("default", TaskState::Completed, page).await.ok()?.pop());
    let digest = String::from_utf8(done.await.result.unwrap().to_vec()).unwrap();
    assert!(digest.starts_with("\"user:7: ") && digest.matches(", ").count() == 2, "{digest}");
    program.stop();
    // What stands below "elsewhere".
    assert_eq!(inspector.queue("default").await.unwrap().aggregating, 1);
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "email:welcome", queue = "mail")]
struct Welcome {
    user: u64,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn sign_up(client: &Client, _name: &str) {
    client.enqueue(Welcome { user: 7 }).await.unwrap();
    let reminder = RawTask::new("payment:remind").payload(r#"{"order":42}"#);
    client.enqueue_with(reminder, TaskOptions::new().process_in(14 * DAY)).await.unwrap();
}

fn router() -> Router {
    Router::new(()).task(async |_: Welcome| Err::<(), Failure>("no such user".into()))
}

#[tokio::test]
async fn tests_of_ones_own_tasks_hold() {
    include!(concat!(env!("OUT_DIR"), "/testing.rs"));
    include!(concat!(env!("OUT_DIR"), "/enqueued.rs"));
    let queue = TestQueue::new();
    queue.enqueue_with(Welcome { user: 7 }, TaskOptions::new().max_retry(2)).await;
    include!(concat!(env!("OUT_DIR"), "/drained.rs"));
}

#[tokio::test]
async fn the_scheduler_registers_its_entry() {
    let mut program = Program::start("readme_periodic_tasks").await;
    let inspector = program.inspector();
    let entry = eventually("the entry", async || inspector.cron_entries().await.unwrap().pop()).await;
    assert_eq!(entry.name, "nightly-report");
    program.stop();
}
