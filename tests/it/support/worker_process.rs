//! A worker in a process of its own, to be killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Events, eventually};

/// A running `interop-peer worker` on the queue of the tests; killed with this value.
pub(crate) struct WorkerProcess {
    child: Child,
    /// `start 1`, `end 1` and so on: what the handlers printed, with the ids of their tasks.
    pub(crate) events: Events,
}

impl WorkerProcess {
    /// Starts it, and returns when it is ready.
    pub(crate) async fn start(url: &str, concurrency: usize) -> Self {
        Self::start_with(url, concurrency, &[]).await
    }

    /// The same with more options.
    pub(crate) async fn start_with(url: &str, concurrency: usize, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interop-peer"));
        command.args(["worker", "--redis", url, "--queue", "q=1", "--concurrency", &concurrency.to_string()]);
        command
            .args(["--shutdown-timeout-secs", "86400"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let events = <Events>::default();
        let (told, lines) = (events.clone(), BufReader::new(child.stdout.take().unwrap()));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                let id = event["id"].as_str().unwrap_or_default();
                told.tell(format!("{} {id}", event["event"].as_str().unwrap()).trim_end());
            }
        });
        let process = Self { child, events };
        process.told("ready").await;
        process
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for an event.
    pub(crate) async fn told(&self, event: &str) {
        eventually(format!("the worker tells {event:?}"), async || self.events.all().iter().any(|told| told == event))
            .await;
    }

    /// Sends it a signal, such as `-TERM`.
    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").arg(name).arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Ends it as a power failure does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself; whether it reports success.
    pub(crate) async fn ended(&mut self) -> bool {
        let child = &mut self.child;
        let mut status = None;
        while status.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            status = child.try_wait().unwrap();
        }
        status.is_some_and(|status| status.success())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
