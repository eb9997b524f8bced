//! `queuectl`: enqueue, work and look at asynq-format tasks from the shell.
//!
//! * [`cli`], [`args`], [`global`], [`connection`]: what stands on the command line; `cli` has the table of all commands.
//! * [`command`]: what the program has to know of a command.
//! * [`session`]: the Redis a command works on, somebody's or an embedded one.
//! * [`enqueue`]: one task, or a file of them.
//! * [`worker`]: a worker that runs programs or sends HTTP requests.
//! * [`exporter`]: what is in the queues, for Prometheus.
//! * [`scheduler`]: periodic tasks from a file.
//! * [`mod@bench`]: how fast it all is here.
//! * [`manage`]: queues, tasks, periodic entries, groups, servers and statistics, looked at and changed.
//! * [`dash`]: the same, live in the terminal.
//! * [`web`]: the same in a browser, and a REST API.
//! * [`doctor`]: whether all is in order, and repairs.
//! * [`explain`]: why a task is not running.
//! * [`transfer`]: export and import.
//! * [`demo`]: the life of a task, shown on a Redis of its own.
//! * [`manual`]: shell completions and manual pages.
//! * [`outbox`]: tasks that were written inside SQL transactions.
//! * [`output`], [`table`], [`when`], [`watch`]: how things are shown.

#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, unused_macros, reason = "the demo uses a part of what all commands share")
)]

mod args;
#[cfg(feature = "full")]
mod bench;
mod cli;
mod command;
#[cfg(feature = "full")]
mod confirm;
mod connection;
#[cfg(feature = "full")]
mod dash;
mod demo;
#[cfg(feature = "full")]
mod doctor;
#[cfg(feature = "full")]
mod enqueue;
mod error;
#[cfg(feature = "full")]
mod events;
#[cfg(feature = "full")]
mod explain;
#[cfg(feature = "full")]
mod exporter;
#[cfg(feature = "full")]
mod given;
mod global;
mod interrupt;
#[cfg(feature = "full")]
mod lines;
mod logging;
#[cfg(feature = "full")]
mod manage;
#[cfg(feature = "full")]
mod manual;
#[cfg(feature = "full")]
mod outbox;
mod output;
#[cfg(feature = "full")]
mod progress;
#[cfg(feature = "full")]
mod scheduler;
mod session;
#[cfg(feature = "full")]
mod table;
#[cfg(feature = "full")]
mod tend;
#[cfg(feature = "full")]
mod toml_value;
#[cfg(feature = "full")]
mod transfer;
mod version;
#[cfg(feature = "full")]
mod waited;
#[cfg(feature = "full")]
mod watch;
#[cfg(feature = "full")]
mod web;
#[cfg(feature = "full")]
mod when;
#[cfg(feature = "full")]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use queue_redis::Stderr;

use crate::cli::Cli;
use crate::command::Place;
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
        Err(error) => return CliError::failed(format!("cannot start: {error}")).report(Cli::command),
    };
    let outcome = runtime.block_on(run(cli));
    // A thread may still wait for standard input, which nobody will write to any more.
    runtime.shutdown_background();
    // What was logged comes before what is said next, if somebody reads it.
    Stderr.flush_within(FLUSH);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(Cli::command),
    }
}

async fn run(cli: Cli) -> Result<(), CliError> {
    let (global, command) = (cli.global, cli.command.command());
    global.check()?;
    logging::start(command.log(global.json))?;
    let out = Output::new(global.json);
    command.check(&global)?;
    if let Some(outcome) = command.alone(Cli::command, &out) {
        return outcome;
    }
    let session = match command.place() {
        Place::Memory => Session::in_memory()?,
        place => {
            let opened = async {
                let session = Session::open(&global, place == Place::OwnRedis).await?;
                if place != Place::Nowhere {
                    session.connect().await?;
                }
                Ok(session)
            };
            opened.await.map_err(|error| command.unopened(error))?
        }
    };
    let (keeps, handles_signals) = (command.keeps_redis(), command.handles_signals());
    let running = command.run(&session, &out);
    let outcome = if handles_signals { running.await } else { interrupt::guard(running).await };
    session.client().events_told(Duration::from_secs(1)).await;
    if keeps && !matches!(outcome, Err(CliError::Interrupted(_))) {
        return outcome.and(session.keep().await);
    }
    session.close().await;
    outcome
}
