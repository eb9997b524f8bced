//! Limits: of each customer, two tasks run at once, and the others do not wait for them.
//!
//! `cargo run -p queue-examples --example limits`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use queue::admin::{Inspector, Limit, LimitKey};
use queue::{Job, RawTask, Router, Server};
use queue_examples::{Error, client};

/// How many have run, and how many of the large customer run now, at the most.
#[derive(Default)]
struct Seen {
    done: AtomicU64,
    running: AtomicU64,
    most: AtomicU64,
}

async fn render(job: Job, seen: Arc<Seen>) {
    let is_large = job.headers().get("customer").is_some_and(|customer| customer == "large");
    if is_large {
        let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(running, Ordering::SeqCst);
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    if is_large {
        seen.running.fetch_sub(1, Ordering::SeqCst);
    }
    seen.done.fetch_add(1, Ordering::SeqCst);
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (client, _redis) = client().await?;
    let limit = Limit::new("customer", LimitKey::header("customer")).concurrency(2);
    Inspector::new(client.redis().clone()).set_limit("default", limit).await?;

    // A hundred of one customer come first.
    let of = |customer: &str| RawTask::new("render").header("customer", customer);
    let tasks = (0..100).map(|_| of("large")).chain((0..10).map(|n| of(&format!("small-{n}"))));
    for stored in client.enqueue_many(tasks).await {
        stored?;
    }
    let seen = Arc::new(Seen::default());
    let counted = seen.clone();
    let router = Router::new(()).route("render", move |job: Job| render(job, counted.clone()));
    let server = Server::new(client.redis().clone(), router).concurrency(20).start().await?;
    while seen.done.load(Ordering::SeqCst) < 110 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("110 tasks have run, of the large customer {} at once at the most", seen.most.load(Ordering::SeqCst));
    server.shutdown().await;
    Ok(())
}
