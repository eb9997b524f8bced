//! `queuectl task cancel`.

use clap::Args;
use queue_admin::{Admin, Cancellation, Verb};
use queue_core::TaskState;
use serde::Serialize;

use super::change::Choice;
use super::everywhere;
use super::select::FilterArgs;
use crate::confirm::ConfirmArgs;
use crate::error::{CliError, complain, exit};
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
    /// End the tasks for good: they are archived and not tried again, also where no server listens now
    ///
    /// A task that nobody works on is archived at once. For one that a server works on this is recorded until it
    /// has ended; a handler that succeeds all the same has succeeded.
    #[arg(long, conflicts_with = "queue")]
    for_good: bool,
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
    if let Some(queue) = &args.queue {
        let choice = Choice { action: Verb::Cancel, queue, states: &[TaskState::Active], filter: &args.filter };
        return choice.run(args.confirm, false, session, out).await;
    }
    if !args.filter.is_empty() {
        return Err(CliError::Usage("--group, --type and the like go with --queue".to_owned()));
    }
    let admin = session.admin("cli");
    if args.for_good {
        return for_good(&args.ids, &admin, out).await;
    }
    let mut failed = None;
    for id in &args.ids {
        match cancel(&admin, id).await {
            Ok(servers) => tell(id, servers, out)?,
            // One that ended meanwhile must not keep the others running.
            Err(CliError::Coded(code, text)) => {
                if let Some(CliError::Coded(_, text)) = failed.replace(CliError::Coded(code, text)) {
                    complain(&format!("error: {text}"));
                }
            }
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(()), Err)
}

#[derive(Debug, Serialize)]
struct Canceled<'a> {
    id: &'a str,
    queue: &'a str,
    outcome: &'static str,
    server: Option<&'a str>,
}

async fn for_good(ids: &[String], admin: &Admin, out: &Output) -> Result<(), CliError> {
    for id in ids {
        for task in everywhere(admin.inspector(), id).await? {
            let queue = &task.queue;
            let canceled = admin.cancel_for_good(queue, id).await?;
            let (outcome, server, text) = match &canceled {
                Cancellation::Done => ("done", None, "nobody worked on it; it is archived".to_owned()),
                Cancellation::Ended(state) => ("ended", None, format!("it had ended before: it is {state}")),
                Cancellation::Told { server } => {
                    ("told", Some(&**server), format!("recorded, and {server}, which works on it, was told"))
                }
                Cancellation::Recorded => {
                    ("recorded", None, "recorded; no server that works on it listens now".to_owned())
                }
            };
            if out.json {
                out.value(&Canceled { id, queue, outcome, server })?;
            } else {
                out.line(&format!("task {id:?} in queue {queue:?}: {text}"))?;
            }
        }
    }
    Ok(())
}

/// Asks the servers; how many there were.
async fn cancel(admin: &Admin, id: &str) -> Result<u64, CliError> {
    let tasks = everywhere(admin.inspector(), id).await?;
    if let Some(task) = tasks.first().filter(|_| tasks.iter().all(|task| task.state != TaskState::Active)) {
        let text = format!("task {id:?} is {} and not running, so there is nothing to cancel", task.state);
        return Err(CliError::Coded(exit::REFUSED, text));
    }
    match admin.cancel(id).await? {
        0 => Err(CliError::failed_check(
            "no server is listening, so nothing was canceled; `queuectl server ls` shows those that run",
        )),
        servers => Ok(servers),
    }
}

fn tell(id: &str, servers: u64, out: &Output) -> Result<(), CliError> {
    if out.json {
        return out.value(&Asked { id, servers_asked: servers });
    }
    let servers = if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") };
    out.line(&format!("asked {servers} to stop working on task {id:?}; whichever has it lets it fail and be retried"))
}
