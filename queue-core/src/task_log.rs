//! What a running task has written down for people: the last lines, in a field of its hash.
//!
//! Go's servers leave it alone and write none.

use std::collections::VecDeque;
use std::fmt;

use crate::clock::UnixMilli;
use crate::limits::{MAX_LOG_BYTES, MAX_LOG_LINE_BYTES, MAX_LOG_LINES};
use crate::mask::mask_passwords;

/// The field of a task's hash with its log.
pub const LOG: &str = "x_log";

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// When it was written.
    pub at: UnixMilli,
    /// In which attempt, from 1.
    pub attempt: u32,
    /// What it says; cut to 1,024 bytes.
    pub text: String,
}

impl LogLine {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next();
        Some(Self { at: UnixMilli(word()?.parse().ok()?), attempt: word()?.parse().ok()?, text: word()?.to_owned() })
    }

    /// Bytes that it takes in the field, about: two numbers, spaces and the end of the line.
    fn bytes(&self) -> usize {
        self.text.len() + 25
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at.0, self.attempt, self.text)
    }
}

/// The log of a task: its last 200 lines, or as many of them as 16 KiB hold.
///
/// In Redis: how many lines were left out before, then a line for each: `<Unix milliseconds> <attempt> <text>`.
///
/// ```
/// use queue_core::clock::UnixMilli;
/// use queue_core::task_log::TaskLog;
///
/// let mut log = TaskLog::default();
/// log.push(UnixMilli(1_700_000_000_000), 1, "connected\nread 3 rows");
/// let field = "0\n1700000000000 1 connected\n1700000000000 1 read 3 rows";
/// assert_eq!((log.to_string().as_str(), TaskLog::parse(field)), (field, log));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskLog {
    left_out: u64,
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl TaskLog {
    /// What the field says. Lines that cannot be read are left out.
    pub fn parse(field: &str) -> Self {
        let mut lines = field.split('\n');
        let left_out = lines.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let mut log = Self { left_out, ..Self::default() };
        lines.filter_map(LogLine::parse).for_each(|line| log.add(line));
        log
    }

    /// Adds a line, or several where the text has several, without passwords of URLs.
    pub fn push(&mut self, at: UnixMilli, attempt: u32, text: &str) {
        // Of a text that is far too long, all lines but the last would be left out again.
        for line in text.lines() {
            let mut text = mask_passwords(line[..line.floor_char_boundary(2 * MAX_LOG_LINE_BYTES)].to_owned());
            text.truncate(text.floor_char_boundary(MAX_LOG_LINE_BYTES));
            self.add(LogLine { at, attempt, text });
        }
    }

    /// Adds the lines of a later log.
    pub fn append(&mut self, later: Self) {
        if later.left_out > 0 {
            // Those between its lines and ours are missing, so ours would be in the wrong place.
            self.left_out = self.left_out.saturating_add(self.lines.len() as u64).saturating_add(later.left_out);
            (self.lines, self.bytes) = Default::default();
        }
        later.lines.into_iter().for_each(|line| self.add(line));
    }

    fn add(&mut self, line: LogLine) {
        self.bytes += line.bytes();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LOG_LINES || self.bytes > MAX_LOG_BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.bytes();
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// How many lines there were before those that are kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The lines that are kept, oldest first.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &LogLine> {
        self.lines.iter()
    }

    /// The lines that came after so many.
    pub fn after(&self, seen: u64) -> impl Iterator<Item = &LogLine> {
        let known = usize::try_from(seen.saturating_sub(self.left_out)).unwrap_or(usize::MAX);
        self.lines.iter().skip(known)
    }

    /// How many lines there were in all.
    pub fn count(&self) -> u64 {
        self.left_out.saturating_add(self.lines.len() as u64)
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

impl fmt::Display for TaskLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.left_out)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &TaskLog) -> Vec<&str> {
        log.lines().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_log_has_its_last_lines_and_says_how_many_are_missing() {
        let mut log = TaskLog::default();
        assert!(log.is_empty() && log.lines().len() == 0);
        for n in 0..MAX_LOG_LINES + 3 {
            log.push(UnixMilli(5), 2, &format!("line {n}"));
        }
        assert_eq!((log.left_out(), log.lines().len(), texts(&log)[0]), (3, MAX_LOG_LINES, "line 3"));
        assert_eq!(log.count(), MAX_LOG_LINES as u64 + 3);
        assert_eq!(TaskLog::parse(&log.to_string()), log);
        let last: Vec<_> = log.after(MAX_LOG_LINES as u64 + 1).map(|line| &*line.text).collect();
        assert_eq!(last, [format!("line {}", MAX_LOG_LINES + 1), format!("line {}", MAX_LOG_LINES + 2)]);
        assert_eq!((log.after(1).count(), log.after(u64::MAX).count()), (MAX_LOG_LINES, 0));
    }

    #[test]
    fn neither_long_lines_nor_many_make_it_larger() {
        let mut log = TaskLog::default();
        for _ in 0..100 {
            log.push(UnixMilli(i64::MAX), u32::MAX, &"ü".repeat(MAX_LOG_LINE_BYTES));
        }
        assert!(log.lines().all(|line| line.text.len() == MAX_LOG_LINE_BYTES));
        // The numbers may be a little longer than was reckoned.
        assert!(log.to_string().len() <= MAX_LOG_BYTES + 500, "{}", log.to_string().len());
        assert_eq!(log.count(), 100);
    }

    #[test]
    fn a_later_log_that_has_left_out_lines_has_no_gap_before_it() {
        let log = |range: std::ops::Range<usize>| {
            let mut log = TaskLog::default();
            range.for_each(|n| log.push(UnixMilli(5), 1, &n.to_string()));
            log
        };
        let mut whole = log(0..3);
        whole.append(log(3..5));
        assert_eq!((texts(&whole), whole.left_out()), (vec!["0", "1", "2", "3", "4"], 0));
        whole.append(log(5..MAX_LOG_LINES + 6));
        assert_eq!((texts(&whole)[0], whole.lines().len(), whole.left_out()), ("6", MAX_LOG_LINES, 6));
    }

    #[test]
    fn what_somebody_else_has_written_is_left_out() {
        assert_eq!(TaskLog::parse(""), TaskLog::default());
        let log = TaskLog::parse("x\nnonsense\n5 1 fine\n6 one text\n7 2 \n8 2");
        assert_eq!((texts(&log), log.left_out()), (vec!["fine", ""], 0));
    }

    #[test]
    fn lines_are_lines_and_have_no_passwords() {
        let mut log = TaskLog::default();
        log.push(UnixMilli(5), 1, "one\r\ntwo\n");
        log.push(UnixMilli(5), 1, "");
        log.push(UnixMilli(5), 1, "redis://app:secret@db:6379");
        assert_eq!(texts(&log), ["one", "two", "redis://app:***@db:6379"]);
    }
}
