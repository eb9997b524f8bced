//! The ledger: append-only files outside Redis, one per process.
//!
//! A line is written before and after each step, in one write, so that a process that is killed leaves whole
//! lines. Go workers write the same lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use queue_core::{Clock as _, SystemClock};

use crate::name::Name;

/// Nanoseconds since 1970 by the clock of this machine.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(SystemClock.now_ns()).unwrap_or(0)
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A producer is about to enqueue the task.
    Intent,
    /// It was stored.
    Stored,
    /// Another task holds its lock, or its id is taken.
    Duplicate,
    /// It was not stored, for certain.
    Refused,
    /// Nobody knows.
    Unknown,
    /// A handler begins; with the number of retries spent so far.
    Start(u16),
    /// A handler is about to return success.
    Success,
    /// A handler is about to return an error.
    Failure,
    /// A handler is about to have the task archived.
    Archive,
    /// Somebody is about to cancel the task for good.
    Asked,
    /// That somebody was told that it is archived, and does not start any more.
    Cancelled,
    /// A handler goes on from this checkpoint.
    From(u16),
    /// This checkpoint is stored.
    Kept(u16),
    /// A broadcast is for the servers in these slots, a bit for each.
    Chosen(u16),
}

impl Step {
    fn argument(self) -> u16 {
        match self {
            Step::Start(number) | Step::From(number) | Step::Kept(number) | Step::Chosen(number) => number,
            _ => 0,
        }
    }

    fn code(self) -> char {
        match self {
            Step::Intent => 'I',
            Step::Stored => 'E',
            Step::Duplicate => 'D',
            Step::Refused => 'R',
            Step::Unknown => 'U',
            Step::Start(_) => 'S',
            Step::Success => 'O',
            Step::Failure => 'F',
            Step::Archive => 'A',
            Step::Asked => 'W',
            Step::Cancelled => 'N',
            Step::From(_) => 'B',
            Step::Kept(_) => 'K',
            Step::Chosen(_) => 'C',
        }
    }
}

/// A line about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) task: u64,
    pub(crate) at: u64,
    pub(crate) step: Step,
    pub(crate) process: u16,
}

/// What a worker tells about itself.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Reports that were refused because the run was lost.
    pub(crate) refused: u64,
    /// Tasks it recovered from others.
    pub(crate) recovered: u64,
    /// Digests whose handler was about to return.
    pub(crate) digests: u64,
}

/// Writes to the ledger of a process.
#[derive(Debug, Clone)]
pub(crate) struct Book(Arc<File>);

impl Book {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Notes the same step of some tasks. A ledger that cannot be written ends the process: nothing that
    /// happens after it could be believed.
    pub(crate) fn note(&self, step: Step, names: &[Name]) {
        self.write(names.iter().map(|name| (step, *name)));
    }

    pub(crate) fn write(&self, entries: impl Iterator<Item = (Step, Name)>) {
        let now = now_ns();
        let mut lines = String::new();
        for (step, name) in entries {
            lines.push_str(&format!("{} {now} {name} {}\n", step.code(), step.argument()));
        }
        self.append(&lines);
    }

    /// Notes something about the process itself.
    pub(crate) fn tell(&self, what: char, count: usize) {
        self.append(&format!("{what} {} - {count}\n", now_ns()));
    }

    fn append(&self, lines: &str) {
        if let Err(error) = (&*self.0).write_all(lines.as_bytes()) {
            eprintln!("the ledger cannot be written: {error}");
            std::process::exit(3);
        }
    }
}

/// Reads the ledger of a process. A line that was not finished is left out.
pub(crate) fn read(path: &Path, process: u16, entries: &mut Vec<Entry>) -> io::Result<Told> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // It was killed before its first line.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut told = Told::default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let bad = || io::Error::other(format!("{}: not a line of a ledger: {line:?}", path.display()));
        let mut words = line.split(' ');
        let (Some(code), Some(at), Some(name), Some(argument), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad());
        };
        let at: u64 = at.parse().map_err(|_| bad())?;
        let argument: u64 = argument.parse().map_err(|_| bad())?;
        let number = u16::try_from(argument).unwrap_or(u16::MAX);
        let step = match code {
            "L" => {
                told.refused += argument;
                continue;
            }
            "V" => {
                told.recovered += argument;
                continue;
            }
            "G" => {
                told.digests += argument;
                continue;
            }
            "I" => Step::Intent,
            "E" => Step::Stored,
            "D" => Step::Duplicate,
            "R" => Step::Refused,
            "U" => Step::Unknown,
            "S" => Step::Start(number),
            "O" => Step::Success,
            "F" => Step::Failure,
            "A" => Step::Archive,
            "W" => Step::Asked,
            "N" => Step::Cancelled,
            "B" => Step::From(number),
            "K" => Step::Kept(number),
            "C" => Step::Chosen(number),
            _ => return Err(bad()),
        };
        let task = Name::parse(name).ok_or_else(bad)?.key();
        entries.push(Entry { task, at, step, process });
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_reads_whole_lines_and_no_half_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let book = Book::open(&path).unwrap();
        let names = [Name::draw(1, 2, 3), Name::draw(1, 2, 4)];
        book.note(Step::Intent, &names);
        book.note(Step::Start(7), &names[..1]);
        book.tell('L', 5);
        book.append("S 12");
        let mut entries = Vec::new();
        let told = read(&path, 9, &mut entries).unwrap();
        assert_eq!(told, Told { refused: 5, ..Told::default() });
        let read: Vec<_> = entries.iter().map(|entry| (entry.step, entry.task, entry.process)).collect();
        let expected =
            [(Step::Intent, names[0].key(), 9), (Step::Intent, names[1].key(), 9), (Step::Start(7), names[0].key(), 9)];
        assert_eq!(read, expected);
        assert_eq!(super::read(&directory.path().join("none"), 1, &mut entries).unwrap(), Told::default());
    }
}
