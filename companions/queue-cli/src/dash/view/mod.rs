//! Shows the model. Nothing here changes anything: the same model is the same picture.

pub(super) mod areas;
mod batches;
mod cron;
mod overlays;
mod palette;
mod queue;
mod queues;
mod servers;
mod table;
mod task;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use self::palette::Palette;
use self::table::{Cell, Column, Table};
use super::list::{List, Moves as _, Row};
use super::model::Model;
use super::screen::Screen;
use super::text::{cut, fit, fit_right, width};
use crate::when;

/// Draws a frame.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let (area, palette) = (frame.area(), Palette { colour: model.colour });
    if area.width < areas::SMALLEST.0 || area.height < areas::SMALLEST.1 {
        return frame.render_widget(Paragraph::new("too small; q quits"), area);
    }
    let cells = usize::from(area.width);
    let mut lines = vec![top(model, cells, palette), path(model, cells, palette)];
    lines.extend(banner(model, cells, palette));
    let height = usize::from(area.height).saturating_sub(lines.len() + 1);
    lines.extend(body(model, cells, palette).into_iter().take(height));
    frame.render_widget(Paragraph::new(lines), area);
    let last = Rect { y: area.bottom() - 1, height: 1, ..area };
    frame.render_widget(Paragraph::new(bottom(model, cells, palette)), last);
    overlays::draw(frame, model, palette);
}

/// How many lines the task on the screen has, however many fit.
pub(super) fn task_lines(model: &Model) -> usize {
    match model.screen() {
        Screen::Task(screen) => task::lines(model, screen, usize::from(model.size.0), Palette { colour: false }).len(),
        _ => 0,
    }
}

fn body(model: &Model, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    match model.screen() {
        Screen::Queues(list) => queues::lines(model, list, cells, palette),
        Screen::Servers(list) => servers::lines(model, list, cells, palette),
        Screen::Workers { server, list } => servers::workers(model, server, list, cells, palette),
        Screen::Cron(list) => cron::lines(model, list, cells, palette),
        Screen::Events { entry, skip, list } => cron::events(model, entry, *skip, list, cells, palette),
        Screen::Batches { list, .. } => batches::lines(model, list, cells, palette),
        Screen::Batch(screen) => batches::batch(model, screen, cells, palette),
        Screen::Queue(screen) => queue::lines(model, screen, cells, palette),
        Screen::Task(screen) => {
            let mut lines = task::lines(model, screen, cells, palette);
            lines.drain(..screen.scroll.min(lines.len()));
            lines
        }
    }
}

/// The tabs, and which Redis this is.
fn top(model: &Model, cells: usize, palette: Palette) -> Line<'static> {
    let at = match model.screens.first() {
        Some(Screen::Servers(_)) => 1,
        Some(Screen::Cron(_)) => 2,
        Some(Screen::Batches { .. }) => 3,
        _ => 0,
    };
    let mut spans = Vec::new();
    let mut used = 0;
    for (tab, name) in [" Queues ", " Servers ", " Cron ", " Batches "].into_iter().enumerate() {
        used += name.len();
        spans.push(Span::styled(name, if tab == at { palette.selected() } else { palette.plain() }));
    }
    let mode = if model.read_only { "read-only  " } else { "" };
    let time = model.now.format("%H:%M:%SZ");
    let target = cut(&model.target, cells.saturating_sub(used + mode.len() + 13));
    spans.push(Span::styled(
        fit_right(&format!("{mode}{target}  {time} "), cells.saturating_sub(used)),
        palette.label(),
    ));
    Line::from(spans)
}

/// How one came here, and what is filtered.
fn path(model: &Model, cells: usize, palette: Palette) -> Line<'static> {
    let mut parts = Vec::new();
    for screen in &model.screens {
        match screen {
            Screen::Queues(list) => parts.push(counted(list, "queue")),
            Screen::Servers(list) => parts.push(counted(list, "server")),
            Screen::Cron(list) => parts.push(counted(list, "periodic entry")),
            Screen::Batches { skip: 0, .. } => parts.push("batches, newest first".to_owned()),
            Screen::Batches { skip, .. } => parts.push(format!("batches, from {} on", skip + 1)),
            Screen::Batch(screen) => parts.push(cut(&screen.id.to_string(), 40)),
            Screen::Queue(queue) => {
                parts.push(cut(&queue.name, 40));
                parts.extend(queue.group.as_deref().map(|group| cut(group, 30)));
            }
            Screen::Task(task) => parts.push(cut(&task.id, 40)),
            Screen::Workers { server, .. } => parts.push(cut(&server.host, 40)),
            Screen::Events { entry, .. } => parts.push(cut(&entry.id, 40)),
        }
    }
    let filter = model.screen().filter();
    let filter = if filter.is_empty() { String::new() } else { format!("  filter: {}", cut(filter, 30)) };
    let room = cells.saturating_sub(width(&filter) + 1);
    Line::from(vec![
        Span::styled(format!(" {}", cut(&parts.join(" › "), room)), palette.strong()),
        Span::styled(filter, palette.warning()),
    ])
}

