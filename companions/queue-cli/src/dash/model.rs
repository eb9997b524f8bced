//! Everything the dashboard knows; what is on the screen follows from it.

use chrono::{DateTime, Utc};
use queue_admin::Error;

use super::action::Action;
use super::list::List;
use super::samples::Samples;
use super::screen::{Found, Screen, Wanted};
use super::view::areas;

/// The state of the dashboard.
#[derive(Debug)]
pub(super) struct Model {
    /// Columns and lines of the terminal.
    pub(super) size: (u16, u16),
    /// The time that ages are counted from.
    pub(super) now: DateTime<Utc>,
    /// Address of Redis, without credentials.
    pub(super) target: String,
    /// Whether nothing may be changed.
    pub(super) read_only: bool,
    /// Whether colours are welcome.
    pub(super) colour: bool,
    /// The screens that Esc goes back through; the last one is shown. Never empty.
    pub(super) screens: Vec<Screen>,
    /// What is in front of the screen.
    pub(super) overlay: Option<Overlay>,
    /// Whether what is typed goes into the filter.
    pub(super) typing: bool,
    /// What was said last, until the next key.
    pub(super) notice: Option<Notice>,
    /// Why Redis cannot be read at the moment.
    pub(super) trouble: Option<String>,
    /// When what is shown was read.
    pub(super) read_at: Option<DateTime<Utc>>,
    pub(super) samples: Samples,
    /// Whether it is over.
    pub(super) over: bool,
}

/// What is in front of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Confirm(Action),
}

/// A line for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) bad: bool,
}

/// What comes back from Redis.
#[derive(Debug)]
pub(super) enum Answer {
    /// To a question of a screen.
    Read { wanted: Wanted, found: Box<Result<Found, Error>>, at: DateTime<Utc> },
    /// To an action: what to say, or what went wrong.
    Done(Result<String, Error>),
}

impl Model {
    /// A dashboard that shows the queues and has not read anything yet.
    pub(super) fn new(target: &str, size: (u16, u16), now: DateTime<Utc>) -> Self {
        Self {
            size,
            now,
            target: target.to_owned(),
            read_only: false,
            colour: true,
            screens: vec![Screen::Queues(List::default())],
            overlay: None,
            typing: false,
            notice: None,
            trouble: None,
            read_at: None,
            samples: Samples::default(),
            over: false,
        }
    }

    /// The screen that is shown.
    pub(super) fn screen(&self) -> &Screen {
        &self.screens[self.screens.len() - 1]
    }

    pub(super) fn screen_mut(&mut self) -> &mut Screen {
        let last = self.screens.len() - 1;
        &mut self.screens[last]
    }

    /// Lines that the list of the screen has.
    pub(super) fn height(&self) -> usize {
        areas::list_height(self)
    }

    /// What should be read for the screen.
    pub(super) fn wanted(&self) -> Wanted {
        self.screen().wanted(self.height().max(1))
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), bad: false });
    }

    pub(super) fn complain(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), bad: true });
    }
}
