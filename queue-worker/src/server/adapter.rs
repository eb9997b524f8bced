//! Adapter: decides each second whether more or fewer tasks run at once, where a server has bounds for that.

use std::sync::Arc;
use std::time::Duration;

use queue_redis::Error;
use queue_redis::service::Service;

use super::shared::Shared;

/// The shortest time between two decisions.
const WINDOW: Duration = Duration::from_secs(1);

/// The loop that has [`Adaptive`](super::adaptive::Adaptive) decide.
#[derive(Clone)]
pub(super) struct Adapter {
    pub(super) shared: Arc<Shared>,
}

impl Service for Adapter {
    const NAME: &'static str = "adapter";
    const WORK: &'static str = "adapting the concurrency";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        if let Some(adaptive) = &self.shared.adaptive {
            adaptive.decide(self.shared.slots.total(), |slots| self.shared.resize(slots));
        }
        Ok(WINDOW)
    }
}
