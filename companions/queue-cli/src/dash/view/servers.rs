//! Servers, and what they work on.

use chrono::{DateTime, Utc};
use queue_admin::{ServerInfo, WorkerInfo};
use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::queue::bytes;
use super::rows;
use super::table::{Cell, Column, widest};
use crate::dash::list::List;
use crate::dash::model::Model;
use crate::dash::text::cut;
use crate::when;

pub(super) fn lines(model: &Model, list: &List<ServerInfo>, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let names: Vec<String> = list.all().iter().map(called).collect();
    let host = widest(names.iter().map(String::as_str)).clamp(10, 30);
    let columns = vec![
        Column::text("HOST", 10, host),
        Column::number("PID", 8),
        Column::text("STATE", 7, 7),
        Column::number("BUSY", 9),
        Column::text("STARTED", 12, 12),
        Column::text("QUEUES", 10, usize::MAX),
    ];
    rows(model, list, columns, cells, palette, "no server is running", |server, _| {
        let state = if server.status == "active" { palette.good() } else { palette.warning() };
        let busy = format!("{}/{}", server.workers.len(), server.concurrency);
        vec![
            Cell::new(called(server), palette.strong()),
            Cell::new(server.pid.to_string(), palette.plain()),
            Cell::new(&server.status, state),
            Cell::new(busy, palette.plain()),
            Cell::new(when::ago(server.started, model.now), palette.plain()),
            Cell::new(queues(server), palette.plain()),
        ]
    })
}

/// Its name, where it has one, and its host.
fn called(server: &ServerInfo) -> String {
    server.name().map_or_else(|| server.host.clone(), |name| format!("{name} {}", server.host))
}

/// Queues with their priorities, the highest first.
fn queues(server: &ServerInfo) -> String {
    let mut queues: Vec<(&String, &i32)> = server.queues.iter().collect();
    queues.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let queues: Vec<String> = queues.iter().map(|(name, priority)| format!("{name}:{priority}")).collect();
    format!("{}{}", queues.join(" "), if server.strict_priority { " (strict)" } else { "" })
}

pub(super) fn workers(
    model: &Model,
    server: &ServerInfo,
    list: &List<WorkerInfo>,
    cells: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let look = if server.status == "active" { palette.good() } else { palette.warning() };
    let facts =
        format!("pid {}  busy {}/{}  queues {}", server.pid, server.workers.len(), server.concurrency, queues(server));
    let mut lines = vec![
        Line::from(vec![Span::styled(format!(" {} ", cut(&server.status, 10)), look), Span::raw(cut(&facts, cells))]),
        Line::default(),
    ];
    let id = widest(list.all().iter().map(|worker| worker.task_id.as_str())).max(4);
    let task_type = widest(list.all().iter().map(|worker| worker.task_type.as_str())).max(4);
    let (most_id, most_type) = if cells >= 110 { (40, 40) } else { (18, 16) };
    let columns = vec![
        Column::text("TASK", 8, id.min(most_id)),
        Column::text("TYPE", 6, task_type.min(most_type)),
        Column::text("QUEUE", 8, 12),
        Column::number("RUNNING", 7),
        Column::number("DEADLINE", 8),
        Column::text("PAYLOAD", 8, usize::MAX),
    ];
    lines.extend(rows(model, list, columns, cells, palette, "this server works on nothing", |worker, _| {
        vec![
            Cell::new(&worker.task_id, palette.plain()),
            Cell::new(&worker.task_type, palette.strong()),
            Cell::new(&worker.queue, palette.plain()),
            Cell::new(apart(worker.started, Some(model.now)), palette.calm()),
            Cell::new(apart(Some(model.now), worker.deadline), palette.plain()),
            Cell::new(bytes(&worker.payload), palette.plain()),
        ]
    }));
    lines
}

/// The time between two dates; nothing of it when they are the other way round.
fn apart(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> String {
    let apart = from.zip(to).map(|(from, to)| (to - from).num_seconds().max(0).unsigned_abs());
    apart.map_or_else(|| "-".to_owned(), |secs| when::rough(std::time::Duration::from_secs(secs)))
}
