//! A steady load for a long time: is anything growing?
//!
//! * [`worker`]: the process that is watched.
//! * [`report`]: what was seen, as a table and a picture.

mod report;
pub(crate) mod worker;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::future::join_all;
use queue_admin::Inspector;
use queue_core::clock::Clock as _;
use queue_core::{RawTask, SystemClock, TaskOptions};
use queue_redis::Client;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Failure;
use crate::server::Server;

pub(crate) const QUEUE: &str = "soak";
/// How long a window is over which latencies are gathered; everything else is looked at when it ends.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// How often tasks are enqueued; each time a hundredth of the rate.
const TICK: Duration = Duration::from_millis(10);
/// What is done and kept makes Redis grow for so long.
const RETENTION: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// Watch a worker and Redis under a steady load
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// For how long
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..))]
    minutes: u64,
    /// Tasks per second, a multiple of 100
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(100..))]
    rate: u64,
    /// Directory for soak.md, soak.json and soak.svg
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What a task is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    Done,
    /// Kept for a minute, with a result.
    Kept,
    /// Fails once.
    Retried,
    /// Is due five seconds later.
    Scheduled,
}

/// The payload.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) fate: Fate,
    /// Unix time in nanoseconds.
    pub(crate) sent_ns: i64,
}

/// What the worker says of a window.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Attempts, and those that failed on purpose, since the start.
    pub(crate) attempts: u64,
    pub(crate) failed: u64,
    /// From enqueue call to the start of the handler.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// One look.
#[derive(Debug, Serialize)]
struct Sample {
    seconds: u64,
    worker_mb: f64,
    redis_mb: f64,
    keys: f64,
    window: Window,
}

/// Counters at the end.
#[derive(Debug, Serialize)]
struct Counters {
    enqueued: u64,
    attempts: u64,
    failed: u64,
    redis_processed: u64,
    redis_failed: u64,
}

pub(crate) async fn run(args: &Soak) -> Result<(), Failure> {
    let mut server = Server::start(false, &[]).await?;
    let url = format!("redis://127.0.0.1:{}", server.port);
    let (mut worker, mut windows) = start_worker(&url)?;
    let client = Client::connect(&url).await?;
    let producer = tokio::spawn(produce(client.clone(), args.rate, Duration::from_secs(args.minutes * 60)));
    let began = Instant::now();
    let mut samples = Vec::new();
    while !producer.is_finished() {
        let window = next_window(&mut windows).await?;
        samples.push(Sample {
            seconds: began.elapsed().as_secs(),
            worker_mb: resident_mb(worker.id().unwrap_or_default())?,
            redis_mb: server.info("memory", "used_memory").await? / 1e6,
            keys: server.keys().await?,
            window,
        });
        eprintln!("{}", serde_json::to_string(&samples[samples.len() - 1])?);
    }
    let enqueued = producer.await??;
    let last = until_empty(&client, &mut windows).await?;
    let queue = Inspector::new(client.redis().clone()).queue(QUEUE).await?;
    let counters = Counters {
        enqueued,
        attempts: last.attempts,
        failed: last.failed,
        redis_processed: queue.processed_total,
        redis_failed: queue.failed_total,
    };
    worker.kill().await?;
    server.stop().await;
    report::write(args, &samples, &counters)
}

/// This program again, as a worker.
fn start_worker(url: &str) -> Result<(Child, Lines<BufReader<ChildStdout>>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["soak-worker", "--redis", url]).stdin(Stdio::null()).stdout(Stdio::piped());
    // It says something about each task that fails.
    command.stderr(Stdio::null()).kill_on_drop(true);
    let mut worker = command.spawn()?;
    let lines = BufReader::new(worker.stdout.take().ok_or("no standard output")?).lines();
    Ok((worker, lines))
}

async fn next_window(windows: &mut Lines<BufReader<ChildStdout>>) -> Result<Window, Failure> {
    let line = tokio::time::timeout(PATIENCE, windows.next_line()).await.map_err(|_| "the worker says nothing")??;
    Ok(serde_json::from_str(&line.ok_or("the worker has ended")?)?)
}

/// Enqueues at a steady rate; returns how many.
async fn produce(client: Client, rate: u64, length: Duration) -> Result<u64, Failure> {
    let (began, mut enqueued) = (Instant::now(), 0);
    let mut ticks = tokio::time::interval(TICK);
    while began.elapsed() < length {
        ticks.tick().await;
        let tasks = (0..rate / 100).map(|n| client.enqueue(task(enqueued + n)));
        for outcome in join_all(tasks).await {
            outcome?;
            enqueued += 1;
        }
    }
    Ok(enqueued)
}

fn task(number: u64) -> RawTask {
    let fate = match number % 20 {
        0 => Fate::Scheduled,
        1 | 2 => Fate::Retried,
        3..=5 => Fate::Kept,
        _ => Fate::Done,
    };
    let options = match fate {
        Fate::Kept => TaskOptions::new().retention(RETENTION),
        Fate::Scheduled => TaskOptions::new().process_in(Duration::from_secs(5)),
        Fate::Done | Fate::Retried => TaskOptions::new(),
    };
    let load = serde_json::json!(Load { fate, sent_ns: SystemClock.now_ns() });
    RawTask::new("soak").payload(load.to_string()).queue(QUEUE).with(options)
}

/// Waits until all is worked; returns what the worker says then.
async fn until_empty(client: &Client, windows: &mut Lines<BufReader<ChildStdout>>) -> Result<Window, Failure> {
    let inspector = Inspector::new(client.redis().clone());
    let began = Instant::now();
    loop {
        let queue = inspector.queue(QUEUE).await?;
        if queue.pending + queue.active + queue.scheduled + queue.retry == 0 {
            // The window that contains the last task.
            next_window(windows).await?;
            return next_window(windows).await;
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("the queue does not become empty: {queue:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the process has in memory now.
fn resident_mb(pid: u32) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1_024.0 / 1e6)
}
