//! A Redis that does not answer, with its connections open.

use std::process::Command;

/// A stopped Redis; it goes on when this is dropped.
pub(crate) struct Hanging(String);

impl Hanging {
    pub(crate) async fn begin(url: &str) -> Self {
        let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
        let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().to_owned();
        signal("-STOP", &process);
        Self(process)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}
