//! `queuectl bench`: how fast a Redis, this machine and this library are together.
//!
//! Uses the public client and server with their defaults, as any program would; `bench/` runs it beside Go asynq.

mod drain;
mod enqueue;
mod late;
mod latency;
mod samples;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use queue_admin::{Error, Inspector};
use queue_core::RawTask;
use queue_core::options::check_queue_name;
use queue_worker::{Handle, Router, Server};
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Work all tasks that are in the queue, whoever put them there, with a handler that does nothing
    Drain(Drain),
    /// Put tasks into the queue
    Enqueue(Enqueue),
    /// Put tasks into the queue while they are worked
    E2e(EndToEnd),
    /// Measure the time from the enqueue call to the start of the handler, at a steady rate
    Latency(Latency),
    /// Measure by how much scheduled tasks start after the second they are due
    Late(Late),
}

/// What all measurements need.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Queue to fill and empty; the tasks in it are lost
    #[arg(long, short, default_value = "bench", value_parser = queue)]
    queue: String,
}

fn queue(name: &str) -> Result<String, String> {
    check_queue_name(name).map_err(|error| error.to_string())?;
    Ok(name.to_owned())
}

/// How tasks are worked.
#[derive(Debug, Args)]
pub(crate) struct Working {
    /// Tasks to work at once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// How long each handler takes; with one, no more than 512 run at once
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "0s")]
    work: Duration,
}

/// How tasks are enqueued.
#[derive(Debug, Args)]
pub(crate) struct Calling {
    /// Tasks in all
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Callers, each of which awaits one call before the next
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    callers: u64,
    /// Tasks per call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// Bytes of payload of each task
    #[arg(long, value_name = "N", default_value_t = 200)]
    payload: usize,
}

/// `queuectl bench drain`
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    working: Working,
    /// Fill the queue with so many tasks first
    #[arg(long, value_name = "N", default_value_t = 0)]
    tasks: u64,
}

/// `queuectl bench enqueue`
#[derive(Debug, Args)]
pub(crate) struct Enqueue {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    calling: Calling,
}

/// `queuectl bench e2e`
#[derive(Debug, Args)]
pub(crate) struct EndToEnd {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    working: Working,
    #[command(flatten)]
    calling: Calling,
}

/// `queuectl bench latency`
#[derive(Debug, Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    working: Working,
    /// Tasks per second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// For how many seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// `queuectl bench late`
#[derive(Debug, Args)]
pub(crate) struct Late {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    working: Working,
    /// Tasks in all
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Over how many seconds they are spread, the same number due at each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// How many tasks in how much time.
#[derive(Debug, Serialize)]
struct Speed {
    tasks: u64,
    seconds: f64,
    per_second: f64,
}

impl Speed {
    fn new(tasks: u64, started: Instant) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        Self { tasks, seconds, per_second: if tasks == 0 { 0.0 } else { tasks as f64 / seconds } }
    }

    fn show(&self, out: &Output) -> Result<(), CliError> {
        if out.json {
            return out.value(self);
        }
        out.line(&format!("{} tasks in {:.3} s: {:.0} per second", self.tasks, self.seconds, self.per_second))
    }
}

fn task(queue: &str, payload: Vec<u8>) -> RawTask {
    RawTask::new("bench:noop").payload(payload).queue(queue)
}

async fn serve(session: &Session, queue: &str, working: &Working, router: Router) -> Result<Handle, CliError> {
    let server = Server::new(session.redis().clone(), router).queues([(queue, 1)]);
    Ok(server.concurrency(working.concurrency as usize).start().await?)
}

/// Other tasks would be counted among those that are measured.
async fn require_empty(session: &Session, queue: &str) -> Result<(), CliError> {
    match Inspector::new(session.redis().clone()).queue(queue).await {
        Ok(info) if info.pending + info.active > 0 => Err(CliError::failed(format!(
            "queue {queue:?} has {} tasks, which would be counted too; empty it with `queuectl bench drain`, or name another",
            info.pending + info.active
        ))),
        Ok(_) | Err(Error::QueueNotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

crate::command::simple!(BenchCommand);

async fn run(command: BenchCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        BenchCommand::Drain(args) => {
            if args.tasks > 0 {
                let calling = Calling { tasks: args.tasks, callers: 1, batch: 100, payload: 200 };
                enqueue::run(session, &args.place.queue, &calling).await?;
            }
            drain::run(session, &args.place.queue, &args.working).await?.show(out)
        }
        BenchCommand::Enqueue(args) => enqueue::run(session, &args.place.queue, &args.calling).await?.show(out),
        BenchCommand::E2e(args) => {
            require_empty(session, &args.place.queue).await?;
            drain::end_to_end(session, &args.place.queue, &args.working, &args.calling).await?.show(out)
        }
        BenchCommand::Latency(args) => {
            require_empty(session, &args.place.queue).await?;
            latency::run(session, &args.place.queue, &args.working, args.rate, args.seconds).await?.show(out)
        }
        BenchCommand::Late(args) => {
            require_empty(session, &args.place.queue).await?;
            late::run(session, &args.place.queue, &args.working, args.tasks, args.seconds).await?.show(out)
        }
    }
}
