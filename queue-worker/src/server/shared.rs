//! What all parts of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use queue_redis::service::Outage;
use queue_redis::{Broker, Error, SHORT_BATCH, Watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Options;
use super::acks::Acks;
use super::groups::Groups;
use super::heartbeat::Identity;
use super::holdings::Holdings;
use super::one_by_one::OneByOne;
use super::queues::Queues;
use super::running::Running;
use super::slots::Slots;
use super::time::Time;
use super::told::Told;
use crate::events::Event;
use crate::job::CancelReason;
use crate::panic::Guard;
use crate::routes::Routes;

/// What all parts of a server share.
pub(super) struct Shared {
    pub(super) broker: Broker,
    pub(super) options: Options,
    pub(super) span_guard: Guard,
    pub(super) time: Time,
    /// What fails because Redis is away.
    pub(super) outage: Arc<Outage>,
    pub(super) routes: Routes,
    pub(super) queues: Queues,
    pub(super) slots: Slots,
    pub(super) groups: Groups,
    pub(super) identity: Identity,
    pub(super) running: Running,
    pub(super) acks: Acks,
    pub(super) one_by_one: OneByOne,
    /// Counts takes, to name them.
    pub(super) takes: AtomicU64,
    /// Wakes the processor when a queue may have work.
    pub(super) work: Told,
    /// Wakes the forwarder when the scheduled or retried tasks of a queue have changed.
    pub(super) schedule: Told,
    /// Which queues have something to be looked after.
    pub(super) holdings: Holdings,
    /// How to be told about changes; `None` while there is no listening connection, or it cannot track.
    pub(super) watch: tokio::sync::watch::Sender<Option<Watch>>,
    /// Triggers when no more tasks are to be taken.
    pub(super) quiet: CancellationToken,
    pub(super) status: AtomicU8,
    /// The spawned attempts and aggregations, so that a shutdown can wait for them.
    pub(super) handlers: TaskTracker,
    /// The same for what looks after tasks that were taken and not started.
    pub(super) lookups: TaskTracker,
}

impl Shared {
    pub(super) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        self.options.observers.tell(event);
    }

    pub(super) fn tell_outage(&self, error: Option<&Error>) {
        let server = self.identity.id();
        self.tell(|| match error {
            Some(error) => Event::RedisAway { server, error },
            None => Event::RedisBack { server },
        });
    }

    pub(super) fn now(&self) -> i64 {
        self.time.now_ns().div_euclid(1_000_000_000)
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.time.now_ns()
    }

    pub(super) fn lease_expiry(&self) -> i64 {
        self.lease_expiry_after(Duration::ZERO)
    }

    /// The end of a lease of a task that is so long on its way here.
    pub(super) fn lease_expiry_after(&self, delay: Duration) -> i64 {
        self.now().saturating_add(queue_core::clock::secs_ceil(self.options.lease.saturating_add(delay)))
    }

    /// The name of the next take.
    pub(super) fn next_token(&self) -> Arc<str> {
        format!("{}:{}", self.identity.name(), self.takes.fetch_add(1, Ordering::Relaxed) + 1).into()
    }

    /// How many tasks set out together, to be taken or reported, although others are under way: half of the slots, so
    /// that Redis works on one half while the handlers work on the other; but not more than fill a call for each queue.
    pub(super) fn wave(&self) -> usize {
        let calls = SHORT_BATCH.saturating_mul(self.queues.names().count());
        self.options.concurrency.div_ceil(2).clamp(1, calls)
    }

    pub(super) fn watch(&self) -> Option<Watch> {
        self.watch.borrow().clone()
    }

    /// Tells handlers and aggregators to stop; returns how many tasks are in hand.
    pub(super) fn stop_work(&self) -> usize {
        self.groups.stop.cancel();
        self.running.cancel_all(CancelReason::Shutdown)
    }
}

/// The status of a server, in asynq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Active = 0,
    Stopped = 1,
    Closed = 2,
}
