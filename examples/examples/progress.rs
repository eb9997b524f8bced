//! An import that says how far it is, fails half-way, and goes on from its checkpoint.
//!
//! `cargo run -p queue-examples --example progress`

use std::time::Duration;

use queue::{Cursor, Failure, Job, Output, RetryPolicy, Router, Server, Task, TaskState};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "import", max_retry = 3)]
struct Import {
    rows: u32,
}

/// Where to go on: small, and all that the next attempt needs.
#[derive(Serialize, Deserialize, Default)]
struct Done {
    rows: u32,
    attempts: u32,
}

async fn import(task: Import, Cursor(done): Cursor<Done>, job: Job) -> Result<Output<String>, Failure> {
    let mut done = done.unwrap_or_default();
    done.attempts += 1;
    let from = done.rows;
    while done.rows < task.rows {
        if done.rows == task.rows / 2 && done.attempts == 1 {
            return Err("the other side hung up".into());
        }
        done.rows += 1; // import one more row, then say so
        if done.rows % 100 == 0 {
            job.progress((done.rows * 100 / task.rows) as u8, format!("{} of {} rows", done.rows, task.rows));
            job.checkpoint(&done).await?;
        }
    }
    Ok(Output(format!("attempt {} began after row {from}", done.attempts)))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let server = Server::new(client.redis().clone(), Router::new(()).task(import));
    let server = server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await?;

    let handle = client.enqueue_to_wait(Import { rows: 10_000 }).await?;
    let mut changes = handle.changes();
    let mut last = None;
    while let Some(look) = changes.next().await? {
        if let Some(progress) = look.progress.as_ref().filter(|_| last != look.progress) {
            println!("{:>3} %  {}", progress.percent, progress.note);
            last = look.progress.clone();
        }
        if look.state == Some(TaskState::Completed) {
            break;
        }
    }
    let told: String = handle.result(Duration::from_secs(30)).await?;
    println!("{told}");
    server.shutdown().await;
    if told == "attempt 2 began after row 5000" { Ok(()) } else { Err("it did not go on from its checkpoint".into()) }
}
