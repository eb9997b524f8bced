//! The places for running tasks.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// As many slots as tasks may run at once.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
}

/// One of them; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Slot {
    free: Arc<Semaphore>,
    /// Cleared when the place is given back together with others.
    held: bool,
}

impl Slots {
    /// More than anybody needs, and less than the semaphore's limit.
    pub(super) const MAX: usize = 100_000;

    pub(super) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)) }
    }

    /// Waits for a free slot, then takes all that are free, up to `max`.
    pub(super) async fn take(&self, max: usize) -> Vec<Arc<Slot>> {
        // The semaphore is never closed.
        let Ok(first) = self.free.acquire().await else { return Vec::new() };
        first.forget();
        let mut slots = vec![self.slot()];
        // Slots that are about to be freed come along, so that one take fills them all.
        tokio::task::yield_now().await;
        self.take_more(&mut slots, max);
        slots
    }

    /// Takes what else is free, up to `max` in all.
    pub(super) fn take_more(&self, slots: &mut Vec<Arc<Slot>>, max: usize) {
        while slots.len() < max {
            let Ok(permit) = self.free.try_acquire() else { return };
            permit.forget();
            slots.push(self.slot());
        }
    }

    fn slot(&self) -> Arc<Slot> {
        Arc::new(Slot { free: self.free.clone(), held: true })
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
        self.free.add_permits(count);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.held {
            self.free.add_permits(1);
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
        assert_eq!(slots.free.available_permits(), 1, "one is held by a thread, one by us");
        drop(thread);
        assert_eq!(slots.free.available_permits(), 2);
        drop(taken);
        assert_eq!(slots.free.available_permits(), 3);
    }
}
