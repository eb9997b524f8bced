//! Batches and workflows, and what one of them has.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::palette::Palette;
use super::rows;
use super::table::{Cell, Column, widest};
use crate::dash::list::List;
use crate::dash::model::Model;
use crate::dash::screen::{BatchRow, BatchScreen, PartRow};
use crate::dash::text::cut;
use crate::when;

pub(super) fn lines(model: &Model, list: &List<BatchRow>, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let columns = vec![
        Column::text("BATCH", 16, widest(list.all().iter().map(|row| &*row.id)).clamp(16, 40)),
        Column::text("STATE", 9, 9),
        Column::number("MEMBERS", 7),
        Column::number("LIVE", 7),
        Column::number("DONE", 7),
        Column::number("BAD", 5),
        Column::text("CREATED", 9, 10),
        Column::text("DESCRIPTION", 7, usize::MAX),
    ];
    rows(model, list, columns, cells, palette, "there are no batches", |row, _| {
        vec![
            Cell::new(&row.id, palette.strong()),
            Cell::new(row.state, state(row.state, palette)),
            Cell::new(row.total.to_string(), palette.plain()),
            Cell::new(row.live.to_string(), palette.plain()),
            Cell::new(row.succeeded.to_string(), palette.plain()),
            Cell::new(row.bad.to_string(), if row.bad > 0 { palette.bad() } else { palette.plain() }),
            Cell::new(when::ago(row.created, model.now), palette.plain()),
            Cell::new(&row.description, palette.plain()),
        ]
    })
}

/// How a state of a batch or of a member looks.
fn state(state: &str, palette: Palette) -> Style {
    match state {
        "succeeded" => palette.good(),
        "dead" | "doomed" | "removed" | "abandoned" => palette.bad(),
        "failing" | "cancelled" => palette.warning(),
        _ => palette.plain(),
    }
}

pub(super) fn batch(model: &Model, screen: &BatchScreen, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    if let Some(why) = &screen.gone {
        return vec![Line::styled(format!(" {}", cut(why, cells)), palette.warning())];
    }
    let mut lines = match &screen.row {
        None => vec![Line::default(), Line::default()],
        Some(row) => {
            let facts = format!(
                " {} of {} succeeded, {} live, {} bad  {}",
                row.succeeded, row.total, row.live, row.bad, row.description
            );
            let callbacks: Vec<String> =
                row.callbacks.iter().map(|(event, state)| format!("{event} {state}")).collect();
            let callbacks = if callbacks.is_empty() { "none".to_owned() } else { callbacks.join(", ") };
            vec![
                Line::from(vec![
                    Span::styled(format!(" {}", row.state), state(row.state, palette)),
                    Span::raw(cut(&facts, cells.saturating_sub(12))),
                ]),
                Line::from(vec![
                    Span::styled(" callbacks ", palette.label()),
                    Span::raw(cut(&callbacks, cells.saturating_sub(12))),
                ]),
            ]
        }
    };
    let names = |part: &PartRow| part.name.clone();
    let names: Vec<String> = screen.parts.all().iter().map(names).collect();
    let columns = vec![
        Column::text("PART", 12, widest(names.iter().map(String::as_str)).clamp(12, 40)),
        Column::text("STATE", 9, 9),
        Column::text("WORK", 16, 40),
        Column::text("AFTER", 8, usize::MAX),
    ];
    let empty = "no nodes, no children, and no task of it has failed";
    lines.extend(rows(model, &screen.parts, columns, cells, palette, empty, |part, _| {
        vec![
            Cell::new(&part.name, palette.strong()),
            Cell::new(part.state, state(part.state, palette)),
            Cell::new(&part.work, palette.plain()),
            Cell::new(&part.after, palette.plain()),
        ]
    }));
    lines
}
