//! A file of tasks, one on each line.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::ready;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};

use futures_util::{Stream, StreamExt as _, stream};
use queue_admin::line;
use queue_core::RawTask;
use queue_redis::EnqueueError;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{describe, is_stdin};
use crate::error::{CliError, complain, exit, is_taken};
use crate::lines::{Numbered, send_chunks};
use crate::output::Output;
use crate::session::Session;

/// Most lines that are enqueued together.
pub(crate) const CHUNK_LINES: usize = 1_000;

fn read(input: impl Read, chunks: &mpsc::Sender<Vec<Numbered<RawTask>>>) -> io::Result<()> {
    send_chunks(input, CHUNK_LINES, chunks, line::parse)
}

/// The thread that reads a file of tasks.
pub(crate) struct Reading {
    name: String,
    thread: JoinHandle<io::Result<()>>,
}

impl Reading {
    /// Opens a file of tasks (`-`: standard input), one on each line. It is read on a thread of its own, so that the next lines are
    /// parsed while Redis stores the last ones, and in chunks, so that its length does not matter.
    pub(crate) fn open(file: &Path) -> Result<(impl Stream<Item = Numbered<RawTask>> + use<>, Self), CliError> {
        let (name, input) = open(file)?;
        Ok(Self::of(name, input))
    }

    /// Reads what is opened already.
    pub(crate) fn of(
        name: String,
        input: Box<dyn Read + Send>,
    ) -> (impl Stream<Item = Numbered<RawTask>> + use<>, Self) {
        // One chunk waits while another is stored.
        let (send, mut chunks) = mpsc::channel(1);
        let thread = tokio::task::spawn_blocking(move || read(input, &send));
        let tasks = stream::poll_fn(move |context| chunks.poll_recv(context)).flat_map(stream::iter);
        (tasks, Self { name, thread })
    }

    /// Tells, after the last task, whether that was the end of the file.
    pub(crate) async fn end(self) -> Result<(), CliError> {
        match self.thread.await {
            Ok(read) => read.map_err(|error| cannot_read(&self.name, error)),
            Err(error) => Err(cannot_read(&self.name, error)),
        }
    }
}

/// A file (`-`: standard input), and its name for people.
fn open(file: &Path) -> Result<(String, Box<dyn Read + Send>), CliError> {
    if is_stdin(file) {
        return Ok(("standard input".to_owned(), Box::new(io::stdin())));
    }
    let name = file.display().to_string();
    let input = File::open(file).map_err(|error| cannot_read(&name, error))?;
    Ok((name, Box::new(input)))
}

/// The same, so that it can be read twice: what is no plain file goes through one that nobody else can open, and that is gone with this process.
pub(crate) async fn open_twice(file: &Path) -> Result<(String, File), CliError> {
    if file.is_file() && !is_stdin(file) {
        let name = file.display().to_string();
        let input = File::open(file).map_err(|error| cannot_read(&name, error))?;
        return Ok((name, input));
    }
    let (name, mut input) = open(file)?;
    let spooled = tokio::task::spawn_blocking(move || {
        let mut spooled = tempfile::tempfile()?;
        io::copy(&mut input, &mut spooled)?;
        spooled.rewind()?;
        Ok(spooled)
    });
    let spooled: io::Result<File> = spooled.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    Ok((name.clone(), spooled.map_err(|error| cannot_read(&name, error))?))
}

pub(crate) fn cannot_read(name: &str, error: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("cannot read {name}: {error}"))
}

