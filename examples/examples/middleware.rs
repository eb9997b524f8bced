//! A layer around all handlers, a blocking handler, and a retry policy of one's own.
//!
//! `cargo run -p queue-examples --example middleware`

use std::time::{Duration, Instant};

use queue::{Answer, Job, Next, RetryPolicy, Router, Server, Task, TaskState, from_fn};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

/// A MessagePack payload.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "file:hash", codec = "msgpack", retention = "1m")]
struct HashFile {
    bytes: Vec<u8>,
}

/// Blocking work runs on a thread of its own; the first attempt fails.
fn hash(task: HashFile, job: Job) -> Result<(), String> {
    if job.retried() == 0 {
        return Err("disk was busy".to_owned());
    }
    println!("{:x}", task.bytes.iter().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte))));
    Ok(())
}

/// How long each attempt took, and how it ended.
async fn timed(job: Job, next: Next) -> Answer {
    let (task_type, started) = (job.task_type().to_owned(), Instant::now());
    let answer = next.run(job).await;
    let ended = if answer.is_ok() { "succeeded" } else { "failed" };
    println!("{task_type} took {:?} and {ended}", started.elapsed());
    answer
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let server = Server::new(client.redis().clone(), Router::new(()).blocking(hash).layer(from_fn(timed)))
        .retry_policy(RetryPolicy::Exponential { base: Duration::from_secs(1), max: Duration::from_secs(60) })
        .start()
        .await?;
    let task = client.enqueue(HashFile { bytes: vec![1, 2, 3] }).await?;
    wait_for(&client, &task, TaskState::Completed).await?;
    server.shutdown().await;
    Ok(())
}
