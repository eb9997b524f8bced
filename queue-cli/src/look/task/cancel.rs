//! `queuectl task cancel`.

use clap::Args;
use queue_core::State;
use serde::Serialize;

use super::change::{Action, Choice};
use super::select::FilterArgs;
use crate::confirm::ConfirmArgs;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// Which tasks to cancel.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Task id
    #[arg(value_name = "ID", required_unless_present = "queue", conflicts_with = "queue")]
    ids: Vec<String>,
    /// All tasks of this queue that run, and fit
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    id: &'a str,
    servers_asked: u64,
}

pub(crate) async fn run(args: CancelArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    if let Some(queue) = &args.queue {
        let choice = Choice { action: Action::Cancel, queue, states: &[State::Active], filter: &args.filter };
        return choice.run(args.confirm, false, session, out).await;
    }
    if !args.filter.is_empty() {
        return Err(CliError::Usage("--group, --type and the like go with --queue".to_owned()));
    }
    for id in &args.ids {
        let servers = inspector.cancel(id).await?;
        if servers == 0 {
            return Err(CliError::failed(
                "no server is listening, so nothing was canceled; `queuectl server ls` shows those that run",
            ));
        }
        if out.json {
            out.value(&Asked { id, servers_asked: servers })?;
            continue;
        }
        let servers = if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") };
        let line =
            format!("asked {servers} to stop working on task {id:?}; whichever has it lets it fail and be retried");
        out.line(&line)?;
    }
    Ok(())
}
