//! A Redis that can be killed and started again at the same address.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::wait_for;

/// A `redis-server` on a socket of its own, with an append-only file that is written before each answer.
pub(crate) struct RedisProcess {
    directory: TempDir,
    settings: Vec<String>,
    child: Option<Child>,
}

impl RedisProcess {
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("queue-it-").tempdir().unwrap();
        let settings = settings.iter().map(|word| (*word).to_owned()).collect();
        let mut process = Self { directory, settings, child: None };
        process.start_again().await;
        process
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Starts it again with the data it had. Returns when it answers.
    pub(crate) async fn start_again(&mut self) {
        self.spawn(&[]);
        // If a password is asked for, it is up.
        self.answers_or_says("NOAUTH").await;
    }

    /// The same with more settings, by which it takes long to read its data. Returns when it says so.
    pub(crate) async fn restart_loading(&mut self, settings: &[&str]) {
        self.spawn(settings);
        self.answers_or_says("LOADING").await;
    }

    /// A Sentinel that watches a master which is not there.
    pub(crate) async fn start_sentinel() -> Self {
        let directory = tempfile::Builder::new().prefix("queue-it-").tempdir().unwrap();
        let mut process = Self { directory, settings: Vec::new(), child: None };
        let file = process.directory.path().join("sentinel.conf");
        std::fs::write(&file, "port 0\nsentinel monitor main 127.0.0.1 1 1\n").unwrap();
        let mut command = Command::new(queue_redis::embedded::find_program().unwrap());
        command.arg(file).arg("--sentinel").arg("--unixsocket").arg(process.socket());
        command.arg("--dir").arg(process.directory.path());
        process.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        process.answers_or_says("NOAUTH").await;
        process
    }

    fn spawn(&mut self, settings: &[&str]) {
        self.kill();
        let mut command = Command::new(queue_redis::embedded::find_program().unwrap());
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(self.directory.path());
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(&self.settings).args(settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    /// Waits until it answers, if only with an error that has this word in it.
    async fn answers_or_says(&self, word: &str) {
        let client = redis::Client::open(self.url()).unwrap();
        wait_for("the Redis answers", async || {
            let says = |error: redis::RedisError| error.code() == Some(word) || error.to_string().contains(word);
            let mut connection = match client.get_multiplexed_async_connection().await {
                Ok(connection) => connection,
                Err(error) => return says(error).then_some(()),
            };
            let answer = redis::cmd("PING").query_async::<()>(&mut connection).await;
            answer.map_or_else(says, |()| true).then_some(())
        })
        .await;
    }

    /// Ends it as a power failure does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
