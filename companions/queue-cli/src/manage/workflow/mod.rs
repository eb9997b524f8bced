//! `queuectl workflow`.

mod create;
mod look;

use clap::Subcommand;

pub(crate) use self::look::edges;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// What to do with workflows. They are batches, so that the commands of those wait for them, explain, cancel and retry them.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Make the workflow that a file describes, start it, and print its id
    Create(create::CreateArgs),
    /// Show the nodes of a workflow, how they stand, and what they wait for
    Show(look::ShowArgs),
}

crate::command::simple!(WorkflowCommand);

async fn run(command: WorkflowCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        WorkflowCommand::Create(args) => create::run(args, session, out).await,
        WorkflowCommand::Show(args) => look::show(args, session, out).await,
    }
}
