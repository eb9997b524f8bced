//! What a listener to all events costs a drain.
//!
//! `bench-listening URL [MS [CONCURRENCY]]` works 100,000 waiting tasks, seven times each way, with handlers that do nothing or wait so long, 50
//! at once unless another number is given: in turn while nobody listens, and while a listener in the same process hears everything. It prints one line of JSON: tasks per
//! second of each round, and how many events were heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench_program::{Failure, Goal};
use futures_util::StreamExt as _;
use queue_core::RawTask;
use queue_redis::Client;
use queue_redis::events::Events;
use queue_worker::{Job, Router, Server};

const QUEUE: &str = "bench";
const TASKS: u64 = 100_000;
const ROUNDS: usize = 7;

/// So long after its last listener a server goes on telling, and some more.
const SILENCE: Duration = Duration::from_secs(35);

async fn drain(client: &Client, work: Duration, concurrency: usize) -> Result<f64, Failure> {
    let all = (0..TASKS).map(|_| RawTask::new("bench").payload(vec![b'x'; 200]).queue(QUEUE));
    for enqueued in client.enqueue_many(all).await {
        enqueued?;
    }
    let goal = Goal::of(TASKS);
    let handler = {
        let goal = goal.clone();
        move |_: Job| goal.clone().work(work)
    };
    let began = Instant::now();
    let server = Server::new(client.redis().clone(), Router::new(()).route("bench", handler));
    let server = server.queues([(QUEUE, 1)]).concurrency(concurrency).start().await?;
    goal.reached().await;
    let rate = TASKS as f64 / began.elapsed().as_secs_f64();
    server.shutdown().await;
    Ok(rate.round())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    queue_redis::log_to_stderr(false);
    let address =
        std::env::args().nth(1).ok_or("say which Redis: bench-listening redis://HOST:PORT [MS [CONCURRENCY]]")?;
    let work = Duration::from_millis(std::env::args().nth(2).map_or(Ok(0), |ms| ms.parse())?);
    let concurrency = std::env::args().nth(3).map_or(Ok(50), |it| it.parse())?;
    let client = Client::connect(&*address).await?;
    let (mut alone, mut listened, heard) = (Vec::new(), Vec::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..ROUNDS {
        alone.push(drain(&client, work, concurrency).await?);
        let mut events = Events::of(client.redis()).stream().await?;
        let count = heard.clone();
        let listener = tokio::spawn(async move {
            while let Some(Ok(_)) = events.next().await {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        listened.push(drain(&client, work, concurrency).await?);
        listener.abort();
        tokio::time::sleep(SILENCE).await;
    }
    let heard = heard.load(Ordering::Relaxed);
    println!("{{\"alone\":{alone:?},\"listened\":{listened:?},\"heard\":{heard}}}");
    Ok(())
}
