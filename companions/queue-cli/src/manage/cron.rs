//! `queuectl cron`.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Subcommand};
use queue_admin::payload::{preview, shorten};
use queue_admin::{CronEntry, CronEvent, EnqueueEvent, Error, Inspector, Page, SchedulerEntry};
use serde::Serialize;

use super::now;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::when;

/// An entry that is not listed and of which no scheduler has spoken for so long is carried by none. Heartbeats
/// come every 10 s; when the scheduler that lists an entry dies, another one takes some seconds to do so.
const SILENT: TimeDelta = TimeDelta::seconds(15);

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

/// An entry as `--json` writes it. What only ours have is null for one of Go's.
#[derive(Debug, Serialize)]
struct View {
    id: String,
    scheduler: &'static str,
    spec: String,
    timezone: Option<String>,
    r#type: String,
    payload: queue_admin::view::Bytes,
    queue: String,
    options: Vec<String>,
    /// `active`, `paused`, or `stopped` when no scheduler carries it.
    state: &'static str,
    next: Option<DateTime<Utc>>,
    last: Option<DateTime<Utc>>,
    last_task: Option<String>,
    paused_since: Option<DateTime<Utc>>,
    waiting: Option<DateTime<Utc>>,
    missed: Option<String>,
    overlap: Option<String>,
    jitter_secs: Option<i64>,
    starts: Option<DateTime<Utc>>,
    ends: Option<DateTime<Utc>>,
    max_runs: Option<u64>,
    runs: Option<u64>,
}

impl View {
    fn of_go(entry: SchedulerEntry) -> Self {
        Self {
            queue: entry.queue(),
            id: entry.id,
            scheduler: "go",
            spec: entry.spec,
            timezone: None,
            r#type: entry.task_type,
            payload: queue_admin::view::Bytes::new(&entry.payload),
            options: entry.options,
            state: "active",
            next: entry.next,
            last: entry.prev,
            last_task: None,
            paused_since: None,
            waiting: None,
            missed: None,
            overlap: None,
            jitter_secs: None,
            starts: None,
            ends: None,
            max_runs: None,
            runs: None,
        }
    }

    /// `listed` is how a scheduler that is alive shows it.
    fn of_ours(entry: CronEntry, listed: Option<SchedulerEntry>, now: DateTime<Utc>) -> Self {
        let carried = listed.is_some() || entry.seen.is_some_and(|seen| now - seen < SILENT);
        let no_more = listed.as_ref().is_some_and(|listed| listed.next.is_none());
        let state = if !carried {
            "stopped"
        } else if entry.max_runs.is_some_and(|most| entry.runs >= most) {
            "exhausted"
        } else if entry.paused.is_some() {
            "paused"
        } else if entry.ends.is_some_and(|ends| ends < now || no_more) {
            "ended"
        } else {
            "active"
        };
        let next = listed.as_ref().and_then(|listed| listed.next).filter(|_| state == "active");
        Self {
            id: entry.name,
            scheduler: "rust",
            spec: entry.spec,
            timezone: Some(entry.zone),
            r#type: entry.task_type,
            payload: queue_admin::view::Bytes::new(&entry.payload),
            queue: entry.queue,
            options: listed.map(|listed| listed.options).unwrap_or_default(),
            state,
            next,
            last: entry.last,
            last_task: entry.last_task,
            paused_since: entry.paused,
            waiting: entry.waiting,
            missed: Some(entry.missed),
            overlap: Some(entry.overlap),
            jitter_secs: Some(entry.jitter_secs),
            starts: entry.starts,
            ends: entry.ends,
            max_runs: entry.max_runs,
            runs: Some(entry.runs),
        }
    }
}

/// A line of a history as `--json` writes it.
#[derive(Debug, Serialize)]
struct Line {
    task_id: String,
    enqueued_at: Option<DateTime<Utc>>,
    outcome: String,
    why: Option<String>,
    tick: Option<DateTime<Utc>>,
    from: Option<DateTime<Utc>>,
}

impl From<CronEvent> for Line {
    fn from(event: CronEvent) -> Self {
        Self {
            task_id: event.task_id,
            enqueued_at: Some(event.at),
            outcome: event.outcome,
            why: Some(event.why),
            tick: event.tick,
            from: event.from,
        }
    }
}

