//! The Rust side of the tests against Go asynq; `tests/interop/PEER.md` says what it has to do.

mod batch;
mod encrypted;
mod scheduler;
mod semaphore;
mod sequence;
mod steps;
mod trace;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[derive(Debug, Parser)]
#[command(about = "The Rust side of the tests against Go asynq")]
enum Command {
    /// Runs a server whose handlers do what the task's type says.
    Worker(worker::Settings),
    /// Runs a scheduler.
    Scheduler(scheduler::Settings),
    /// Makes a batch, and prints its id.
    Batch(batch::Settings),
    /// Takes a token of a semaphore, or gives it back.
    Semaphore(semaphore::Settings),
    /// Enqueues a task in a trace, and prints the span.
    TraceEnqueue(trace::Settings),
    /// Works a task, and prints the span.
    TraceWork(trace::Settings),
    /// Enqueues an encrypted task.
    EncryptEnqueue(encrypted::Settings),
    /// Works an encrypted task, and prints what its handler sees.
    EncryptWork(encrypted::Settings),
    /// Removes a queue by force, and prints how many tasks it had.
    RemoveQueue {
        /// Name of the queue.
        name: String,
        #[arg(long)]
        redis: String,
    },
    /// Performs the steps of a named sequence on an empty Redis.
    Sequence {
        /// Name of the sequence.
        name: String,
        #[arg(long)]
        redis: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Command::parse();
    // These collect spans instead of log lines.
    if !matches!(command, Command::TraceEnqueue(_) | Command::TraceWork(_)) {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    }
    let outcome = match command {
        Command::TraceEnqueue(settings) => trace::enqueue(settings).await,
        Command::TraceWork(settings) => trace::work(settings).await,
        Command::EncryptEnqueue(settings) => encrypted::enqueue(settings).await,
        Command::EncryptWork(settings) => encrypted::work(settings).await,
        Command::Worker(settings) => worker::run(settings).await,
        Command::Scheduler(settings) => scheduler::run(settings).await,
        Command::Batch(settings) => batch::run(settings).await,
        Command::Semaphore(settings) => semaphore::run(settings).await,
        Command::RemoveQueue { name, redis } => remove_queue(&name, &redis).await,
        Command::Sequence { name, redis } => sequence::run(&name, &redis).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "interop-peer failed");
            ExitCode::FAILURE
        }
    }
}

async fn remove_queue(name: &str, url: &str) -> Outcome {
    let inspector = queue_admin::Inspector::new(queue_redis::Redis::connect(url).await?);
    println!("{}", inspector.remove_queue(name, true).await?);
    Ok(())
}
