//! `queuectl queue`.

use std::cmp::Reverse;
use std::collections::HashSet;

use clap::{Args, Subcommand};
use queue_admin::QueueInfo;
use queue_admin::payload::{harmless, shorten};
use queue_admin::view;
use queue_core::TaskState;
use queue_core::queue_name::{Family, QueueName};
use serde::Serialize;

use super::forecast::{self, ForecastArgs};
use super::history::{self, HistoryArgs};
use super::queues;
use crate::confirm::ConfirmArgs;
use crate::error::CliError;
use crate::output::Output;
use crate::progress::thousands;
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::watch::{WatchArgs, show};
use crate::when;

/// What to do with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show all queues with their tasks by state
    #[command(visible_alias = "list")]
    Ls(WatchArgs),
    /// Show everything about queues
    Inspect(InspectArgs),
    /// Show how many tasks were processed and failed each day
    History(HistoryArgs),
    /// Look at queues for a while and tell when they will be empty, and how many slots they need
    ///
    /// By asynq's counters alone, so that it works for Go's workers too.
    Forecast(ForecastArgs),
    /// Stop handing out tasks of queues, to Rust and Go workers alike; those running go on
    Pause {
        /// Queue name
        #[arg(value_name = "NAME", required = true)]
        queues: Vec<String>,
    },
    /// Hand out tasks of paused queues again
    #[command(visible_alias = "unpause")]
    Resume {
        /// Queue name
        #[arg(value_name = "NAME", required = true)]
        queues: Vec<String>,
    },
    /// Remove queues with all they hold: tasks, counters, groups, locks
    #[command(visible_aliases = ["rm", "delete"])]
    Remove(RemoveArgs),
}

/// Which queues to show.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Queue name
    #[arg(value_name = "NAME", required = true)]
    queues: Vec<String>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Which queues to remove.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Queue name
    #[arg(value_name = "NAME", required = true)]
    queues: Vec<String>,
    /// Also queues that hold tasks; those that a worker has must end first
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

#[derive(Debug, Serialize)]
struct Removed<'a> {
    queue: &'a str,
    tasks: u64,
}

/// A queue with what takes longer to find out.
#[derive(Debug, Serialize)]
struct Inspected {
    #[serde(flatten)]
    queue: view::Queue,
    /// `None` where the server does not tell.
    memory_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Paused<'a> {
    queue: &'a str,
    paused: bool,
    changed: bool,
    /// Whether the queue has had a task yet. One can pause it before, and misspell its name.
    exists: bool,
}

crate::command::simple!(QueueCommand);

async fn run(command: QueueCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        QueueCommand::Ls(watch) => show(&watch, out, async |out| list(session, out).await).await,
        QueueCommand::Inspect(args) => {
            show(&args.watch, out, async |out| inspect(&args.queues, session, out).await).await
        }
        QueueCommand::History(args) => history::run(args, session, out).await,
        QueueCommand::Forecast(args) => forecast::run(args, session, out).await,
        QueueCommand::Remove(args) => remove(args, session, out).await,
        QueueCommand::Pause { queues } => pause(&queues, true, session, out).await,
        QueueCommand::Resume { queues } => pause(&queues, false, session, out).await,
    }
}

async fn pause(queues: &[String], paused: bool, session: &Session, out: &Output) -> Result<(), CliError> {
    let admin = session.admin("cli");
    let existing = admin.inspector().queues().await?;
    for queue in queues {
        let changed = admin.pause(queue, paused).await?;
        let exists = existing.contains(queue);
        let word = if paused { "paused" } else { "running" };
        let already = if changed { "" } else { " already" };
        let note = if exists { "" } else { "; it has had no task yet, is this the right name?" };
        let line = format!("queue {queue:?} is {word}{already}{note}");
        out.told(&Paused { queue, paused, changed, exists }, &line)?;
    }
    Ok(())
}

async fn inspect(names: &[String], session: &Session, out: &Output) -> Result<String, CliError> {
    let inspector = session.inspector();
    let (mut values, mut texts) = (Vec::new(), Vec::new());
    for name in names {
        let (queue, memory) = (inspector.queue(name).await?, inspector.queue_memory(name).await?);
        texts.push(describe(&queue, memory));
        values.push(Inspected { queue: view::Queue::from(&queue), memory_bytes: memory });
    }
    if out.json { out.json(&values) } else { Ok(texts.join("\n")) }
}

