//! `queuectl task cancel`.

use clap::Args;
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// Which tasks to cancel.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Task id
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    id: &'a str,
    servers_asked: u64,
}

pub(crate) async fn run(args: CancelArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
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
