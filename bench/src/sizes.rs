//! What is one number and not a rate: CPU and memory, and for how long a script holds Redis up.

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

/// Calls of scripts below this are not looked at. With nothing left out, Redis notes each command within a script too,
/// which takes longer than the command.
const NOTED_FROM_MICROS: u64 = 15;

/// How often the calls of scripts are looked at. Of these rounds, the one counts in which the machine did least besides.
const SCRIPT_ROUNDS: usize = 5;

/// How long the calls of scripts take while 100,000 tasks are enqueued and drained. Go's, of one task each, tell what of
/// the longest is the machine: another process on Redis' core, a table that grows.
async fn scripts(args: &Args) -> Result<Size, Failure> {
    let mut server = Server::start(false, &[]).await?;
    let port = server.port;
    let go = async |server: &mut Server| {
        program::run(&args.go, &format!("enqueue -tasks {TASKS} -callers 50 -redis 127.0.0.1:{port}"), 1).await?;
        program::run(&args.go, &format!("drain -concurrency 50 -redis 127.0.0.1:{port}"), 1).await?;
        durations(server).await
    };
    let ours = async |server: &mut Server| {
        let redis = format!("--redis redis://127.0.0.1:{port} --json");
        let fill = format!("bench enqueue --tasks {TASKS} --callers 1 --batch 100 {redis}");
        program::run(&args.queuectl, &fill, 1).await?;
        program::run(&args.queuectl, &format!("bench drain --concurrency 100 {redis}"), 1).await?;
        durations(server).await
    };
    let longest = |of: &Vec<f64>| of.last().copied().unwrap_or(f64::NAN);
    let by_longest = |a: &Vec<f64>, b: &Vec<f64>| longest(a).total_cmp(&longest(b));
    let (mut all_ours, mut all_go) = (Vec::new(), Vec::new());
    for _ in 0..SCRIPT_ROUNDS {
        server.watch_slow_calls(NOTED_FROM_MICROS).await?;
        all_ours.push(ours(&mut server).await?);
        server.watch_slow_calls(NOTED_FROM_MICROS).await?;
        all_go.push(go(&mut server).await?);
    }
    all_ours.sort_by(by_longest);
    all_go.sort_by(by_longest);
    let (ours, go) = (&all_ours[0], &all_go[0]);
    let at = |share: f64| ours.get((ours.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    Ok(Size {
        name: "how long a script holds Redis up, 100,000 tasks enqueued and drained",
        value: format!(
            "median {:.0} µs, p99 {:.0} µs, longest {:.0} µs in the quietest of {SCRIPT_ROUNDS} rounds, {:.0} µs in the median one \
             (Go, one task per call: longest {:.0} and {:.0} µs)",
            median(ours),
            at(0.99),
            longest(ours),
            longest(&all_ours[SCRIPT_ROUNDS / 2]),
            longest(go),
            longest(&all_go[SCRIPT_ROUNDS / 2]),
        ),
        must: "≤ 250 µs",
        goal: "≤ 120 µs",
    })
}

/// The noted calls, in microseconds, shortest first.
async fn durations(server: &mut Server) -> Result<Vec<f64>, Failure> {
    let mut micros: Vec<f64> = server.slow_calls().await?.into_iter().map(|micros| micros as f64).collect();
    micros.sort_by(f64::total_cmp);
    Ok(micros)
}
