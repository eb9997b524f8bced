//! `queuectl operation`.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use queue_admin::payload::shorten;
use queue_admin::{Operation, OperationState, OperationVerb, Pace, Progress};
use queue_core::limits::OPERATION_LEASE;

use super::now;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::progress::{self, thousands};
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::when;

/// What to do with operations.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationCommand {
    /// Show the operations of the last seven days, newest first
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Show an operation, and how far it is
    #[command(visible_alias = "inspect")]
    Show(OneArgs),
    /// Let an operation rest; what it has changed stays so
    Pause(OneArgs),
    /// Let an operation go on, here: also one whose process has died, as soon as that was half a minute ago
    Resume(OneArgs),
    /// End an operation; what it has changed stays so
    Cancel(OneArgs),
}

/// How many to show.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Most operations to show
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=500))]
    size: u32,
}

/// Which operation.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    id: String,
}

crate::command::simple!(OperationCommand);

async fn run(command: OperationCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let steer = async |id: &str, verb| session.admin("cli").steer_operation(id, verb).await;
    match command {
        OperationCommand::Ls(args) => list(args, session, out).await,
        OperationCommand::Show(OneArgs { id }) => show(&session.inspector().operation(&id).await?, out),
        OperationCommand::Pause(OneArgs { id }) => show(&steer(&id, OperationVerb::Pause).await?, out),
        OperationCommand::Cancel(OneArgs { id }) => show(&steer(&id, OperationVerb::Cancel).await?, out),
        OperationCommand::Resume(OneArgs { id }) => {
            steer(&id, OperationVerb::Resume).await?;
            carry_out(&id, session, out).await
        }
    }
}

async fn list(args: LsArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let operations = session.inspector().operations(args.size as usize).await?;
    if out.json {
        return out.value(&operations);
    }
    if operations.is_empty() {
        return out.line("there are no operations: changes of many tasks that were begun in the last seven days");
    }
    let mut rows = Rows::new(out, &["ID", "AT", "WHO", "ACTION", "WHICH", "STATE", "#CHANGED", "#OF"]);
    for operation in &operations {
        let is_bad = matches!(operation.state, OperationState::Failed | OperationState::Stopped);
        rows.add_marked(
            is_bad,
            [
                operation.id.clone(),
                when::ago(operation.created_at, now()),
                shorten(&operation.actor, 40),
                operation.spec.action.as_str().to_owned(),
                shorten(&which(operation), 80),
                operation.state.as_str().to_owned(),
                operation.changed.to_string(),
                operation.of.to_string(),
            ],
        );
    }
    out.text(&rows.render())
}

/// Which tasks it is about.
pub(super) fn which(operation: &Operation) -> String {
    let spec = &operation.spec;
    let queues = spec.queues.join(", ");
    match (&spec.filter, &spec.operation) {
        (Some(filter), _) => format!("{queues}: {filter}"),
        (None, Some(of)) => format!("{queues}: what {of} has deleted"),
        (None, None) => format!("{queues}: {} tasks by their ids", spec.ids.len()),
    }
}

fn show(operation: &Operation, out: &Output) -> Result<(), CliError> {
    if out.json {
        return out.value(operation);
    }
    let instant = |at| when::ago(at, now());
    let mut told = vec![
        ("id", operation.id.clone()),
        ("action", operation.spec.action.as_str().to_owned()),
        ("which", which(operation)),
        ("by", format!("{} ({})", operation.actor, operation.via)),
        ("state", operation.state.as_str().to_owned()),
        ("looked at", format!("{} of {}", thousands(operation.looked_at), thousands(operation.of))),
        ("matched", thousands(operation.matched)),
        ("changed", thousands(operation.changed)),
        ("skipped", thousands(operation.skipped)),
        ("begun", instant(operation.started_at)),
        ("ended", instant(operation.ended_at)),
    ];
    let rate = operation.spec.rate.map(|rate| rate.to_string());
    let optional = [("rate", rate), ("reason", operation.spec.reason.clone()), ("error", operation.error.clone())];
    told.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    out.text(&facts(&told))
}

/// Carries an operation out in this process, and says what has come of it.
pub(super) async fn carry_out(id: &str, session: &Session, out: &Output) -> Result<(), CliError> {
    let bar = progress::bar("tasks", 0, "tasks");
    let told = |progress: Progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.looked_at.max(progress.so_far.matched));
    };
    let inspector = session.inspector();
    let patience = Instant::now() + OPERATION_LEASE + Duration::from_secs(2);
    let done = loop {
        let done = inspector.run_operation(id, Pace::Full, told).await;
        // A process that has died has it for half a minute; one that lives goes on with it.
        match &done {
            Ok(Operation { state: OperationState::Running, .. }) if Instant::now() < patience => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            _ => break done,
        }
    };
    bar.finish_and_clear();
    let operation = done?;
    if out.json {
        out.value(&operation)?;
        return outcome(&operation);
    }
    let tasks = if operation.changed == 1 { "task" } else { "tasks" };
    let past = operation.spec.action.action().info().past;
    let mut text = format!("{} {tasks} {past}", thousands(operation.changed));
    if operation.skipped > 0 {
        let why = if operation.spec.operation.is_some() { "stay in the bin" } else { "had moved on" };
        text.push_str(&format!("; {} {why}", thousands(operation.skipped)));
    }
    match operation.state {
        OperationState::Done => {}
        OperationState::Running | OperationState::Queued => {
            text.push_str("; another process has the operation");
        }
        state => text.push_str(&format!("; the operation is {}", state.as_str())),
    }
    let is_binned = operation.spec.bin && operation.spec.action == queue_admin::Work::Delete;
    if is_binned && operation.changed > 0 {
        text.push_str(&format!("; queuectl bin restore {id} brings them back"));
    }
    out.line(&text)?;
    outcome(&operation)
}

/// What the exit code says of it.
fn outcome(operation: &Operation) -> Result<(), CliError> {
    let refused = |text: String| Err(CliError::Coded(exit::REFUSED, text));
    let (spec, state) = (&operation.spec, operation.state);
    match &operation.error {
        Some(error) if state == OperationState::Stopped => refused(format!("the operation is stopped: {error}")),
        Some(error) => Err(CliError::failed(error)),
        None if state.is_over() && state != OperationState::Done || state == OperationState::Paused => {
            refused(format!("the operation is {}", state.as_str()))
        }
        None if matches!(state, OperationState::Running | OperationState::Queued) => {
            refused("another process has the operation; `queuectl operation show` tells how far it is".to_owned())
        }
        None if spec.operation.is_some() && operation.skipped > 0 => refused(format!(
            "{} tasks stay in the bin: another task has the id or the uniqueness lock, the archive is full, or a key of the queue has another type",
            thousands(operation.skipped)
        )),
        None if state == OperationState::Done && !spec.ids.is_empty() && operation.changed == 0 => {
            Err(CliError::Coded(exit::NOT_FOUND, "none of these tasks is where it could be changed".to_owned()))
        }
        None if spec.operation.is_some() && operation.matched < spec.ids.len() as u64 => {
            let missing = spec.ids.len() as u64 - operation.matched;
            Err(CliError::Coded(exit::NOT_FOUND, format!("of these tasks, {missing} are not in the bin")))
        }
        None => Ok(()),
    }
}