fn counted<T: Row>(list: &List<T>, name: &str) -> String {
    let plural = match name.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{name}s"),
    };
    if !list.is_loaded() {
        return plural;
    }
    match (list.all().len(), list.filter().is_empty()) {
        (1, true) => format!("1 {name}"),
        (all, true) => format!("{all} {plural}"),
        (all, false) => format!("{} of {all} {plural}", list.shown().len()),
    }
}

/// Says that what is shown is old, and why.
fn banner(model: &Model, cells: usize, palette: Palette) -> Option<Line<'static>> {
    let trouble = model.trouble.as_ref()?;
    let age = model.read_at.map_or_else(String::new, |at| format!(" (shown: {})", when::distance(at, model.now)));
    Some(Line::styled(fit(&format!(" REDIS IS AWAY{age}: {trouble}"), cells), palette.bad().patch(palette.selected())))
}

/// What is being typed, or what was said last, or the keys that can be pressed.
fn bottom(model: &Model, cells: usize, palette: Palette) -> Line<'static> {
    if model.typing {
        let filter = cut(model.screen().filter(), cells.saturating_sub(40));
        return Line::from(vec![
            Span::styled(format!(" /{filter}"), palette.strong()),
            Span::styled(" ", palette.selected()),
            Span::styled("  Enter: keep   Esc: end", palette.label()),
        ]);
    }
    if let Some(notice) = &model.notice {
        let look = if notice.bad { palette.bad() } else { palette.good() };
        return Line::styled(format!(" {}", cut(&notice.text, cells.saturating_sub(1))), look);
    }
    let read_only = model.read_only;
    let changes = |keys: &'static str| if read_only { "" } else { keys };
    let keys = match model.screen() {
        Screen::Queues(_) => format!("Enter open  / filter{}", changes("  s stop/start  d delete")),
        Screen::Servers(_) => "Enter workers  / filter".to_owned(),
        Screen::Cron(_) => format!("Enter history  / filter{}", changes("  s stop/start  r run now")),
        Screen::Queue(queue) if queue.shows_groups() => "Enter tasks  ←→ state  / filter  q back".to_owned(),
        Screen::Queue(_) => {
            format!("Enter open  ←→ state  n/p page  / filter{}", changes("  r run  a archive  d delete"))
        }
        Screen::Task(_) => {
            format!("↑↓ scroll{}  q back", changes("  r run  a archive  d delete  c cancel  i interrupt"))
        }
        Screen::Workers { .. } => format!("Enter task  / filter{}  q back", changes("  c cancel  i interrupt")),
        Screen::Events { .. } => "Enter task  n/p page  / filter  q back".to_owned(),
        Screen::Batches { .. } => format!("Enter open  n/p page  / filter{}", changes("  r run dead  c cancel")),
        Screen::Batch(_) => format!("Enter open  / filter{}  q back", changes("  r run dead  c cancel")),
    };
    Line::styled(cut(&format!(" ? help  {keys}"), cells), palette.label())
}

/// The rows of a list as a table, or why there are none.
fn rows<T: Row>(
    model: &Model,
    list: &List<T>,
    columns: Vec<Column>,
    cells: usize,
    palette: Palette,
    empty: &str,
    row: impl Fn(&T, &Table) -> Vec<Cell>,
) -> Vec<Line<'static>> {
    let table = Table::new(columns, cells, palette);
    let rows = list.on_screen(model.height()).into_iter().map(|(one, selected)| table.row(row(one, &table), selected));
    let mut lines: Vec<_> = std::iter::once(table.header()).chain(rows).collect();
    if list.shown().is_empty() {
        let text = match (list.is_loaded(), list.filter().is_empty()) {
            (false, _) => "reading …",
            (true, false) => "nothing matches the filter",
            (true, true) => empty,
        };
        lines.push(Line::styled(format!(" {text}"), palette.label()));
    }
    lines
}
