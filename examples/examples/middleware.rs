//! A tower layer around all handlers, a blocking handler, and a retry policy of one's own.
//!
//! `cargo run -p queue-examples --example middleware`

use std::time::{Duration, Instant};

use queue_core::State;
use queue_examples::{Error, client, wait_for};
use queue_worker::{Job, RetryPolicy, Route, Router, Server, Task};
use serde::{Deserialize, Serialize};
use tower::layer::layer_fn;
use tower::{ServiceExt, service_fn};

/// A MessagePack payload.
#[derive(Serialize, Deserialize, Task)]
#[task(kind = "file:hash", codec = "msgpack", retention = "1m")]
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

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let timed = layer_fn(|inner: Route| {
        service_fn(move |job: Job| {
            let inner = inner.clone();
            async move {
                let (kind, started) = (job.kind().to_owned(), Instant::now());
                let outcome = inner.oneshot(job).await;
                println!(
                    "{kind} took {:?} and {}",
                    started.elapsed(),
                    if outcome.is_ok() { "succeeded" } else { "failed" }
                );
                outcome
            }
        })
    });
    let server = Server::new(client.redis().clone(), Router::new(()).blocking(hash).layer(timed))
        .retry_policy(RetryPolicy::Exponential { base: Duration::from_secs(1), max: Duration::from_secs(60) })
        .start()
        .await?;
    let task = client.enqueue(HashFile { bytes: vec![1, 2, 3] }).await?;
    wait_for(&client, &task, State::Completed).await?;
    server.shutdown().await;
    Ok(())
}
