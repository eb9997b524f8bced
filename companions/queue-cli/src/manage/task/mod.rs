//! `queuectl task`.

mod cancel;
mod change;
mod inspect;
mod list;
mod relocate;
mod select;
mod update;
mod wait;

use clap::Subcommand;
#[cfg(feature = "full")]
pub(crate) use inspect::log_line;
use queue_admin::{Inspector, Verb};
use queue_core::TaskInfo;

use crate::enqueue::asynq::{self, AsynqEnqueueArgs};
use crate::error::{CliError, complain, exit};
use crate::output::Output;
use crate::session::Session;

/// What went wrong with single ones of those that are done one by one, each for itself.
#[derive(Default)]
struct Failed(Option<CliError>);

impl Failed {
    /// Goes on after what is wrong with one of them alone.
    fn note(&mut self, done: Result<(), CliError>) -> Result<(), CliError> {
        match done {
            Ok(()) => Ok(()),
            Err(CliError::Coded(code, text)) => {
                if let Some(CliError::Coded(_, text)) = self.0.replace(CliError::Coded(code, text)) {
                    complain(&format!("error: {text}"));
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The last of it, if there was any.
    fn end(self) -> Result<(), CliError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// What to do with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show the tasks of a queue in one state
    #[command(visible_alias = "list")]
    Ls(list::ListArgs),
    /// Show everything about a task
    #[command(visible_alias = "show")]
    Inspect(inspect::InspectArgs),
    /// Wait until a task ends, and print its result
    Wait(wait::WaitArgs),
    /// End tasks for good: they are archived and not tried again; or only stop their attempts
    Cancel(cancel::CancelArgs),
    /// Make tasks pending now, whatever they wait for, or ended as
    Run(change::RunArgs),
    /// Move tasks to the archive, where nothing happens to them by itself
    Archive(change::ChangeArgs),
    /// Delete tasks, with the uniqueness locks they hold
    #[command(visible_aliases = ["remove", "rm"])]
    Delete(change::DeleteArgs),
    /// Give a task that waits another payload
    Update(update::UpdateArgs),
    /// Give a task that waits another priority, or other servers
    Move(relocate::MoveArgs),
    /// Make all tasks in a state pending now
    Runall(change::AllArgs),
    /// Archive all tasks in a state
    Archiveall(change::AllArgs),
    /// Delete all tasks in a state
    Deleteall(change::AllArgs),
    /// Put a task into a queue, with the flags of asynq's CLI; see `queuectl enqueue` for more
    Enqueue(AsynqEnqueueArgs),
}

crate::command::simple!(TaskCommand);

async fn run(command: TaskCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        TaskCommand::Ls(args) => list::run(args, session, out).await,
        TaskCommand::Inspect(args) => inspect::run(args, session, out).await,
        TaskCommand::Wait(args) => wait::run(args, session, out).await,
        TaskCommand::Cancel(args) => cancel::run(args, session, out).await,
        TaskCommand::Run(args) => change::run_some(args, session, out).await,
        TaskCommand::Archive(args) => change::run(Verb::Archive, args, session, out).await,
        TaskCommand::Delete(args) => change::delete(args, session, out).await,
        TaskCommand::Update(args) => update::run(args, session, out).await,
        TaskCommand::Move(args) => relocate::run(args, session, out).await,
        TaskCommand::Runall(args) => change::all(Verb::Run, args, session, out).await,
        TaskCommand::Archiveall(args) => change::all(Verb::Archive, args, session, out).await,
        TaskCommand::Deleteall(args) => change::all(Verb::Delete, args, session, out).await,
        TaskCommand::Enqueue(args) => asynq::run(args, session, out).await,
    }
}

/// The tasks of this id, of all queues that are listed; an error where there is none.
async fn everywhere(inspector: &Inspector, id: &str) -> Result<Vec<TaskInfo>, CliError> {
    let found = inspector.task_everywhere(id, |_| true).await?;
    if found.is_empty() {
        let text = format!(
            "task {id:?} not found in any queue that is listed; a task without a retention leaves no trace when it \
             succeeds, so it may have ended already"
        );
        return Err(CliError::Coded(exit::NOT_FOUND, text));
    }
    Ok(found)
}

/// The queue in which the task of this id is; an error where it is none, or several.
async fn queue_of(inspector: &Inspector, id: &str) -> Result<String, CliError> {
    let found = everywhere(inspector, id).await?;
    if let [one] = &found[..] {
        return Ok(one.queue.clone());
    }
    let queues: Vec<&str> = found.iter().map(|task| &*task.queue).collect();
    let text = format!("task {id:?} is in several queues: {}; say which with --queue", queues.join(", "));
    Err(CliError::Coded(exit::REFUSED, text))
}
