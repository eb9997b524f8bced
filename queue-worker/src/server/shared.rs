//! What takes, runs and reports tasks: the processor, the attempts and the acks share it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::event::Kind;
use queue_redis::broker::{Broker, Matching, SHORT_BATCH};
use queue_redis::service::Outage;
use tokio_util::task::TaskTracker;

use super::acks::Acks;
use super::adaptive::Adaptive;
use super::cancels::Cancels;
use super::identity::Identity;
use super::one_by_one::OneByOne;
use super::options::{Options, Unhandled};
use super::pace::Pace;
use super::queues::Queues;
use super::running::Running;
use super::shutdown::Shutdown;
use super::slots::Slots;
use super::survey::Among;
use super::telling;
use super::time::Time;
use super::wakeups::Wakeups;
use crate::events::Event;
use crate::panic::Guard;
use crate::routes::Routes;

pub(super) struct Shared {
    pub(super) broker: Broker,
    pub(super) options: Options,
    pub(super) span_guard: Guard,
    pub(super) time: Arc<Time>,
    /// What fails because Redis is away.
    pub(super) outage: Arc<Outage>,
    pub(super) routes: Arc<Routes>,
    pub(super) queues: Arc<Queues>,
    pub(super) slots: Slots,
    pub(super) adaptive: Option<Adaptive>,
    pub(super) identity: Arc<Identity>,
    pub(super) running: Arc<Running>,
    pub(super) cancels: Arc<Cancels>,
    pub(super) pace: Pace,
    pub(super) acks: Acks,
    pub(super) one_by_one: OneByOne,
    /// Counts takes, to name them.
    pub(super) takes: AtomicU64,
    pub(super) wakeups: Arc<Wakeups>,
    /// Queues with limits of which the log has said who knows nothing of them.
    pub(super) told_of_limits: Mutex<HashSet<String>>,
    pub(super) shutdown: Shutdown,
    /// The spawned attempts and aggregations, so that a shutdown can wait for them.
    pub(super) handlers: TaskTracker,
    /// The same for what looks after tasks that were taken and not started.
    pub(super) lookups: TaskTracker,
}

impl Shared {
    pub(super) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        self.options.observers.tell(event);
    }

    pub(super) fn now(&self) -> i64 {
        self.time.now()
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.time.now_ns()
    }

    pub(super) fn lease_expiry(&self) -> i64 {
        self.time.lease_expiry(self.options.lease)
    }

    /// The end of a lease of a task that is so long on its way here.
    pub(super) fn lease_expiry_after(&self, delay: Duration) -> i64 {
        self.time.lease_expiry(self.options.lease.saturating_add(delay))
    }

    /// The name of the next take.
    pub(super) fn next_token(&self) -> Arc<str> {
        format!("{}:{}", self.identity.name(), self.takes.fetch_add(1, Ordering::Relaxed) + 1).into()
    }

    /// What is taken of these where tasks of other types are left to others ([`Unhandled::Leave`]); `None` where all are taken.
    pub(super) fn matching(&self, among: Option<Among>) -> Option<Matching> {
        (self.options.unhandled == Unhandled::Leave).then(|| {
            let (ids, are_young) = among.unwrap_or_default();
            Matching { types: self.routes.types(), prefixes: self.routes.prefixes(), ids, are_young }
        })
    }

    /// Runs so many tasks at once from now on, and tells so.
    pub(super) fn resize(&self, concurrency: usize) {
        let before = self.slots.total();
        if concurrency != before {
            self.slots.resize(concurrency);
            let server = self.identity.id();
            self.tell(|| Event::ServerResized { server, before, concurrency });
            telling::of_server(self, Kind::ServerResized);
        }
    }

    /// How many tasks set out together, to be taken or reported, although others are under way: half of the slots, so
    /// that Redis works on one half while the handlers work on the other; but not more than fill a call for each queue.
    pub(super) fn wave(&self) -> usize {
        let calls = SHORT_BATCH.saturating_mul(self.queues.count().max(1));
        self.slots.total().div_ceil(2).clamp(1, calls)
    }
}
