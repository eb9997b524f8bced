//! Reading files line by line, of which each may be long.

use std::io::{self, BufRead, BufReader, Read};

use tokio::sync::mpsc;

/// Redis itself takes no more than 512 MB in one piece.
pub(crate) const MAX_LINE: usize = 256 * 1024 * 1024;

/// Most bytes of a chunk, so that a file of large lines does not fill the memory.
pub(crate) const CHUNK_BYTES: usize = queue_core::limits::MAX_BATCH_BYTES;
/// What is read at once. A chunk ends when this is used up, so that it is also about a chunk of short lines.
const BUFFER: usize = 256 * 1024;

/// A line's number, and what it says or why that cannot be read.
pub(crate) type Numbered<T> = (u64, Result<T, String>);

/// Reads lines, and hands those that are not blank on in chunks of `most`, or of fewer when no more is there at the
/// moment, so that the lines of a slow writer do not wait for one another.
pub(crate) fn send_chunks<T>(
    input: impl Read,
    most: usize,
    chunks: &mpsc::Sender<Vec<Numbered<T>>>,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let (mut chunk, mut bytes, mut line) = (Vec::new(), 0, Vec::new());
    for number in 1.. {
        line.clear();
        let complete = next_line(&mut input, &mut line)?;
        bytes += line.len();
        let content = line.trim_ascii();
        if !complete {
            chunk.push((number, Err(format!("it is longer than {} MiB", MAX_LINE / (1024 * 1024)))));
        } else if !content.is_empty() {
            chunk.push((number, parse(content)));
        }
        let at_end = line.is_empty();
        let full = chunk.len() >= most || bytes >= CHUNK_BYTES;
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

/// Reads one line with its end, or nothing at the end of the input. Of a line that is too long only the
/// beginning is kept, and `false` returned.
pub(crate) fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut complete = true;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = available.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(available.len(), |end| end + 1);
        let keep = used.min(MAX_LINE.saturating_sub(line.len()));
        line.extend_from_slice(&available[..keep]);
        complete &= keep == used;
        let last = used == 0 || end.is_some();
        input.consume(used);
        if last {
            return Ok(complete);
        }
    }
}
