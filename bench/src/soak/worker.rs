//! The process that is watched: a server as users have it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use queue_core::SystemClock;
use queue_core::clock::Clock as _;
use queue_redis::Redis;
use queue_worker::{Failure as TaskFailure, Job, Output, Router, Server};

use super::{Fate, Load, QUEUE, WINDOW, Window};
use crate::Failure;

/// The worker of a soak; started by it
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// URL of the Redis
    #[arg(long)]
    redis: String,
}

#[derive(Debug, Default)]
struct Seen {
    attempts: u64,
    failed: u64,
    /// Nanoseconds, of this window; the allocation stays from window to window.
    latencies: Vec<i64>,
}

pub(crate) async fn run(args: &Worker) -> Result<(), Failure> {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let handler = {
        let seen = seen.clone();
        move |job: Job| {
            let outcome = work(&job, &seen);
            async move { outcome }
        }
    };
    let router = Router::new(()).route("soak", handler);
    let server = Server::new(Redis::connect(&args.redis).await?, router).queues([(QUEUE, 1)]).concurrency(50);
    let _server = server.start().await?;
    let mut ticks = tokio::time::interval(WINDOW);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        println!("{}", serde_json::to_string(&window(&seen))?);
    }
}

fn work(job: &Job, seen: &Mutex<Seen>) -> Result<Output<String>, TaskFailure> {
    let load: Load = serde_json::from_slice(job.payload())?;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.attempts += 1;
    if load.fate != Fate::Scheduled && job.retried() == 0 {
        seen.latencies.push(SystemClock.now_ns() - load.sent_ns);
    }
    if load.fate == Fate::Retried && job.retried() == 0 {
        seen.failed += 1;
        return Err(TaskFailure::retry_in(Duration::from_secs(1), "once, on purpose"));
    }
    Ok(Output("r".repeat(100)))
}

fn window(seen: &Mutex<Seen>) -> Window {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.latencies.sort_unstable();
    let count = seen.latencies.len();
    let at = |share: f64| seen.latencies.get((count as f64 * share) as usize).map_or(0.0, |nanos| *nanos as f64 / 1e6);
    let window = Window { attempts: seen.attempts, failed: seen.failed, p50_ms: at(0.5), p99_ms: at(0.99) };
    seen.latencies.clear();
    window
}
