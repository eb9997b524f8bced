//! The reclaimer: puts the tasks of lost aggregations back into their groups.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::{IDLE_INTERVAL, RECOVER_INTERVAL, RENEWED_WITHIN};
use queue_redis::service::Service;
use queue_redis::{
    Error,
    broker::{Broker, Holding, ListedSet},
};

use super::holdings::Holdings;
use super::time::Time;
use crate::log::{info, warn};

/// The sets that the last look has found.
type Seen = HashMap<Arc<str>, HashSet<ListedSet>>;

#[derive(Clone)]
pub(super) struct Reclaimer {
    broker: Broker,
    time: Arc<Time>,
    holdings: Arc<Holdings>,
    seen: Seen,
    was_away: bool,
}

impl Service for Reclaimer {
    const NAME: &'static str = "reclaimer";
    const WORK: &'static str = "looking for lost aggregations";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        if self.was_away {
            self.broker.redis().ping().await?;
            self.was_away = false;
            return Ok(RENEWED_WITHIN);
        }
        let mut seen = std::mem::take(&mut self.seen);
        let reclaimed = self.reclaim_in_all(&mut seen).await;
        self.seen = seen;
        if let Err(error) = reclaimed {
            self.was_away = error.is_outage();
            return Err(error);
        }
        let idle = self.seen.values().all(HashSet::is_empty);
        let interval = if idle { IDLE_INTERVAL } else { RECOVER_INTERVAL };
        Ok(interval.mul_f64(0.8 + 0.4 * fastrand::f64()))
    }
}

impl Reclaimer {
    pub(super) fn new(broker: Broker, time: Arc<Time>, holdings: Arc<Holdings>) -> Self {
        Self { broker, time, holdings, seen: Seen::default(), was_away: false }
    }

    async fn reclaim_in_all(&self, seen: &mut Seen) -> Result<(), Error> {
        // What was seen before may be gone by now, and have left a group that nobody knows of.
        seen.retain(|_, sets| !sets.is_empty());
        let mut queues: HashSet<Arc<str>> = seen.keys().cloned().collect();
        queues.extend(self.holdings.which_hold(Holding::Aggregations).await?.into_iter().cloned());
        let mut result = Ok(());
        for queue in queues {
            result = result.and(self.reclaim(&queue, seen.entry(queue.clone()).or_default()).await);
        }
        result
    }

    async fn reclaim(&self, queue: &Arc<str>, seen: &mut HashSet<ListedSet>) -> Result<(), Error> {
        let listed = self.broker.aggregation_sets(queue).await?;
        let now = self.time.now();
        if self.time.is_settling() {
            return Ok(());
        }
        for set in listed.iter().filter(|set| set.deadline <= now) {
            let tasks = self.broker.reclaim(queue, &set.group, &set.id, Some(now)).await?;
            if tasks > 0 {
                warn!(queue = %queue, group = set.group, tasks, "an aggregation was lost; its tasks are in their group again");
            }
        }
        // Go puts lost sets back too, and then does not list their group (W19). So each set that somebody has
        // taken away since the last look may have left a group that nobody knows of.
        let still: HashSet<&str> = listed.iter().map(|set| &*set.id).collect();
        let mut groups: Vec<String> =
            seen.iter().filter(|set| !still.contains(&*set.id)).map(|set| set.group.clone()).collect();
        groups.sort();
        groups.dedup();
        for groups in groups.chunks(queue_redis::broker::MAX_BATCH) {
            let [again, _] = self.broker.list_groups_again(queue, groups).await?;
            if again > 0 {
                warn!(queue = %queue, groups = again, "groups with tasks were not listed; now they are");
            }
        }
        *seen = listed.into_iter().collect();
        let deleted = self.broker.delete_aggregated(queue).await?;
        if deleted > 0 {
            info!(queue = %queue, deleted, "tasks that had been aggregated were deleted");
        }
        Ok(())
    }
}
