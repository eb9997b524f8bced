//! Reading files line by line, of which each may be long.

use std::io::{self, BufRead};

/// Redis itself takes no more than 512 MB in one piece.
pub(crate) const MAX_LINE: usize = 256 * 1024 * 1024;

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
