//! `queuectl batch`.

mod create;
mod explain;
mod look;
mod tree;
mod wait;

use std::time::Duration;

use clap::{Args, Subcommand};
use queue_core::flow::FlowId;
use queue_redis::{Batch, BatchStatus};

use crate::confirm::ConfirmArgs;
use crate::error::{CliError, complain, exit};
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// What to do with batches.
#[derive(Debug, Subcommand)]
pub(crate) enum BatchCommand {
    /// Make a batch of the tasks of a file, and print its id
    Create(create::CreateArgs),
    /// Show batches, newest first; children stand with their parents
    #[command(visible_alias = "list")]
    Ls(look::ListArgs),
    /// Show a batch, or its members in a state
    #[command(visible_alias = "inspect")]
    Show(look::ShowArgs),
    /// Add the tasks of a file to a batch that is not committed
    Add(create::AddArgs),
    /// Say that all members of a batch are there
    Commit(CommitArgs),
    /// Say what a batch waits for
    Explain(explain::ExplainArgs),
    /// Wait until a batch is over, callbacks included
    Wait(WaitArgs),
    /// Cancel a batch and its children: delete what waits, ask servers to stop what runs
    Cancel(CancelArgs),
    /// Run members again that are in the archive, and print how many
    Retry(RetryArgs),
    /// Count members that died or were removed as succeeded, for good, and print how many
    Resolve(ResolveArgs),
}

/// Says that an id was used before.
pub(crate) fn warn_if_existed(what: &str, batch: &Batch) {
    if batch.existed() {
        let id = batch.id();
        complain(&format!(
            "warning: the {what} {id} was there already; it counts, whatever this command says otherwise"
        ));
    }
}

/// Which batch to commit.
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
}

/// Which batch to cancel.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Which members of which batch to run again.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// Batch id; the members of its children have to be run again by the ids of those
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Those that are dead: all that are in the archive
    #[arg(long, required = true)]
    dead: bool,
}

/// Which members of which batch were done by other means.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
    /// All that are dead or removed
    #[arg(long, conflicts_with = "members", required_unless_present = "members")]
    all: bool,
    /// Task ids of some of them, as `batch show ID --members dead` has them; comma-separated or repeated
    #[arg(long = "member", value_name = "TASK_ID", value_delimiter = ',')]
    members: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Which batch to wait for.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct WaitArgs {
    /// Batch id
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Wait no longer than this [default: for ever]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
}

const WAIT_HELP: &str = "\
Exit codes: 0 the batch succeeded; 5 it is over without success: something in it
died, or it was cancelled or abandoned; 6 it is gone, because it was over and was
forgotten meanwhile; 3 there was no such batch to begin with; 124 the time is
over.";

/// Which part of a listing to show.
#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
struct PageArgs {
    /// Which page, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Lines per page
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

impl PageArgs {
    fn skip(self) -> usize {
        (self.page as usize - 1).saturating_mul(self.size as usize)
    }

    fn most(self) -> usize {
        self.size as usize
    }
}

crate::command::simple!(BatchCommand);

async fn run(command: BatchCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        BatchCommand::Create(args) => create::run(args, session, out).await,
        BatchCommand::Ls(args) => look::list(args, session, out).await,
        BatchCommand::Show(args) => look::show(args, session, out).await,
        BatchCommand::Add(args) => create::add(args, session, out).await,
        BatchCommand::Commit(args) => commit(args, session, out).await,
        BatchCommand::Explain(args) => explain::run(args, session, out).await,
        BatchCommand::Wait(args) => wait::run(args, session, out).await,
        BatchCommand::Cancel(args) => cancel(args, session, out).await,
        BatchCommand::Retry(args) => retry(args, session, out).await,
        BatchCommand::Resolve(args) => resolve(args, session, out).await,
    }
}

async fn commit(args: CommitArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let id = args.id.to_string();
    session.client().batch_of(&id).await?.commit().await?;
    out.told(&serde_json::json!({ "id": id, "committed": true }), &format!("batch {id:?} is committed"))
}

async fn cancel(args: CancelArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let (id, admin) = (args.id.to_string(), session.admin("cli"));
    let status = session.client().batch_of(&id).await?.status().await?;
    args.confirm
        .ask(&format!("cancel batch {id:?} and its children, with {} members of its own that are live", status.live()))
        .await?;
    if !admin.cancel_batch(&args.id).await? {
        let text = format!(
            "batch {id:?} is over, or only its callbacks are left, so there is nothing to cancel; {}",
            summary(&status)
        );
        return Err(CliError::Coded(exit::REFUSED, text));
    }
    out.told(&serde_json::json!({ "id": id, "cancelled": true }), &format!("batch {id:?} is cancelled"))
}

async fn retry(args: RetryArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let id = args.id.to_string();
    let members = session.admin("cli").retry_batch(&args.id).await?;
    if out.json {
        return out.value(&serde_json::json!({ "id": id, "members": members }));
    }
    let (noun, verb) = if members == 1 { ("member", "is") } else { ("members", "are") };
    out.line(&format!("{members} {noun} of batch {id:?} {verb} run again"))
}

async fn resolve(args: ResolveArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let id = args.id.to_string();
    let only = (!args.all).then_some(&*args.members);
    let what = only.map_or_else(|| "all members".to_owned(), |only| format!("{} members", only.len()));
    args.confirm.ask(&format!("count {what} of batch {id:?} that died or were removed as succeeded, for good")).await?;
    let members = session.admin("cli").resolve_batch(&args.id, only).await?;
    if members == 0 && only.is_some() {
        let text = format!("none of these members of batch {id:?} has died or was removed");
        return Err(CliError::Coded(exit::NOT_FOUND, text));
    }
    if out.json {
        return out.value(&serde_json::json!({ "id": id, "members": members }));
    }
    let (noun, verb) = if members == 1 { ("member", "counts") } else { ("members", "count") };
    out.line(&format!("{members} {noun} of batch {id:?} {verb} as succeeded"))
}

/// How a batch stands, in one line: `dead: 2 of 3 members succeeded, 1 dead`.
pub(crate) fn summary(status: &BatchStatus) -> String {
    let mut text = format!("{}: {} of {} members succeeded", status.state.as_str(), status.succeeded, status.total);
    for (count, word) in others(status).into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {word}"));
    }
    text
}

/// The members that have not succeeded, by state.
fn others(status: &BatchStatus) -> [(u64, &'static str); 8] {
    [
        (status.waiting, "waiting"),
        (status.sent, "sent"),
        (status.failing, "failing"),
        (status.dead, "dead"),
        (status.removed, "removed"),
        (status.cancelled, "cancelled"),
        (status.doomed, "doomed"),
        (status.skipped, "skipped"),
    ]
}
