//! `queue-chaos` breaks the queue on purpose, and counts what became of every task. See `docs/chaos.md`.

mod batch;
mod broadcast;
mod check;
mod conduct;
mod export;
mod faults;
mod findings;
mod fleet;
mod happened;
mod history;
mod ledger;
mod listen;
mod log;
mod name;
mod net;
mod node;
mod plan;
mod poison;
mod produce;
mod proxy;
mod report;
mod snapshot;
mod steer;
mod tamper;
mod work;

use clap::{Parser, Subcommand};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(name = "queue-chaos", about = "Breaks the queue on purpose, and counts what became of every task")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a Redis, producers and workers, breaks them by a plan, and judges what is left
    Run(conduct::Settings),
    /// A producer of a run
    #[command(hide = true)]
    Produce(produce::Settings),
    /// A maker of batches of a run
    #[command(hide = true)]
    Batch(batch::Settings),
    /// A sender of broadcasts of a run
    #[command(hide = true)]
    Broadcast(broadcast::Settings),
    /// A worker of a run
    #[command(hide = true)]
    Work(work::Settings),
}

/// What each process of a run is told.
#[derive(Debug, clap::Args)]
struct Seat {
    #[arg(long)]
    redis: String,
    #[arg(long)]
    ledger: std::path::PathBuf,
    /// Number of this process.
    #[arg(long)]
    process: u16,
}

impl Seat {
    /// The ledger, and a client that connects when it is needed.
    fn take(&self) -> Result<(ledger::Book, queue_redis::Client), Failure> {
        let redis = queue_redis::Redis::lazy(&self.redis, queue_redis::RedisOptions::default())?;
        Ok((ledger::Book::open(&self.ledger)?, queue_redis::Client::new(redis)))
    }
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let ended = match Args::parse().command {
        Command::Run(settings) => conduct::run(settings).await,
        Command::Produce(settings) => {
            end_with_parent();
            produce::run(settings).await.map(|()| true)
        }
        Command::Batch(settings) => {
            end_with_parent();
            batch::run(settings).await.map(|()| true)
        }
        Command::Broadcast(settings) => {
            end_with_parent();
            broadcast::run(settings).await.map(|()| true)
        }
        Command::Work(settings) => {
            end_with_parent();
            work::run(settings).await.map(|()| true)
        }
    };
    match ended {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("queue-chaos: {error}");
            2.into()
        }
    }
}

/// Ends the process when its standard input ends, which is what happens when whoever started it is gone.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(4);
    });
}
