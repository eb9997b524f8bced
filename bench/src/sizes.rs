//! What is one number and not a rate: CPU and memory.

use crate::program;
use crate::rounds::{Measured, median};
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
    Ok(vec![
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
    ])
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

/// What the drains of a figure used, beside what they reached.
pub(crate) fn of_drains(figure: &Measured) -> Vec<Size> {
    let times = |go: &[f64], ours: &[f64]| format!("{:.1} times less than Go", median(go) / median(ours));
    vec![
        Size {
            name: "Redis CPU per drained task, concurrency 50",
            value: times(&figure.go.redis_cpu, &figure.ours.redis_cpu),
            must: "4 times",
            goal: "7 times",
        },
        Size {
            name: "CPU of the worker per drained task, concurrency 50",
            value: times(&figure.go.own_cpu, &figure.ours.own_cpu),
            must: "8 times",
            goal: "40 times",
        },
        Size {
            name: "peak memory of the worker, concurrency 50",
            value: format!("{:.1} MB (Go: {:.1})", median(&figure.ours.peak_mb), median(&figure.go.peak_mb)),
            must: "≤ 12 MB",
            goal: "≤ 5 MB",
        },
    ]
}
