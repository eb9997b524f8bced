//! One queue: its facts, its states, and the tasks in one of them.

use chrono::{DateTime, Utc};
use queue_admin::GroupInfo;
use queue_admin::payload;
use queue_core::{TaskInfo, TaskState};
use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::queues::{course, memory, short};
use super::rows;
use super::table::{Cell, Column, widest};
use crate::dash::list::List;
use crate::dash::model::Model;
use crate::dash::screen::{QueueScreen, TABS};
use crate::dash::text::{count, cut};
use crate::when;

/// Characters of a text that can stand in a row; the columns cut it to what fits.
const MAX_CELL: usize = 400;

const LIMITS: &str = " limits ";

pub(super) fn lines(model: &Model, queue: &QueueScreen, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = vec![facts(queue, palette)];
    // Throughput alone: the rows are for tasks.
    lines.extend(course(model, &queue.name, cells, palette).into_iter().take(1));
    if let Some(row) = queue.row.as_ref().filter(|row| !row.limits.is_empty()) {
        let limits = cut(&row.limits, cells.saturating_sub(LIMITS.len()));
        lines.push(Line::from(vec![Span::styled(LIMITS, palette.label()), Span::raw(limits)]));
    }
    lines.push(tabs(queue, palette));
    lines.push(position(queue, palette));
    if let Some(why) = &queue.gone {
        lines.push(Line::styled(cut(why, cells), palette.bad()));
    } else if queue.shows_groups() {
        lines.extend(groups(model, queue, cells, palette));
    } else {
        lines.extend(tasks(model, queue, cells, palette));
    }
    lines
}

fn facts(queue: &QueueScreen, palette: Palette) -> Line<'static> {
    let Some(row) = &queue.row else { return Line::default() };
    let info = &row.info;
    let (state, look) = if info.paused { (" PAUSED ", palette.warning()) } else { (" RUN ", palette.good()) };
    let mut spans = vec![Span::styled(state, look)];
    for (name, value) in [
        ("size", count(info.size())),
        ("latency", when::rough(info.latency)),
        ("memory", memory(row)),
        ("today", format!("{} done, {} failed", count(info.processed), count(info.failed))),
    ] {
        spans.push(Span::styled(format!(" {name} "), palette.label()));
        spans.push(Span::raw(value));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

fn tabs(queue: &QueueScreen, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for state in TABS {
        let tasks = queue.row.as_ref().map_or(0, |row| row.info.count(state));
        let text = format!(" {} {} ", short(state), count(tasks));
        let look = if tasks > 0 { palette.state(state) } else { palette.label() };
        spans.push(Span::styled(text, if state == queue.state { palette.selected() } else { look }));
    }
    Line::from(spans)
}

/// Which part of the tasks is shown.
fn position(queue: &QueueScreen, palette: Palette) -> Line<'static> {
    let shown = queue.tasks.all().len();
    let of_group = queue.group.as_ref().map_or_else(String::new, |group| format!(" of group {}", cut(group, 40)));
    let text = match queue.searched {
        _ if queue.shows_groups() => " groups that may hold tasks; Enter shows them".to_owned(),
        Some((searched, true)) => format!(" {shown} matching on this page, of {searched} tasks{of_group}"),
        Some((searched, false)) => format!(" {shown} matching, of the first {searched} tasks{of_group}"),
        None if shown == 0 => format!(" {}{of_group}", queue.state),
        None => {
            let total = queue.total().unwrap_or(0).max((queue.skip + shown) as u64);
            format!(" {} {}-{} of {total}{of_group}", queue.state, queue.skip + 1, queue.skip + shown)
        }
    };
    Line::styled(text, palette.label())
}

fn groups(model: &Model, queue: &QueueScreen, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let list: &List<GroupInfo> = &queue.groups;
    let name = widest(list.all().iter().map(|group| group.name.as_str())).max(12);
    let columns = vec![Column::text("GROUP", 12, name), Column::number("SIZE", 6)];
    rows(model, list, columns, cells, palette, "no groups in this queue", |group, _| {
        vec![Cell::new(&group.name, palette.strong()), Cell::new(count(group.size), palette.plain())]
    })
}

