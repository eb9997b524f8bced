//! Keeps what is ours: the leases of running tasks, and an open ear for cancelations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use queue_redis::service::{Backoff, Part};
use queue_redis::{Error, Holding, Listener, Run, SHORT_BATCH, Signal, Verdict};

use super::Shared;
use super::maintenance::RECOVERY_MARGIN;
use crate::job::{CancelReason, Job};
use crate::log::info;

/// Listens for cancelations and for changes of queues, over and over.
pub(super) async fn listen(shared: Arc<Shared>) {
    let mut backoff = Backoff::new(&shared.outage, "listening to Redis");
    loop {
        let mut listener = match Listener::connect(shared.broker.redis()).await {
            Ok(listener) => listener,
            Err(error) => {
                backoff.failed(&error).await;
                continue;
            }
        };
        backoff.succeeded();
        shared.watch.send_replace(listener.watch());
        // Whatever happened while nobody listened has to be looked for.
        tell_everything(&shared);
        loop {
            match listener.signal().await {
                Signal::Cancel(id) => {
                    if shared.running.cancel(&id, CancelReason::Canceled) > 0 {
                        info!(task = id, "task canceled on request");
                    }
                }
                Signal::Work(queue) => shared.work.tell(shared.queues.number(&queue)),
                Signal::Schedule(queue) => shared.schedule.tell(shared.queues.number(&queue)),
                Signal::Groups(queue) => {
                    shared.holdings.tell(shared.queues.number(&queue), Holding::Groups);
                    if shared.options.groups.max_size > 0 {
                        shared.groups.changed.notify_one();
                    }
                }
                Signal::Group(..) => shared.groups.changed.notify_one(),
                Signal::Holding(queue, holding) => shared.holdings.tell(shared.queues.number(&queue), holding),
                Signal::Everything => tell_everything(&shared),
                Signal::Lost => break,
            }
        }
        shared.watch.send_replace(None);
        // A server that accepts connections and closes them again must not be hammered.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn tell_everything(shared: &Shared) {
    shared.work.tell_everything();
    shared.schedule.tell_everything();
    shared.holdings.tell_everything();
    shared.groups.changed.notify_one();
}

/// Longest pause between two renewals, as in asynq. A renewal whose answer is lost is told from another
/// worker's lease by the short step it makes, so that long leases are not renewed less often.
const LONGEST_RENEWAL: Duration = Duration::from_secs(5);

/// Renews the leases of all tasks in hand on connections of its own.
pub(super) async fn renew_leases(shared: Arc<Shared>) {
    let interval = (shared.options.lease / 6).min(LONGEST_RENEWAL);
    let mut part = Part::new(&shared.outage, "renewing leases");
    loop {
        tokio::time::sleep(interval).await;
        match renew_or_give_up(&shared).await {
            Ok(()) => part.succeeded(),
            Err(error) => part.failed(&error),
        }
        give_up_expired(&shared);
    }
}

/// Renews, and gives up what has expired even if that takes long: Redis may hang, on one connection after the
/// other.
async fn renew_or_give_up(shared: &Shared) -> Result<(), Error> {
    let renewal = renew(shared);
    tokio::pin!(renewal);
    loop {
        tokio::select! {
            biased;
            result = &mut renewal => return result,
            () = tokio::time::sleep(LONGEST_RENEWAL) => give_up_expired(shared),
        }
    }
}

async fn renew(shared: &Shared) -> Result<(), Error> {
    let mut by_queue: HashMap<Arc<str>, Vec<Job>> = HashMap::new();
    for job in shared.running.all() {
        by_queue.entry(job.run().queue.clone()).or_default().push(job);
    }
    if by_queue.is_empty() {
        return Ok(());
    }
    shared.time.settle(shared.broker.redis()).await?;
    // All at once: one after another, 150 queues that are 250 ms away took longer than a lease lasts.
    let batches: Vec<&[Job]> = by_queue.values().flat_map(|jobs| jobs.chunks(SHORT_BATCH)).collect();
    let runs = batches.iter().map(|jobs| jobs.iter().map(|job| job.run().clone()).collect());
    let (runs, expires): (Vec<Vec<Run>>, _) = (runs.collect(), shared.lease_expiry());
    let mut connection = shared.broker.redis().pooled().await?;
    let mut result = Ok(());
    for (jobs, verdicts) in batches.into_iter().zip(shared.broker.extend_leases(&mut connection, &runs, expires).await)
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
fn give_up_expired(shared: &Shared) {
    let taken_over = shared.now() - RECOVERY_MARGIN;
    if shared.time.is_settling() {
        return;
    }
    for job in shared.running.all() {
        if job.run().leased_until() <= taken_over {
            job.cancel(CancelReason::LeaseLost);
        }
    }
}
