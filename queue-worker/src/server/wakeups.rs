//! What wakes the loops of a server: what the subscriber has heard of Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use queue_redis::{Watch, broker::Holding};
use tokio::sync::Notify;
use tokio::sync::watch;

use super::told::Told;

/// What was heard, until somebody asks.
#[derive(Debug)]
pub(super) struct Wakeups {
    /// Wakes the processor when a queue may have work.
    pub(super) work: Told,
    /// Wakes the forwarder when the scheduled or retried tasks of a queue have changed.
    pub(super) schedule: Told,
    /// Wakes the aggregator when a group has changed.
    pub(super) groups: Notify,
    /// Wakes the leader when somebody has asked for a duty.
    pub(super) duties: Arc<Notify>,
    /// Wakes who looks which tasks are to be canceled.
    pub(super) cancels: Notify,
    /// Wakes who looks what operators want of the server.
    pub(super) wants: Notify,
    /// Wakes who looks who listens to events.
    pub(super) watchers: Notify,
    /// Wakes who looks which queues there are.
    pub(super) queues: Notify,
    /// Whether it is to be asked again which queues have limits.
    pub(super) limits: AtomicBool,
    /// Which queues have something to be looked after, by kind.
    holdings: [Told; Holding::WATCHED.len()],
    /// How to be told about changes; `None` while there is no listening connection, or it cannot track.
    watch: watch::Sender<Option<Watch>>,
}

impl Default for Wakeups {
    fn default() -> Self {
        let (work, schedule, groups, duties, cancels, wants, watchers, queues, holdings) = Default::default();
        let limits = AtomicBool::new(true);
        Self {
            work,
            schedule,
            groups,
            duties,
            cancels,
            wants,
            watchers,
            queues,
            limits,
            holdings,
            watch: watch::channel(None).0,
        }
    }
}

impl Wakeups {
    /// Whatever may have happened has to be looked for: for a while nobody listened.
    pub(super) fn everything(&self) {
        self.limits.store(true, Ordering::Release);
        self.work.tell_everything();
        self.schedule.tell_everything();
        self.holdings.iter().for_each(Told::tell_everything);
        self.groups.notify_one();
        self.duties.notify_one();
        self.cancels.notify_one();
        self.wants.notify_one();
        self.watchers.notify_one();
        self.queues.notify_one();
    }

    /// These queues are served from now on: what they have has to be looked for.
    pub(super) fn joined(&self, queues: &[usize]) {
        self.limits.store(true, Ordering::Release);
        for queue in queues {
            self.work.tell(Some(*queue));
            self.schedule.tell(Some(*queue));
            Holding::WATCHED.iter().for_each(|holding| self.holding(Some(*queue), *holding));
        }
        self.groups.notify_one();
    }

    /// A queue has changed in this.
    pub(super) fn holding(&self, queue: Option<usize>, holding: Holding) {
        if let Some(told) = self.holdings(holding) {
            told.tell(queue);
        }
    }

    /// What was heard of one kind, if Redis tells about it.
    pub(super) fn holdings(&self, holding: Holding) -> Option<&Told> {
        self.holdings.get(Holding::WATCHED.iter().position(|kind| *kind == holding)?)
    }

    pub(super) fn watch(&self) -> Option<Watch> {
        self.watch.borrow().clone()
    }

    /// The same for those who keep it.
    pub(super) fn watches(&self) -> watch::Receiver<Option<Watch>> {
        self.watch.subscribe()
    }

    /// There is another listening connection, or none.
    pub(super) fn watch_by(&self, watch: Option<Watch>) {
        self.watch.send_replace(watch);
    }
}
