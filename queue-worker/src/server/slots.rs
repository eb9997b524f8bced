//! The places for running tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::limit::Place;

/// As many slots as tasks may run at once.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    free: Arc<Free>,
}

#[derive(Debug)]
struct Free {
    permits: Semaphore,
    /// Slots that were taken back while others had them; the next ones that become free pay for them.
    owed: AtomicUsize,
    /// How many there are, but for what is owed.
    total: AtomicUsize,
}

impl Free {
    fn add(&self, count: usize) {
        let mut count = count;
        if self.owed.load(Ordering::Acquire) > 0 {
            let pay = |owed: usize| Some(owed.saturating_sub(count));
            let owed = self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, pay).unwrap_or_default();
            count = count.saturating_sub(owed);
        }
        self.permits.add_permits(count);
    }

    /// One less: a free one, or the next that becomes free.
    fn remove(&self) {
        match self.permits.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(_) => drop(self.owed.fetch_add(1, Ordering::AcqRel)),
        }
    }
}

/// One of them; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Slot {
    free: Arc<Free>,
    /// Cleared when the place is given back together with others.
    held: bool,
    /// The place among the tasks of a queue that has a limit.
    place: Option<Place>,
}

impl Slot {
    /// The slot for a task of a queue that has a limit.
    pub(super) fn with(slot: Arc<Self>, place: Option<Place>) -> Arc<Self> {
        let mut slot = slot;
        // Nobody else has it before its task has started.
        if let Some(slot) = Arc::get_mut(&mut slot) {
            slot.place = place.map(Place::used);
        }
        slot
    }
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let (permits, owed, total) = (Semaphore::new(count), AtomicUsize::new(0), AtomicUsize::new(count));
        Self { free: Arc::new(Free { permits, owed, total }) }
    }

    /// How many tasks may run at once. For a while after it was made less, more may still run.
    pub(super) fn total(&self) -> usize {
        self.free.total.load(Ordering::Acquire)
    }

    /// From now on so many tasks run at once. Those that run go on: what there is too many of goes as they end.
    pub(super) fn resize(&self, count: usize) {
        let before = self.free.total.swap(count, Ordering::AcqRel);
        match count.checked_sub(before) {
            Some(more) => self.free.add(more),
            None => (count..before).for_each(|_| self.free.remove()),
        }
    }

    /// Lets go of slots that are held for tasks to come, as many as there are too many of.
    pub(super) fn pay(&self, spare: &mut Vec<Arc<Slot>>) {
        let owed = self.free.owed.load(Ordering::Acquire);
        spare.truncate(spare.len().saturating_sub(owed));
    }

    /// Waits for a free slot, then takes all that are free, up to `max`.
    pub(super) async fn take(&self, max: usize) -> Vec<Arc<Slot>> {
        // The semaphore is never closed.
        let Ok(first) = self.free.permits.acquire().await else { return Vec::new() };
        first.forget();
        let mut slots = vec![self.slot()];
        self.take_more(&mut slots, max);
        if slots.len() < max {
            // Slots that are about to be freed come along, so that one take fills them all.
            tokio::task::yield_now().await;
            self.take_more(&mut slots, max);
        }
        slots
    }

    /// Waits until so many slots are free.
    pub(super) async fn take_all(&self, count: usize) -> Vec<Arc<Slot>> {
        let all = u32::try_from(count).unwrap_or(u32::MAX);
        let Ok(permits) = self.free.permits.acquire_many(all).await else { return Vec::new() };
        permits.forget();
        std::iter::repeat_with(|| self.slot()).take(count).collect()
    }

    /// Takes what else is free, up to `max` in all.
    pub(super) fn take_more(&self, slots: &mut Vec<Arc<Slot>>, max: usize) {
        while slots.len() < max {
            let Ok(permit) = self.free.permits.try_acquire() else { return };
            permit.forget();
            slots.push(self.slot());
        }
    }

    fn slot(&self) -> Arc<Slot> {
        Arc::new(Slot { free: self.free.clone(), held: true, place: None })
    }

    /// Frees slots at once, so that whoever waits for one finds them all. A slot that somebody else
    /// still holds (a blocking handler that outlived its attempt) stays taken.
    pub(super) fn give_back(&self, slots: impl IntoIterator<Item = Arc<Slot>>) {
        let mut count = 0;
        for slot in slots {
            if let Some(mut slot) = Arc::into_inner(slot) {
                slot.held = false;
                count += 1;
            }
        }
        self.free.add(count);
    }

    /// Takes a slot whether one is free or not: of a report that was sent, but has to be sent again.
    pub(super) fn take_back(&self) -> Arc<Slot> {
        self.free.remove();
        self.slot()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // First, so that who waits for a slot finds a place too.
        self.place = None;
        if self.held {
            self.free.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_is_free_only_when_its_last_holder_lets_go() {
        let slots = Slots::new(3);
        let mut taken = slots.take(100).await;
        assert_eq!(taken.len(), 3);
        let thread = taken[0].clone();
        slots.give_back(taken.drain(..2));
        assert_eq!(slots.free.permits.available_permits(), 1, "one is held by a thread, one by us");
        drop(thread);
        assert_eq!(slots.free.permits.available_permits(), 2);
        drop(taken);
        assert_eq!(slots.free.permits.available_permits(), 3);
    }

    #[tokio::test]
    async fn slots_become_more_at_once_and_fewer_as_they_become_free() {
        let slots = Slots::new(4);
        let mut taken = slots.take(3).await;
        slots.resize(2);
        assert_eq!((slots.total(), slots.free.permits.available_permits()), (2, 0), "the free one went at once");
        taken.pop();
        assert_eq!(slots.free.permits.available_permits(), 0, "three ran and two may");
        taken.pop();
        assert_eq!(slots.free.permits.available_permits(), 1);
        slots.resize(1);
        slots.resize(5);
        assert_eq!((slots.total(), slots.free.permits.available_permits()), (5, 4), "one runs");
    }

    #[tokio::test]
    async fn slots_that_wait_for_tasks_go_before_they_get_some() {
        let slots = Slots::new(50);
        let mut spare = slots.take(50).await;
        slots.resize(5);
        slots.pay(&mut spare);
        assert_eq!((spare.len(), slots.free.permits.available_permits()), (5, 0));
        slots.pay(&mut spare);
        assert_eq!(spare.len(), 5, "nothing is owed any more");
    }

    #[tokio::test]
    async fn a_slot_that_was_taken_back_is_paid_for_by_the_next_that_becomes_free() {
        let slots = Slots::new(1);
        let mut taken = slots.take(100).await;
        let taken_back = slots.take_back();
        slots.give_back(taken.drain(..));
        assert_eq!(slots.free.permits.available_permits(), 0, "one task too many was in hand");
        slots.give_back([taken_back]);
        assert_eq!(slots.free.permits.available_permits(), 1);
    }
}
