//! What was enqueued, told to those who listen to events.
//!
//! A client has no connection on which Redis would tell it who listens. So it asks while it enqueues, at most every
//! [`AUDIENCE_POLL`], and never waits for the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use queue_core::Clock;
use queue_core::clock::{UnixMilli, UnixSecond};
use queue_core::event::{Event, Kind};
use queue_core::limits::{AUDIENCE_POLL, EVENTS_GATHER};
use queue_core::options::{Composed, Placement};
use tokio::sync::watch;
use tracing::debug;

use crate::broker::{Broker, EnqueueVerdict};
use crate::error::Error;

/// The time of a look that never comes.
const NEVER: u64 = u64::MAX;

/// Tells what this client and its clones have enqueued.
#[derive(Debug)]
pub(super) struct News {
    began: Instant,
    clock: Arc<dyn Clock>,
    /// When to ask again who listens, in milliseconds since it began.
    look_at: AtomicU64,
    /// Whether somebody is about to write what has gathered.
    writes: AtomicBool,
    /// How many tasks ask or write.
    under_way: watch::Sender<usize>,
}

impl News {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (look_at, writes) = Default::default();
        Self { began: Instant::now(), clock, look_at, writes, under_way: watch::Sender::new(0) }
    }

    /// Tells of those tasks of a call that were stored, if anybody listens.
    pub(super) fn stored(self: &Arc<Self>, broker: &Broker, batch: &[Composed], verdicts: &[EnqueueVerdict]) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NEVER);
        let due = self.look_at.load(Relaxed);
        let next = now.saturating_add(u64::try_from(AUDIENCE_POLL.as_millis()).unwrap_or(NEVER));
        // Of the calls that find a look due, one begins it.
        let looks = now >= due && due != NEVER && self.look_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok();
        if !looks && !broker.feed().is_heard() {
            return;
        }
        let stored = batch.iter().zip(verdicts).filter(|(_, verdict)| **verdict == EnqueueVerdict::Stored);
        if !looks {
            if self.tell(broker, stored.map(|(task, _)| task)) {
                self.write_soon(broker);
            }
            return;
        }
        let stored: Vec<Composed> = stored.map(|(task, _)| task.clone()).collect();
        let (news, broker) = (self.clone(), broker.clone());
        self.run(async move {
            if news.look(&broker).await && news.tell(&broker, stored.iter()) {
                news.write_soon(&broker);
            }
        });
    }

    /// Asks who listens; whether anybody does.
    async fn look(&self, broker: &Broker) -> bool {
        let wanted = async {
            // All who enqueue may do that; for what follows they need rights.
            if broker.has_watchers().await? { broker.wanted().await } else { Ok(Vec::new()) }
        };
        match wanted.await {
            Ok(wanted) => drop(broker.feed().heard_by(wanted, self.now().0)),
            Err(error) => self.is_refused(broker, &error),
        }
        broker.feed().is_heard()
    }

    /// Redis could not be asked or written to. Where it refuses, it would do so again, and note it in its log of ACLs: nothing is
    /// told any more.
    fn is_refused(&self, broker: &Broker, error: &Error) {
        debug!(%error, "what is enqueued is not told to those who listen");
        if !error.is_outage() {
            self.look_at.store(NEVER, Relaxed);
        }
        broker.feed().heard_by(Vec::new(), 0);
    }

    /// Writes what has gathered in a tenth of a second.
    fn write_soon(self: &Arc<Self>, broker: &Broker) {
        if self.writes.swap(true, Relaxed) {
            return;
        }
        let (news, broker) = (self.clone(), broker.clone());
        self.run(async move {
            tokio::time::sleep(EVENTS_GATHER).await;
            // What comes from here on has a writer of its own.
            news.writes.store(false, Relaxed);
            if let Err(error) = broker.tell_events(news.now().0).await {
                news.is_refused(&broker, &error);
            }
        });
    }

    fn run(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.under_way.send_modify(|count| *count += 1);
        let news = self.clone();
        tokio::spawn(async move {
            work.await;
            news.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Waits until all is told, for so long at the most.
    pub(super) async fn told(&self, patience: Duration) {
        let mut under_way = self.under_way.subscribe();
        let _ = tokio::time::timeout(patience, under_way.wait_for(|count| *count == 0)).await;
    }

    fn now(&self) -> UnixMilli {
        UnixMilli::of_ns(self.clock.now_ns())
    }

    /// Tells of these tasks; whether anything is to be written.
    fn tell<'a>(&self, broker: &Broker, stored: impl Iterator<Item = &'a Composed>) -> bool {
        let (feed, mut any) = (broker.feed(), false);
        for task in stored {
            let message = &task.message;
            if !feed.takes(Kind::Enqueued, &message.queue, &message.r#type) {
                continue;
            }
            any = true;
            feed.tell(|| {
                let mut event =
                    Event::of_task(Kind::Enqueued, self.now(), &message.queue, &message.id, &message.r#type);
                if let Placement::Scheduled { at } = task.placement {
                    event.due_at = Some(UnixSecond(at));
                }
                event
            });
        }
        any
    }
}
