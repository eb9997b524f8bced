//! Which queues this process has listed lately.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use queue_core::limits::QUEUE_LISTED_FOR;

use super::Broker;
use crate::error::Error;

/// When to list a queue again that could not be listed, although it was before.
const LIST_AGAIN: Duration = Duration::from_secs(5);

/// So many queues are remembered: names may be made of what users send.
const MOST: usize = 10_000;

/// Queues, and when they were listed.
#[derive(Debug, Default)]
pub(super) struct Listed(Mutex<HashMap<String, Instant>>);

impl Listed {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker {
    /// [Lists](Self::publish_queue) a queue, unless a clone of this broker has done so in the last [`QUEUE_LISTED_FOR`].
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. In a cluster the list may be on a node that is down, while the queue is not: a queue that was
    /// listed before counts as listed then, and is listed again a little later.
    pub async fn list_queue(&self, queue: &str) -> Result<(), Error> {
        let now = Instant::now();
        if self.listed.lock().get(queue).is_some_and(|at| now - *at < QUEUE_LISTED_FOR) {
            return Ok(());
        }
        let published = self.publish_queue(queue).await;
        let mut listed = self.listed.lock();
        let listed_at = match published {
            Ok(()) => now,
            Err(error) if error.is_transient() && listed.contains_key(queue) => {
                now.checked_sub(QUEUE_LISTED_FOR - LIST_AGAIN).unwrap_or(now)
            }
            Err(error) => return Err(error),
        };
        if listed.len() >= MOST {
            listed.retain(|_, at| now - *at < QUEUE_LISTED_FOR);
            if listed.len() >= MOST {
                listed.clear();
            }
        }
        listed.insert(queue.to_owned(), listed_at);
        Ok(())
    }
}
