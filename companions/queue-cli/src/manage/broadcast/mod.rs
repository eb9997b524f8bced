//! `queuectl broadcast`.

mod list;
mod look;
mod run;

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// What to do with broadcasts. They are batches, so that the commands of those wait for all servers, explain, cancel and retry.
#[derive(Debug, Subcommand)]
pub(crate) enum BroadcastCommand {
    /// Have several servers run a task, each of them once, and print the id
    Run(Box<run::RunArgs>),
    /// Show the broadcasts, newest first
    #[command(visible_alias = "list")]
    Ls(list::ListArgs),
    /// Show how each server of a broadcast stands
    #[command(visible_alias = "inspect")]
    Show(look::ShowArgs),
}

crate::command::simple!(BroadcastCommand);

async fn run(command: BroadcastCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        BroadcastCommand::Run(args) => run::run(*args, session, out).await,
        BroadcastCommand::Ls(args) => list::list(args, session, out).await,
        BroadcastCommand::Show(args) => look::show(args, session, out).await,
    }
}
