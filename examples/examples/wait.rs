//! A caller waits for results, and for the end of a task that it cancels.
//!
//! `cargo run -p queue-examples --example wait`

use std::time::Duration;

use queue::{Failure, Finished, Job, Output, Router, Server, Task, WaitError};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

const SOON: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize, Task)]
#[task(type = "sum")]
struct Sum(Vec<u64>);

#[derive(Serialize, Deserialize, Task)]
#[task(type = "sleep")]
struct Sleep;

async fn sum(Sum(numbers): Sum) -> Result<Output<u64>, Failure> {
    if numbers.is_empty() {
        return Err(Failure::archive("there is nothing to add"));
    }
    Ok(Output(numbers.iter().sum()))
}

async fn sleep(_: Sleep, job: Job) -> Result<(), Failure> {
    job.cancellation().cancelled().await;
    Err("woken".into())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let server = Server::new(client.redis().clone(), Router::new(()).task(sum).task(sleep)).concurrency(10);
    let server = server.start().await?;

    let total: u64 = client.enqueue_to_wait(Sum(vec![1, 2, 3])).await?.result(SOON).await?;
    println!("1 + 2 + 3 = {total}");

    // Any number of callers share one connection on which Redis tells of changes.
    let callers = (1..=200).map(|n| {
        let client = client.clone();
        tokio::spawn(async move { client.enqueue_to_wait(Sum(vec![n, n])).await?.result::<u64>(SOON).await })
    });
    let mut all = 0;
    for caller in callers.collect::<Vec<_>>() {
        all += caller.await??;
    }
    println!("200 callers have {all}");

    let refused = client.enqueue_to_wait(Sum(Vec::new())).await?.result::<u64>(SOON).await;
    match refused {
        Err(WaitError::Archived { error, .. }) => println!("no sum: {error}"),
        other => return Err(format!("{other:?}").into()),
    }

    let sleeper = client.enqueue_to_wait(Sleep).await?;
    sleeper.cancel("the example").await?;
    match sleeper.wait(SOON).await? {
        Finished::Archived(task) => {
            println!("no sleep: {}", task.last_error.unwrap_or("canceled before it began".into()))
        }
        other => return Err(format!("{other:?}").into()),
    }
    server.shutdown().await;
    Ok(())
}
