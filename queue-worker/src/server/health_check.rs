//! The health check: calls the user's hook.

use std::sync::Arc;
use std::time::Duration;

use queue_redis::service::{Outage, Service};
use queue_redis::{Error, Redis};

use super::options::HealthHook;
use crate::log::error;
use crate::panic;

#[derive(Clone)]
pub(super) struct HealthCheck {
    pub(super) redis: Redis,
    pub(super) outage: Arc<Outage>,
    pub(super) interval: Duration,
    pub(super) hook: Arc<HealthHook>,
}

impl Service for HealthCheck {
    const NAME: &'static str = "health check";
    const WORK: &'static str = "checking whether all is well";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        // A Redis that answers may still refuse to do anything: a replica, one that is full.
        let health = match self.redis.ping().await {
            Ok(()) => self.outage.error().map_or(Ok(()), Err),
            away => away,
        };
        if let Err(panicked) = panic::catch(|| (self.hook)(health.as_ref().copied())) {
            error!(error = %panicked, "the health hook panicked");
        }
        Ok(self.interval)
    }

    fn delay(&self) -> Duration {
        self.interval
    }
}
