//! `queuectl cron`.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use queue_admin::payload::{preview, shorten};
use queue_admin::{Admin, Inspector, Page};
use serde::Serialize;

use super::now;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::when;

/// What to do with periodic entries.
#[derive(Debug, Subcommand)]
pub(crate) enum CronCommand {
    /// Show the entries of all schedulers, Rust's and Go's
    #[command(visible_alias = "list")]
    Ls(WatchArgs),
    /// Show what became of the ticks of an entry, newest first
    History(HistoryArgs),
    /// Let the ticks of an entry pass without enqueuing anything, on all schedulers
    Pause {
        /// Entry name
        #[arg(value_name = "ENTRY")]
        entry: String,
    },
    /// Take up a paused entry again; the ticks meanwhile do not count as missed
    #[command(visible_alias = "unpause")]
    Resume {
        /// Entry name
        #[arg(value_name = "ENTRY")]
        entry: String,
    },
    /// Enqueue the task of an entry now, and print its id
    Run {
        /// Entry name
        #[arg(value_name = "ENTRY")]
        entry: String,
        /// Also while its last run is unfinished
        #[arg(long)]
        force: bool,
    },
    /// Forget an entry that no scheduler carries any more, and its history
    #[command(visible_aliases = ["rm", "delete"])]
    Remove {
        /// Entry name
        #[arg(value_name = "ENTRY")]
        entry: String,
    },
}

/// Which part of a history to show.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Entry name; for one of a Go scheduler, its id
    #[arg(value_name = "ENTRY")]
    entry: String,
    /// Which page, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Lines per page
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    size: u32,
    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Debug, Serialize)]
struct Paused<'a> {
    entry: &'a str,
    paused: bool,
    changed: bool,
}

crate::command::simple!(CronCommand);

async fn run(command: CronCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let (inspector, admin) = (session.inspector(), session.admin("cli"));
    let (entry, paused, changed) = match &command {
        CronCommand::Ls(watch) => return show(watch, out, async |out| list(&inspector, out).await).await,
        CronCommand::History(args) => {
            return show(&args.watch, out, async |out| history(args, &inspector, out).await).await;
        }
        CronCommand::Run { entry, force } => {
            let id = admin.run_cron(entry, *force).await?;
            return out.told(&serde_json::json!({ "task_id": id }), &id);
        }
        CronCommand::Remove { entry } => return remove(entry, &admin, out).await,
        CronCommand::Pause { entry } => (entry, true, admin.pause_cron(entry, true).await?),
        CronCommand::Resume { entry } => (entry, false, admin.pause_cron(entry, false).await?),
    };
    let (word, already) = (if paused { "paused" } else { "active" }, if changed { "" } else { " already" });
    out.told(&Paused { entry, paused, changed }, &format!("entry {entry:?} is {word}{already}"))
}

async fn remove(entry: &str, admin: &Admin, out: &Output) -> Result<(), CliError> {
    let carried =
        admin.inspector().all_cron_entries().await?.into_iter().any(|view| view.id == entry && view.state != "stopped");
    if carried {
        let message =
            format!("a scheduler carries entry {entry:?}; take it out of the scheduler's file or program first");
        return Err(CliError::Coded(exit::REFUSED, message));
    }
    admin.remove_cron(entry).await?;
    out.told(&serde_json::json!({ "entry": entry, "removed": true }), &format!("entry {entry:?} is forgotten"))
}

async fn list(inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let entries = inspector.all_cron_entries().await?;
    if out.json {
        return out.json(&entries);
    }
    if entries.is_empty() {
        return Ok("no periodic entries; `queuectl scheduler --config FILE` makes some\n".to_owned());
    }
    let now = now();
    let mut rows = Rows::new(out, &["ENTRY", "SPEC", "TYPE", "QUEUE", "STATE", "NEXT", "LAST"]);
    for entry in &entries {
        rows.add_marked(
            entry.state != "active",
            [
                entry.id.clone(),
                shorten(&entry.spec, 60),
                shorten(&entry.r#type, 40),
                shorten(&entry.queue, 40),
                entry.state.to_owned(),
                when::next(entry.next, now),
                when::ago(entry.last, now),
            ],
        );
    }
    Ok(rows.render())
}

async fn history(args: &HistoryArgs, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let size = args.size as usize;
    let page = Page { skip: (args.page as usize - 1).saturating_mul(size), size };
    let Some(lines) = inspector.all_cron_history(&args.entry, page).await? else {
        let message = format!("periodic entry {:?} not found; `queuectl cron ls` shows those there are", args.entry);
        return Err(CliError::Coded(exit::NOT_FOUND, message));
    };
    if out.json {
        return out.json(&lines);
    }
    if lines.is_empty() {
        return Ok(format!("entry {:?} has no history on page {}\n", args.entry, args.page));
    }
    let now = now();
    let date = |date: Option<DateTime<Utc>>| date.map_or_else(|| "-".to_owned(), |date| when::date(date, now));
    let mut rows = Rows::new(out, &["AT", "OUTCOME", "TICK", "TASK"]);
    for line in &lines {
        let outcome = match line.why.as_deref() {
            Some("missed") if line.outcome == "enqueued" => "enqueued, made up for".to_owned(),
            Some("manual" | "forced") => format!("{}, by hand", line.outcome),
            _ => line.outcome.clone(),
        };
        let tick = match (line.from, line.tick) {
            (Some(from), Some(tick)) if from != tick => {
                format!("{} to {}", from.format("%Y-%m-%d %H:%M:%SZ"), tick.format("%Y-%m-%d %H:%M:%SZ"))
            }
            (_, Some(tick)) => tick.format("%Y-%m-%d %H:%M:%SZ").to_string(),
            _ => "-".to_owned(),
        };
        let task = if line.outcome == "enqueued" { preview(line.task_id.as_bytes(), 300) } else { "-".to_owned() };
        rows.add_marked(line.outcome != "enqueued", [date(line.enqueued_at), outcome, tick, task]);
    }
    Ok(rows.render())
}
