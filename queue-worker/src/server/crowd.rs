//! Whether other idle servers are quicker.
//!
//! Redis tells every idle server about a new task, and one of them gets it. With a hundred servers that would be a
//! hundred takes for each task. So a server that finds nothing when it is told of work leaves the next one to others for
//! a while, with a probability and for a time that double each time, and comes back at once as soon as it finds
//! something: then the others are busy, or gone. Nobody has to know how many servers there are.

use std::time::Duration;

/// What the first pauses last at the most, and any pause: the longest a task can wait for a server that has been idle
/// among many while all the others have become busy.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(250);

/// What a server has learned about the others.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// How often, one after another, others were quicker.
    misses: u32,
    /// Whether it was told of work, and has not seen yet if there is any left.
    told: bool,
}

impl Crowd {
    /// Redis tells of work. Returns how long to leave it to others; `None` to go for it at once.
    pub(super) fn told(&mut self) -> Option<Duration> {
        self.told = true;
        let doubled = 1 << self.misses.min(16);
        if fastrand::u32(0..doubled) == 0 {
            return None;
        }
        Some(FIRST.saturating_mul(doubled).min(LONGEST).mul_f64(fastrand::f64()))
    }

    /// There was some for us.
    pub(super) fn found(&mut self) {
        *self = Self::default();
    }

    /// There is none, or none left.
    pub(super) fn found_nothing(&mut self) {
        if std::mem::take(&mut self.told) {
            self.misses = self.misses.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_alone_goes_at_once() {
        let mut crowd = Crowd::default();
        for _ in 0..100 {
            assert_eq!(crowd.told(), None);
            crowd.found();
        }
    }

    #[test]
    fn a_server_that_is_never_quick_enough_leaves_nearly_all_to_others_and_not_for_long() {
        let mut crowd = Crowd::default();
        for _ in 0..10 {
            crowd.told();
            crowd.found_nothing();
        }
        let pauses: Vec<Option<Duration>> = (0..10_000).map(|_| crowd.told()).collect();
        let at_once = pauses.iter().filter(|pause| pause.is_none()).count();
        assert!((1..100).contains(&at_once), "{at_once}, about 10 are to be expected");
        assert!(pauses.iter().flatten().all(|pause| *pause <= LONGEST));
        crowd.found();
        assert_eq!(crowd.told(), None, "the others are busy, or gone");
    }

    #[test]
    fn a_look_that_nobody_asked_for_says_nothing_about_others() {
        let mut crowd = Crowd::default();
        for _ in 0..100 {
            crowd.found_nothing();
        }
        assert_eq!(crowd.told(), None);
    }
}
