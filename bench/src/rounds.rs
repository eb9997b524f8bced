//! One figure, round by round.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::figures::{Figure, Target};
use crate::program;
use crate::server::Server;
use crate::{Args, Failure, proxy};

/// What one side reached, in every round.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Side {
    pub(crate) values: Vec<f64>,
    /// Microseconds of CPU per task.
    pub(crate) redis_cpu: Vec<f64>,
    pub(crate) own_cpu: Vec<f64>,
    pub(crate) peak_mb: Vec<f64>,
}

/// A figure with what both sides reached.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) go: Side,
    pub(crate) ours: Side,
    /// How much better ours is, in each round.
    pub(crate) ratios: Vec<f64>,
    pub(crate) must: String,
    pub(crate) goal: String,
    pub(crate) must_reached: bool,
    pub(crate) goal_reached: bool,
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) async fn measure(figure: &Figure, args: &Args) -> Result<Measured, Failure> {
    let mut server = Server::start(figure.durable, &[]).await?;
    let port = if figure.far { proxy::start(server.port)? } else { server.port };
    let (mut ours, mut go) = (Side::default(), Side::default());
    for round in 0..args.rounds {
        // Neither side always follows the other.
        for us in [round % 2 == 0, round % 2 != 0] {
            let side = if us { &mut ours } else { &mut go };
            one_side(figure, args, &mut server, port, us, side).await?;
        }
    }
    server.stop().await;
    let better = |(ours, go): (&f64, &f64)| if figure.unit == "tasks/s" { ours / go } else { go / ours };
    let ratios: Vec<f64> = ours.values.iter().zip(&go.values).map(better).collect();
    let reached = |target| match target {
        Target::Times(times) => median(&ratios) >= times,
        Target::AtMost(most) => median(&ours.values) <= most,
        Target::AtLeast(least) => median(&ours.values) >= least,
    };
    let (must_reached, goal_reached) = (reached(figure.must), reached(figure.goal));
    let (must, goal) = (say(figure.must), say(figure.goal));
    Ok(Measured { name: figure.name, unit: figure.unit, go, ours, ratios, must, goal, must_reached, goal_reached })
}

fn say(target: Target) -> String {
    match target {
        Target::Times(times) => format!("{times}x"),
        Target::AtMost(most) => format!("≤ {most}"),
        Target::AtLeast(least) => format!("≥ {least}"),
    }
}

async fn one_side(
    figure: &Figure,
    args: &Args,
    server: &mut Server,
    port: u16,
    us: bool,
    side: &mut Side,
) -> Result<(), Failure> {
    let tasks = if us { figure.tasks.0 } else { figure.tasks.1 };
    server.flush().await?;
    if figure.active > 0 {
        server.make_active("bench", figure.active).await?;
    }
    if figure.filled {
        let fill = format!("bench enqueue --tasks {tasks} --callers 1 --batch 100");
        program::run(&args.queuectl, &queuectl(&fill, server.port), 1).await?;
    }
    let (program, arguments) = if us {
        let command = if figure.ours.starts_with("worker") { "" } else { "bench " };
        (&args.queuectl, queuectl(&format!("{command}{}", figure.ours), port))
    } else {
        (&args.go, format!("{} -redis 127.0.0.1:{port}", figure.go))
    };
    let arguments = arguments.replace("{tasks}", &tasks.to_string());
    if figure.field.is_empty() {
        side.values.push(idle(program, &arguments, server).await?);
        return Ok(());
    }
    let before = server.cpu().await?;
    let run = program::run(program, &arguments, figure.processes).await?;
    let value = run.report[figure.field].as_f64();
    side.values.push(value.ok_or_else(|| format!("{arguments} did not report {}", figure.field))?);
    if tasks > 0 {
        side.redis_cpu.push((server.cpu().await? - before) * 1e6 / tasks as f64);
        side.own_cpu.push(run.cpu * 1e6 / tasks as f64);
        side.peak_mb.push(run.peak_mb);
    }
    Ok(())
}

fn queuectl(arguments: &str, port: u16) -> String {
    format!("{arguments} --redis redis://127.0.0.1:{port} --json")
}

/// Commands per second that a server sends which has nothing to do, those within scripts included.
async fn idle(program: &Path, arguments: &str, server: &mut Server) -> Result<f64, Failure> {
    const WATCHED: Duration = Duration::from_secs(20);
    let mut child = program::spawn(program, arguments)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = server.info("stats", "total_commands_processed").await?;
    tokio::time::sleep(WATCHED).await;
    // One of them is the look itself.
    let commands = server.info("stats", "total_commands_processed").await? - before - 1.0;
    child.kill().await?;
    Ok(commands / WATCHED.as_secs_f64())
}
