//! Standard output.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::error::CliError;

/// Where results go. Every write can fail, because the reader may go away; see [`CliError::ReaderGone`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether JSON is wanted.
    pub(crate) json: bool,
    /// The terminal's columns and lines, if it is one.
    pub(crate) terminal: Option<(u16, u16)>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal().then(|| match rustix::termios::tcgetwinsize(&stdout) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            // A terminal that does not know its size, as in some containers.
            _ => (80, 24),
        });
        Self { json, terminal }
    }

    /// Writes this text, which ends its lines itself.
    pub(crate) fn text(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Writes a line.
    pub(crate) fn line(&self, line: &str) -> Result<(), CliError> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a value as JSON, easy to read in a terminal, and on one line for programs.
    pub(crate) fn value(&self, value: &impl Serialize) -> Result<(), CliError> {
        let json =
            if self.terminal.is_some() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        self.line(&json.map_err(|error| CliError::failed(format!("cannot write this as JSON: {error}")))?)
    }
}
