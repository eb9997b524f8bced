//! `queuectl queue`.

use clap::Subcommand;
use serde::Serialize;

use super::queues;
use crate::error::CliError;
use crate::output::Output;
use crate::payload::shorten;
use crate::session::Session;
use crate::table::Rows;
use crate::{view, when};

/// What to do with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show all queues with their tasks by state
    Ls,
    /// Stop handing out tasks of a queue, to Rust and Go workers alike; those running go on
    Pause {
        /// Queue name
        #[arg(value_name = "NAME")]
        queue: String,
    },
    /// Hand out tasks of a paused queue again
    #[command(visible_alias = "resume")]
    Unpause {
        /// Queue name
        #[arg(value_name = "NAME")]
        queue: String,
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
    let inspector = session.inspector();
    let (queue, paused, changed) = match &command {
        QueueCommand::Ls => return list(session, out).await,
        QueueCommand::Pause { queue } => (queue, true, inspector.pause(queue).await?),
        QueueCommand::Unpause { queue } => (queue, false, inspector.unpause(queue).await?),
    };
    let exists = inspector.queues().await?.contains(queue);
    if out.json {
        return out.value(&Paused { queue, paused, changed, exists });
    }
    let word = if paused { "paused" } else { "running" };
    let already = if changed { "" } else { " already" };
    let note = if exists { "" } else { "; it has had no task yet, is this the right name?" };
    out.line(&format!("queue {queue:?} is {word}{already}{note}"))
}

async fn list(session: &Session, out: &Output) -> Result<(), CliError> {
    let queues = queues(&session.inspector()).await?;
    if out.json {
        return out.value(&queues.iter().map(view::Queue::from).collect::<Vec<_>>());
    }
    if queues.is_empty() {
        return out.line("no queues yet; `queuectl enqueue TYPE` makes one");
    }
    // The names are cut so that the table fits 80 columns.
    let columns = ["QUEUE", "", "#PEND", "#ACTIVE", "#SCHED", "#RETRY", "#ARCHIV", "#COMPL", "#AGGR", "#LATENCY"];
    let mut rows = Rows::new(out, &columns);
    for queue in &queues {
        rows.add([
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
        ]);
    }
    out.text(&rows.render())
}