fn describe(queue: &QueueInfo, memory: Option<u64>) -> String {
    let rate = |failed: u64, processed: u64| match processed {
        0 => String::new(),
        _ => format!(", {failed} failed ({:.2} %)", 100.0 * failed as f64 / processed as f64),
    };
    let states: Vec<(&str, String)> =
        TaskState::ALL.iter().map(|state| (state.as_str(), thousands(queue.count(*state)))).collect();
    let mut lines = vec![
        ("Queue", harmless(&queue.name)),
        ("Paused", if queue.paused { "yes".to_owned() } else { "no".to_owned() }),
        ("Tasks", thousands(queue.size())),
    ];
    lines.extend(states);
    lines.extend([
        ("Groups", thousands(queue.groups)),
        ("Latency", when::rough(queue.latency)),
        ("Memory", memory.map_or_else(|| "unknown: the server does not tell".to_owned(), bytes)),
        ("Today", format!("{} processed{}", thousands(queue.processed), rate(queue.failed, queue.processed))),
        (
            "Ever",
            format!(
                "{} processed{}",
                thousands(queue.processed_total),
                rate(queue.failed_total, queue.processed_total)
            ),
        ),
    ]);
    facts(&lines)
}

/// About so many bytes: `1.2 MiB`.
fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| count >> shift > 0) {
        Some((unit, shift)) => format!("about {:.1} {unit}", count as f64 / (1u64 << shift) as f64),
        None => format!("about {count} bytes"),
    }
}

async fn remove(args: RemoveArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let admin = session.admin("cli");
    for queue in &args.queues {
        let size = admin.inspector().queue(queue).await?.size();
        if size > 0 && args.force {
            let tasks = if size == 1 { "task" } else { "tasks" };
            let act = format!("remove queue {:?} with {} {tasks}", harmless(queue), thousands(size));
            args.confirm.ask(&act).await?;
        }
        let tasks = admin.remove_queue(queue, args.force).await?;
        let with = if tasks == 0 { String::new() } else { format!(", and {} tasks with it", thousands(tasks)) };
        out.told(&Removed { queue, tasks }, &format!("queue {:?} is removed{with}", harmless(queue)))?;
    }
    Ok(())
}

async fn list(session: &Session, out: &Output) -> Result<String, CliError> {
    let (mut queues, unread) = queues(&session.inspector()).await?;
    if out.json {
        return unread.with(out.json(&queues.iter().map(view::Queue::from).collect::<Vec<_>>())?);
    }
    if queues.is_empty() {
        return unread.with("no queues yet; `queuectl enqueue TYPE` makes one\n".to_owned());
    }
    // A queue, and below it those of its family: the priorities, the highest first, then labels and mailboxes by name.
    queues.sort_by_cached_key(|queue| {
        let QueueName { base, family } = QueueName::parse(&queue.name);
        let level = family.as_ref().map(|family| if let Family::Level(level) = family { Some(*level) } else { None });
        (base.to_owned(), level.map(Reverse), family.map(|family| family.to_string()))
    });
    let names: HashSet<&str> = queues.iter().map(|queue| &*queue.name).collect();
    // The names are cut so that the table fits 80 columns.
    let columns = ["QUEUE", "", "#PEND", "#ACTIVE", "#SCHED", "#RETRY", "#ARCHIV", "#COMPL", "#AGGR", "#LATENCY"];
    let mut rows = Rows::new(out, &columns);
    for queue in &queues {
        let cells = [
            match QueueName::parse(&queue.name) {
                QueueName { base, family: Some(family) } if names.contains(base) => format!("  {family}"),
                _ => shorten(&queue.name, 40),
            },
            if queue.paused { "paused".to_owned() } else { String::new() },
            queue.pending.to_string(),
            queue.active.to_string(),
            queue.scheduled.to_string(),
            queue.retry.to_string(),
            queue.archived.to_string(),
            queue.completed.to_string(),
            queue.aggregating.to_string(),
            when::rough(queue.latency),
        ];
        rows.add_marked(queue.paused, cells);
    }
    unread.with(rows.render())
}
