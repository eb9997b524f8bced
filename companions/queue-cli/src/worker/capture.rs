//! What a program writes.

use std::io::Write as _;

use queue_admin::payload::{harmless, text};
use queue_core::limits::MAX_RESULT_BYTES;
use queue_redis::Stderr;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tracing::info;

/// The longest piece of a line that is forwarded at once and kept as the message.
const MAX_LINE: usize = 8 * 1024;

/// Standard output: the result.
#[derive(Debug, Default)]
pub(super) struct Result {
    bytes: Vec<u8>,
    too_long: bool,
}

impl Result {
    /// Reads to the end. What is too much is thrown away, so that the program is not held up: its work
    /// matters more than its output.
    pub(super) async fn read(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            self.add(&buffer[..length]);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.too_long || self.bytes.len() + bytes.len() > MAX_RESULT_BYTES {
            self.too_long = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The bytes; `None` when there were too many. Of a text, the line break at its end is cut, as `$(…)` does: what
    /// `echo hi` says is `hi`. Of other bytes, one that looks like a line break belongs to them.
    pub(super) fn into_bytes(mut self) -> Option<Vec<u8>> {
        if let Some(text) = text(&self.bytes)
            && let Some(line) = text.strip_suffix('\n')
        {
            let length = line.strip_suffix('\r').unwrap_or(line).len();
            self.bytes.truncate(length);
        }
        (!self.too_long).then_some(self.bytes)
    }
}

/// Standard error: forwarded line by line, and the last line that is not blank is kept.
#[derive(Debug)]
pub(super) struct Errors<'a> {
    task: &'a str,
    forward: Forward,
    line: Vec<u8>,
    last: Option<String>,
}

impl<'a> Errors<'a> {
    pub(super) fn new(task: &'a str, forward: Forward) -> Self {
        Self { task, forward, line: Vec::new(), last: None }
    }

    /// Reads to the end.
    pub(super) async fn read(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; MAX_LINE];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            self.add(&buffer[..length]);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Lines without end are cut: the memory they take has to have one.
            for piece in piece.chunks(MAX_LINE) {
                if self.line.len() + piece.len() > MAX_LINE {
                    self.end_line();
                }
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        // Of a line that draws over itself, as progress bars do, the last state is the message.
        let message = text.rsplit('\r').find(|text| !text.trim().is_empty());
        if let Some(message) = message {
            self.last = Some(harmless(message.trim()));
        }
        (self.forward)(self.task, text);
    }

    /// The last line that is not blank.
    pub(super) fn into_last_line(mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.last
    }
}

/// Passes on a line of a task.
pub(super) type Forward = fn(&str, &str);

/// Onto our own standard error, behind the id of the task.
pub(super) fn forward_text(task: &str, line: &str) {
    // It never fails.
    let _ = Stderr.write_all(format!("[{}] {line}\n", harmless(task)).as_bytes());
}

/// As a log line, because whoever reads our standard error expects JSON on every line.
pub(super) fn forward_json(task: &str, line: &str) {
    info!(task, line, "standard error");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(pieces: &[&[u8]]) -> Option<String> {
        let mut errors = Errors::new("id", |_, _| {});
        pieces.iter().for_each(|piece| errors.add(piece));
        errors.into_last_line()
    }

    #[test]
    fn the_last_line_that_is_not_blank_is_the_message() {
        assert_eq!(last_line(&[b"one\ntw", b"o\n \n\n"]).as_deref(), Some("two"));
        assert_eq!(last_line(&[b"one\r\n", b"no end"]).as_deref(), Some("no end"));
        assert_eq!(last_line(&[b" 50 %\r 100 %\r\n"]).as_deref(), Some("100 %"));
        assert_eq!(last_line(&[b"\n\n"]), None);
        assert_eq!(last_line(&[b"\xff\x1b[0m\n"]).as_deref(), Some("\u{fffd}\u{fffd}[0m"));
    }

    #[test]
    fn a_line_without_end_takes_no_more_than_its_share_of_memory() {
        let mut errors = Errors::new("id", |_, _| {});
        for _ in 0..20 {
            errors.add(&[b'x'; 1_000]);
            assert!(errors.line.len() <= MAX_LINE);
        }
        assert!(errors.into_last_line().is_some_and(|line| line.len() <= MAX_LINE));
    }

    #[test]
    fn a_result_is_whole_or_none() {
        let mut result = Result::default();
        result.add(b"half");
        result.add(&vec![0; MAX_RESULT_BYTES - 4]);
        assert_eq!(result.bytes.len(), MAX_RESULT_BYTES);
        result.add(b"x");
        assert_eq!(result.into_bytes(), None);
    }
}
