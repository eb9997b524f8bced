//! The queues from which one task after another is taken, because a take was not answered in time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many tasks are taken like this before the queue is served as always again.
const FEWEST: u32 = 4;
/// It is twice as many if that did not last, but no more than these.
const MOST: u32 = 256;
/// How long it has to last.
const LASTING: Duration = Duration::from_secs(60);

/// The queues that are worked like this, or were.
#[derive(Debug, Default)]
pub(super) struct OneByOne {
    // A std mutex: held to look at a few fields, or to change them.
    queues: Mutex<HashMap<Arc<str>, Turn>>,
}

#[derive(Debug)]
struct Turn {
    tasks: u32,
    /// `None` while it lasts.
    ended: Option<Instant>,
}

impl OneByOne {
    fn queues(&self) -> MutexGuard<'_, HashMap<Arc<str>, Turn>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this queue is worked like this now.
    pub(super) fn has(&self, queue: &str) -> bool {
        self.queues().get(queue).is_some_and(|turn| turn.ended.is_none())
    }

    /// Whether any is.
    pub(super) fn is_needed(&self) -> bool {
        self.queues().values().any(|turn| turn.ended.is_none())
    }

    /// Leaves a queue to the others again.
    pub(super) fn end(&self, queue: &str) {
        if let Some(turn) = self.queues().get_mut(queue) {
            turn.ended = Some(Instant::now());
        }
    }

    /// How many tasks to take from a queue; `None` if somebody is at it.
    pub(super) fn begin(&self, queue: &Arc<str>) -> Option<u32> {
        let mut queues = self.queues();
        let tasks = match queues.get(queue) {
            Some(Turn { ended: None, .. }) => return None,
            Some(Turn { ended: Some(ended), tasks }) if ended.elapsed() < LASTING => (tasks * 2).min(MOST),
            _ => FEWEST,
        };
        queues.insert(queue.clone(), Turn { tasks, ended: None });
        Some(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_taken_from_by_one_at_a_time_and_for_longer_if_that_did_not_help() {
        let (one_by_one, queue) = (OneByOne::default(), Arc::from("q"));
        let end = |ago| {
            let ended = Instant::now().checked_sub(ago).unwrap();
            one_by_one.queues().get_mut(&queue).unwrap().ended = Some(ended);
        };
        assert!(!one_by_one.has("q") && !one_by_one.is_needed());
        for expected in [4, 8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(one_by_one.begin(&queue), Some(expected));
            assert_eq!(one_by_one.begin(&queue), None, "somebody is at it");
            assert!(one_by_one.has("q") && one_by_one.is_needed() && !one_by_one.has("other"));
            end(Duration::ZERO);
            assert!(!one_by_one.has("q") && !one_by_one.is_needed());
        }
        end(LASTING);
        assert_eq!(one_by_one.begin(&queue), Some(4));
    }
}
