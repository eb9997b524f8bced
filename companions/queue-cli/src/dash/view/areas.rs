//! How the lines of the terminal are shared out. The model needs this too, to know how far it can scroll.

use crate::dash::model::Model;
use crate::dash::screen::Screen;

/// Below this, only a word about it is shown.
pub(super) const SMALLEST: (u16, u16) = (24, 8);
/// Lines that every screen has: two at the top and one at the bottom.
const FRAME: usize = 3;
/// Lines of the panel that shows the selected queue, and those that must be left for the list.
pub(super) const PANEL: usize = 6;
const LIST_BESIDE_PANEL: usize = 6;

/// Lines between top and bottom.
pub(super) fn body_height(model: &Model) -> usize {
    usize::from(model.size.1).saturating_sub(FRAME + usize::from(model.trouble.is_some()))
}

/// Whether there is room for the panel of the selected queue.
pub(super) fn has_panel(model: &Model) -> bool {
    matches!(model.screen(), Screen::Queues(_)) && body_height(model) >= PANEL + 1 + LIST_BESIDE_PANEL
}

/// Lines of the body that come before the rows of its list.
pub(super) fn above_list(screen: &Screen) -> usize {
    match screen {
        // A table begins with the names of its columns.
        Screen::Queues(_) | Screen::Servers(_) | Screen::Cron(_) | Screen::Batches { .. } => 1,
        // Facts, sparklines, tabs, a blank line; and its limits where it has some.
        Screen::Queue(queue) => 5 + usize::from(queue.row.as_ref().is_some_and(|row| !row.limits.is_empty())),
        Screen::Workers { .. } | Screen::Batch(_) => 3,
        Screen::Events { .. } => 4,
        Screen::Task(_) => 0,
    }
}

/// Rows of the list that fit.
pub(in crate::dash) fn list_height(model: &Model) -> usize {
    let panel = if has_panel(model) { PANEL } else { 0 };
    body_height(model).saturating_sub(above_list(model.screen()) + panel)
}
