//! What was enqueued, told to those who listen to events.
//!
//! A server knows who listens, and writes what it tells. Any other program has no connection on which Redis would tell it who
//! listens. So it asks while it enqueues, at most every [`AUDIENCE_POLL`], and never waits for the answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use queue_core::TaskMessage;
use queue_core::clock::{UnixMilli, UnixSecond};
use queue_core::event::{Event, Kind};
use queue_core::limits::{AUDIENCE_POLL, EVENTS_GATHER};
use tokio::sync::watch;
use tracing::debug;

use super::Broker;
use crate::error::Error;

/// The time of a look that never comes.
const NEVER: u64 = u64::MAX;

/// Of more tasks than this, stored while somebody asks who listens, nothing is told.
const MOST_KEPT: usize = 10_000;

/// A task that was stored, when it is due if that is later, and when it was stored.
type Kept = (TaskMessage, Option<i64>, UnixMilli);

/// Asks who listens, and writes, for the clones of a broker that are no server's.
#[derive(Debug)]
pub(super) struct News {
    began: Instant,
    /// When to ask again who listens, in milliseconds since it began.
    look_at: AtomicU64,
    /// What was stored while somebody asks who listens, up to [`MOST_KEPT`] tasks, with when; `None` when nobody asks.
    kept: Mutex<Option<Vec<Kept>>>,
    /// Whether somebody is about to write what has gathered.
    writes: AtomicBool,
    /// How many tasks ask or write.
    under_way: watch::Sender<usize>,
}

/// A reading of the caller's clock, which goes on by itself.
#[derive(Clone, Copy)]
struct Reading {
    ns: i64,
    at: Instant,
}

impl Reading {
    fn now(self) -> UnixMilli {
        UnixMilli::of_ns(self.ns.saturating_add(i64::try_from(self.at.elapsed().as_nanos()).unwrap_or(0)))
    }
}

impl Default for News {
    fn default() -> Self {
        let (look_at, kept, writes) = Default::default();
        Self { began: Instant::now(), look_at, kept, writes, under_way: watch::Sender::new(0) }
    }
}

impl News {
    fn kept(&self) -> MutexGuard<'_, Option<Vec<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to ask who listens. Of the calls that find it so, one is told.
    fn is_due(&self, now: Instant) -> bool {
        let now = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(NEVER);
        let due = self.look_at.load(Relaxed);
        let next = now.saturating_add(u64::try_from(AUDIENCE_POLL.as_millis()).unwrap_or(NEVER));
        now >= due && due != NEVER && self.look_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }
}

impl Broker {
    /// Tells those who listen of tasks that were stored at this time, Unix nanoseconds, each with the Unix second at which it is due, if that is later. It
    /// does not wait for Redis.
    ///
    /// # Panics
    /// Outside a runtime of tokio.
    pub fn tell_enqueued<'a>(&self, stored: impl Iterator<Item = (&'a TaskMessage, Option<i64>)>, now_ns: i64) {
        let now = Reading { ns: now_ns, at: Instant::now() };
        let at = UnixMilli::of_ns(now_ns);
        if self.feed().is_served() || !self.news.is_due(now.at) {
            if !self.feed().is_heard()
                && let Some(kept) = &mut *self.news.kept()
            {
                let room = MOST_KEPT.saturating_sub(kept.len());
                kept.extend(stored.take(room).map(|(task, due)| (task.clone(), due, at)));
            } else if self.feed().is_heard() && self.gather(stored, at) && !self.feed().is_served() {
                self.write_soon(now);
            }
            return;
        }
        let stored: Vec<Kept> = stored.map(|(task, due)| (task.clone(), due, at)).collect();
        if stored.is_empty() {
            return;
        }
        // A look before this one may hang.
        self.news.kept().get_or_insert_default().extend(stored);
        let broker = self.clone();
        self.run(async move {
            broker.look(now).await;
            let kept = broker.news.kept().take().unwrap_or_default();
            let mut any = false;
            for (task, due, at) in &kept {
                any |= broker.gather(std::iter::once((task, *due)), *at);
            }
            if any {
                broker.write_soon(now);
            }
        });
    }

    /// Waits until all is told, for so long at the most.
    pub async fn events_told(&self, patience: Duration) {
        let mut under_way = self.news.under_way.subscribe();
        let _ = tokio::time::timeout(patience, under_way.wait_for(|count| *count == 0)).await;
    }

    /// Asks who listens.
    async fn look(&self, now: Reading) {
        let wanted = async {
            // All who enqueue may do that; for what follows they need rights.
            if self.has_watchers().await? { self.wanted().await } else { Ok(Vec::new()) }
        };
        match wanted.await {
            Ok(wanted) => drop(self.feed().heard_by(wanted, now.now().0)),
            Err(error) => self.is_refused(&error),
        }
    }

    /// Redis could not be asked or written to. Where it refuses, it would do so again, and note it in its log of ACLs: nothing is
    /// told any more.
    fn is_refused(&self, error: &Error) {
        debug!(%error, "what is enqueued is not told to those who listen");
        if !error.is_outage() {
            self.news.look_at.store(NEVER, Relaxed);
        }
        self.feed().heard_by(Vec::new(), 0);
    }

    /// Writes what has gathered in a tenth of a second.
    fn write_soon(&self, now: Reading) {
        if self.news.writes.swap(true, Relaxed) {
            return;
        }
        let broker = self.clone();
        self.run(async move {
            tokio::time::sleep(EVENTS_GATHER).await;
            // What comes from here on has a writer of its own.
            broker.news.writes.store(false, Relaxed);
            if let Err(error) = broker.tell_events(now.now().0).await {
                broker.is_refused(&error);
            }
        });
    }

    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.news.under_way.send_modify(|count| *count += 1);
        let news = self.news.clone();
        tokio::spawn(async move {
            work.await;
            news.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Puts these tasks into the feed; whether anything is to be written.
    fn gather<'a>(&self, stored: impl Iterator<Item = (&'a TaskMessage, Option<i64>)>, at: UnixMilli) -> bool {
        let (feed, mut any) = (self.feed(), false);
        for (task, due) in stored {
            if !feed.takes(Kind::Enqueued, &task.queue, &task.r#type) {
                continue;
            }
            any = true;
            feed.tell(|| {
                let mut event = Event::of_task(Kind::Enqueued, at, &task.queue, &task.id, &task.r#type);
                event.due_at = due.map(UnixSecond);
                event
            });
        }
        any
    }
}
