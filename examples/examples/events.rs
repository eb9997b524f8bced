//! Hearing what happens to the tasks of a queue, as it happens.
//!
//! `cargo run -p queue-examples --example events`

use std::time::Duration;

use futures_util::TryStreamExt as _;
use queue::events::{Events, Kind};
use queue::{Failure, Job, RawTask, RetryPolicy, Router, Server};
use queue_examples::{Error, client};

async fn send(job: Job) -> Result<(), Failure> {
    job.progress(50, "connected");
    if job.attempt() == 1 { Err("the other side hangs up".into()) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    // Before the server: it tells of its start, too.
    let mut events = Events::of(client.redis()).queue("mail").stream().await?;
    let router = Router::new(()).route("email:", send);
    let server = Server::new(client.redis().clone(), router).retry_policy(RetryPolicy::Fixed(Duration::ZERO));
    let server = server.queues([("mail", 1)]).start().await?;

    client.enqueue(RawTask::new("email:welcome").queue("mail").task_id("welcome-7")).await?;
    while let Some(heard) = events.try_next().await? {
        let event = heard.event;
        println!("{} {} {}", event.kind, event.id.unwrap_or_default(), event.error.or(event.note).unwrap_or_default());
        if event.kind == Kind::Succeeded {
            // Another process goes on from here: `Events::since(cursor.parse()?)`.
            println!("the cursor has {} bytes", heard.cursor.to_string().len());
            break;
        }
    }
    server.shutdown().await;
    Ok(())
}