/// Enqueues a file.
pub(super) async fn run(file: PathBuf, session: &Session, out: &Output) -> Result<(), CliError> {
    let (tasks, reading) = Reading::open(&file)?;
    let (lines, refused) = (Cell::new(0_u64), Cell::new(0_u64));
    // Of those, the ones whose id or lock another task has.
    let taken = Cell::new(0_u64);
    let refuse = |number: u64, reason: &str| {
        refused.set(refused.get() + 1);
        complain(&format!("line {number}: {reason}"));
    };
    // The lines that are not told about yet, in order: those whose tasks are on their way, and why the others are none.
    let waiting: RefCell<VecDeque<(u64, Option<String>)>> = RefCell::default();
    let tell_refused = || {
        let is_refused = |line: &(u64, Option<String>)| line.1.is_some();
        while waiting.borrow().front().is_some_and(is_refused) {
            let line = waiting.borrow_mut().pop_front();
            line.into_iter().for_each(|(number, reason)| refuse(number, &reason.unwrap_or_default()));
        }
    };
    // The last line for which Redis failed.
    let broken = Cell::new(None);
    // Every further line would wait for Redis in vain.
    let tasks = tasks.take_while(|_| ready(broken.get().is_none())).filter_map(|(number, parsed)| {
        lines.set(lines.get() + 1);
        let (task, reason) = match parsed {
            Ok(task) => (Some(task), None),
            Err(reason) => (None, Some(reason)),
        };
        waiting.borrow_mut().push_back((number, reason));
        tell_refused();
        ready(task)
    });
    let mut answers = std::pin::pin!(session.client().enqueue_stream(tasks).ready_chunks(CHUNK_LINES));
    // Whether the reader of our output has gone; the tasks go in all the same.
    let mut unheard = false;
    while let Some(answers) = answers.next().await {
        let mut ids = String::new();
        for answer in answers {
            let Some((number, _)) = waiting.borrow_mut().pop_front() else { break };
            match answer {
                Ok(info) => ids.push_str(&describe(&info, Some(number), out)),
                Err(error) => {
                    if let EnqueueError::Redis(cause) = &error
                        && cause.is_transient()
                    {
                        broken.set(Some(number));
                    }
                    taken.set(taken.get() + u64::from(is_taken(&error)));
                    refuse(number, &error.to_string());
                }
            }
            tell_refused();
        }
        if !unheard {
            match out.text(&ids) {
                Err(CliError::ReaderGone) => unheard = true,
                other => other?,
            }
        }
        // Nothing is on its way any more, and the next line may be long in coming.
        if broken.get().is_some() && waiting.borrow().is_empty() {
            break;
        }
    }
    let (lines, refused) = (lines.get(), refused.get());
    if let Some(line) = broken.get() {
        return Err(CliError::failed(format!(
            "stopped at line {line} because Redis fails; {} of {lines} tasks are enqueued so far, and no line after that was sent",
            lines - refused,
        )));
    }
    reading.end().await?;
    let told = |reason| format!("{refused} of {lines} tasks were refused, {reason}; the others are enqueued");
    match refused {
        0 => Ok(()),
        all if all == taken.get() => {
            Err(CliError::Coded(exit::REFUSED, told("because others are in their way, as said above")))
        }
        _ => Err(CliError::failed(told("for the reasons above"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::CHUNK_BYTES;

    fn chunks(input: &str) -> Vec<Vec<Numbered<RawTask>>> {
        let (send, mut receive) = mpsc::channel(1_000);
        read(input.as_bytes(), &send).unwrap();
        drop(send);
        std::iter::from_fn(|| receive.blocking_recv()).collect()
    }

    #[test]
    fn lines_keep_their_numbers_over_blank_ones_and_without_a_last_line_end() {
        let chunks = chunks("{\"type\":\"a\"}\n\n  \r\nnonsense\n{\"type\":\"b\"}");
        let seen: Vec<(u64, bool)> = chunks.iter().flatten().map(|(number, task)| (*number, task.is_ok())).collect();
        assert_eq!(seen, [(1, true), (4, false), (5, true)]);
        assert!(super::tests::chunks("").is_empty());
    }

    #[test]
    fn a_long_file_comes_in_chunks() {
        let input = "{\"type\":\"a\"}\n".repeat(2_500);
        let sizes: Vec<usize> = chunks(&input).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1_000, 1_000, 500]);
        let large = format!("{{\"type\":\"a\",\"payload\":\"{}\"}}\n", "x".repeat(CHUNK_BYTES / 2));
        let sizes: Vec<usize> = chunks(&large.repeat(4)).iter().map(Vec::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 4);
        assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
    }

    #[test]
    fn a_slow_writer_does_not_wait_for_a_full_chunk() {
        struct Piecemeal(Vec<&'static [u8]>);
        impl Read for Piecemeal {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let piece = self.0.pop().unwrap_or_default();
                buffer[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            }
        }
        let (send, mut receive) = mpsc::channel(10);
        let input = Piecemeal(vec![b"{\"type\":\"b\"}\n", b"{\"type\":\"a\"}\n"]);
        read(input, &send).unwrap();
        assert_eq!(receive.blocking_recv().unwrap()[0].0, 1);
        assert_eq!(receive.blocking_recv().unwrap()[0].0, 2);
    }
}
