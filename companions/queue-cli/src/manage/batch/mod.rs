//! `queuectl batch`.

mod create;
mod look;
mod wait;

use std::time::Duration;

use clap::{Args, Subcommand};
use queue_core::flow::FlowId;
use queue_redis::BatchStatus;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// What to do with batches.
#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Make a batch of the tasks of a file, and print its id
    Create(create::CreateArgs),
    /// Show batches, newest first; children stand with their parents
    #[command(visible_alias = "list")]
    Ls(look::ListArgs),
    /// Show a batch, or its members in a state
    #[command(visible_alias = "inspect")]
    Show(look::ShowArgs),
    /// Wait until a batch is over, callbacks included
    Wait(WaitArgs),
}

/// Which batch to wait for.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct WaitArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Wait no longer than this [default: for ever]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
}

const WAIT_HELP: &str = "\
Exit codes: 0 the batch succeeded; 5 it is over without success: something in it
died, or it was cancelled or abandoned; 6 it is gone, because it was over and was
forgotten meanwhile; 3 there was no such batch to begin with; 124 the time is
over.";

/// Which part of a listing to show.
#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
struct PageArgs {
    /// Which page, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Lines per page
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

impl PageArgs {
    fn skip(self) -> usize {
        (self.page as usize - 1).saturating_mul(self.size as usize)
    }

    fn most(self) -> usize {
        self.size as usize
    }
}

crate::command::simple!(BatchCommand);

async fn run(command: BatchCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        BatchCommand::Create(args) => create::run(args, session, out).await,
        BatchCommand::Ls(args) => look::list(args, session, out).await,
        BatchCommand::Show(args) => look::show(args, session, out).await,
        BatchCommand::Wait(args) => wait::run(args, session, out).await,
    }
}

/// How a batch stands, in one line: `dead: 2 of 3 members succeeded, 1 dead`.
fn summary(status: &BatchStatus) -> String {
    let mut text = format!("{}: {} of {} members succeeded", status.state.as_str(), status.succeeded, status.total);
    for (count, word) in others(status).into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    text
}

/// The members that have not succeeded, by state.
fn others(status: &BatchStatus) -> [(u64, &'static str); 6] {
    [
        (status.sent, "sent"),
        (status.failing, "failing"),
        (status.dead, "dead"),
        (status.removed, "removed"),
        (status.cancelled, "cancelled"),
        (status.doomed, "doomed"),
    ]
}
