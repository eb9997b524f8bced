//! The live view: a table that is drawn over in a terminal, lines elsewhere.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_admin::payload::shorten;
use queue_core::TaskState;

use super::watch::{Place, Sight};
use crate::error::CliError;
use crate::output::Output;

/// Shows how things stand.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    out: &'a Output,
    style: Style,
    /// Lines drawn last time; `None` when the terminal is none, or too low for the table.
    drawn: Option<usize>,
    /// What was told last, by task.
    told: Vec<(String, u32)>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a Output, rows: usize) -> Self {
        let fits = out.terminal.is_some_and(|(width, height)| width >= 80 && usize::from(height) > rows + 3);
        Self { out, style: Style::new(out), drawn: fits.then_some(0), told: Vec::new() }
    }

    /// Shows the tasks as they are now.
    pub(super) fn show(&mut self, sights: &[Sight], now: DateTime<Utc>, elapsed: Duration) -> Result<(), CliError> {
        if self.out.json {
            return Ok(());
        }
        match self.drawn {
            Some(lines) => self.draw(sights, now, elapsed, lines),
            None => self.tell(sights, elapsed),
        }
    }

    /// Draws the table over the last one. All of it is one write, between the marks of a synchronized update:
    /// terminals that know these show it at once, and the others have little to flicker either, because only
    /// what follows the end of a line is cleared.
    fn draw(&mut self, sights: &[Sight], now: DateTime<Utc>, elapsed: Duration, lines: usize) -> Result<(), CliError> {
        let mut frame = String::from("\x1b[?2026h");
        if lines > 0 {
            let _ = write!(frame, "\x1b[{lines}A\r");
        }
        let title = format!("  {:<16} {:<37} {:<15} {:>5}", "TASK", "WHAT IT SHOWS", "STATE", "TRIES");
        let _ = writeln!(frame, "{}\x1b[K", self.style.dim(&title));
        for sight in sights {
            let place = format!("{:<15}", self.place(sight, now));
            let _ = writeln!(
                frame,
                "  {:<16} {:<37} {} {:>5}\x1b[K",
                sight.scene.id,
                sight.scene.shows,
                self.style.place(sight, &place),
                sight.tries
            );
        }
        let ended = sights.iter().filter(|sight| sight.has_ended()).count();
        let _ = writeln!(
            frame,
            "  {:.1} s, {ended} of {} where they should end\x1b[K",
            elapsed.as_secs_f64(),
            sights.len()
        );
        frame.push_str("\x1b[?2026l");
        self.drawn = Some(sights.len() + 2);
        self.out.text(&frame)
    }

    fn place(&self, sight: &Sight, now: DateTime<Utc>) -> String {
        match sight.due {
            Some(due) if due > now && (due - now).num_hours() == 0 => {
                format!("{} in {}s", sight.place(), (due - now).num_seconds() + 1)
            }
            _ => sight.place(),
        }
    }

    /// Writes a line for each change.
    fn tell(&mut self, sights: &[Sight], elapsed: Duration) -> Result<(), CliError> {
        self.told.resize(sights.len(), (String::new(), 0));
        for (sight, told) in sights.iter().zip(&mut self.told) {
            // A batch changes with every look; its beginning and end are enough.
            let place = if let Place::Left(_) = sight.place { "being worked".to_owned() } else { sight.place() };
            let now = (place, if sight.scene.tasks > 1 { 0 } else { sight.tries });
            if *told == now {
                continue;
            }
            let mut line = format!("{:>5.1} s  {:<16} {}", elapsed.as_secs_f64(), sight.scene.id, now.0);
            if told.0.is_empty() {
                let _ = write!(line, ": {}", sight.scene.shows);
            } else if sight.scene.tasks == 1 && !sight.proof.is_empty() && sight.place != Place::In(TaskState::Active) {
                let after =
                    if sight.tries == 0 { "without a try".to_owned() } else { format!("after try {}", sight.tries) };
                let _ = write!(line, " {after}: {}", sight.proof);
            }
            self.out.line(&shorten(&line, 80))?;
            *told = now;
        }
        Ok(())
    }
}

/// Colours, if the terminal and its user want them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    coloured: bool,
}

impl Style {
    pub(super) fn new(out: &Output) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { coloured: out.terminal.is_some() && !unwanted }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    fn place(self, sight: &Sight, text: &str) -> String {
        let code = match sight.place {
            Place::In(TaskState::Active) | Place::Left(_) => "1;36",
            Place::In(TaskState::Retry) => "33",
            Place::In(TaskState::Archived) => "31",
            Place::In(TaskState::Scheduled) => "34",
            Place::In(TaskState::Pending | TaskState::Aggregating) => "2",
            Place::Absent | Place::In(TaskState::Completed) => "32",
        };
        self.paint(code, text)
    }
}
