//! Strict order: what happens to one account happens in its order, also when a task has to be tried again.
//!
//! `cargo run -p queue-examples --example order`

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue::admin::{Inspector, Limit, LimitKey};
use queue::{Failure, Job, RawTask, RetryPolicy, Router, Server};
use queue_examples::{Error, client};

/// By account, the steps in the order in which they were done.
type Done = Arc<Mutex<HashMap<String, Vec<String>>>>;

async fn book(job: Job, done: Done) -> Result<(), Failure> {
    let step = String::from_utf8_lossy(job.payload()).into_owned();
    if step == "deposit" && job.retried() == 0 {
        return Err("the ledger is locked".into()); // the next step of this account waits until this one is done
    }
    done.lock().unwrap().entry(job.headers()["account"].clone()).or_default().push(step);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let limit = Limit::new("account", LimitKey::header("account")).strict_order();
    Inspector::new(client.redis().clone()).set_limit("default", limit).await?;

    for step in ["open", "deposit", "withdraw", "close"] {
        for account in ["ann", "bob", "eve"] {
            client.enqueue(RawTask::new("book").payload(step).header("account", account)).await?;
        }
    }
    let done = Done::default();
    let noted = done.clone();
    let router = Router::new(()).route("book", move |job: Job| book(job, noted.clone()));
    let server = Server::new(client.redis().clone(), router).concurrency(20);
    let server = server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await?;
    while done.lock().unwrap().values().map(Vec::len).sum::<usize>() < 12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.shutdown().await;
    for (account, steps) in done.lock().unwrap().iter() {
        assert_eq!(steps.join(" "), "open deposit withdraw close", "of {account}");
    }
    println!("each of three accounts was opened, got its deposit at the second attempt, gave it back and was closed");
    Ok(())
}
