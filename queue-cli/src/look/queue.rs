//! `queuectl queue`.

use clap::Subcommand;
use serde::Serialize;

use super::queues;
use crate::error::CliError;
use crate::output::Output;
use crate::payload::shorten;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::{view, when};

/// What to do with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show all queues with their tasks by state
    #[command(visible_alias = "list")]
    Ls(WatchArgs),
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
}

#[derive(Debug, Serialize)]
struct Paused<'a> {
    queue: &'a str,
    paused: bool,
    changed: bool,
    /// Whether the queue has had a task yet. One can pause it before, and misspell its name.
    exists: bool,
}

pub(crate) async fn run(command: QueueCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        QueueCommand::Ls(watch) => show(&watch, out, async |out| list(session, out).await).await,
        QueueCommand::Pause { queues } => pause(&queues, true, session, out).await,
        QueueCommand::Resume { queues } => pause(&queues, false, session, out).await,
    }
}

async fn pause(queues: &[String], paused: bool, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let existing = inspector.queues().await?;
    for queue in queues {
        let changed = if paused { inspector.pause(queue).await? } else { inspector.unpause(queue).await? };
        let exists = existing.contains(queue);
        if out.json {
            out.value(&Paused { queue, paused, changed, exists })?;
            continue;
        }
        let word = if paused { "paused" } else { "running" };
        let already = if changed { "" } else { " already" };
        let note = if exists { "" } else { "; it has had no task yet, is this the right name?" };
        out.line(&format!("queue {queue:?} is {word}{already}{note}"))?;
    }
    Ok(())
}

async fn list(session: &Session, out: &Output) -> Result<String, CliError> {
    let queues = queues(&session.inspector()).await?;
    if out.json {
        return out.json(&queues.iter().map(view::Queue::from).collect::<Vec<_>>());
    }
    if queues.is_empty() {
        return Ok("no queues yet; `queuectl enqueue TYPE` makes one\n".to_owned());
    }
    // The names are cut so that the table fits 80 columns.
    let columns = ["QUEUE", "", "#PEND", "#ACTIVE", "#SCHED", "#RETRY", "#ARCHIV", "#COMPL", "#AGGR", "#LATENCY"];
    let mut rows = Rows::new(out, &columns);
    for queue in &queues {
        let cells = [
            shorten(&queue.name, 40),
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
    Ok(rows.render())
}
