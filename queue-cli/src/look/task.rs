//! `queuectl task`.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use queue_core::{State, TaskInfo};
use queue_redis::{Broker, Page};
use serde::Serialize;

use super::now;
use crate::error::CliError;
use crate::output::Output;
use crate::payload::{harmless, pretty, preview, shorten};
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::{view, when};

/// What to do with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show the tasks of a queue in one state
    Ls(ListArgs),
    /// Show everything about a task
    Inspect {
        /// Queue name
        #[arg(long, value_name = "Q")]
        queue: String,
        /// Task id
        #[arg(long, value_name = "ID")]
        id: String,
    },
    /// Ask the servers to stop working on a task; it then counts as failed and is retried
    Cancel {
        /// Task id
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Which tasks to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Queue name
    #[arg(long, value_name = "Q")]
    queue: String,
    /// State: active, pending, scheduled, retry, archived, completed or aggregating
    #[arg(long, value_name = "S")]
    state: State,
    /// Which page, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Tasks per page
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

#[derive(Debug, Serialize)]
struct Asked<'a> {
    id: &'a str,
    servers_asked: u64,
}

pub(crate) async fn run(command: TaskCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    match command {
        TaskCommand::Ls(list) => ls(list, session, out).await,
        TaskCommand::Inspect { queue, id } => inspect(&queue, &id, session, out).await,
        TaskCommand::Cancel { id } => cancel(&id, session, out).await,
    }
}

async fn ls(list: ListArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let size = list.size as usize;
    let page = Page { skip: (list.page as usize - 1).saturating_mul(size), size };
    let tasks = session.inspector().tasks(&list.queue, list.state, page).await?;
    if out.json {
        return out.value(&tasks.into_iter().map(view::Task::from).collect::<Vec<_>>());
    }
    if tasks.is_empty() {
        let page = if list.page == 1 { String::new() } else { format!(" on page {}", list.page) };
        return out.line(&format!("no {} tasks in queue {:?}{page}", list.state, list.queue));
    }
    out.text(&render(list.state, &tasks, now(), out))
}

/// A row for each task. What comes last is a text of any length; in a terminal that is too narrow for it, it
/// goes on a line of its own, because wrapped columns are hard to read and their ids hard to copy.
fn render(state: State, tasks: &[TaskInfo], now: DateTime<Utc>, out: &Output) -> String {
    let (columns, text_column) = columns(state);
    let mut wide = Rows::unwrapped(&[&columns[..], &[text_column]].concat());
    let mut narrow = Rows::unwrapped(&columns);
    for task in tasks {
        let (cells, text) = cells(task, now);
        narrow.add(cells.clone());
        wide.add(cells.into_iter().chain([text]));
    }
    let wide = wide.render();
    let Some((width, _)) = out.terminal.map(|(width, height)| (usize::from(width), height)) else { return wide };
    if wide.lines().all(|line| line.chars().count() <= width) {
        return wide;
    }
    let narrow = narrow.render();
    let texts = tasks.iter().map(|task| format!("    {}\n", shorten(&cells(task, now).1, width.saturating_sub(4))));
    let texts = [String::new()].into_iter().chain(texts);
    narrow.lines().zip(texts).map(|(line, text)| format!("{line}\n{text}")).collect()
}

