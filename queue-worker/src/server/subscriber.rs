//! The subscriber: hears of cancelations and of changes of queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use queue_core::keys::{CANCELS, DUTIES, QUEUES, WANT, WANT_NAME, WATCHERS};
use queue_redis::broker::{Broker, Holding};
use queue_redis::service::{Fresh, Service};
use queue_redis::{Error, Listener, Redis, Signal};

use super::queues::Queues;
use super::running::Running;
use super::wakeups::Wakeups;
use crate::job::CancelReason;
use crate::log::info;

/// A server that accepts connections and closes them again must not be hammered.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) struct Subscriber {
    redis: Redis,
    queues: Arc<Queues>,
    running: Arc<Running>,
    wakeups: Arc<Wakeups>,
    /// Whether the aggregator is to be woken by a new group: only a task that comes makes a group full, all else is a
    /// matter of time.
    groups_have_a_size: bool,
    /// Of one run; who starts anew has none.
    listener: Fresh<Listener>,
}

impl Service for Subscriber {
    const NAME: &'static str = "subscriber";
    const WORK: &'static str = "listening to Redis";

    /// Opens a connection to listen on.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let listener = Listener::connect(&self.redis).await?;
        self.wakeups.watch_by(listener.watch());
        // Whatever happened while nobody listened has to be looked for.
        self.wakeups.everything();
        self.listener.0 = Some(listener);
        Ok(PAUSE)
    }

    /// Listens until the connection is lost.
    async fn wait(&mut self, pause: Duration) {
        if let Some(mut listener) = self.listener.0.take() {
            loop {
                match listener.signal().await {
                    Signal::Lost => break,
                    Signal::Cancel(id) => self.interrupt(&id).await,
                    signal => self.hear(signal),
                }
            }
        }
        self.wakeups.watch_by(None);
        tokio::time::sleep(pause).await;
    }
}

impl Subscriber {
    pub(super) fn new(
        redis: Redis,
        queues: Arc<Queues>,
        running: Arc<Running>,
        wakeups: Arc<Wakeups>,
        groups_have_a_size: bool,
    ) -> Self {
        Self { redis, queues, running, wakeups, groups_have_a_size, listener: Fresh(None) }
    }

    /// Asynq's channel names no queue. Where a task of this id is to end for good in one queue, those of others go on.
    async fn interrupt(&self, id: &str) {
        let mut jobs = self.running.named(id);
        if jobs.is_empty() {
            return;
        }
        let requests = Broker::new(self.redis.clone()).cancel_requests().await.unwrap_or_default();
        jobs.retain(|job| requests.of(job.queue(), id).is_some() || !requests.has_id(id));
        for job in jobs {
            job.cancel(CancelReason::Canceled);
            info!(task = id, queue = job.queue(), "task canceled on request");
        }
    }

    fn hear(&self, signal: Signal) {
        let (wakeups, number) = (&self.wakeups, |queue: &str| self.queues.number(queue));
        match signal {
            Signal::Work(queue) => wakeups.work.tell(number(&queue)),
            Signal::Schedule(queue) => wakeups.schedule.tell(number(&queue)),
            Signal::Groups(queue) => {
                wakeups.holding(number(&queue), Holding::Groups);
                if self.groups_have_a_size {
                    wakeups.groups.notify_one();
                }
            }
            Signal::Group(..) => wakeups.groups.notify_one(),
            Signal::Holding(queue, Holding::Limits) => {
                wakeups.limits.store(true, Ordering::Release);
                wakeups.work.tell(number(&queue));
            }
            Signal::Holding(queue, holding) => wakeups.holding(number(&queue), holding),
            Signal::Shared(key) if key == DUTIES => wakeups.duties.notify_one(),
            Signal::Shared(key) if key == CANCELS => wakeups.cancels.notify_one(),
            Signal::Shared(key) if key.starts_with(WANT) || key.starts_with(WANT_NAME) => wakeups.wants.notify_one(),
            Signal::Shared(key) if key == WATCHERS => wakeups.watchers.notify_one(),
            Signal::Shared(key) if key == QUEUES => wakeups.queues.notify_one(),
            Signal::Shared(_) | Signal::Everything => wakeups.everything(),
            // Of single tasks only those are told who wait for them.
            Signal::Cancel(_) | Signal::Task(..) | Signal::Lost => {}
        }
    }
}
