//! A typed task with a result: defined, enqueued, worked, looked at.
//!
//! `cargo run -p queue-examples --example quickstart`

use queue::{Failure, Job, Output, Router, Server, State, Task, TaskState};
use queue_examples::{Error, client, wait_for};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "email:welcome", queue = "mail", max_retry = 5, timeout = "30s", retention = "1h")]
struct Welcome {
    user: u64,
}

#[derive(Clone)]
struct Mailer {
    from: String,
}

async fn welcome(task: Welcome, State(mailer): State<Mailer>, job: Job) -> Result<Output<String>, Failure> {
    if task.user == 0 {
        return Err(Failure::archive("user 0 has no address")); // no point in trying again
    }
    Ok(Output(format!("{} wrote to user {} at attempt {}", mailer.from, task.user, job.retried() + 1)))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (client, _redis) = client().await?;

    let router = Router::new(Mailer { from: "us".to_owned() }).task(welcome);
    let server = Server::new(client.redis().clone(), router).queues([("mail", 1)]).concurrency(10).start().await?;

    let good = client.enqueue(Welcome { user: 7 }).await?;
    let bad = client.enqueue(Welcome { user: 0 }).await?;
    let good = wait_for(&client, &good, TaskState::Completed).await?;
    let bad = wait_for(&client, &bad, TaskState::Archived).await?;
    println!("{}: {}", good.id, String::from_utf8_lossy(&good.result.unwrap_or_default()));
    println!("{}: {}", bad.id, bad.last_error.unwrap_or_default());

    server.shutdown().await;
    Ok(())
}
