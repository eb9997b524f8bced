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
        self.kill();
        let mut command = Command::new("redis-server");
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(self.directory.path());
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(&self.settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let client = redis::Client::open(self.url()).unwrap();
        wait_for("the Redis answers", async || {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            match redis::cmd("PING").query_async::<()>(&mut connection).await {
                // A password is asked for: it is up.
                Err(error) if !error.to_string().contains("NOAUTH") => None,
                _ => Some(()),
            }
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
