//! The time of a test.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::clock::{Clock, ManualClock};

/// A clock that stands still until the test moves it; clones are the same clock.
///
/// [`TestQueue::clock`](crate::TestQueue::clock) hands it out, so that handlers can ask it for the time. It is
/// moved by [`TestQueue::advance`](crate::TestQueue::advance), because the queue has to notice.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<ManualClock>);

impl TestClock {
    pub(crate) fn at(time: DateTime<Utc>) -> Self {
        // What does not fit (the year 2262 and later) ends at the last nanosecond that does.
        Self(Arc::new(ManualClock::at_ns(time.timestamp_nanos_opt().unwrap_or(i64::MAX))))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
}

impl Clock for TestClock {
    fn now_ns(&self) -> i64 {
        self.0.now_ns()
    }
}
