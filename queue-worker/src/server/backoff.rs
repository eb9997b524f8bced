//! How long to wait when Redis does not do what it is asked.

use std::sync::Arc;
use std::time::Duration;

use queue_redis::Error;

use super::outage::{Outage, Part};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Doubling pauses with jitter for one part of a server.
pub(super) struct Backoff {
    part: Part,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(outage: &Arc<Outage>, what: &'static str) -> Self {
        Self { part: Part::new(outage, what), failures: 0 }
    }

    /// Something worked.
    pub(super) fn succeeded(&mut self) {
        self.part.succeeded();
        self.failures = 0;
    }

    /// Something failed; waits before the next attempt.
    pub(super) async fn failed(&mut self, error: &Error) {
        self.part.failed(error);
        self.pause().await;
    }

    /// The same for what Redis refuses, if others tell that.
    pub(super) async fn refused(&mut self) {
        self.part.refused();
        self.pause().await;
    }

    async fn pause(&mut self) {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}
