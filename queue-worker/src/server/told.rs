//! Which queues have changed, as Redis tells it, until somebody asks.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

/// What was told and not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Any queue may have changed: for a while nobody listened.
    pub(super) everywhere: bool,
    /// The numbers of queues that have.
    pub(super) queues: BTreeSet<usize>,
}

/// Collects changes for one who waits for them. None is lost while he is busy.
#[derive(Debug, Default)]
pub(super) struct Told {
    waker: Notify,
    // A std mutex: held to change or take what it holds.
    changes: Mutex<Changes>,
}

impl Told {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue has changed; `None` for a queue that is none of ours, which says that what was told is not understood.
    pub(super) fn tell(&self, queue: Option<usize>) {
        match queue {
            Some(queue) => drop(self.changes().queues.insert(queue)),
            None => self.changes().everywhere = true,
        }
        self.waker.notify_one();
    }

    pub(super) fn tell_everything(&self) {
        self.tell(None);
    }

    /// Waits until something was told since it was taken last.
    pub(super) async fn notified(&self) {
        self.waker.notified().await;
    }

    /// What was told.
    pub(super) fn take(&self) -> Changes {
        // First, so that what is told from now on wakes.
        let _ = self.waker.notified().now_or_never();
        std::mem::take(&mut self.changes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_while_nobody_waits_are_kept_once() {
        let told = Told::default();
        told.tell(Some(3));
        told.tell(Some(5));
        told.tell(Some(3));
        told.notified().await;
        assert_eq!(told.take().queues.into_iter().collect::<Vec<_>>(), [3, 5]);
        told.tell(Some(1));
        assert!(!told.take().everywhere);
        assert!(told.notified().now_or_never().is_none(), "it was taken");
        told.tell_everything();
        assert!(told.take().everywhere);
    }
}
