//! Log lines, on standard error.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::cli::Command;
use crate::error::CliError;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. A worker tells what it does; the demo tells it in its own way; the other commands speak
/// up only when something is wrong.
pub(crate) fn start(command: &Command, json: bool) -> Result<(), CliError> {
    let (default, format) = match command {
        Command::Worker(worker) => ("info", worker.log_format(json)),
        Command::Exporter(_) => ("info", if json { LogFormat::Json } else { LogFormat::Text }),
        Command::Scheduler(scheduler) => ("info", scheduler.log_format(json)),
        // What becomes of its tasks, it shows itself.
        Command::Demo(_) => ("error,queue_worker::server::attempt=off", LogFormat::Text),
        // A line among the cells of the screen would stay there.
        Command::Dash(_) if std::io::stderr().is_terminal() => ("off", LogFormat::Text),
        _ => ("warn", LogFormat::Text),
    };
    let filter = match std::env::var("QUEUECTL_LOG") {
        Ok(text) if !text.trim().is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            CliError::failed(format!("QUEUECTL_LOG is no log filter: {error}; try QUEUECTL_LOG=debug"))
        })?,
        _ => EnvFilter::new(default),
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // A reader of our log that goes away would otherwise be complained about with `eprintln!`, which panics.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
