//! Which queues this process has listed lately.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use queue_core::keys::QUEUES;
use queue_core::limits::QUEUE_LISTED_FOR;

use super::Broker;
use crate::error::Error;

/// When to list a queue again that could not be listed, although it was before.
const LIST_AGAIN: Duration = Duration::from_secs(5);

/// So many queues are remembered: names may be made of what users send.
const MOST: usize = 10_000;

/// Queues, and what is known of each.
#[derive(Debug, Default)]
pub(super) struct Listed(Mutex<HashMap<String, Entry>>);

/// A queue that need not be listed now.
#[derive(Debug, Clone, Copy)]
struct Entry {
    until: Instant,
    /// The number of the connection on which it was listed; `None` where the list cannot be reached.
    listed_on: Option<u64>,
}

impl Listed {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broker {
    /// [Lists](Self::publish_queue) a queue, unless a clone of this broker has done so in the last [`QUEUE_LISTED_FOR`], on the connection
    /// that is in use: a Redis that has been away may have lost the list, or the end of it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. In a cluster the list may be on a node that is down, while the queue is not: a queue that was
    /// listed before counts as listed then, and is listed again a little later. So it does while Redis is full, which works what it has.
    pub async fn list_queue(&self, queue: &str) -> Result<(), Error> {
        let now = Instant::now();
        let is_listed = |known: &Entry| {
            now < known.until && known.listed_on.is_none_or(|on| Some(on) == self.redis.generation(QUEUES))
        };
        if self.listed.lock().get(queue).is_some_and(is_listed) {
            return Ok(());
        }
        let before = self.redis.generation(QUEUES);
        let published = self.publish_queue(queue).await;
        // Where there is another one meanwhile, nobody knows which of them it was.
        let listed_on = self.redis.generation(QUEUES).filter(|now| before.is_none_or(|before| before == *now));
        let mut listed = self.listed.lock();
        let entry = match published {
            Ok(()) if listed_on.is_none() => return Ok(()),
            Ok(()) => Entry { until: now + QUEUE_LISTED_FOR, listed_on },
            Err(error) if error.is_transient() && self.redis.is_cluster() && listed.contains_key(queue) => {
                // From now on: it may have taken longer than that to give up.
                Entry { until: Instant::now() + LIST_AGAIN, listed_on: None }
            }
            Err(error) if error.is_out_of_memory() && listed.contains_key(queue) => {
                Entry { until: now + LIST_AGAIN, listed_on }
            }
            Err(error) => return Err(error),
        };
        if listed.len() >= MOST {
            listed.retain(|_, known| now < known.until);
            if listed.len() >= MOST {
                listed.clear();
            }
        }
        listed.insert(queue.to_owned(), entry);
        Ok(())
    }
}
