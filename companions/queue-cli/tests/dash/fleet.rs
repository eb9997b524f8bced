//! A private Redis with something in every view: a worker, a scheduler, tasks in all seven states.

use std::process::Stdio;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::{RawTask, TaskInfo, TaskState};
use queue_redis::Client;
use queue_redis::embedded::RedisServer;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::as_go::enqueue_as_go;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Redis and those who work on it, ended with the test.
pub(crate) struct Fleet {
    redis: RedisServer,
    pub(crate) client: Client,
    pub(crate) inspector: Inspector,
    directory: tempfile::TempDir,
    programs: Vec<Child>,
}

impl Fleet {
    /// An empty Redis.
    pub(crate) async fn new() -> Self {
        let redis = RedisServer::start().await.unwrap();
        let (client, inspector) = (Client::new(redis.redis()), Inspector::new(redis.redis()));
        Self { redis, client, inspector, directory: tempfile::tempdir().unwrap(), programs: Vec::new() }
    }

    pub(crate) fn url(&self) -> &str {
        self.redis.url()
    }

    pub(crate) async fn enqueue(&self, id: &str, task: RawTask) {
        self.client.enqueue(task.task_id(id)).await.unwrap();
    }

    /// Enqueues a task of a type that our client refuses, and Go's does not.
    pub(crate) async fn enqueue_as_go(&self, task_type: &str, id: &str, task: RawTask) {
        enqueue_as_go(self.redis.redis(), task_type, task.task_id(id)).await;
    }

    /// Starts the program in the background.
    pub(crate) fn run(&mut self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_queuectl"));
        command
            .env_remove("REDIS_URL")
            .env("QUEUECTL_LOG", "error")
            .args(["--redis", self.redis.url()])
            .args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        self.programs.push(command.spawn().unwrap());
    }

    /// A worker that holds on to tasks of the type `a`, completes `c`, fails `r` and archives `x`.
    pub(crate) fn work(&mut self) {
        let work = ["worker", "--concurrency=8", "--queue=mail=3", "--queue=low=1", "--unhandled=leave"];
        let exec =
            ["--exec", "a=sleep 600", "--exec", "c=echo fine", "--exec", "r=false", "--exec", "x=sh -c 'exit 65'"];
        self.run(&[&work[..], &exec[..]].concat());
    }

    /// A scheduler with one entry, which comes once in a minute.
    pub(crate) fn schedule(&mut self) {
        let file = self.directory.path().join("cron.toml");
        let entry =
            "[[cron]]\nname = 'report'\nspec = '@every 1m'\ntype = 'report:make'\nqueue = 'low'\npayload = { a = 1 }\n";
        std::fs::write(&file, entry).unwrap();
        self.run(&["scheduler", "--config", file.to_str().unwrap()]);
    }

    /// Waits until a task of the queue `mail` is in a state.
    pub(crate) async fn until(&self, id: &str, state: TaskState) -> TaskInfo {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.inspector.task("mail", id).await;
            match found {
                Ok(task) if task.state == state => return task,
                found => assert!(Instant::now() < end, "{id} is not {state} but {found:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a task of the queue `mail` is not there any more.
    pub(crate) async fn until_gone(&self, id: &str) {
        let end = Instant::now() + PATIENCE;
        while self.inspector.task("mail", id).await.is_ok() {
            assert!(Instant::now() < end, "{id} is still there");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a queue is paused, or until it is not.
    pub(crate) async fn until_paused(&self, queue: &str, paused: bool) {
        let end = Instant::now() + PATIENCE;
        while self.inspector.queue(queue).await.unwrap().paused != paused {
            assert!(Instant::now() < end, "{queue}: not paused {paused}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// A task in each state, all in the queue `mail`; its id is the name of the state.
    pub(crate) async fn all_states(&mut self) {
        let hour = Duration::from_secs(3_600);
        self.work();
        let json = br#"{"user":7,"name":"J\u00fcrgen","tags":["a","b"]}"#;
        for (task_type, id) in
            [("a", "active"), ("c", "completed"), ("r", "retry"), ("x", "archived"), ("p", "pending")]
        {
            let task = RawTask::new(task_type).queue("mail").payload(json.as_slice()).retention(hour).max_retry(5);
            self.enqueue(id, task).await;
        }
        self.enqueue("scheduled", RawTask::new("s").queue("mail").payload("plain text").process_in(hour * 1_000)).await;
        self.enqueue("aggregating", RawTask::new("g").queue("mail").payload("x").group("team:1")).await;
        // The failed one would be tried again within a minute, and what is compared must stand still.
        self.until("retry", TaskState::Retry).await;
        let in_42_days = self.until("scheduled", TaskState::Scheduled).await.next_process_at.unwrap().timestamp();
        let mut move_away = redis::cmd("ZADD");
        move_away.arg("asynq:{mail}:retry").arg("XX").arg("CH").arg(in_42_days).arg("retry");
        assert_eq!(self.ask::<u32>(&move_away).await, 1);
        for state in TaskState::ALL {
            self.until(state.as_str(), state).await;
        }
        self.inspector.pause("mail").await.unwrap();
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let client = redis::Client::open(format!("unix://{}", self.redis.socket().display())).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    /// Sends Redis a signal: one that stops it, as a machine that hangs, or one that lets it go on.
    pub(crate) async fn signal_redis(&self, signal: rustix::process::Signal) {
        let pid = self.redis_pid().await;
        rustix::process::kill_process(pid, signal).unwrap();
    }

    async fn redis_pid(&self) -> rustix::process::Pid {
        let file = self.directory.path().join("redis.pid");
        if !file.exists() {
            let info: String = self.ask(redis::cmd("INFO").arg("server")).await;
            let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
            std::fs::write(&file, pid).unwrap();
        }
        let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        rustix::process::Pid::from_raw(pid).unwrap()
    }
}
