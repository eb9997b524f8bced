//! The queues, and the course of the selected one.

use std::collections::VecDeque;

use queue_admin::payload::harmless;
use queue_core::TaskState;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::table::{Cell, Column, Table, widest};
use super::{areas, rows};
use crate::dash::list::List;
use crate::dash::model::Model;
use crate::dash::samples::spark;
use crate::dash::screen::{QueueRow, TABS};
use crate::dash::text::{bytes, count, cut, percent, rate};
use crate::when;

/// Below this width there is no room for a bar in each row.
const WITH_BARS: usize = 110;

pub(super) fn lines(model: &Model, list: &List<QueueRow>, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let names = widest(list.all().iter().map(|row| row.info.name.as_str()));
    let mut columns = vec![
        Column::text("QUEUE", 13, names.clamp(13, 40)),
        Column::text("STATE", 6, 6),
        Column::number("SIZE", 5),
        Column::number("LATENCY", 7),
        Column::number("MEMORY", 8),
        Column::number("PROCESSED", 9),
        Column::number("FAILED", 6),
        Column::number("ERRORS", 6),
        Column::text("THROUGHPUT", 10, if cells < WITH_BARS { 60 } else { 24 }),
    ];
    if cells >= WITH_BARS {
        columns.push(Column::text("TASKS BY STATE", 14, 60));
    }
    let empty = "no queues yet: a queue is there once a task was enqueued";
    let mut lines = rows(model, list, columns, cells, palette, empty, |row, table| line(model, table, row, palette));
    if areas::has_panel(model) {
        lines.resize_with(model.height() + 1, Line::default);
        lines.extend(list.selected().map(|row| panel(model, row, cells, palette)).unwrap_or_default());
    }
    lines
}

fn line(model: &Model, table: &Table, row: &QueueRow, palette: Palette) -> Vec<Cell> {
    let queue = &row.info;
    if row.spoilt.is_some() {
        return vec![Cell::new(&queue.name, palette.strong()), Cell::new("SPOILT", palette.bad())];
    }
    let failed = if queue.failed > 0 { palette.warning() } else { palette.plain() };
    let (state, look) = if queue.paused { ("PAUSED", palette.warning()) } else { ("RUN", palette.good()) };
    let course = model.samples.of(&queue.name);
    let throughput = course.map(|course| spark(&course.processed, table.width(8))).unwrap_or_default();
    vec![
        Cell::new(&queue.name, palette.strong()),
        Cell::new(state, look),
        Cell::new(count(queue.size()), palette.plain()),
        Cell::new(when::rough(queue.latency), palette.plain()),
        Cell::new(memory(row), palette.plain()),
        Cell::new(count(queue.processed), palette.plain()),
        Cell::new(count(queue.failed), failed),
        Cell::new(percent(queue.failed, queue.processed), failed),
        Cell::new(throughput, palette.good()),
        Cell::Drawn(bar(row, table.width(9), palette)),
    ]
}

/// What a queue takes of Redis' memory.
pub(super) fn memory(row: &QueueRow) -> String {
    row.memory.map_or_else(|| "-".to_owned(), bytes)
}

/// The tasks of a queue by state, in as many cells as there are. A state that has tasks has a cell, if there are
/// enough.
fn bar(row: &QueueRow, cells: usize, palette: Palette) -> Vec<Span<'static>> {
    let counts = TABS.map(|state| (state, row.info.count(state)));
    let size = row.info.size();
    let (mut spans, mut used, mut seen) = (Vec::new(), 0, 0_u64);
    for (state, tasks) in counts.into_iter().filter(|(_, tasks)| *tasks > 0) {
        seen = seen.saturating_add(tasks);
        let end = (u128::from(seen) * cells as u128 / u128::from(size.max(1))) as usize;
        let end = end.max(used + 1).min(cells);
        spans.push(Span::styled(palette.filling(state).to_string().repeat(end - used), palette.state(state)));
        used = end;
    }
    spans.push(Span::raw(" ".repeat(cells - used)));
    spans
}

fn panel(model: &Model, row: &QueueRow, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let title = format!("── {} ", cut(&row.info.name, cells.saturating_sub(8)));
    let rule = "─".repeat(cells.saturating_sub(crate::dash::text::width(&title)));
    let mut lines = vec![Line::styled(format!("{title}{rule}"), palette.label())];
    if let Some(why) = &row.spoilt {
        lines.push(Line::styled(cut(&harmless(why), cells), palette.bad()));
        return lines;
    }
    let mut bars = vec![Span::raw(" ")];
    bars.extend(bar(row, cells.saturating_sub(2), palette));
    lines.push(Line::from(bars));
    lines.push(legend(row, palette));
    lines.extend(course(model, &row.info.name, cells, palette));
    lines
}

fn legend(row: &QueueRow, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for state in TABS {
        let tasks = row.info.count(state);
        let look = if tasks > 0 { palette.state(state) } else { palette.label() };
        spans.push(Span::styled(format!(" {} {}", short(state), count(tasks)), look));
    }
    Line::from(spans)
}

/// The names of the states, so that all seven fit on a line with their counts.
pub(super) fn short(state: TaskState) -> &'static str {
    match state {
        TaskState::Aggregating => "groups",
        TaskState::Completed => "done",
        TaskState::Scheduled => "sched",
        state => state.as_str(),
    }
}

/// Throughput, failures and latency since the dashboard was started.
pub(super) fn course(model: &Model, queue: &str, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let (empty, course) = (VecDeque::new(), model.samples.of(queue));
    let per_second = |samples: Option<&VecDeque<f64>>| {
        samples.and_then(|samples| samples.back()).map_or_else(|| "-".to_owned(), |last| format!("{}/s", rate(*last)))
    };
    let (processed, failed) = (course.map(|course| &course.processed), course.map(|course| &course.failed));
    let latency = course.map(|course| &course.latency);
    let waited = latency.and_then(|samples| samples.back()).copied().unwrap_or(0.0);
    let waited = std::time::Duration::try_from_secs_f64(waited).map_or_else(|_| "-".to_owned(), when::rough);
    [
        ("throughput", per_second(processed), processed, palette.good()),
        ("failures", per_second(failed), failed, palette.bad()),
        ("latency", waited, latency, palette.calm()),
    ]
    .map(|(name, now, samples, look): (&str, String, Option<&VecDeque<f64>>, Style)| {
        let spark = spark(samples.unwrap_or(&empty), cells.saturating_sub(24));
        Line::from(vec![
            Span::styled(format!(" {name:<11}"), palette.label()),
            Span::raw(format!("{now:>9} ")),
            Span::styled(spark, look),
        ])
    })
    .into()
}
