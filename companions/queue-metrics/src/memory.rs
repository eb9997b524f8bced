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

    /// The last estimate of a queue.
    pub(crate) fn last(&self, queue: &str) -> Option<u64> {
        self.known().get(queue).and_then(|(_, bytes)| *bytes)
    }

    /// Those of these queues for which it is time for another estimate; first those without one, then the oldest.
    pub(crate) fn due(&self, mut queues: Vec<String>) -> Vec<String> {
        let Some(interval) = self.interval else { return Vec::new() };
        let known = self.known();
        let at = |queue: &String| known.get(queue).map(|(at, _)| *at);
        queues.retain(|queue| at(queue).is_none_or(|at| at.elapsed() >= interval));
        queues.sort_by_key(at);
        queues
    }

    pub(crate) fn learn(&self, queue: &str, bytes: Option<u64>) {
        self.known().insert(queue.to_owned(), (Instant::now(), bytes));
    }

    /// Forgets queues that are no more.
    pub(crate) fn keep(&self, queues: &[String]) {
        self.known().retain(|name, _| queues.binary_search(name).is_ok());
    }
}
