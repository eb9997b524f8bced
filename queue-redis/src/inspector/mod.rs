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
use crate::connection::Redis;

/// A view of everything on one Redis; cheap to clone. Replies can be large, so it uses pooled
/// connections and leaves the shared one to the workers.
#[derive(Debug, Clone)]
pub struct Inspector {
    redis: Redis,
    clock: Arc<dyn Clock>,
}

impl Inspector {
    /// A view of this Redis.
    pub fn new(redis: Redis) -> Self {
        Self::with_clock(redis, Arc::new(SystemClock))
    }

    /// A view with a clock of its own, for tests.
    pub fn with_clock(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        Self { redis, clock }
    }

    fn broker(&self) -> Broker {
        Broker::new(self.redis.clone())
    }
}
