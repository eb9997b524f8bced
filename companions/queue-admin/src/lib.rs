#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! * [`Inspector`]: looks at queues, tasks and servers, and changes what no worker has.
//! * [`Filter`]: which of many tasks are counted, found, listed or changed; it can be written as text.
//! * [`Action`]: the table of all that operators can do. [`Admin`] does it for somebody: it checks the [`Role`], and writes
//!   the audit.
//! * [`FailureScan`]: what fails, grouped by its cause.
//! * [`Explanation`]: why a task is not running.
//! * [`Reader`]: reads a queue that is carried elsewhere; `queue_redis::broker::Broker` stores it there. [`export`]: the lines of a file
//!   that carries it.
//! * [`view`], [`payload`]: the JSON that tools write, and bytes as people read them.
//!
//! `queue_redis::Doctor` examines and repairs queues; it is there because servers do some of that by themselves.

mod admin;
mod audit;
mod batches;
mod board;
mod bulk;
mod cancellation;
mod change;
mod cron;
mod entries;
mod error;
mod explain;
pub mod export;
mod failures;
pub mod flow;
mod forecast;
mod groups;
mod health;
pub mod json;
mod lanes;
mod lenient;
mod limits;
pub mod line;
mod memory;
mod operations;
pub mod payload;
mod queues;
mod remove;
mod role;
mod schedulers;
mod servers;
mod stats;
mod steer;
mod tasks;
mod transfer;
mod verb;
pub mod view;
mod wait;

pub use admin::Admin;
pub use audit::{Actor, AuditEntry, AuditPage, Outcome};
pub use batches::{BatchExplanation, BatchView, Branch};
pub use board::{Board, BoardRow};
pub use bulk::{Changed, Cursor, Direction, Filter, FilterError, Listing, Progress, Searched};
pub use cancellation::Cancellation;
pub use cron::{CronEntry, CronEvent};
pub use error::{BadCursor, Error, WhyUnreadable};
pub use explain::{Explanation, Reason};
pub use failures::{FailureGroup, FailureQueue, FailureSample, FailureScan, FailureTotals, Failures, Stretch, Unread};
pub use groups::GroupInfo;
pub use health::{Advice, QueuePlace, RedisHealth, RoundTrips};
pub use lanes::Lane;
pub use limits::LimitInfo;
pub use operations::{BinInfo, Operation, OperationSpec, OperationState, Pace, Rate, RateError, Work};
pub use queue_core::clock::UnixSecond;
pub use queues::QueueInfo;
pub use role::{Permission, Role};
pub use schedulers::{EnqueueEvent, SchedulerEntry};
pub use servers::{ServerInfo, WorkerInfo};
pub use stats::DailyStats;
pub use steer::{Given, Heeded};
pub use tasks::Page;
pub use transfer::{Reader, Unfit};
pub use verb::{
    Action, ActionInfo, BatchVerb, BinVerb, CronVerb, LimitVerb, OperationVerb, QueueVerb, ServerVerb, Verb,
};
pub use wait::Waited;

use std::collections::BTreeMap;
use std::sync::Arc;

use queue_core::{Clock, SystemClock};
use queue_redis::{Doctor, Placement, Redis, RedisClock, broker::Broker};

/// A view of everything on one Redis; cheap to clone. Replies can be large, so it uses pooled
/// connections and leaves the shared one to the workers.
#[derive(Debug, Clone)]
pub struct Inspector {
    redis: Redis,
    clock: Arc<RedisClock>,
}

impl Inspector {
    /// A view of this Redis. What it judges or deletes by time goes by Redis' clock.
    pub fn new(redis: Redis) -> Self {
        Self { redis, clock: Arc::new(RedisClock::new(Arc::new(SystemClock))) }
    }

    /// A view by a clock that is right, or a test's.
    pub fn with_clock(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        Self { redis, clock: Arc::new(RedisClock::exact(clock)) }
    }

    /// Who examines and repairs the same queues, by the same clock.
    pub fn doctor(&self) -> Doctor {
        Doctor::sharing(self.redis.clone(), self.clock.clone())
    }

    /// In which slot of a Redis Cluster a queue lies, and which nodes serve it. The queue need not exist.
    ///
    /// # Errors
    /// When Redis cannot be asked, or refuses for another reason than that it is no cluster.
    pub async fn cluster_placement(&self, queue: &str) -> Result<Placement, Error> {
        Ok(self.redis.cluster_placement(queue).await?)
    }

    /// What Redis says about itself with `INFO`: `redis_version`, `used_memory` and so on.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn redis_info(&self) -> Result<BTreeMap<String, String>, Error> {
        Ok(self.redis.info().await?)
    }

    /// Asks Redis what time it is, if nobody has for some seconds. Belongs before all that judges or deletes by time.
    async fn look_at_the_clock(&self) -> Result<(), Error> {
        Ok(self.clock.refresh(&self.redis).await?)
    }

    fn broker(&self) -> Broker {
        Broker::new(self.redis.clone())
    }
}
