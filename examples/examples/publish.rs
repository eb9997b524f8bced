//! A search index that follows what users edit: one task for each document, however often it is edited.
//!
//! `cargo run -p queue-examples --example publish`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue::{PublishOutcome, Router, Server, State, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "index", queue = "search")]
struct Index {
    document: u64,
    version: u32,
}

#[derive(Clone, Default)]
struct Indexed(Arc<AtomicUsize>);

async fn index(task: Index, State(indexed): State<Indexed>) {
    indexed.0.fetch_add(1, Ordering::Relaxed);
    println!("document {} is indexed in version {}", task.document, task.version);
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let second = Duration::from_secs(1);

    // Three edits in a row: the task waits for a second without one, and has the last version.
    for version in 1..=3 {
        let index = client.publish(Index { document: 7, version }).key("index:7");
        let published = index.debounce(second).max_wait(10 * second).await?;
        println!("version {version}: {}", published.outcome);
    }

    // Nobody needs a report twice a minute: the second one is told how long the window is open.
    let order = || client.publish(Index { document: 8, version: 1 }).key("index:8").throttle(60 * second);
    order().await?;
    let suppressed = order().await?;
    println!("document 8 again: {}, for another {:?}", suppressed.outcome, suppressed.window.unwrap_or_default());

    let indexed = Indexed::default();
    let server = Server::new(client.redis().clone(), Router::new(indexed.clone()).task(index));
    let server = server.queues([("search", 1)]).start().await?;
    while indexed.0.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.shutdown().await;
    if suppressed.outcome == PublishOutcome::Suppressed { Ok(()) } else { Err("it was not suppressed".into()) }
}
