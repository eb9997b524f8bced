//! What is known of reports that Redis refuses to write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use queue_redis::Error;

use super::queues::Queues;
use super::wakeups::Wakeups;
use crate::log::{error, info};

#[derive(Debug)]
pub(super) struct Trouble {
    /// Queues whose reports Redis refuses, and how many batches of each wait.
    refused: Mutex<HashMap<Arc<str>, usize>>,
    queues: Arc<Queues>,
    wakeups: Arc<Wakeups>,
}

impl Trouble {
    pub(super) fn new(queues: Arc<Queues>, wakeups: Arc<Wakeups>) -> Arc<Self> {
        Arc::new(Self { refused: Mutex::default(), queues, wakeups })
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether Redis refuses to write the outcomes of this queue's tasks, so that more of them would only
    /// pile up.
    pub(super) fn refuses(&self, queue: &str) -> bool {
        self.refused().contains_key(queue)
    }
}

/// A batch that Redis refuses to write; no tasks are taken from its queue meanwhile.
pub(super) struct Refusal {
    trouble: Arc<Trouble>,
    queue: Arc<str>,
}

impl Refusal {
    /// None if the error passes by itself.
    pub(super) fn of(trouble: &Arc<Trouble>, queue: &Arc<str>, error: &Error) -> Option<Self> {
        if error.is_outage() {
            return None;
        }
        let batches = {
            let mut refused = trouble.refused();
            let batches = refused.entry(queue.clone()).or_default();
            *batches += 1;
            *batches
        };
        // Before it is said: it has to be taken back also if whoever hears it panics.
        let refusal = Self { trouble: trouble.clone(), queue: queue.clone() };
        if batches == 1 {
            error!(queue = %queue, %error, "outcomes of the queue's tasks are refused; none are taken from it meanwhile");
        }
        Some(refusal)
    }

    /// It was written after all, not only given up at the end of the server.
    pub(super) fn answered(self) {
        if self.trouble.refused().get(&self.queue) == Some(&1) {
            info!(queue = %self.queue, "outcomes of the queue's tasks are written again");
        }
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        let mut refused = self.trouble.refused();
        if let Some(batches) = refused.get_mut(&self.queue) {
            *batches -= 1;
            if *batches == 0 {
                refused.remove(&self.queue);
                self.trouble.wakeups.work.tell(self.trouble.queues.number(&self.queue));
            }
        }
    }
}