impl From<EnqueueEvent> for Line {
    fn from(event: EnqueueEvent) -> Self {
        let outcome = "enqueued".to_owned();
        Self { task_id: event.task_id, enqueued_at: event.enqueued_at, outcome, why: None, tick: None, from: None }
    }
}

#[derive(Debug, Serialize)]
struct Paused<'a> {
    entry: &'a str,
    paused: bool,
    changed: bool,
}

crate::command::simple!(CronCommand);

async fn run(command: CronCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let (entry, paused, changed) = match &command {
        CronCommand::Ls(watch) => return show(watch, out, async |out| list(&inspector, out).await).await,
        CronCommand::History(args) => {
            return show(&args.watch, out, async |out| history(args, &inspector, out).await).await;
        }
        CronCommand::Run { entry, force } => {
            let id = inspector.run_cron(entry, *force).await?;
            return if out.json { out.value(&serde_json::json!({ "task_id": id })) } else { out.line(&id) };
        }
        CronCommand::Remove { entry } => return remove(entry, &inspector, out).await,
        CronCommand::Pause { entry } => (entry, true, inspector.pause_cron(entry).await?),
        CronCommand::Resume { entry } => (entry, false, inspector.resume_cron(entry).await?),
    };
    if out.json {
        return out.value(&Paused { entry, paused, changed });
    }
    let (word, already) = (if paused { "paused" } else { "active" }, if changed { "" } else { " already" });
    out.line(&format!("entry {entry:?} is {word}{already}"))
}

async fn remove(entry: &str, inspector: &Inspector, out: &Output) -> Result<(), CliError> {
    let carried = entries(inspector).await?.into_iter().any(|view| view.id == entry && view.state != "stopped");
    if carried {
        let message =
            format!("a scheduler carries entry {entry:?}; take it out of the scheduler's file or program first");
        return Err(CliError::Coded(exit::REFUSED, message));
    }
    inspector.remove_cron(entry).await?;
    if out.json {
        return out.value(&serde_json::json!({ "entry": entry, "removed": true }));
    }
    out.line(&format!("entry {entry:?} is forgotten"))
}

/// Ours with all that is known about them, and those that only Go's schedulers carry.
async fn entries(inspector: &Inspector) -> Result<Vec<View>, Error> {
    let now = now();
    let ours = inspector.cron_entries().await?;
    let (mut by_name, mut views) = (BTreeMap::new(), Vec::new());
    for entry in inspector.scheduler_entries().await? {
        if ours.iter().any(|own| own.name == entry.id) {
            by_name.insert(entry.id.clone(), entry);
        } else {
            views.push(View::of_go(entry));
        }
    }
    views.extend(ours.into_iter().map(|entry| {
        let listed = by_name.remove(&entry.name);
        View::of_ours(entry, listed, now)
    }));
    views.sort_by(|a, b| (&a.spec, &a.id).cmp(&(&b.spec, &b.id)));
    Ok(views)
}

async fn list(inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let entries = entries(inspector).await?;
    if out.json {
        return out.json(&entries);
    }
    if entries.is_empty() {
        return Ok("no periodic entries; `queuectl scheduler --config FILE` makes some\n".to_owned());
    }
    let now = now();
    let distance = |date: Option<DateTime<Utc>>| date.map_or_else(|| "-".to_owned(), |date| when::distance(date, now));
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
                distance(entry.next),
                distance(entry.last),
            ],
        );
    }
    Ok(rows.render())
}

async fn history(args: &HistoryArgs, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let size = args.size as usize;
    let page = Page { skip: (args.page as usize - 1).saturating_mul(size), size };
    let lines: Vec<Line> = match inspector.cron_history(&args.entry, page).await {
        Ok(events) => events.into_iter().map(Line::from).collect(),
        Err(Error::EntryNotFound(_)) => {
            let events = inspector.enqueue_events(&args.entry, page).await?;
            let known =
                !events.is_empty() || inspector.scheduler_entries().await?.iter().any(|entry| entry.id == args.entry);
            if !known && args.page == 1 {
                let message =
                    format!("periodic entry {:?} not found; `queuectl cron ls` shows those there are", args.entry);
                return Err(CliError::Coded(exit::NOT_FOUND, message));
            }
            events.into_iter().map(Line::from).collect()
        }
        Err(error) => return Err(error.into()),
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
