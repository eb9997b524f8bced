//! `queuectl task cancel`.

use clap::Args;
use queue_admin::{Admin, Cancellation, Verb};
use queue_core::TaskState;
use serde::Serialize;

use super::change::Choice;
use super::select::FilterArgs;
use super::{Failed, everywhere, queue_of};
use crate::confirm::ConfirmArgs;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;

/// Which tasks to cancel.
///
/// They end for good: they are archived and not tried again, also where no server listens now. A task that nobody
/// works on is archived at once. For one that a server works on this is recorded until it has ended; a handler that
/// succeeds all the same has succeeded.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Task id
    #[arg(value_name = "ID", required_unless_present = "queue")]
    ids: Vec<String>,
    /// Those of this queue; without ids, all that run there, and fit
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    /// Only ask the servers to stop the attempts that run, as `asynq task cancel` does; the tasks are retried
    #[arg(long)]
    attempt: bool,
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
    if let Some(queue) = args.queue.as_ref().filter(|_| args.ids.is_empty()) {
        let action = if args.attempt { Verb::Interrupt } else { Verb::Cancel };
        let choice = Choice { action, queue, states: &[TaskState::Active], filter: &args.filter };
        return choice.run(args.confirm, false, session, out).await;
    }
    if !args.filter.is_empty() {
        return Err(CliError::Usage("--group, --type and the like go with --queue, and without ids".to_owned()));
    }
    if args.attempt && args.queue.is_some() {
        return Err(CliError::Usage(
            "servers are asked to stop an id in whichever queue it is; leave --queue out".to_owned(),
        ));
    }
    let admin = session.admin("cli");
    // One that ended meanwhile must not keep the others running.
    let mut failed = Failed::default();
    for id in &args.ids {
        failed.note(if args.attempt {
            interrupt(&admin, id, out).await
        } else {
            cancel(&admin, id, args.queue.as_deref(), out).await
        })?;
    }
    failed.end()
}

#[derive(Debug, Serialize)]
struct Canceled<'a> {
    id: &'a str,
    queue: &'a str,
    outcome: &'static str,
    server: Option<&'a str>,
}

async fn cancel(admin: &Admin, id: &str, queue: Option<&str>, out: &Output) -> Result<(), CliError> {
    let queue = match queue {
        Some(queue) => queue.to_owned(),
        None => queue_of(admin.inspector(), id).await?,
    };
    let canceled = admin.cancel_for_good(&queue, id).await?;
    let (outcome, server) = (canceled.as_str(), canceled.server());
    let text = match &canceled {
        Cancellation::Done => "nobody worked on it; it is archived".to_owned(),
        Cancellation::Ended(state) => format!("it had ended before: it is {state}"),
        Cancellation::Told { server } => format!("recorded, and told to {server}, which works on it"),
        Cancellation::Recorded => "recorded; no server that works on it listens now".to_owned(),
    };
    let text = format!("task {id:?} in queue {queue:?}: {text}");
    out.told(&Canceled { id, queue: &queue, outcome, server }, &text)
}

/// Asks the servers to stop the attempt.
async fn interrupt(admin: &Admin, id: &str, out: &Output) -> Result<(), CliError> {
    let tasks = everywhere(admin.inspector(), id).await?;
    if let Some(task) = tasks.first().filter(|_| tasks.iter().all(|task| task.state != TaskState::Active)) {
        let text = format!("task {id:?} is {} and not running, so there is nothing to interrupt", task.state);
        return Err(CliError::Coded(exit::REFUSED, text));
    }
    let servers = admin.cancel(id).await?;
    if servers == 0 {
        return Err(CliError::failed_check(
            "no server is listening, so nothing was interrupted; `queuectl server ls` shows those that run",
        ));
    }
    let told = if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") };
    let text = format!("asked {told} to stop working on task {id:?}; whichever has it lets it fail and be retried");
    out.told(&Asked { id, servers_asked: servers }, &text)
}
