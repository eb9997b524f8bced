//! `queuectl task`.

mod cancel;
mod inspect;
mod list;
mod wait;

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// What to do with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show the tasks of a queue in one state
    #[command(visible_alias = "list")]
    Ls(list::ListArgs),
    /// Show everything about a task
    Inspect(inspect::InspectArgs),
    /// Wait until a task ends, and print its result
    Wait(wait::WaitArgs),
    /// Ask the servers to stop working on tasks; they then count as failed and are retried
    Cancel(cancel::CancelArgs),
}

pub(crate) async fn run(command: TaskCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        TaskCommand::Ls(args) => list::run(args, session, out).await,
        TaskCommand::Inspect(args) => inspect::run(args, session, out).await,
        TaskCommand::Wait(args) => wait::run(args, session, out).await,
        TaskCommand::Cancel(args) => cancel::run(args, session, out).await,
    }
}
