//! A Redis that does not answer, with its connections open, or only that it is busy.

use std::process::Command;

use super::plain_connection;

/// A stopped Redis; it goes on when this is dropped.
pub(crate) struct Hanging(u32);

impl Hanging {
    pub(crate) async fn begin(url: &str) -> Self {
        let mut connection = plain_connection(url).await;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
        let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
        Self::process(process.parse().unwrap())
    }

    pub(crate) fn process(id: u32) -> Self {
        signal("-STOP", id);
        Self(id)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Has a script occupy the Redis. It ends by itself after a minute or so of computing, so that one that nobody ends
/// does not stay for ever; not all versions of Redis tell a script the time.
pub(crate) fn occupy(url: &str) -> tokio::task::JoinHandle<()> {
    let client = redis::Client::open(url).unwrap();
    tokio::spawn(async move {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let script = "for n = 1, 5e10 do end";
        // It is killed, or the connection gives up waiting for it.
        let _ = redis::cmd("EVAL").arg(script).arg(0).exec_async(&mut connection).await;
    })
}
