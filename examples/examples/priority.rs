//! Priorities: what is urgent passes what waits.
//!
//! `cargo run -p queue-examples --example priority`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue::{Job, Priorities, RawTask, Router, Server};
use queue_examples::{Error, client};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    // A long newsletter is on its way.
    let letter = |n| RawTask::new("email:newsletter").queue("mail").priority(0).task_id(format!("newsletter-{n}"));
    for stored in client.enqueue_many((0..1_000).map(letter)).await {
        stored?;
    }
    client.enqueue(RawTask::new("email:welcome").queue("mail").task_id("welcome")).await?;
    let reset = RawTask::new("email:password-reset").queue("mail").priority(9).task_id("password-reset");
    let stored = client.enqueue(reset).await?;
    println!("{} waits in the queue {:?}", stored.id, stored.queue);

    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let send = move |job: Job| {
        let seen = seen.clone();
        async move { seen.lock().unwrap().push(job.id().to_owned()) }
    };
    let server = Server::new(client.redis().clone(), Router::new(()).route("email:", send)).concurrency(1);
    let server = server.queues([("mail", 1)]).priorities(Priorities::Strict).start().await?;
    while sent.lock().unwrap().len() < 1_002 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.shutdown().await;
    println!("of 1,002 e-mails the first were {:?}", &sent.lock().unwrap()[..3]);
    Ok(())
}
