//! `queuectl task run`, `archive` and `delete`, for single tasks and for many.

use clap::Args;
use queue_admin::payload::harmless;
use queue_admin::{Admin, Changed, Filter, OperationSpec, Progress, Rate, Verb, Work};
use queue_core::TaskState;
use serde::Serialize;

use super::super::operation;
use super::Failed;
use super::select::FilterArgs;
use crate::confirm::ConfirmArgs;
use crate::error::{CliError, complain};
use crate::output::Output;
use crate::progress::{self, thousands};
use crate::session::Session;

/// Which tasks to change: those with these ids, or all in a state that fit.
#[derive(Debug, Args)]
#[command(after_help = CHANGE_HELP)]
pub(crate) struct ChangeArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// Task id; may be given many times
    #[arg(short, long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// All tasks in this state; may be given many times
    #[arg(short, long = "state", value_name = "S")]
    states: Vec<TaskState>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Only say how many tasks it would be about
    #[arg(long)]
    dry_run: bool,
}

/// Which tasks to run, and how fast.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// No more than so many in a time, such as 100/1m, as an operation: it can be paused, and goes on elsewhere if this process ends
    #[arg(long, value_name = "N/DURATION")]
    rate: Option<Rate>,
    /// Stop when so many were run and there is another one
    #[arg(long, value_name = "N", requires = "rate", value_parser = clap::value_parser!(u64).range(1..))]
    at_most: Option<u64>,
}

/// Which tasks to delete, and whether for good.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// Put them into the bin, from which `queuectl bin restore` brings them back for a day
    #[arg(long)]
    bin: bool,
}

const CHANGE_HELP: &str = "\
  queuectl task run -q mail --state archived --error timeout --older-than 1h
  queuectl task delete -q mail --state pending --type email:digest --where user.id=7
  queuectl task run -q mail --state archived --filter fingerprint:v1-0b5c6a2f9d41 --rate 100/1m
It says how many tasks there are and asks, unless --yes is given.";

impl ChangeArgs {
    /// One way of naming tasks, and only one. Clap would let `--dry-run` pass beside `--id`, and do it.
    fn check(&self) -> Result<(), CliError> {
        let chosen = !self.states.is_empty() || !self.filter.is_empty() || self.dry_run;
        let text = match (self.ids.is_empty(), chosen) {
            (true, _) if self.states.is_empty() => "name tasks by --id, or choose them by --state",
            (false, true) => "--id names tasks one by one; --state, --type, --dry-run and the like are for many",
            _ => return Ok(()),
        };
        Err(CliError::Usage(text.to_owned()))
    }
}

/// asynq's form for all tasks in a state.
#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// TaskState
    #[arg(short, long, value_name = "S")]
    state: TaskState,
    /// Only tasks of this group
    #[arg(short, long, value_name = "G", required_if_eq("state", "aggregating"))]
    group: Option<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) async fn run_some(args: RunArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let RunArgs { change: args, rate, at_most } = args;
    let Some(rate) = rate.filter(|_| !args.dry_run) else { return run(Verb::Run, args, session, out).await };
    let spec = spec(Work::Run, &format!("at {rate}"), args, session).await?;
    operate(OperationSpec { rate: Some(rate), at_most, ..spec }, session, out).await
}

pub(crate) async fn delete(args: DeleteArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let DeleteArgs { change: args, bin } = args;
    if !bin || args.dry_run {
        return run(Verb::Delete, args, session, out).await;
    }
    let spec = spec(Work::Delete, "into the bin", args, session).await?;
    operate(spec, session, out).await
}

/// What an operation is to do, after asking whether that is meant.
async fn spec(work: Work, how: &str, args: ChangeArgs, session: &Session) -> Result<OperationSpec, CliError> {
    args.check()?;
    let Some(action) = work.verb().filter(|_| args.ids.is_empty()) else {
        return Ok(OperationSpec::of_ids(work, &args.queue, args.ids));
    };
    let choice = Choice { action, queue: &args.queue, states: &args.states, filter: &args.filter };
    choice.check()?;
    let filter = args.filter.filter(&args.states);
    let count = session.inspector().count(&args.queue, &filter).await?;
    if count > 0 {
        args.confirm.ask(&format!("{} {} {how}", action.as_str(), choice.describe(count))).await?;
    }
    Ok(OperationSpec::new(work, &args.queue, &filter))
}

async fn operate(spec: OperationSpec, session: &Session, out: &Output) -> Result<(), CliError> {
    let takes_long = spec.rate.is_some();
    let operation = session.admin("cli").start_operation(spec, None).await?;
    if takes_long {
        let id = &operation.id;
        complain(&format!(
            "operation {id} goes on in a dashboard half a minute after this process ends, or by `queuectl operation resume {id}`; \
             `queuectl operation pause {id}` and `cancel {id}` steer it"
        ));
    }
    operation::carry_out(&operation.id, session, out).await
}

