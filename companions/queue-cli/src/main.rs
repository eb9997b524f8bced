//! `queuectl`: enqueue, work and look at asynq-format tasks from the shell.
//!
//! * [`cli`], [`args`], [`connection`]: what stands on the command line.
//! * [`session`]: the Redis a command works on, somebody's or an embedded one.
//! * [`enqueue`]: one task, or a file of them.
//! * [`worker`]: a worker that runs programs or sends HTTP requests.
//! * [`exporter`]: what is in the queues, for Prometheus.
//! * [`scheduler`]: periodic tasks from a file.
//! * [`mod@bench`]: how fast it all is here.
//! * [`look`]: queues, tasks, servers and statistics.
//! * [`dash`]: the same, live in the terminal.
//! * [`doctor`]: whether all is in order, and repairs.
//! * [`explain`]: why a task is not running.
//! * [`transfer`]: export and import.
//! * [`demo`]: the life of a task, shown on a Redis of its own.
//! * [`manual`]: shell completions and manual pages.
//! * [`output`], [`table`], [`payload`], [`when`], [`view`], [`watch`]: how things are shown.

mod args;
#[cfg(feature = "full")]
mod bench;
mod cli;
mod confirm;
mod connection;
#[cfg(feature = "full")]
mod dash;
mod data_dir;
mod demo;
mod doctor;
mod enqueue;
mod error;
mod explain;
#[cfg(feature = "full")]
mod exporter;
mod interrupt;
mod lines;
mod logging;
mod look;
#[cfg(feature = "full")]
mod manual;
mod output;
mod payload;
mod progress;
#[cfg(feature = "full")]
mod scheduler;
mod session;
mod table;
#[cfg(feature = "full")]
mod transfer;
mod view;
mod watch;
mod when;
#[cfg(feature = "full")]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use queue_redis::Stderr;

use crate::cli::{Cli, Command};
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// How long the end waits for a reader of the log.
const FLUSH: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::with_values_joined(std::env::args_os()));
    // One thread: all this program does is wait, for Redis, for other programs, for services. More would hand the
    // same work to each other, which costs a third of the throughput on two cores.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CliError::failed(format!("cannot start: {error}")).report(),
    };
    let outcome = runtime.block_on(run(cli));
    // A thread may still wait for standard input, which nobody will write to any more.
    runtime.shutdown_background();
    // What was logged comes before what is said next, if somebody reads it.
    Stderr.flush_within(FLUSH);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

async fn run(cli: Cli) -> Result<(), CliError> {
    let Cli { global, command } = cli;
    global.check()?;
    logging::start(&command, global.json)?;
    let out = Output::new(global.json);
    // What is wrong with the arguments is said before anything is started.
    match &command {
        #[cfg(feature = "full")]
        Command::Worker(worker) => worker.check()?,
        Command::Demo(demo) => {
            global.check_keep(demo.keep)?;
            global.check_memory(demo.memory)?;
        }
        #[cfg(feature = "full")]
        Command::Dash(dash) => dash.check(global.json)?,
        // These need no Redis.
        #[cfg(feature = "full")]
        Command::Scheduler(scheduler) if scheduler.check => return scheduler.check(&out),
        #[cfg(feature = "full")]
        Command::Completions(args) => return manual::completions(args, &out),
        #[cfg(feature = "full")]
        Command::Man(args) => return manual::man(args, &out),
        Command::Version => return out.line(concat!("queuectl ", env!("CARGO_PKG_VERSION"))),
        _ => {}
    }
    let session = match &command {
        Command::Demo(demo) if demo.memory => Session::in_memory()?,
        Command::Doctor(_) => Session::open(&global, false).await.map_err(doctor::unchecked)?,
        command => Session::open(&global, matches!(command, Command::Demo(_))).await?,
    };
    let keeps = matches!(&command, Command::Demo(demo) if demo.keep);
    let outcome = match command {
        // These handle signals themselves: they have a server to shut down.
        #[cfg(feature = "full")]
        Command::Worker(worker) => worker::run(worker, &session, global.json).await,
        #[cfg(feature = "full")]
        Command::Exporter(exporter) => exporter::run(exporter, &session).await,
        #[cfg(feature = "full")]
        Command::Scheduler(scheduler) => scheduler::run(scheduler, &session).await,
        Command::Demo(demo) => demo::run(&demo, &session, &out).await,
        command => interrupt::guard(quick(command, &session, &out)).await,
    };
    if keeps && !matches!(outcome, Err(CliError::Interrupted(_))) {
        return outcome.and(session.keep().await);
    }
    session.close().await;
    outcome
}

async fn quick(command: Command, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        Command::Enqueue(enqueue) => enqueue::run(*enqueue, session, out).await,
        Command::Queue(command) => look::queue::run(command, session, out).await,
        Command::Task(command) => look::task::run(command, session, out).await,
        Command::Group(command) => look::group::run(command, session, out).await,
        Command::Server(command) => look::server::run(command, session, out).await,
        Command::Cron(command) => look::cron::run(command, session, out).await,
        #[cfg(feature = "full")]
        Command::Bench(command) => bench::run(command, session, out).await,
        #[cfg(feature = "full")]
        Command::Export(args) => transfer::export::run(args, session, out).await,
        #[cfg(feature = "full")]
        Command::Import(args) => transfer::import::run(args, session, out).await,
        #[cfg(feature = "full")]
        Command::Dash(args) => dash::run(args, session).await,
        Command::Doctor(args) => doctor::run(args, session, out).await,
        Command::Explain(args) => explain::run(args, session, out).await,
        Command::Stats(args) => look::stats::run(&args, session, out).await,
        Command::Demo(_) | Command::Version => Ok(()),
        #[cfg(feature = "full")]
        Command::Worker(_)
        | Command::Exporter(_)
        | Command::Scheduler(_)
        | Command::Completions(_)
        | Command::Man(_) => Ok(()),
    }
}
