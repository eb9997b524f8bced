//! What stands in front of a screen: the help, and the question whether one is sure.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};

use super::palette::Palette;
use crate::dash::action::Action;
use crate::dash::model::{Model, Overlay};
use crate::dash::text::{clean, wrap_words};

const HELP: [(&str, &str); 18] = [
    ("↑ ↓  j k", "select a row; scroll a task"),
    ("← →  h l  Tab", "the tab beside this one"),
    ("Enter", "open what is selected"),
    ("Esc  q", "back; from the queues: quit"),
    ("n p  PgDn PgUp", "next and previous page"),
    ("g G  Home End", "first and last row"),
    ("1 2 3 4", "queues, servers, cron, batches"),
    ("/", "filter by typing; Enter keeps it, Esc ends it"),
    ("", ""),
    ("s", "stop (pause) or start (resume) a queue or an entry"),
    ("r", "run a task or an entry now, or what is dead of a batch"),
    ("a", "archive a task"),
    ("d", "delete a task, or a queue without tasks"),
    ("c", "cancel a task that is active, or a batch, for good"),
    ("i", "stop the attempt of an active task; it is retried"),
    ("R A D C", "the same with all tasks of a tab or a group"),
    ("", "each of these asks first"),
    ("Ctrl-L  Ctrl-C", "draw everything anew; quit"),
];

/// Cells of a question, with its border.
const QUESTION: u16 = 62;

/// Draws what is in front, if anything is.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, palette: Palette) {
    match &model.overlay {
        None => {}
        Some(Overlay::Help) => {
            let line = |(keys, meaning): (&'static str, &'static str)| {
                Line::from(vec![
                    Span::styled(format!(" {keys:<15}"), palette.calm()),
                    Span::raw(format!(" {meaning} ")),
                ])
            };
            front(frame, " Keys ", HELP.map(line).into(), 64, palette);
        }
        Some(Overlay::Confirm(action)) => {
            // Two for the border, and a blank on both sides.
            let cells = frame.area().width.min(QUESTION).saturating_sub(4);
            front(frame, " Are you sure? ", question(action, cells.into(), palette), QUESTION, palette);
        }
    }
}

fn question(action: &Action, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let [question, subject, consequence] = action.question();
    let mut lines = Vec::new();
    for (text, look) in [(question, palette.plain()), (subject, palette.strong()), (consequence, palette.plain())] {
        // An id of any length must not push the answer off the screen.
        let pieces = wrap_words(&clean(&text), cells.max(8)).into_iter().take(4);
        lines.extend(pieces.map(|piece| Line::styled(format!(" {piece}"), look)));
    }
    lines.push(Line::default());
    lines.push(Line::from(vec![
        Span::styled(" y", palette.warning()),
        Span::raw(" yes    "),
        Span::styled("n", palette.calm()),
        Span::raw(" no"),
    ]));
    lines
}

fn front(frame: &mut Frame<'_>, title: &'static str, lines: Vec<Line<'static>>, width: u16, palette: Palette) {
    let screen = frame.area();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(screen.height);
    let width = width.min(screen.width);
    let (x, y) = (screen.x + (screen.width - width) / 2, screen.y + (screen.height - height) / 2);
    let area = Rect { x, y, width, height };
    // Half of a wide character left beside the box would shift the line.
    frame.render_widget(
        Clear,
        Rect { x: x.saturating_sub(1), width: (width + 2).min(screen.width - x.saturating_sub(1)), ..area },
    );
    let block = Block::bordered().border_type(BorderType::Rounded).title(Span::styled(title, palette.strong()));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
