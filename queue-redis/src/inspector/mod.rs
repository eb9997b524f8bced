//! Looks at queues, tasks and servers, and changes what no worker has.

mod bulk;
mod change;
mod cron;
mod doctor;
mod explain;
mod groups;
mod memory;
mod placement;
mod queues;
mod remove;
mod schedulers;
mod servers;
mod stats;
mod tasks;
mod transfer;

pub use bulk::{Changed, Filter, Progress};
pub use cron::{CronEntry, CronEvent};
pub use doctor::{Copied, Examination, Fault, Finding, Severity};
pub use explain::{Explanation, Reason};
pub use groups::GroupInfo;
pub use placement::{ClusterNode, Placement};
pub use queues::QueueInfo;
pub use schedulers::{EnqueueEvent, SchedulerEntry};
pub use servers::{ServerInfo, WorkerInfo};
pub use stats::DailyStats;
pub use tasks::Page;
pub use transfer::{Reader, StoredCounter, StoredQueue, StoredTask, Unfit};

use std::sync::Arc;

use queue_core::{Clock, SystemClock};

use crate::broker::Broker;
use crate::clock::RedisClock;
use crate::connection::Redis;
use crate::error::Error;

/// A view of everything on one Redis; cheap to clone. Replies can be large, so it uses pooled
/// connections and leaves the shared one to the workers.
#[derive(Debug, Clone)]
pub struct Inspector {
    redis: Redis,
    clock: Arc<dyn Clock>,
    /// The same clock, where Redis has to be asked what it says.
    corrected: Option<Arc<RedisClock>>,
}

impl Inspector {
    /// A view of this Redis. What it judges or deletes by time goes by Redis' clock.
    pub fn new(redis: Redis) -> Self {
        let clock = Arc::new(RedisClock::new(Arc::new(SystemClock)));
        Self { redis, clock: clock.clone(), corrected: Some(clock) }
    }

    /// A view by a clock that is right, or a test's.
    pub fn with_clock(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        Self { redis, clock, corrected: None }
    }

    /// Asks Redis what time it is, if nobody has for some seconds. Belongs before all that judges or deletes by time.
    async fn look_at_the_clock(&self) -> Result<(), Error> {
        match &self.corrected {
            Some(clock) => clock.refresh(&self.redis).await,
            None => Ok(()),
        }
    }

    fn broker(&self) -> Broker {
        Broker::new(self.redis.clone())
    }
}
