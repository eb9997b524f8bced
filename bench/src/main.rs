//! One measurement per run, with the public client and server and their production defaults. Prints one
//! JSON object. `bench/go` makes the same measurements of Go asynq.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use queue_core::RawTask;
use queue_redis::{Client, Inspector};
use queue_worker::{Job, Router, Server};
use serde_json::json;
use tokio::sync::Notify;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    /// Redis to measure on; its queue is filled and emptied.
    #[arg(long, global = true, default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// Queue to use.
    #[arg(long, global = true, default_value = "bench")]
    queue: String,
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Subcommand)]
enum Figure {
    /// Enqueue tasks, with many callers awaiting one call each, or in batches.
    Enqueue {
        #[arg(long)]
        tasks: u64,
        #[arg(long, default_value_t = 1)]
        callers: u64,
        /// Tasks per call; 1 for `enqueue`.
        #[arg(long, default_value_t = 1)]
        batch: u64,
    },
    /// Work all that is in the queue.
    Drain {
        #[arg(long)]
        concurrency: usize,
        /// Milliseconds each handler takes.
        #[arg(long, default_value_t = 0)]
        work_ms: u64,
    },
    /// From the enqueue call to the start of the handler, at a steady rate.
    Latency {
        #[arg(long)]
        rate: u64,
        #[arg(long)]
        seconds: u64,
        #[arg(long, default_value_t = 50)]
        concurrency: usize,
    },
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let args = Args::parse();
    let client = Client::connect(&args.redis).await?;
    let report = match args.figure {
        Figure::Enqueue { tasks, callers, batch } => enqueue(&client, &args.queue, tasks, callers, batch).await?,
        Figure::Drain { concurrency, work_ms } => drain(&client, &args.queue, concurrency, work_ms).await?,
        Figure::Latency { rate, seconds, concurrency } => {
            latency(&client, &args.queue, rate, seconds, concurrency).await?
        }
    };
    println!("{report}");
    Ok(())
}

/// 200 bytes, as in the measurements the targets come from.
fn task(queue: &str) -> RawTask {
    RawTask::new("bench:noop").payload(vec![b'x'; 200]).queue(queue)
}

fn rate(tasks: u64, started: Instant) -> serde_json::Value {
    let seconds = started.elapsed().as_secs_f64();
    json!({"tasks": tasks, "seconds": seconds, "per_second": tasks as f64 / seconds})
}

async fn enqueue(
    client: &Client,
    queue: &str,
    tasks: u64,
    callers: u64,
    batch: u64,
) -> Result<serde_json::Value, BoxError> {
    let started = Instant::now();
    let callers = (0..callers).map(|caller| {
        let share = tasks / callers + u64::from(caller < tasks % callers);
        let (client, queue) = (client.clone(), queue.to_owned());
        tokio::spawn(async move {
            let mut left = share;
            while left > 0 {
                let count = left.min(batch);
                if count == 1 {
                    client.enqueue(task(&queue)).await?;
                } else {
                    for outcome in client.enqueue_many((0..count).map(|_| task(&queue))).await {
                        outcome?;
                    }
                }
                left -= count;
            }
            Ok::<(), BoxError>(())
        })
    });
    for caller in futures_util::future::join_all(callers).await {
        caller??;
    }
    Ok(rate(tasks, started))
}

async fn drain(client: &Client, queue: &str, concurrency: usize, work_ms: u64) -> Result<serde_json::Value, BoxError> {
    let tasks = Inspector::new(client.redis().clone()).queue(queue).await?.pending;
    let (left, empty) = (Arc::new(AtomicU64::new(tasks)), Arc::new(Notify::new()));
    let router = {
        let (left, empty) = (left.clone(), empty.clone());
        Router::new(()).route("bench:", move |_: Job| {
            let (left, empty) = (left.clone(), empty.clone());
            async move {
                if work_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(work_ms)).await;
                }
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    empty.notify_one();
                }
            }
        })
    };
    let started = Instant::now();
    let server =
        Server::new(client.redis().clone(), router).queues([(queue, 1)]).concurrency(concurrency).start().await?;
    if tasks > 0 {
        empty.notified().await;
    }
    server.shutdown().await;
    Ok(rate(tasks, started))
}

async fn latency(
    client: &Client,
    queue: &str,
    rate: u64,
    seconds: u64,
    concurrency: usize,
) -> Result<serde_json::Value, BoxError> {
    let epoch = Instant::now();
    let samples = Arc::new(std::sync::Mutex::new(Vec::new()));
    let router = {
        let samples = samples.clone();
        Router::new(()).route("bench:", move |job: Job| {
            let samples = samples.clone();
            async move {
                let now = epoch.elapsed().as_nanos() as u64;
                let sent = job.payload().get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
                if let (Some(sent), Ok(mut samples)) = (sent, samples.lock()) {
                    samples.push(now.saturating_sub(sent));
                }
            }
        })
    };
    let server =
        Server::new(client.redis().clone(), router).queues([(queue, 1)]).concurrency(concurrency).start().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let total = rate * seconds;
    let mut calls = Vec::new();
    let start = tokio::time::Instant::now();
    for n in 0..total {
        tokio::time::sleep_until(start + Duration::from_nanos(1_000_000_000 / rate * n)).await;
        let (client, queue) = (client.clone(), queue.to_owned());
        calls.push(tokio::spawn(async move {
            let mut payload = vec![b'x'; 200];
            payload[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
            client.enqueue(RawTask::new("bench:noop").payload(payload).queue(queue)).await
        }));
    }
    for call in calls {
        call.await??;
    }
    while samples.lock().map_or(0, |samples| samples.len() as u64) < total {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.shutdown().await;
    let mut samples = samples.lock().map(|samples| samples.clone()).unwrap_or_default();
    samples.sort_unstable();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    Ok(json!({"n": samples.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}))
}
