//! `queuectl task ls`.

use chrono::{DateTime, Utc};
use clap::Args;
use queue_admin::Page;
use queue_admin::payload::{preview, shorten};
use queue_admin::view;
use queue_core::{TaskInfo, TaskState};

use super::select::FilterArgs;
use crate::error::CliError;
use crate::manage::now;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::when;

/// Which tasks to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// State: active, pending, scheduled, retry, archived, completed or aggregating
    #[arg(short, long, value_name = "S")]
    state: TaskState,
    /// Which page, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Tasks per page
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

pub(crate) async fn run(list: ListArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    show(&list.watch, out, async |out| ls(&list, session, out).await).await
}

async fn ls(list: &ListArgs, session: &Session, out: &Output) -> Result<String, CliError> {
    let size = list.size as usize;
    let page = Page { skip: (list.page as usize - 1).saturating_mul(size), size };
    if out.json {
        return out.json(&tasks(list, session, page, view::Task::from).await?);
    }
    let now = now();
    let rows = tasks(list, session, page, |task| Row::of(&task, now)).await?;
    if rows.is_empty() {
        let page = if list.page == 1 { String::new() } else { format!(" on page {}", list.page) };
        let fit = if list.filter.is_empty() { "" } else { " that fit" };
        return Ok(format!("no {} tasks{fit} in queue {:?}{page}\n", list.state, list.queue));
    }
    Ok(render(list.state, &rows, out))
}

/// What `keep` makes of the tasks of a page.
async fn tasks<T>(
    list: &ListArgs,
    session: &Session,
    page: Page,
    keep: impl FnMut(TaskInfo) -> T,
) -> Result<Vec<T>, CliError> {
    let (inspector, queue) = (session.inspector(), &list.queue);
    Ok(match list.filter.only_group() {
        Some(group) if list.state == TaskState::Aggregating => {
            inspector.group_tasks_as(queue, group, page, keep).await?
        }
        _ if list.filter.is_empty() => inspector.tasks_as(queue, list.state, page, keep).await?,
        _ => inspector.find_as(queue, &list.filter.filter(&[list.state]), page, keep).await?,
    })
}

/// What is shown of a task.
struct Row {
    is_orphaned: bool,
    cells: [String; 4],
    text: String,
}

impl Row {
    fn of(task: &TaskInfo, now: DateTime<Utc>) -> Self {
        let (cells, text) = cells(task, now);
        Self { is_orphaned: task.is_orphaned, cells, text }
    }
}

/// A row for each task. What comes last is a text of any length; in a terminal that is too narrow for it, it
/// goes on a line of its own, because wrapped columns are hard to read and their ids hard to copy.
fn render(state: TaskState, rows: &[Row], out: &Output) -> String {
    let (columns, text_column) = columns(state);
    let mut wide = Rows::unwrapped(out, &[&columns[..], &[text_column]].concat());
    let mut narrow = Rows::unwrapped(out, &columns);
    for Row { is_orphaned, cells, text } in rows {
        narrow.add_marked(*is_orphaned, cells.clone());
        wide.add_marked(*is_orphaned, cells.iter().chain([text]).cloned());
    }
    let Some(width) = out.terminal.map(|(width, _)| usize::from(width)).filter(|width| wide.width() > *width) else {
        return wide.render();
    };
    let narrow = narrow.render();
    let texts = rows.iter().map(|row| format!("    {}\n", shorten(&row.text, width.saturating_sub(4))));
    let texts = [String::new()].into_iter().chain(texts);
    narrow.lines().zip(texts).map(|(line, text)| format!("{line}\n{text}")).collect()
}

/// Each state shows what one wants to know of a task in it.
fn columns(state: TaskState) -> ([&'static str; 4], &'static str) {
    match state {
        TaskState::Active => (["ID", "TYPE", "RETRIED", ""], "PAYLOAD"),
        TaskState::Pending => (["ID", "TYPE", "RETRIED", ""], "PAYLOAD"),
        TaskState::Scheduled => (["ID", "TYPE", "RETRIED", "STARTS"], "PAYLOAD"),
        TaskState::Retry => (["ID", "TYPE", "RETRIED", "NEXT TRY"], "LAST ERROR"),
        TaskState::Archived => (["ID", "TYPE", "RETRIED", "LAST FAILED"], "LAST ERROR"),
        TaskState::Completed => (["ID", "TYPE", "RETRIED", "COMPLETED"], "RESULT"),
        TaskState::Aggregating => (["ID", "TYPE", "RETRIED", "GROUP"], "PAYLOAD"),
    }
}

fn cells(task: &TaskInfo, now: DateTime<Utc>) -> ([String; 4], String) {
    const WIDTH: usize = 100;
    let ago = |at| when::ago(at, now);
    let detail = match task.state {
        TaskState::Active if task.is_orphaned => "orphaned".to_owned(),
        TaskState::Active | TaskState::Pending => String::new(),
        TaskState::Scheduled | TaskState::Retry => ago(task.next_process_at),
        TaskState::Archived => ago(task.last_failed_at),
        TaskState::Completed => ago(task.completed_at),
        TaskState::Aggregating => shorten(task.group.as_deref().unwrap_or("-"), 40),
    };
    let text = match task.state {
        TaskState::Retry | TaskState::Archived => shorten(task.last_error.as_deref().unwrap_or("-"), WIDTH),
        TaskState::Completed => preview(task.result.as_deref().unwrap_or(b"-"), WIDTH),
        _ => preview(&task.payload, WIDTH),
    };
    let retried = format!("{}/{}", task.retried, task.max_retry);
    ([shorten(&task.id, 80), shorten(&task.task_type, 80), retried, detail], text)
}
