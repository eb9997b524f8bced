//! How much memory queues take: an estimate that costs Redis a lot, so it is made rarely.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last estimates.
#[derive(Debug)]
pub(crate) struct Memory {
    /// How long one counts; `None` for never asking.
    pub(crate) interval: Option<Duration>,
    // A std mutex: held to read or write one entry.
    known: Mutex<HashMap<String, (Instant, Option<u64>)>>,
}

impl Memory {
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        Self { interval, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (Instant, Option<u64>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last estimate of a queue, and whether it is time for another.
    pub(crate) fn last(&self, queue: &str) -> (Option<u64>, bool) {
        let Some(interval) = self.interval else { return (None, false) };
        match self.known().get(queue) {
            Some((at, bytes)) => (*bytes, at.elapsed() >= interval),
            None => (None, true),
        }
    }

    pub(crate) fn learn(&self, queue: &str, bytes: Option<u64>) {
        self.known().insert(queue.to_owned(), (Instant::now(), bytes));
    }

    /// Forgets queues that are no more.
    pub(crate) fn keep(&self, queues: &[String]) {
        self.known().retain(|name, _| queues.binary_search(name).is_ok());
    }
}
