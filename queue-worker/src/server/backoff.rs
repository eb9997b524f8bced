//! How long to wait when Redis does not do what it is asked.

use std::time::Duration;

use crate::log::{error, info};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Doubling pauses with full jitter, and one log line for each change between working and not.
#[derive(Debug)]
pub(super) struct Backoff {
    what: &'static str,
    failures: u32,
    quiet: bool,
}

impl Backoff {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, failures: 0, quiet: false }
    }

    /// One that leaves the telling to its user.
    pub(super) fn quiet(what: &'static str) -> Self {
        Self { what, failures: 0, quiet: true }
    }

    /// Something worked.
    pub(super) fn succeeded(&mut self) {
        if self.failures > 0 {
            info!(what = self.what, failures = self.failures, "works again");
            self.failures = 0;
        }
    }

    /// Something failed; waits before the next attempt.
    pub(super) async fn failed(&mut self, error: &(dyn std::error::Error + Send + Sync)) {
        if self.failures == 0 && !self.quiet {
            error!(what = self.what, %error, "failed; trying again until it works");
        } else {
            tracing::debug!(what = self.what, %error, failures = self.failures, "failed again");
        }
        tokio::time::sleep(self.pause()).await;
        self.failures = self.failures.saturating_add(1);
    }

    fn pause(&self) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
