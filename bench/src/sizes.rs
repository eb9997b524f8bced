//! What can be measured of this library alone: memory in Redis, and for how long a script holds it up.

use crate::program;
use crate::rounds::median;
use crate::server::Server;
use crate::{Args, Failure};

/// A line of the report.
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) must: &'static str,
    pub(crate) goal: &'static str,
}

const TASKS: u64 = 100_000;

pub(crate) async fn measure(args: &Args) -> Result<Vec<Size>, Failure> {
    let go = memory(args, false, &[]).await?;
    let ours = memory(args, true, &[]).await?;
    let tuned = memory(args, true, &["--hash-max-listpack-value", "1024"]).await?;
    let mut all = vec![
        Size {
            name: "Redis memory per pending task of 200 bytes payload",
            value: format!("{ours:.0} bytes (Go: {go:.0})"),
            must: "equal",
            goal: "",
        },
        Size {
            name: "the same with hash-max-listpack-value 1024",
            value: format!("{tuned:.0} bytes, {:+.0} %", (tuned / go - 1.0) * 100.0),
            must: "",
            goal: "-28 %",
        },
    ];
    all.push(scripts(args).await?);
    Ok(all)
}

/// Bytes per task that either side put into a queue.
async fn memory(args: &Args, us: bool, settings: &[&str]) -> Result<f64, Failure> {
    let mut server = Server::start(false, settings).await?;
    let before = server.info("memory", "used_memory").await?;
    let port = server.port;
    if us {
        let fill =
            format!("bench enqueue --tasks {TASKS} --callers 1 --batch 100 --redis redis://127.0.0.1:{port} --json");
        program::run(&args.queuectl, &fill, 1).await?;
    } else {
        program::run(&args.go, &format!("enqueue -tasks {TASKS} -callers 50 -redis 127.0.0.1:{port}"), 1).await?;
    }
    Ok((server.info("memory", "used_memory").await? - before) / TASKS as f64)
}

/// How long the calls of scripts take while full batches are enqueued and drained.
async fn scripts(args: &Args) -> Result<Size, Failure> {
    let mut server = Server::start(false, &[]).await?;
    let redis = format!("--redis redis://127.0.0.1:{} --json", server.port);
    server.watch_slow_calls(0).await?;
    let fill = format!("bench enqueue --tasks {TASKS} --callers 1 --batch 100 {redis}");
    program::run(&args.queuectl, &fill, 1).await?;
    program::run(&args.queuectl, &format!("bench drain --concurrency 100 {redis}"), 1).await?;
    let micros: Vec<f64> = server.slow_calls().await?.into_iter().map(|micros| micros as f64).collect();
    let mut sorted = micros.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let longest = sorted.last().copied().unwrap_or(f64::NAN);
    Ok(Size {
        name: "how long a script holds Redis up, batches of 100",
        value: format!("median {:.0} µs, p99 {:.0} µs, longest {longest:.0} µs", median(&micros), at(0.99)),
        must: "≤ 250 µs",
        goal: "≤ 120 µs",
    })
}
