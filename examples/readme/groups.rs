//! The guide's page about groups, with what it leaves out, on the Redis in `REDIS_URL`.

use std::time::Duration;

use queue::{Client, Failure, Group, Output, Router, Server, State, Task, TaskOptions};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "notification")]
struct Notification {
    text: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "digest", retention = "1h")]
struct Digest {
    user: String,
    lines: Vec<String>,
}

#[derive(Clone)]
struct Limits {
    lines: usize,
}

async fn send_digest(digest: Digest) -> Output<String> {
    Output(format!("{}: {}", digest.user, digest.lines.join(", ")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(&std::env::var("REDIS_URL")?).await?;
    let redis = client.redis().clone();
    let limits = Limits { lines: 3 };
    let text = "the last one".to_owned();
    include!(concat!(env!("OUT_DIR"), "/groups.rs"));
    Ok(())
}
