//! A private Redis, the binary, and a worker in the background.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_admin::{Error, Inspector};
use queue_core::{RawTask, TaskInfo, TaskState};
use queue_redis::Client;
use queue_redis::embedded::RedisServer;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::as_go::enqueue_as_go;

/// How long anything may take. Far longer than it takes, for machines that are busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The binary, with nothing in its environment that could change what it does.
pub(crate) fn queuectl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_queuectl"));
    for name in ["REDIS_URL", "QUEUECTL_LOG", "NO_COLOR", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Standard output of a command that succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The same, read as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Standard error of a command that failed with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end, with this on standard input.
pub(crate) async fn finish(mut command: Command, input: &[u8]) -> Done {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async move {
        // A command that does not read is not at fault.
        let _ = stdin.write_all(input).await;
    };
    let (output, ()) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(child.wait_with_output(), write) }).await.unwrap();
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A Redis of the test's own.
pub(crate) struct Bench {
    pub(crate) redis: RedisServer,
    pub(crate) client: Client,
    pub(crate) inspector: Inspector,
    pub(crate) directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let redis = RedisServer::start().await.unwrap();
        let (client, inspector) = (Client::new(redis.redis()), Inspector::new(redis.redis()));
        Self { redis, client, inspector, directory: tempfile::tempdir().unwrap() }
    }

    /// The binary, on this Redis and in the test's directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = queuectl();
        command.arg("--redis").arg(self.redis.url()).current_dir(self.directory.path());
        command
    }

    /// Runs the binary with these arguments.
    pub(crate) async fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Done {
        self.run_with(arguments, b"").await
    }

    /// The same, with something on standard input.
    pub(crate) async fn run_with<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Done {
        let mut command = self.command();
        command.args(arguments);
        finish(command, input).await
    }

    /// Asks Redis directly.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        ask(self.redis.url(), command).await
    }

    /// Puts `old1`, `old2` and so on, so many, into the archive of the queue `default`.
    pub(crate) async fn fill_archive(&self, count: u32) {
        let fill = "local now = redis.call('TIME')[1]
        for n = 1, ARGV[1] do
            redis.call('ZADD', 'asynq:{default}:archived', now, 'old' .. n)
            redis.call('HSET', 'asynq:{default}:t:old' .. n, 'msg', 'm', 'state', 'archived')
        end";
        let _: redis::Value = self.ask(&["EVAL", fill, "0", &count.to_string()]).await;
    }

    /// How often Redis has run a command.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]).await;
        let start = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    }

    /// The first lines that a command writes which does not end by itself.
    pub(crate) async fn first_lines(&self, arguments: &[&str], count: usize) -> Vec<String> {
        let mut child = self.command().args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut first = Vec::new();
        while first.len() < count {
            first.push(tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap());
        }
        child.kill().await.unwrap();
        first
    }

    pub(crate) async fn task(&self, id: &str) -> TaskInfo {
        self.inspector.task("default", id).await.unwrap()
    }

    /// Enqueues a task under an id, kept for an hour after success.
    pub(crate) async fn enqueue(&self, task_type: &str, id: &str) {
        self.enqueue_task(RawTask::new(task_type).payload("payload"), id).await;
    }

    pub(crate) async fn enqueue_task(&self, task: RawTask, id: &str) {
        self.client.enqueue(task.task_id(id).retention(Duration::from_secs(3_600))).await.unwrap();
    }

    /// Enqueues a task of a type that our client refuses, and Go's does not.
    pub(crate) async fn enqueue_as_go(&self, task_type: &str, task: RawTask, id: &str) {
        enqueue_as_go(self.client.redis().clone(), task_type, task.task_id(id)).await;
    }

    /// Waits until a task of the queue `default` is in one of these states.
    pub(crate) async fn wait_for(&self, id: &str, states: &[TaskState]) -> TaskInfo {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = match self.inspector.task("default", id).await {
                Ok(task) if states.contains(&task.state) => return task,
                Ok(task) => format!("{task:?}"),
                Err(Error::TaskNotFound { .. }) => "gone".to_owned(),
                Err(error) => panic!("{error}"),
            };
            assert!(Instant::now() < end, "task {id} is not in {states:?} but {found}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts a worker and waits until it takes tasks.
    pub(crate) async fn worker(&self, arguments: &[&str]) -> Worker {
        let mut all = [&["worker"], arguments].concat();
        for (flag, value) in [("--concurrency", "8"), ("--kill-grace", "300ms")] {
            if !arguments.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        self.background(&all, "server started").await
    }

    /// Starts a command that does not end by itself, and waits for a line on its standard error.
    pub(crate) async fn background(&self, arguments: &[&str], line: &str) -> Worker {
        let mut command = self.command();
        command.args(arguments);
        Worker::start(command, line).await
    }

    /// Starts a scheduler and waits until it runs.
    pub(crate) async fn scheduler(&self, arguments: &[&str]) -> Worker {
        self.background(&[&["scheduler"], arguments].concat(), "scheduler started").await
    }

    /// A path in the test's directory; commands run there, so the name alone will do for them.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}

/// Asks a Redis directly.
pub(crate) async fn ask<T: redis::FromRedisValue>(url: &str, command: &[&str]) -> T {
    let client = redis::Client::open(url).unwrap();
    // The client's own half a second is too little on a machine that is busy with other things.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let mut cmd = redis::cmd(command[0]);
    cmd.arg(&command[1..]);
    cmd.query_async(&mut connection).await.unwrap()
}

/// A worker in the background, killed with the test.
pub(crate) struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Worker {
    /// Starts a command that does not end by itself, and waits for a line on its standard error.
    pub(crate) async fn start(mut command: Command, line: &str) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let heard = lines.clone();
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                heard.lock().unwrap().push(line);
            }
        });
        let worker = Self { child, lines, reader };
        worker.wait_for_line(line).await;
        worker
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id().unwrap(), which);
    }

    /// Tells it to end, and waits for that; returns its exit code and how long it took.
    pub(crate) async fn stop(mut self) -> (Option<i32>, Duration) {
        let started = Instant::now();
        signal(self.child.id().unwrap(), Signal::TERM);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        (status.code(), started.elapsed())
    }

    /// Closes our end of its standard error.
    pub(crate) async fn stop_reading(&self) {
        self.reader.abort();
        eventually("the reader has ended", || self.reader.is_finished()).await;
    }

    /// Kills it, as a lack of memory would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// What it has said so far on standard error.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for a line on standard error with this in it.
    pub(crate) async fn wait_for_line(&self, part: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.lines.lock().unwrap().iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            assert!(Instant::now() < end, "no line with {part:?} in {:#?}", self.lines.lock().unwrap());
            sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Whether there is such a process. One that has ended and waits for its parent to notice is none.
pub(crate) fn is_running(pid: i32) -> bool {
    if Path::new("/proc/self/stat").exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name of the program stands in parentheses and may contain anything; the state follows.
        return stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
    }
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The process ids that a command has written into a file, once there are this many.
pub(crate) async fn pids(file: &Path, count: usize) -> Vec<i32> {
    let read = || -> Vec<i32> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    };
    eventually("process ids", || read().len() >= count).await;
    read()
}
