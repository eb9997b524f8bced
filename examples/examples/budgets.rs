//! Tasks that say themselves when they are given up and what follows then, and a look at what they have spent.
//!
//! `cargo run -p queue-examples --example budgets`

use std::time::Duration;

use queue::admin::Inspector;
use queue::{Exhausted, Failure, Finished, RetryPolicy, Router, Server, Task, TaskOptions};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

/// Waits for somebody else: three times is enough, and never for long.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "payment:check", queue = "payments", max_snoozes = 3, backoff = "linear 1s..5s")]
struct Check {
    payment: u64,
}

/// Follows what somebody should look at.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "ops:alert", queue = "payments")]
struct Alert(Exhausted);

/// Is worth trying for a day, however often.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "invoice:send", queue = "payments", max_retry = 1000, give_up_after = "24h", backoff = "10s..1h")]
struct SendInvoice {
    invoice: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let router = Router::new(())
        .task(async |_: Check| Err::<(), _>(Failure::snooze(Duration::ZERO, "the bank has not answered")))
        .task(async |Alert(task): Alert| println!("look at {} {}: {}", task.task_type, task.id, task.error))
        .task(async |_: SendInvoice| Err::<(), Failure>("the mail server is away".into()));
    let server = Server::new(client.redis().clone(), router).queues([("payments", 1)]).start().await?;

    // What is given with the call wins: this one has one snooze.
    let patient = client.enqueue_to_wait(Check { payment: 7 }).await?;
    let options = TaskOptions::new().on_exhausted("ops:alert");
    let options = options.max_snoozes(1).backoff(RetryPolicy::Fixed(Duration::from_secs(1)));
    let hasty = client.enqueue_with(Check { payment: 8 }, options).await?;
    let hasty = client.handle("payments", &hasty.id);
    for handle in [&patient, &hasty] {
        match handle.wait(Duration::from_secs(30)).await? {
            Finished::Archived(task) => println!("{}: {}", task.id, task.last_error.unwrap_or_default()),
            other => return Err(format!("it was not given up: {other:?}").into()),
        }
    }

    let invoice = client.enqueue(SendInvoice { invoice: 7 }).await?;
    let inspector = Inspector::new(client.redis().clone());
    while inspector.task("payments", &invoice.id).await?.retried == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for reason in inspector.explain("payments", &invoice.id).await?.reasons {
        println!("{reason}");
    }
    server.shutdown().await;
    Ok(())
}
