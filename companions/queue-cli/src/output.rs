//! Standard output.

use std::fmt::Write as _;
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
    /// Whether it may be coloured: it is a terminal, and nobody has asked for plain text (NO_COLOR).
    pub(crate) colour: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal().then(|| match rustix::termios::tcgetwinsize(&stdout) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            // A terminal that does not know its size, as in some containers.
            _ => (80, 24),
        });
        let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let plain = given("NO_COLOR").is_some() || given("TERM").is_some_and(|term| term == "dumb");
        Self { json, terminal, colour: terminal.is_some() && !plain }
    }

    /// Writes this text, which ends its lines itself.
    pub(crate) fn text(&self, text: &str) -> Result<(), CliError> {
        self.bytes(text.as_bytes())
    }

    /// Writes these bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Writes a line.
    pub(crate) fn line(&self, line: &str) -> Result<(), CliError> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a value where JSON is wanted, and else a line for people.
    pub(crate) fn told(&self, value: &impl Serialize, line: &str) -> Result<(), CliError> {
        if self.json { self.value(value) } else { self.line(line) }
    }

    /// Writes a value as JSON, easy to read in a terminal, and on one line for programs.
    pub(crate) fn value(&self, value: &impl Serialize) -> Result<(), CliError> {
        self.text(&self.json(value)?)
    }

    /// What [`value`](Self::value) writes.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<String, CliError> {
        let json =
            if self.terminal.is_some() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let json = json.map_err(|error| CliError::failed(format!("cannot write this as JSON: {error}")))?;
        Ok(without_controls(json) + "\n")
    }
}

/// JSON without the control characters that it may have in texts, but a terminal obeys.
fn without_controls(json: String) -> String {
    let is_control = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !json.contains(is_control) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_control(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_reads_the_same_without_its_control_characters() {
        let text = "a\u{7f}\u{9b}31m\u{1b}\n\\é";
        let json = without_controls(serde_json::to_string(text).unwrap());
        assert_eq!(json, r#""a\u007f\u009b31m\u001b\n\\é""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
