//! The removal of a queue: `begin_removal.lua`, `sweep.lua`, `finish_removal.lua`.

use queue_core::keys::QueueKeys;
use redis::Cmd;

use super::Broker;
use crate::error::Error;
use crate::script::{BEGIN_REMOVAL, FINISH_REMOVAL, SWEEP};

impl Broker {
    /// Stops a queue that is to be removed: it is paused, and marked. Returns how many tasks are being worked
    /// on or aggregated; unless there are none, nothing is done.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn begin_removal(&self, queue: &str, now: i64) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = BEGIN_REMOVAL.call(4);
        call.arg(keys.active()).arg(keys.aggregation_sets()).arg(keys.paused()).arg(keys.removing()).arg(now);
        self.integer(&BEGIN_REMOVAL, &call).await
    }

    /// Deletes keys of a queue that has no tasks, 1 to [`MAX_BATCH`](super::MAX_BATCH): hashes in no list,
    /// locks without a task, and any other key but those of asynq's that are not counters. Returns whether the
    /// queue was empty; if not, nothing is done.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn sweep<K: AsRef<[u8]>>(&self, queue: &str, leftovers: &[K]) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = SWEEP.call(8 + leftovers.len());
        with_holders(&mut call, &keys);
        for key in leftovers {
            call.arg(key.as_ref());
        }
        call.arg(keys.prefix());
        Ok(self.integer(&SWEEP, &call).await? == 1)
    }

    /// Deletes what a queue without tasks still has, its pause among it. Returns whether it was empty; if not,
    /// nothing is done.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn finish_removal(&self, queue: &str) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = FINISH_REMOVAL.call(14);
        with_holders(&mut call, &keys);
        call.arg(keys.lease()).arg(keys.paused()).arg(keys.removing());
        call.arg(keys.processed_total()).arg(keys.failed_total()).arg(keys.rules()).arg(keys.prefix());
        Ok(self.integer(&FINISH_REMOVAL, &call).await? == 1)
    }
}

/// The keys that exist while a queue has tasks.
fn with_holders(call: &mut Cmd, keys: &QueueKeys) {
    call.arg(keys.pending()).arg(keys.active()).arg(keys.scheduled()).arg(keys.retry());
    call.arg(keys.archived()).arg(keys.completed()).arg(keys.aggregation_sets()).arg(keys.groups());
}