/// What has become of a task.
fn done(verb: Verb) -> &'static str {
    match verb {
        Verb::Run => "pending now",
        Verb::Archive => "archived",
        Verb::Delete => "deleted",
        Verb::Cancel => "told to end",
        Verb::Interrupt => "asked to stop",
    }
}

/// What `--json` tells of one task.
#[derive(Debug, Serialize)]
struct One<'a> {
    action: Verb,
    queue: &'a str,
    id: &'a str,
}

/// What `--json` tells of many.
#[derive(Debug, Serialize)]
struct Many<'a> {
    action: Verb,
    queue: &'a str,
    matched: u64,
    changed: u64,
    skipped: u64,
    trimmed: u64,
}

pub(crate) async fn run(action: Verb, args: ChangeArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    args.check()?;
    if args.ids.is_empty() {
        let choice = Choice { action, queue: &args.queue, states: &args.states, filter: &args.filter };
        return choice.run(args.confirm, args.dry_run, session, out).await;
    }
    let admin = session.admin("cli");
    let mut failed = Failed::default();
    for id in &args.ids {
        failed.note(one(action, &args.queue, id, &admin, out).await)?;
    }
    failed.end()
}

async fn one(action: Verb, queue: &str, id: &str, admin: &Admin, out: &Output) -> Result<(), CliError> {
    admin.change_task(action, queue, id).await?;
    out.told(&One { action, queue, id }, &format!("task {:?} is {}", harmless(id), done(action)))
}

pub(crate) async fn all(action: Verb, args: AllArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let filter = FilterArgs::group(args.group);
    let choice = Choice { action, queue: &args.queue, states: &[args.state], filter: &filter };
    choice.run(args.confirm, false, session, out).await
}

/// All tasks that fit.
pub(super) struct Choice<'a> {
    pub(super) action: Verb,
    pub(super) queue: &'a str,
    pub(super) states: &'a [TaskState],
    pub(super) filter: &'a FilterArgs,
}

impl Choice<'_> {
    /// Whether it can be done to tasks in these states.
    fn check(&self) -> Result<(), CliError> {
        let impossible = self.states.iter().find(|state| !self.action.possible().any(|possible| possible == **state));
        let Some(state) = impossible else { return Ok(()) };
        let possible: Vec<&str> = self.action.possible().map(TaskState::as_str).collect();
        let (verb, possible) = (self.action.as_str(), possible.join(", "));
        Err(CliError::Usage(format!("cannot {verb} {state} tasks; it can be {possible}")))
    }

    pub(super) async fn run(
        &self,
        confirm: ConfirmArgs,
        dry_run: bool,
        session: &Session,
        out: &Output,
    ) -> Result<(), CliError> {
        self.check()?;
        let inspector = session.inspector();
        let filter = self.filter.filter(self.states);
        let count = inspector.count(self.queue, &filter).await?;
        let about = self.describe(count);
        let verb = self.action.as_str();
        if dry_run {
            return self.tell((count, Changed::default()), &format!("would {verb} {about}"), out);
        }
        if count == 0 {
            return self.tell((0, Changed::default()), &format!("no task to {verb}: {about}"), out);
        }
        confirm.ask(&format!("{verb} {about}")).await?;
        let changed = self.change(&session.admin("cli"), &filter, count).await?;
        let skipped = match changed.skipped {
            0 => String::new(),
            skipped => format!("; {} had moved on", thousands(skipped)),
        };
        let trimmed = match changed.trimmed {
            0 => String::new(),
            trimmed => format!("; {} older ones went from the archive for it", thousands(trimmed)),
        };
        let tasks = if changed.changed == 1 { "task is" } else { "tasks are" };
        let text = format!("{} {tasks} {}{skipped}{trimmed}", thousands(changed.changed), done(self.action));
        self.tell((changed.matched, changed), &text, out)
    }

    async fn change(&self, admin: &Admin, filter: &Filter, count: u64) -> Result<Changed, CliError> {
        let bar = progress::bar(self.action.as_str(), count, "tasks");
        let told = |progress: Progress| bar.set_position(progress.so_far.matched);
        let changed = admin.change_all(self.action, self.queue, filter, told).await;
        bar.finish_and_clear();
        Ok(changed?)
    }

    /// `1,204 archived tasks of queue "mail" that fit`
    fn describe(&self, count: u64) -> String {
        let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
        let tasks = if count == 1 { "task" } else { "tasks" };
        let fit = if self.filter.is_empty() { "" } else { " that fit" };
        format!("{} {} {tasks} of queue {:?}{fit}", thousands(count), states.join(" and "), harmless(self.queue))
    }

    fn tell(&self, (matched, done): (u64, Changed), text: &str, out: &Output) -> Result<(), CliError> {
        if !out.json {
            return out.line(text);
        }
        let Changed { changed, skipped, trimmed, .. } = done;
        out.value(&Many { action: self.action, queue: self.queue, matched, changed, skipped, trimmed })
    }
}
