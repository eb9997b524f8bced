//! Periodic entries, and when their tasks were enqueued.

use queue_admin::{EnqueueEvent, SchedulerEntry};
use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::queue::bytes;
use super::rows;
use super::table::{Cell, Column, widest};
use crate::dash::list::List;
use crate::dash::model::Model;
use crate::dash::screen::CronRow;
use crate::dash::text::cut;
use crate::when;

pub(super) fn lines(model: &Model, list: &List<CronRow>, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let widest = |text: fn(&SchedulerEntry) -> &str, most: usize| {
        widest(list.all().iter().map(|row| text(&row.entry))).clamp(8, most)
    };
    let most = if cells >= 110 { 36 } else { 16 };
    let columns = vec![
        Column::text("SPEC", 8, widest(|entry| &entry.spec, most + 4)),
        Column::text("TYPE", 8, widest(|entry| &entry.task_type, most)),
        Column::text("NEXT", 10, 10),
        Column::text("PREVIOUS", 10, 10),
        Column::text("ENTRY", 8, widest(|entry| &entry.id, most)),
        Column::text("OPTIONS", 8, usize::MAX),
    ];
    let empty = "no scheduler is running, or none has entries";
    rows(model, list, columns, cells, palette, empty, |CronRow { entry, paused, .. }, _| {
        let next = match paused {
            true => Cell::new("PAUSED", palette.warning()),
            false => Cell::new(when::next(entry.next, model.now), palette.plain()),
        };
        vec![
            Cell::new(&entry.spec, palette.calm()),
            Cell::new(&entry.task_type, palette.strong()),
            next,
            Cell::new(when::ago(entry.prev, model.now), palette.plain()),
            Cell::new(&entry.id, palette.plain()),
            Cell::new(entry.options.join(" "), palette.plain()),
        ]
    })
}

pub(super) fn events(
    model: &Model,
    entry: &SchedulerEntry,
    skip: usize,
    list: &List<EnqueueEvent>,
    cells: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let fact = |name: &str, value: &str| {
        Line::from(vec![
            Span::styled(format!(" {name} "), palette.label()),
            Span::raw(cut(value, cells.saturating_sub(12))),
        ])
    };
    let page = list.all().len();
    let history = match page {
        0 => String::new(),
        _ => format!(" enqueued, newest first, {}-{}", skip + 1, skip + page),
    };
    let mut lines = vec![
        fact("entry  ", &format!("{}  {}  {}", entry.spec, entry.task_type, entry.options.join(" "))),
        fact("payload", &bytes(&entry.payload)),
        Line::styled(history, palette.label()),
    ];
    let columns = vec![Column::text("TASK", 20, 40), Column::text("ENQUEUED", 12, 44)];
    lines.extend(rows(model, list, columns, cells, palette, "its task has not been enqueued yet", |event, _| {
        let at = event.enqueued_at.map_or_else(|| "-".to_owned(), |at| when::date(at, model.now));
        vec![Cell::new(&event.task_id, palette.plain()), Cell::new(at, palette.plain())]
    }));
    lines
}
