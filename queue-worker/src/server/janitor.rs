//! The janitor: deletes completed tasks whose retention has ended, and what is too much in the archive.

use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::CLEAN_UP_INTERVAL;
use queue_redis::service::{Service, worse};
use queue_redis::{
    Error,
    broker::{Broker, Holding, SHORT_BATCH},
};

use super::holdings::Holdings;
use super::time::Time;
use crate::log::info;

/// In how many of these rounds archives are looked at: what is in them may be up to 90 days old.
const TRIM_EVERY: u32 = 4;

#[derive(Clone)]
pub(super) struct Janitor {
    broker: Broker,
    time: Arc<Time>,
    holdings: Arc<Holdings>,
    round: u32,
}

impl Service for Janitor {
    const NAME: &'static str = "janitor";
    const WORK: &'static str = "deleting expired tasks";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let (mut deleted, mut failed) = (0, None);
        let kinds = [Holding::Completed, Holding::Archived];
        for kind in &kinds[..if self.round.is_multiple_of(TRIM_EVERY) { 2 } else { 1 }] {
            for queue in self.holdings.which_hold(*kind).await? {
                match self.clean_up(queue, *kind).await {
                    Ok(of_queue) => deleted += of_queue,
                    Err(error) => failed = worse(failed, error),
                }
            }
        }
        if deleted > 0 {
            info!(deleted, "expired tasks were deleted");
        }
        // The archives of the other queues have their turn also when one queue cannot be cleaned up.
        self.round = self.round.wrapping_add(1);
        failed.map_or(Ok(CLEAN_UP_INTERVAL), Err)
    }
}

impl Janitor {
    pub(super) fn new(broker: Broker, time: Arc<Time>, holdings: Arc<Holdings>) -> Self {
        Self { broker, time, holdings, round: 0 }
    }

    /// Deletes, some at a time, until fewer than that are left.
    async fn clean_up(&self, queue: &str, kind: Holding) -> Result<usize, Error> {
        let mut total = 0;
        loop {
            let now = self.time.now();
            let deleted = match kind {
                Holding::Archived => self.broker.trim_archived(queue, now).await?,
                _ => self.broker.delete_expired_completed(queue, now).await?,
            };
            total += deleted;
            if deleted < SHORT_BATCH {
                return Ok(total);
            }
        }
    }
}
