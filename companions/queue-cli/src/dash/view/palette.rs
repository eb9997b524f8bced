//! Colours, of the sixteen that every terminal has, and none at all where none are wanted.

use queue_core::TaskState;
use ratatui::style::{Color, Modifier, Style};

/// How things look. Nothing is told by colour alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    pub(super) colour: bool,
}

impl Palette {
    fn coloured(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    /// Names of things. Dim, not a dark grey: some of the sixteen are as dark as the background.
    pub(super) fn label(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn calm(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(super) fn state(self, state: TaskState) -> Style {
        self.coloured(match state {
            TaskState::Active => Color::Green,
            TaskState::Pending => Color::Cyan,
            TaskState::Aggregating => Color::Magenta,
            TaskState::Scheduled => Color::Blue,
            TaskState::Retry => Color::Yellow,
            TaskState::Archived => Color::Red,
            TaskState::Completed => Color::Gray,
        })
    }

    /// What a bar is made of; without colours, each state has a filling of its own.
    pub(super) fn filling(self, state: TaskState) -> char {
        if self.colour {
            return '█';
        }
        match state {
            TaskState::Active => '█',
            TaskState::Pending => '▓',
            TaskState::Aggregating => '#',
            TaskState::Scheduled => '▒',
            TaskState::Retry => '%',
            TaskState::Archived => 'x',
            TaskState::Completed => '░',
        }
    }
}