fn tasks(model: &Model, queue: &QueueScreen, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let list = &queue.tasks;
    let id = widest(list.all().iter().map(|task| task.id.as_str())).max(4);
    let task_type = widest(list.all().iter().map(|task| task.task_type.as_str())).max(4);
    // A UUID may take half of a narrow line, but not more: its beginning tells tasks apart.
    let wide = cells >= 110;
    let mut columns = vec![
        Column::text("ID", 8, id.min(if wide { 40 } else { 18 })),
        Column::text("TYPE", 6, task_type.min(if wide { 40 } else { 18 })),
    ];
    let (time, text) = titles(queue.state);
    columns.push(Column::text("RETRIED", 7, 7));
    if !time.is_empty() {
        columns.push(Column::text(time, 11, 11));
    }
    columns.push(Column::text(text, 10, usize::MAX));
    let empty = if list.is_loaded() { format!("no {} tasks", queue.state) } else { String::new() };
    rows(model, list, columns, cells, palette, &empty, |task, _| {
        let mut row = vec![
            Cell::new(&task.id, palette.plain()),
            Cell::new(&task.task_type, palette.strong()),
            Cell::new(format!("{}/{}", task.retried, task.max_retry), palette.plain()),
        ];
        if !time.is_empty() {
            row.push(Cell::new(detail(task, model.now), palette.calm()));
        }
        row.push(match task.state {
            TaskState::Retry | TaskState::Archived => Cell::new(excerpt(task), palette.warning()),
            _ => Cell::new(excerpt(task), palette.plain()),
        });
        row
    })
}

/// The names of the columns that depend on the state: one of a time, and one of a text.
fn titles(state: TaskState) -> (&'static str, &'static str) {
    match state {
        TaskState::Active => ("LEASE", "PAYLOAD"),
        TaskState::Pending | TaskState::Aggregating => ("", "PAYLOAD"),
        TaskState::Scheduled => ("PROCESS IN", "PAYLOAD"),
        TaskState::Retry => ("NEXT TRY", "LAST ERROR"),
        TaskState::Archived => ("FAILED", "LAST ERROR"),
        TaskState::Completed => ("COMPLETED", "RESULT"),
    }
}

fn detail(task: &TaskInfo, now: DateTime<Utc>) -> String {
    match task.state {
        TaskState::Active if task.is_orphaned => "orphaned".to_owned(),
        TaskState::Active => "held".to_owned(),
        TaskState::Scheduled | TaskState::Retry => when::ago(task.next_process_at, now),
        TaskState::Archived => when::ago(task.last_failed_at, now),
        TaskState::Completed => when::ago(task.completed_at, now),
        TaskState::Pending | TaskState::Aggregating => String::new(),
    }
}

fn excerpt(task: &TaskInfo) -> String {
    match task.state {
        TaskState::Retry | TaskState::Archived => payload::shorten(task.last_error.as_deref().unwrap_or("-"), MAX_CELL),
        TaskState::Completed => task.result.as_deref().map_or_else(|| "-".to_owned(), bytes),
        _ => bytes(&task.payload),
    }
}

/// A payload on one line. Of a huge one only the beginning is looked at, for every frame.
pub(super) fn bytes(bytes: &[u8]) -> String {
    const GLANCE: usize = 16 * 1024;
    if bytes.len() <= GLANCE {
        return payload::preview(bytes, MAX_CELL);
    }
    let text = String::from_utf8_lossy(&bytes[..MAX_CELL * 4]);
    if text.contains(|c: char| c.is_control() && !c.is_whitespace())
        || text.trim_end_matches('\u{fffd}').contains('\u{fffd}')
    {
        return format!("<binary, {} bytes>", bytes.len());
    }
    payload::shorten(&text, MAX_CELL)
}