/// Each state shows what one wants to know of a task in it.
fn columns(state: State) -> ([&'static str; 4], &'static str) {
    match state {
        State::Active => (["ID", "TYPE", "RETRIED", ""], "PAYLOAD"),
        State::Pending => (["ID", "TYPE", "RETRIED", ""], "PAYLOAD"),
        State::Scheduled => (["ID", "TYPE", "RETRIED", "STARTS"], "PAYLOAD"),
        State::Retry => (["ID", "TYPE", "RETRIED", "NEXT TRY"], "LAST ERROR"),
        State::Archived => (["ID", "TYPE", "RETRIED", "LAST FAILED"], "LAST ERROR"),
        State::Completed => (["ID", "TYPE", "RETRIED", "COMPLETED"], "RESULT"),
        State::Aggregating => (["ID", "TYPE", "RETRIED", "GROUP"], "PAYLOAD"),
    }
}

fn cells(task: &TaskInfo, now: DateTime<Utc>) -> ([String; 4], String) {
    const WIDTH: usize = 100;
    let ago = |at: Option<DateTime<Utc>>| at.map_or_else(|| "-".to_owned(), |at| when::distance(at, now));
    let detail = match task.state {
        State::Active if task.is_orphaned => "orphaned".to_owned(),
        State::Active | State::Pending => String::new(),
        State::Scheduled | State::Retry => ago(task.next_process_at),
        State::Archived => ago(task.last_failed_at),
        State::Completed => ago(task.completed_at),
        State::Aggregating => shorten(task.group.as_deref().unwrap_or("-"), 40),
    };
    let text = match task.state {
        State::Retry | State::Archived => shorten(task.last_error.as_deref().unwrap_or("-"), WIDTH),
        State::Completed => preview(task.result.as_deref().unwrap_or(b"-"), WIDTH),
        _ => preview(&task.payload, WIDTH),
    };
    let retried = format!("{}/{}", task.retried, task.max_retry);
    ([shorten(&task.id, 80), shorten(&task.kind, 80), retried, detail], text)
}

async fn inspect(queue: &str, id: &str, session: &Session, out: &Output) -> Result<(), CliError> {
    let task = session.inspector().task(queue, id).await?;
    if out.json {
        return out.value(&view::Task::from(task));
    }
    let now = now();
    let date = |at: DateTime<Utc>| when::date(at, now);
    let mut lines = vec![
        ("ID", harmless(&task.id)),
        ("Queue", harmless(&task.queue)),
        ("Type", harmless(&task.kind)),
        ("State", format!("{}{}", task.state, if task.is_orphaned { ", orphaned: its worker is silent" } else { "" })),
        ("Retried", format!("{} of {}", task.retried, task.max_retry)),
    ];
    let rough = |duration| (duration != std::time::Duration::ZERO).then(|| when::rough(duration));
    let optional = [
        ("Last error", task.last_error.as_deref().map(|error| shorten(error, 2_000))),
        ("Last failed", task.last_failed_at.map(date)),
        ("Next try", task.next_process_at.filter(|_| task.state != State::Pending).map(date)),
        ("Timeout", task.timeout.and_then(rough)),
        ("Deadline", task.deadline.map(date)),
        ("Group", task.group.as_deref().map(harmless)),
        ("Retention", rough(task.retention)),
        ("Completed", task.completed_at.map(date)),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let headers = task.headers.iter().map(|(key, value)| ("Header", harmless(&format!("{key}={value}"))));
    lines.extend(headers);
    out.text(&facts(&lines))?;
    bytes("Payload", Some(&task.payload), out)?;
    bytes("Result", task.result.as_deref(), out)
}

fn bytes(name: &str, bytes: Option<&[u8]>, out: &Output) -> Result<(), CliError> {
    match bytes {
        None => Ok(()),
        Some([]) => out.text(&format!("\n{name}: empty\n")),
        Some(bytes) => out.text(&format!("\n{name}, {} bytes:\n{}\n", bytes.len(), pretty(bytes).trim_end())),
    }
}

async fn cancel(id: &str, session: &Session, out: &Output) -> Result<(), CliError> {
    let servers = Broker::new(session.redis().clone()).cancel(id).await?;
    if servers == 0 {
        return Err(CliError::failed(
            "no server is listening, so nothing was canceled; `queuectl server ls` shows those that run",
        ));
    }
    if out.json {
        return out.value(&Asked { id, servers_asked: servers });
    }
    let servers = if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") };
    out.line(&format!("asked {servers} to stop working on task {id:?}; whichever has it lets it fail and be retried"))
}
