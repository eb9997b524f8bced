//! How many tasks of one queue may be in hand at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The places for the tasks of a queue, fewer than the server has slots.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    taken: AtomicUsize,
    /// Whether somebody was turned away, and wants to know of the next place that becomes free.
    wanted: AtomicBool,
    room: Arc<Notify>,
}

/// One of them; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    limit: Arc<Limit>,
    /// Whether a task had it. A place that was kept for a task that was not there is no news.
    used: bool,
}

impl Limit {
    /// `room` is told when a place becomes free that somebody wanted.
    pub(super) fn new(most: usize, room: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0), wanted: AtomicBool::new(false), room })
    }

    /// Up to so many places; if they are fewer, the next one that becomes free is told.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Vec<Place> {
        let mut places = self.take_free(count);
        if places.len() < count {
            self.wanted.store(true, Ordering::SeqCst);
            // Those that became free before that was noted told nobody.
            places.extend(self.take_free(count - places.len()));
        }
        places
    }

    fn take_free(self: &Arc<Self>, count: usize) -> Vec<Place> {
        let grow = |taken: usize| Some(taken + count.min(self.most.saturating_sub(taken)));
        let before = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grow).unwrap_or(self.most);
        let taken = count.min(self.most.saturating_sub(before));
        std::iter::repeat_with(|| Place { limit: self.clone(), used: false }).take(taken).collect()
    }

    /// Whether there is a place; if there is none, the next one that becomes free is told.
    pub(super) fn has_room(self: &Arc<Self>) -> bool {
        !self.take(1).is_empty()
    }
}

impl Place {
    /// A task has it from now on.
    pub(super) fn used(mut self) -> Self {
        self.used = true;
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.taken.fetch_sub(1, Ordering::SeqCst);
        if self.used && self.limit.wanted.swap(false, Ordering::SeqCst) {
            self.limit.room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_told(room: &Notify) -> bool {
        tokio::time::timeout(Duration::ZERO, room.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn a_place_that_becomes_free_is_told_to_who_was_turned_away() {
        let room = Arc::new(Notify::new());
        let limit = Limit::new(2, room.clone());
        let mut places: Vec<_> = limit.take(2).into_iter().map(Place::used).collect();
        assert_eq!(places.len(), 2);
        places.pop();
        assert!(!is_told(&room).await, "nobody wanted it");
        assert!(limit.has_room());
        assert_eq!(limit.take(5).len(), 1, "and it was given back at once");
        places.push(limit.take(1).remove(0).used());
        assert!(!limit.has_room());
        places.pop();
        assert!(is_told(&room).await);
        places.pop();
        assert!(!is_told(&room).await, "it was told already");
    }

    #[tokio::test]
    async fn a_place_that_no_task_had_is_given_back_in_silence() {
        let room = Arc::new(Notify::new());
        let limit = Limit::new(1, room.clone());
        let place = limit.take(1);
        assert!(!limit.has_room());
        drop(place);
        assert!(!is_told(&room).await, "a queue that is empty would be asked again and again");
        assert!(limit.has_room());
    }
}
