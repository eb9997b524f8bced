//! The reconciler: puts in order by itself what can be without losing anything, which is what `queuectl doctor` finds and
//! needs nobody's judgement for. Of the servers of a queue one does it at a time.

use std::sync::Arc;
use std::time::Duration;

use queue_redis::service::{Fresh, Service};
use queue_redis::{Doctor, Error, Examination, broker::Broker};
use tracing::debug;

use super::identity::Identity;
use super::queues::Queues;
use crate::events::{Event, Observers};
use crate::log::warn;

/// Steps of an examination in one run: a step reads 100 tasks, or the names of 500 keys.
const STEPS: usize = 20;
/// With more tasks than these an examination is given up: it would remember all of them, which is memory that a
/// worker should not need. Such queues are left to `queuectl doctor`.
const MAX_TASKS: u64 = 100_000;

/// Of more queues, so many are looked after at a time: an idle server should not have more to do the more queues it has.
const PORTION: usize = 100;

/// What is left for the next run.
#[derive(Clone, Default)]
struct Progress {
    /// The number of the first queue of this portion.
    portion: usize,
    unfinished: Fresh<Unfinished>,
}

impl Progress {
    fn next_portion(&mut self, queues: usize) {
        self.unfinished.0 = None;
        self.portion = Some(self.portion + PORTION).filter(|next| *next < queues).unwrap_or(0);
    }
}

/// What is left of an examination.
struct Unfinished {
    queues: Vec<Arc<str>>,
    examination: Examination,
}

#[derive(Clone)]
pub(super) struct Reconciler {
    broker: Broker,
    doctor: Doctor,
    queues: Arc<Queues>,
    identity: Arc<Identity>,
    interval: Duration,
    observers: Observers,
    progress: Progress,
}

impl Service for Reconciler {
    const NAME: &'static str = "reconciler";
    const WORK: &'static str = "putting queues in order";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        if let Err(error) = self.reconcile().await {
            self.progress.unfinished.0 = None;
            return Err(error);
        }
        Ok(self.interval.mul_f64(0.8 + 0.4 * fastrand::f64()))
    }

    fn rest(&self, error: &Error) -> Duration {
        // Whether Redis is back should not take the whole interval to be noticed.
        if error.is_outage() { Duration::ZERO } else { self.interval }
    }

    fn delay(&self) -> Duration {
        // Servers that start together should not all begin together.
        self.interval.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}

impl Reconciler {
    pub(super) fn new(
        broker: Broker,
        doctor: Doctor,
        queues: Arc<Queues>,
        identity: Arc<Identity>,
        interval: Duration,
        observers: Observers,
    ) -> Self {
        Self { broker, doctor, queues, identity, interval, observers, progress: Progress::default() }
    }

    async fn reconcile(&mut self) -> Result<(), Error> {
        let queues = self.claim(self.progress.portion).await?;
        if queues.is_empty() {
            self.progress.next_portion(self.queues.count());
            return Ok(());
        }
        let mut current = match self.progress.unfinished.0.take() {
            Some(current) if current.queues == queues => current,
            _ => {
                let names = queues.iter().map(|queue| queue.to_string());
                Unfinished { examination: self.doctor.examine().only_harmless().queues(names), queues }
            }
        };
        for _ in 0..STEPS {
            let Some(findings) = current.examination.next().await? else {
                self.progress.next_portion(self.queues.count());
                return Ok(());
            };
            for finding in findings.iter().filter(|finding| finding.is_harmless()) {
                match self.doctor.mend(finding, &[]).await {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) if error.is_outage() => return Err(error),
                    Err(error) => {
                        debug!(%error, subject = finding.subject, "could not be put in order");
                        continue;
                    }
                }
                let (queue, fault) = (finding.queue.as_deref(), finding.fault.as_str());
                self.observers.tell(|| Event::Reconciled { queue, fault });
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
                self.progress.next_portion(self.queues.count());
                return Ok(());
            }
        }
        self.progress.unfinished.0 = Some(current);
        Ok(())
    }

    /// The queues of a portion that no other server looks after. A claim outlives some runs, so that who has begun goes on.
    async fn claim(&self, portion: usize) -> Result<Vec<Arc<str>>, Error> {
        let lives = (self.interval * 3).max(Duration::from_secs(1));
        let mut claimed = Vec::new();
        for queue in self.queues.names().skip(portion).take(PORTION) {
            if self.broker.claim_upkeep(queue, self.identity.id(), lives).await? {
                claimed.push(queue.clone());
            }
        }
        Ok(claimed)
    }
}
