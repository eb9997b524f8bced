//! Puts in order by itself what can be without losing anything: what `queuectl doctor` finds and needs nobody's
//! judgement for. Of the servers of a queue one does it at a time.

use std::sync::Arc;
use std::time::Duration;

use queue_redis::service::Backoff;
use queue_redis::{Error, Examination, Inspector};
use tracing::debug;

use super::Shared;
use crate::events::Event;
use crate::log::warn;

/// Steps of an examination in one run: a step reads 100 tasks, or the names of 500 keys.
const STEPS: usize = 20;
/// With more tasks than these an examination is given up: it would remember all of them, which is memory that a
/// worker should not need. Such queues are left to `queuectl doctor`.
const MAX_TASKS: u64 = 100_000;

/// Of more queues, so many are looked after at a time: an idle server should not have more to do the more queues it has.
const PORTION: usize = 100;

/// What is left for the next run.
#[derive(Default)]
struct Progress {
    /// The number of the first queue of this portion.
    portion: usize,
    unfinished: Option<Unfinished>,
}

impl Progress {
    fn next_portion(&mut self, queues: usize) {
        self.unfinished = None;
        self.portion = Some(self.portion + PORTION).filter(|next| *next < queues).unwrap_or(0);
    }
}

/// What is left of an examination.
struct Unfinished {
    queues: Vec<Arc<str>>,
    examination: Examination,
}

/// Looks after the queues now and then.
pub(super) async fn run(shared: Arc<Shared>) {
    let interval = shared.options.reconcile;
    if interval.is_zero() {
        return;
    }
    let inspector = Inspector::with_clock(shared.broker.redis().clone(), shared.time.clock());
    let mut backoff = Backoff::new(&shared.outage, "putting queues in order");
    let mut progress = Progress::default();
    // Servers that start together should not all begin together.
    tokio::time::sleep(interval.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
    loop {
        match once(&shared, &inspector, &mut progress).await {
            Ok(()) => backoff.succeeded(),
            Err(error) => {
                progress.unfinished = None;
                backoff.failed(&error).await;
                if error.is_outage() {
                    // Whether Redis is back should not take the whole interval to be noticed.
                    continue;
                }
            }
        }
        tokio::time::sleep(interval.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

async fn once(shared: &Shared, inspector: &Inspector, progress: &mut Progress) -> Result<(), Error> {
    let queues = claim(shared, progress.portion).await?;
    if queues.is_empty() {
        progress.next_portion(shared.queues.count());
        return Ok(());
    }
    let mut current = match progress.unfinished.take() {
        Some(current) if current.queues == queues => current,
        _ => {
            let names = queues.iter().map(|queue| queue.to_string());
            Unfinished { examination: inspector.examine().only_harmless().queues(names), queues }
        }
    };
    for _ in 0..STEPS {
        let Some(findings) = current.examination.next().await? else {
            progress.next_portion(shared.queues.count());
            return Ok(());
        };
        for finding in findings.iter().filter(|finding| finding.is_harmless()) {
            match inspector.mend(finding, &[]).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    debug!(%error, subject = finding.subject, "could not be put in order");
                    continue;
                }
            }
            let (queue, fault) = (finding.queue.as_deref(), finding.fault.as_str());
            shared.tell(|| Event::Reconciled { queue, fault });
            warn!(
                queue = queue.unwrap_or_default(),
                fault,
                subject = finding.subject,
                detail = finding.detail,
                "put in order: {}",
                finding.fault.meaning()
            );
        }
        if current.examination.tasks() > MAX_TASKS {
            progress.next_portion(shared.queues.count());
            return Ok(());
        }
    }
    progress.unfinished = Some(current);
    Ok(())
}

/// The queues of a portion that no other server looks after. A claim outlives some runs, so that who has begun goes on.
async fn claim(shared: &Shared, portion: usize) -> Result<Vec<Arc<str>>, Error> {
    let lives = (shared.options.reconcile * 3).max(Duration::from_secs(1));
    let mut claimed = Vec::new();
    for queue in shared.queues.names().skip(portion).take(PORTION) {
        if shared.broker.claim_upkeep(queue, shared.identity.id(), lives).await? {
            claimed.push(queue.clone());
        }
    }
    Ok(claimed)
}
