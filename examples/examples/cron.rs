//! Periodic tasks on two schedulers: each tick is worked once, also when one of them goes away; pausing, running
//! now, and what became of every tick.
//!
//! `cargo run -p queue-examples --example cron`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue::admin::{Inspector, Page};
use queue::scheduler::{Entry, Missed, Overlap, Scheduler, Zone};
use queue::{Job, Redis, Router, Server, State, Task};
use queue_examples::{Error, client};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "stock:count", queue = "stock", max_retry = 2)]
struct Count {
    shelf: String,
}

/// How often each tick was worked, by the id of its task.
type Worked = Arc<Mutex<BTreeMap<String, u32>>>;

async fn count(_task: Count, State(worked): State<Worked>, job: Job) {
    if let Ok(mut worked) = worked.lock() {
        *worked.entry(job.id().to_owned()).or_default() += 1;
    }
}

fn entries() -> Vec<Entry> {
    let count = |shelf: &str| Count { shelf: shelf.to_owned() };
    vec![
        Entry::new("@every 1s", count("A")).name("often").missed(Missed::Last),
        Entry::new("30 2 * * mon-fri", count("B"))
            .name("nightly")
            .zone("Europe/Berlin")
            .overlap(Overlap::Skip)
            .jitter(Duration::from_secs(600)),
    ]
}

/// As in a process of its own.
async fn scheduler(redis: &Redis) -> Result<Scheduler, Error> {
    let scheduler = Scheduler::builder(redis.clone()).zone(Zone::UTC).build();
    for entry in entries() {
        scheduler.register(entry)?;
    }
    scheduler.start().await?;
    Ok(scheduler)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (client, _redis) = client().await?;
    let redis = client.redis();
    let worked = Worked::default();
    let router = Router::new(worked.clone()).task(count);
    let server = Server::new(redis.clone(), router).queues([("stock", 1)]).concurrency(2).start().await?;

    let (first, second) = (scheduler(redis).await?, scheduler(redis).await?);
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.shutdown().await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let inspector = Inspector::new(redis.clone());
    inspector.pause_cron("often").await?;
    let id = inspector.run_cron("nightly", false).await?;
    println!("somebody wants {id}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    for entry in inspector.cron_entries().await? {
        let paused = if entry.paused.is_some() { ", paused" } else { "" };
        println!("{}: {} in {}, {} runs{paused}", entry.name, entry.spec, entry.zone, entry.runs);
    }
    for event in inspector.cron_history("often", Page::default()).await? {
        println!("{} {} {}", event.at.format("%H:%M:%S"), event.outcome, event.task_id);
    }
    second.shutdown().await;
    server.shutdown().await;

    let worked = worked.lock().map_err(|_| "a handler panicked")?;
    println!("worked: {worked:?}");
    assert!(worked.len() >= 3 && worked.values().all(|times| *times == 1), "each tick once");
    Ok(())
}
