//! Standard error, for those who must not wait for its reader.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::log::panic::catch;
use crate::log::warn;

/// What waits to be written, at the most. What comes when it is full is dropped, and counted.
const MOST_BYTES: usize = 1024 * 1024;

static LINES: Lines = Lines::new();

/// Standard error that makes nobody wait: a stalled reader, such as a terminal that somebody stopped or a collector that
/// hangs, would otherwise stop every thread that has something to say, and with it the renewal of leases.
///
/// A thread of its own writes. Up to 1 MiB waits for it; lines beyond that are dropped, and once somebody reads again, a
/// line of level `warn` says how many. What still waits when the process ends is lost, but for
/// [`flush_within`](Self::flush_within).
///
/// ```no_run
/// # fn subscribe(_: impl Fn() -> queue_redis::Stderr) {}
/// use std::io::Write as _;
///
/// // tracing_subscriber::fmt().with_writer(|| queue_redis::Stderr).init();
/// subscribe(|| queue_redis::Stderr);
/// // What Rust says about a panic.
/// std::panic::set_hook(Box::new(|panic| drop(writeln!(queue_redis::Stderr, "{panic}"))));
/// // …
/// queue_redis::Stderr.flush_within(std::time::Duration::from_secs(1));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Stderr;

impl Stderr {
    /// Waits until all is written, up to this long; whether it is.
    pub fn flush_within(self, limit: Duration) -> bool {
        LINES.flush_within(limit)
    }

    /// Writes a line, and waits for it where somebody reads: so that it is there even if the process ends next.
    pub(crate) fn write_line(self, line: &str) {
        /// The first line that nobody reads takes this long, and those after it nothing.
        const LIMIT: Duration = Duration::from_millis(50);
        LINES.push(line.as_bytes());
        let stalled = LINES.lock().stalled;
        if !stalled && !LINES.flush_within(LIMIT) {
            LINES.lock().stalled = true;
        }
    }
}

/// Each write is a line, or more of them: all of it is written, or dropped.
impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.push(bytes);
        Ok(bytes.len())
    }

    /// In one piece, so that half a line is never dropped.
    fn write_fmt(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        LINES.push(line.to_string().as_bytes());
        Ok(())
    }

    /// Does not wait.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Lines {
    // A std mutex: held to copy a line, never while something is written.
    state: Mutex<State>,
    /// There is something to write.
    more: Condvar,
    /// All is written.
    done: Condvar,
}

struct State {
    waiting: Vec<u8>,
    writing: bool,
    /// Lines dropped since the process began.
    dropped: u64,
    /// Somebody has waited in vain for all to be written, and it is not yet.
    stalled: bool,
    /// Whether there is a thread that writes.
    begun: bool,
}

impl Lines {
    const fn new() -> Self {
        let state = State { waiting: Vec::new(), writing: false, dropped: 0, stalled: false, begun: false };
        Self { state: Mutex::new(state), more: Condvar::new(), done: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&'static self, line: &[u8]) {
        self.begin(io::stderr);
        let mut state = self.lock();
        if state.waiting.len() + line.len() > MOST_BYTES {
            state.dropped += 1;
        } else {
            state.waiting.extend_from_slice(line);
            self.more.notify_one();
        }
    }

    /// Starts the thread, unless there is one.
    fn begin<W: Write>(&'static self, out: impl FnOnce() -> W + Send + 'static) {
        let begun = std::mem::replace(&mut self.lock().begun, true);
        if begun {
            return;
        }
        let thread = std::thread::Builder::new().name("stderr".to_owned());
        if thread.spawn(move || self.write_to(out())).is_err() {
            // Perhaps there is a thread to be had for the next line. This one waits.
            self.lock().begun = false;
        }
    }

    fn write_to(&self, mut out: impl Write) {
        let mut told = 0;
        loop {
            let waiting = {
                let idle = |state: &mut State| state.waiting.is_empty();
                let mut state = self.more.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
                state.writing = true;
                std::mem::take(&mut state.waiting)
            };
            // Nobody may be there to read, ever again; that is no reason to stop.
            let _ = out.write_all(&waiting).and_then(|()| out.flush());
            let dropped = {
                let mut state = self.lock();
                state.writing = false;
                if state.waiting.is_empty() {
                    state.stalled = false;
                    self.done.notify_all();
                }
                state.dropped
            };
            if dropped > told {
                told = dropped;
                // By way of the subscriber, so that it has the form of all other lines.
                let _ =
                    catch(|| warn!(dropped, "log lines were dropped: nobody read standard error, or not fast enough"));
            }
        }
    }

    fn flush_within(&self, limit: Duration) -> bool {
        let unwritten = |state: &mut State| state.writing || !state.waiting.is_empty();
        let waited = self.done.wait_timeout_while(self.lock(), limit, unwritten);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Somebody who reads only while the gate is open.
    #[derive(Clone, Default)]
    struct Reader(Arc<Gate>);

    #[derive(Default)]
    struct Gate {
        state: Mutex<(bool, Vec<u8>)>,
        opened: Condvar,
    }

    impl Reader {
        fn open(&self) {
            self.0.state.lock().unwrap().0 = true;
            self.0.opened.notify_all();
        }
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.opened.wait_while(self.0.state.lock().unwrap(), |state| !state.0).unwrap();
            state.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stalls_makes_nobody_wait_and_what_is_too_much_is_dropped_and_counted() {
        let (lines, reader): (&'static Lines, _) = (Box::leak(Box::new(Lines::new())), Reader::default());
        let out = reader.clone();
        lines.begin(move || out);
        let line = [b'x'; 1024];
        for _ in 0..3 * 1024 {
            lines.push(&line);
        }
        assert!(!lines.flush_within(Duration::from_millis(1)));
        let dropped = lines.lock().dropped;
        assert!((1024..3 * 1024).contains(&dropped), "{dropped}");
        reader.open();
        assert!(lines.flush_within(Duration::from_secs(60)));
        let written = reader.0.state.lock().unwrap().1.len() as u64;
        assert_eq!(written, (3 * 1024 - dropped) * 1024, "whole lines");
        lines.push(b"again\n");
        assert!(lines.flush_within(Duration::from_secs(60)));
        assert!(reader.0.state.lock().unwrap().1.ends_with(b"again\n"));
    }
}
