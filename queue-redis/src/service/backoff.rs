//! How long to wait when Redis does not do what it is asked.

use std::sync::Arc;
use std::time::Duration;

use super::outage::{Outage, Part};
use crate::error::Error;

const FIRST: Duration = Duration::from_millis(50);

/// Doubling pauses with jitter for one loop.
#[derive(Debug)]
pub struct Backoff {
    part: Part,
    failures: u32,
}

impl Backoff {
    /// The longest pause.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// For a loop that does this.
    pub fn new(outage: &Arc<Outage>, work: &'static str) -> Self {
        Self { part: Part::new(outage, work), failures: 0 }
    }

    /// Something worked.
    pub fn succeeded(&mut self) {
        self.part.succeeded();
        self.failures = 0;
    }

    /// Something failed; waits before the next attempt.
    pub async fn failed(&mut self, error: &Error) {
        self.failed_at_most(error, Self::LONGEST).await;
    }

    /// The same, for this long at the most.
    pub async fn failed_at_most(&mut self, error: &Error, longest: Duration) {
        self.part.failed(error);
        self.pause(longest).await;
    }

    /// The same for what Redis refuses, if others tell that.
    pub async fn refused(&mut self) {
        self.part.refused();
        self.pause(Self::LONGEST).await;
    }

    async fn pause(&mut self, longest: Duration) {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}
