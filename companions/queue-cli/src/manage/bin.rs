//! `queuectl bin`.

use clap::{Args, Subcommand};
use queue_admin::payload::{harmless, shorten};
use queue_admin::{Filter, OperationSpec, view};

use super::now;
use super::operation::{carry_out, which};
use crate::confirm::ConfirmArgs;
use crate::error::CliError;
use crate::output::Output;
use crate::progress::thousands;
use crate::session::Session;
use crate::table::Rows;
use crate::when;

/// What to do with the bin.
#[derive(Debug, Subcommand)]
pub(crate) enum BinCommand {
    /// Show what was deleted and can be restored, newest first
    #[command(visible_alias = "list")]
    Ls,
    /// Show tasks that an operation has deleted and that can be restored
    Show(Box<ShowArgs>),
    /// Bring back what an operation has deleted: pending tasks are taken next, the others have the time that they had
    Restore(RestoreArgs),
    /// Delete for good what an operation has put into the bin, so that Redis has its memory back
    Empty(EmptyArgs),
}

/// What to bring back.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    id: String,
    /// Only the task with this id; may be given many times
    #[arg(short, long = "task", value_name = "ID")]
    tasks: Vec<String>,
    /// The queue of these tasks; needed where the operation was about several
    #[arg(short, long, value_name = "Q", requires = "tasks")]
    queue: Option<String>,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    id: String,
    /// Only tasks to which this applies, as in `task ls --filter`
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: Filter,
    /// Most tasks to show
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

/// What to delete for good.
#[derive(Debug, Args)]
pub(crate) struct EmptyArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

crate::command::simple!(BinCommand);

async fn run(command: BinCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        BinCommand::Ls => list(session, out).await,
        BinCommand::Show(args) => show(*args, session, out).await,
        BinCommand::Restore(RestoreArgs { id, tasks, queue }) => {
            let mut spec = OperationSpec::restore(&id);
            (spec.ids, spec.queues) = (tasks, queue.into_iter().collect());
            let operation = session.admin("cli").start_operation(spec, None).await?;
            carry_out(&operation.id, session, out).await
        }
        BinCommand::Empty(EmptyArgs { id, confirm }) => {
            let left = session.inspector().bin(&id).await?.left();
            confirm.ask(&format!("delete {} tasks for good", thousands(left))).await?;
            let deleted = session.admin("cli").empty_bin(&id).await?;
            out.told(
                &serde_json::json!({ "operation": id, "deleted": deleted }),
                &format!("{} tasks are deleted for good", thousands(deleted)),
            )
        }
    }
}

async fn list(session: &Session, out: &Output) -> Result<(), CliError> {
    let bins = session.inspector().bins().await?;
    if out.json {
        return out.value(&bins);
    }
    if bins.is_empty() {
        return out.line("the bin is empty");
    }
    let mut rows = Rows::new(out, &["ID", "DELETED", "WHO", "WHICH", "#LEFT", "ALL KEPT"]);
    for bin in &bins {
        let operation = &bin.operation;
        rows.add([
            operation.id.clone(),
            when::ago(operation.started_at, now()),
            shorten(&operation.actor, 40),
            shorten(&which(operation), 80),
            bin.left().to_string(),
            when::ago(bin.until, now()),
        ]);
    }
    out.text(&rows.render())
}

async fn show(args: ShowArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let left = inspector.bin(&args.id).await?.left();
    let tasks = inspector.binned_tasks(&args.id, &args.filter, None, args.size as usize, usize::MAX).await?.tasks;
    if out.json {
        return out.value(&tasks.into_iter().map(view::Task::from).collect::<Vec<_>>());
    }
    let mut rows = Rows::new(out, &["QUEUE", "ID", "TYPE", "STATE"]);
    let shown = tasks.len() as u64;
    for task in tasks {
        rows.add([task.queue, task.id, shorten(&task.task_type, 60), task.state.as_str().to_owned()]);
    }
    out.text(&rows.render())?;
    if shown < left {
        out.line(&format!("{} of {} tasks in the bin of {:?}", thousands(shown), thousands(left), harmless(&args.id)))?;
    }
    Ok(())
}
