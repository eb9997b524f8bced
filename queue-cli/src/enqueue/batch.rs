//! A file of tasks, one on each line.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use queue_core::RawTask;
use queue_redis::EnqueueError;
use tokio::sync::mpsc;

use super::{describe, is_stdin, line};
use crate::error::{CliError, complain, exit, is_taken};
use crate::lines::{MAX_LINE, next_line};
use crate::output::Output;
use crate::session::Session;

/// Most lines that are enqueued together.
const CHUNK_LINES: usize = 1_000;
/// And most bytes, so that a file of large payloads does not fill the memory.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// What is read at once. A chunk ends when this is used up, so that it is also about a chunk of short lines.
const BUFFER: usize = 256 * 1024;

/// A line's number, and its task or why it is none.
type Entry = (u64, Result<RawTask, String>);

/// How a batch went so far.
#[derive(Debug, Default)]
struct Tally {
    lines: u64,
    refused: u64,
    /// Of those, the ones whose id or lock another task has.
    taken: u64,
    /// The reader of our output has gone; the tasks go in all the same.
    unheard: bool,
}

/// Enqueues a file. It is read on a thread of its own, so that the next chunk is parsed while Redis stores
/// the last one, and in chunks, so that its length does not matter.
pub(super) async fn run(file: PathBuf, session: &Session, out: &Output) -> Result<(), CliError> {
    let name = if is_stdin(&file) { "standard input".to_owned() } else { file.display().to_string() };
    let cannot_read = |error: io::Error| CliError::failed(format!("cannot read {name}: {error}"));
    let input: Box<dyn Read + Send> =
        if is_stdin(&file) { Box::new(io::stdin()) } else { Box::new(File::open(&file).map_err(cannot_read)?) };
    // One chunk waits while another is stored.
    let (send, mut chunks) = mpsc::channel(1);
    let reader = tokio::task::spawn_blocking(move || read(BufReader::with_capacity(BUFFER, input), &send));

    let client = session.client();
    let mut tally = Tally::default();
    while let Some(chunk) = chunks.recv().await {
        store(&client, chunk, &mut tally, out).await?;
    }
    match reader.await {
        Ok(read) => read.map_err(cannot_read)?,
        Err(error) => return Err(CliError::failed(format!("cannot read {name}: {error}"))),
    }
    let told =
        |reason| format!("{} of {} tasks were refused, {reason}; the others are enqueued", tally.refused, tally.lines);
    match tally.refused {
        0 => Ok(()),
        taken if taken == tally.taken => {
            Err(CliError::Coded(exit::REFUSED, told("because others are in their way, as said above")))
        }
        _ => Err(CliError::failed(told("for the reasons above"))),
    }
}

async fn store(
    client: &queue_redis::Client,
    chunk: Vec<Entry>,
    tally: &mut Tally,
    out: &Output,
) -> Result<(), CliError> {
    let mut outcomes: Vec<(u64, Option<String>)> = Vec::with_capacity(chunk.len());
    let mut tasks = Vec::with_capacity(chunk.len());
    for (number, parsed) in chunk {
        match parsed {
            Ok(task) => {
                tasks.push(task);
                outcomes.push((number, None));
            }
            Err(reason) => outcomes.push((number, Some(reason))),
        }
    }
    let mut answers = client.enqueue_many(tasks).await.into_iter();
    let (mut ids, mut broken) = (String::new(), None);
    for (number, refusal) in outcomes {
        tally.lines += 1;
        let refusal = match refusal {
            Some(reason) => reason,
            None => match answers.next() {
                Some(Ok(info)) => {
                    ids.push_str(&describe(&info, Some(number), out));
                    continue;
                }
                Some(Err(error)) => {
                    if let EnqueueError::Redis(cause) = &error
                        && cause.is_transient()
                    {
                        broken = Some(number);
                    }
                    tally.taken += u64::from(is_taken(&error));
                    error.to_string()
                }
                None => "it was not answered".to_owned(),
            },
        };
        tally.refused += 1;
        complain(&format!("line {number}: {refusal}"));
    }
    if !tally.unheard {
        match out.text(&ids) {
            Err(CliError::ReaderGone) => tally.unheard = true,
            other => other?,
        }
    }
    match broken {
        // Every further line would wait for Redis in vain.
        Some(line) => Err(CliError::failed(format!(
            "stopped at line {line} because Redis fails; {} of {} tasks are enqueued so far, and no line after that was sent",
            tally.lines - tally.refused,
            tally.lines,
        ))),
        None => Ok(()),
    }
}

/// Reads lines and hands them on in chunks: when one is full, and when no more is there at the moment, so
/// that the tasks of a slow writer do not wait for one another.
fn read(mut input: BufReader<impl Read>, chunks: &mpsc::Sender<Vec<Entry>>) -> io::Result<()> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let complete = next_line(&mut input, &mut line)?;
        bytes += line.len();
        let content = line.trim_ascii();
        if !complete {
            chunk.push((number, Err(format!("it is longer than {} MiB", MAX_LINE / (1024 * 1024)))));
        } else if !content.is_empty() {
            chunk.push((number, line::parse(content)));
        }
        let at_end = line.is_empty();
        let full = chunk.len() >= CHUNK_LINES || bytes >= CHUNK_BYTES;
        // Without another line in the buffer, the next read may wait.
        let may_wait = !input.buffer().contains(&b'\n');
        if !chunk.is_empty() && (full || at_end || may_wait) {
            bytes = 0;
            if chunks.blocking_send(std::mem::take(&mut chunk)).is_err() {
                return Ok(());
            }
        }
        if at_end {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(input: &str) -> Vec<Vec<Entry>> {
        let (send, mut receive) = mpsc::channel(1_000);
        read(BufReader::with_capacity(BUFFER, input.as_bytes()), &send).unwrap();
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
        read(BufReader::with_capacity(BUFFER, input), &send).unwrap();
        assert_eq!(receive.blocking_recv().unwrap()[0].0, 1);
        assert_eq!(receive.blocking_recv().unwrap()[0].0, 2);
    }
}
