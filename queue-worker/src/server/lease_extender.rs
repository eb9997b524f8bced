//! The lease extender: keeps the leases of the tasks in hand, on connections of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::LEASE_RENEWAL;
use queue_core::limits::RECOVERY_MARGIN_SECS;
use queue_redis::service::Service;
use queue_redis::{
    Error,
    broker::{Broker, Run, SHORT_BATCH, Verdict},
};

use super::running::Running;
use super::time::Time;
use crate::job::{CancelReason, Job};

/// Longest pause between two renewals, as in asynq. A renewal whose answer is lost is told from another
/// worker's lease by the short step it makes, so that long leases are not renewed less often.
const LONGEST_RENEWAL: Duration = LEASE_RENEWAL;

#[derive(Clone)]
pub(super) struct LeaseExtender {
    pub(super) broker: Broker,
    pub(super) time: Arc<Time>,
    pub(super) running: Arc<Running>,
    pub(super) lease: Duration,
}

impl Service for LeaseExtender {
    const NAME: &'static str = "lease extender";
    const WORK: &'static str = "renewing leases";

    /// Renews, and gives up what has expired even if that takes long: Redis may hang, on one connection after the
    /// other.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let renewal = self.renew();
        tokio::pin!(renewal);
        let renewed = loop {
            tokio::select! {
                biased;
                result = &mut renewal => break result,
                () = tokio::time::sleep(LONGEST_RENEWAL) => self.give_up_expired(),
            }
        };
        self.give_up_expired();
        renewed.map(|()| self.interval())
    }

    fn delay(&self) -> Duration {
        self.interval()
    }

    fn longest_pause(&self) -> Duration {
        self.interval()
    }
}

impl LeaseExtender {
    fn interval(&self) -> Duration {
        (self.lease / 6).min(LONGEST_RENEWAL)
    }

    async fn renew(&self) -> Result<(), Error> {
        let mut by_queue: HashMap<Arc<str>, Vec<Job>> = HashMap::new();
        for job in self.running.all() {
            by_queue.entry(job.run().queue.clone()).or_default().push(job);
        }
        if by_queue.is_empty() {
            return Ok(());
        }
        self.time.settle(self.broker.redis()).await?;
        // All at once: one after another, 150 queues that are 250 ms away took longer than a lease lasts.
        let batches: Vec<&[Job]> = by_queue.values().flat_map(|jobs| jobs.chunks(SHORT_BATCH)).collect();
        let runs = batches.iter().map(|jobs| jobs.iter().map(|job| job.run().clone()).collect());
        let (runs, expires): (Vec<Vec<Run>>, _) = (runs.collect(), self.time.lease_expiry(self.lease));
        let mut connection = self.broker.redis().reserved().await?;
        let mut result = Ok(());
        for (jobs, verdicts) in
            batches.into_iter().zip(self.broker.extend_leases(&mut connection, &runs, expires).await)
        {
            match verdicts {
                Ok(verdicts) => {
                    let lost = jobs.iter().zip(verdicts).filter(|(_, verdict)| *verdict != Verdict::Applied);
                    lost.for_each(|(job, _)| job.cancel(CancelReason::LeaseLost));
                }
                // The other queues may fare better.
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Cancels what others may take by now, because its lease could not be renewed for so long.
    fn give_up_expired(&self) {
        let taken_over = self.time.now() - RECOVERY_MARGIN_SECS;
        if self.time.is_settling() {
            return;
        }
        for job in self.running.all() {
            if job.run().leased_until() <= taken_over {
                job.cancel(CancelReason::LeaseLost);
            }
        }
    }
}
