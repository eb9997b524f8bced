//! Parks what is pending in a queue whose limit is fair, beside the takes, which see only the oldest: whoever comes behind
//! many tasks of another key is found soon.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::LANE_SORT_PAUSE;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::shared::Shared;
use crate::log::warn;

/// The shortest pause between two calls.
const SHORTEST: Duration = Duration::from_millis(1);

/// The queues that are at it, or were.
#[derive(Debug, Default)]
pub(super) struct Sorter(HashMap<usize, JoinHandle<()>>);

impl Sorter {
    /// Begins with a queue, of which a take has said that it has not seen all of it, or goes on.
    pub(super) fn begin(&mut self, shared: &Arc<Shared>, queue: usize) {
        if self.0.get(&queue).is_none_or(JoinHandle::is_finished) {
            let name = shared.queues.name(queue).clone();
            self.0.insert(queue, shared.lookups.spawn(sort(shared.clone(), name)));
        }
    }
}

/// Until all is parked, in a share of Redis' time.
async fn sort(shared: Arc<Shared>, queue: Arc<str>) {
    loop {
        let asked = Instant::now();
        match shared.broker.park_unsorted(&queue).await {
            Ok(true) => {}
            Ok(false) => return,
            // The takes go on, and tell of what is wrong.
            Err(error) => return warn!(queue = %queue, %error, "could not look at all that is pending"),
        }
        let pause = (asked.elapsed() * LANE_SORT_PAUSE).max(SHORTEST);
        if shared.shutdown.quiet.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}
