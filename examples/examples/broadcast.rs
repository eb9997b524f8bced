//! Broadcasts: one task that several servers run, each with a result of its own.
//!
//! `cargo run -p queue-examples --example broadcast`

use std::time::Duration;

use queue::{BatchError, Failure, Job, Output, RawTask, Router, Server, To, Verdict};
use queue_examples::{Error, client};

/// How many entries the cache of a host has had.
async fn flush(host: &'static str) -> Result<Output<usize>, Failure> {
    if host == "web-3" {
        return Err(Failure::archive("its cache is read-only"));
    }
    Ok(Output(host.len() * 100))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let start = async |host: &'static str| {
        let router = Router::new(()).route("cache:flush", move |_: Job| flush(host));
        Server::new(client.redis().clone(), router).queues([("cache", 1)]).name(host).start().await
    };
    let servers = [start("web-1").await?, start("web-22").await?, start("web-3").await?];

    let broadcast = || client.broadcast(RawTask::new("cache:flush")).queue("cache").to(To::count(3)).quorum(2);
    // A server is chosen as soon as it has said what it is; until all three have, nothing is stored.
    let sent = loop {
        match broadcast().send().await {
            Err(BatchError::Audience(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            sent => break sent?,
        }
    };
    let status = sent.wait(Duration::from_secs(30)).await?;
    println!("the quorum of {} is {}", status.quorum, status.verdict.as_str());
    assert_eq!(status.verdict, Verdict::Reached);

    // The others go on; here we wait for them, too.
    sent.batch().wait(Duration::from_secs(30)).await?;
    for worker in sent.status().await?.workers {
        match (worker.read::<usize>()?, &worker.error) {
            (Some(entries), _) => println!("{} had {entries} entries", worker.server),
            (None, error) => {
                println!("{} is {}: {}", worker.server, worker.state.as_str(), error.as_deref().unwrap_or("-"))
            }
        }
    }
    for server in servers {
        server.shutdown().await;
    }
    Ok(())
}
