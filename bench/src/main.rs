//! Measures `queuectl bench` and `bench/go`, which is the same on Go asynq, in turn on one private Redis.
//!
//! * [`against`]: a user's program of two revisions, in turn.
//! * [`figures`]: what is measured, and what it should reach.
//! * [`rounds`]: one figure, round by round.
//! * [`program`]: one run of one side, with what it used.
//! * [`server`]: the private Redis, and what it says about itself.
//! * [`proxy`]: a connection as if Redis were further away.
//! * [`sizes`], [`scripts`], [`huge`]: what is one number; how long scripts take; what ten million tasks change.
//! * [`report`], [`plot`]: the table, the JSON and the picture.
//! * [`soak`]: a steady load for a long time.
//! * [`web`]: the dashboard, and asynqmon beside it.

mod against;
mod figures;
mod huge;
mod plot;
mod program;
mod proxy;
mod report;
mod rounds;
mod scripts;
mod server;
mod sizes;
mod soak;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures this library.
#[derive(Debug, Parser)]
enum Command {
    Against(against::Against),
    Compare(Args),
    Soak(soak::Soak),
    #[command(hide = true)]
    SoakWorker(soak::worker::Worker),
    Web(web::Web),
}

/// Measure it and Go asynq in turn on one private Redis
#[derive(Debug, clap::Args)]
struct Args {
    /// The queuectl to measure, built with --release
    #[arg(long)]
    queuectl: PathBuf,
    /// The program built from bench/go
    #[arg(long)]
    go: PathBuf,
    /// Rounds; in each, every side runs once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A fifth of the tasks, and only the quick figures
    #[arg(long)]
    quick: bool,
    /// Only figures whose name contains this; also "sizes", "ten million scheduled tasks"
    #[arg(long, default_value = "")]
    only: String,
    /// Directory for results.md, results.json and results.svg
    #[arg(long)]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let outcome = match Command::parse() {
        Command::Against(args) => against::run(&args).await,
        Command::Compare(args) => compare(args).await.map(done),
        Command::Soak(args) => soak::run(&args).await.map(done),
        Command::SoakWorker(args) => soak::worker::run(&args).await.map(done),
        Command::Web(args) => web::run(&args).await.map(done),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("queue-bench: {error}");
        // 1 says that something was measured and found worse.
        ExitCode::from(2)
    })
}

async fn compare(mut args: Args) -> Result<(), Failure> {
    for program in [&mut args.queuectl, &mut args.go] {
        *program = program.canonicalize().map_err(|error| format!("{}: {error}", program.display()))?;
    }
    let mut results = Vec::new();
    for figure in figures::all(args.quick) {
        if !figure.name.contains(&args.only) {
            continue;
        }
        eprintln!("{}", figure.name);
        results.push(rounds::measure(&figure, &args).await?);
        print!("{}", report::line(&results[results.len() - 1]));
    }
    let mut sizes: Vec<_> =
        results.iter().filter(|figure| figure.name == figures::PLAIN).flat_map(sizes::of_drains).collect();
    if "sizes".contains(&args.only) {
        sizes.extend(sizes::measure(&args).await?);
        sizes.push(scripts::measure(&args).await?);
    }
    if "ten million scheduled tasks".contains(&args.only) && !args.quick {
        sizes.extend(huge::measure(&args).await?);
    }
    let text = report::document(&results, &sizes, args.rounds).await?;
    println!("{text}");
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        std::fs::write(out.join("results.md"), text)?;
        std::fs::write(out.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
        plot::draw(&results, &out.join("results.svg"))?;
    }
    Ok(())
}
