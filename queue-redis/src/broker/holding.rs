//! Whether there is anything to look after, asked by one command for all queues.

use queue_core::keys::QueueKeys;

use super::Broker;
use crate::error::Error;

/// What a queue may have that somebody has to look after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Pending tasks.
    Pending,
    /// Leases of active tasks.
    Leases,
    /// Completed tasks.
    Completed,
    /// Archived tasks.
    Archived,
    /// Groups.
    Groups,
    /// Groups that are being aggregated, or have been and are not deleted yet.
    Aggregations,
}

impl Holding {
    /// What the question is called where calls are watched.
    fn question(self) -> &'static str {
        match self {
            Self::Pending => "looking for pending tasks",
            Self::Leases => "looking for leases",
            Self::Completed => "looking for completed tasks",
            Self::Archived => "looking for archived tasks",
            Self::Groups => "looking for groups",
            Self::Aggregations => "looking for aggregations",
        }
    }

    fn keys(self, keys: &QueueKeys) -> Vec<String> {
        match self {
            Self::Pending => vec![keys.pending()],
            Self::Leases => vec![keys.lease()],
            Self::Completed => vec![keys.completed()],
            Self::Archived => vec![keys.archived()],
            Self::Groups => vec![keys.groups()],
            Self::Aggregations => vec![keys.aggregation_sets(), keys.aggregated()],
        }
    }
}

impl Broker {
    /// Whether one of these queues may have this. `false` is certain; `true` is also the answer where only each queue
    /// by itself can be asked: in a cluster, or when Redis refuses to tell.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn may_hold<'a>(&self, queues: impl Iterator<Item = &'a str>, holding: Holding) -> Result<bool, Error> {
        if self.redis.cluster().is_some() {
            return Ok(true);
        }
        let keys: Vec<String> = queues.flat_map(|queue| holding.keys(&QueueKeys::new(queue))).collect();
        if keys.is_empty() {
            return Ok(false);
        }
        match self.redis.query::<u64>(holding.question(), redis::cmd("EXISTS").arg(&keys)).await {
            Ok(existing) => Ok(existing > 0),
            Err(error) if error.is_outage() => Err(error),
            Err(_) => Ok(true),
        }
    }
}
