//! How long somebody is logged in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a session lasts in which nothing is asked for, and any.
const IDLE: Duration = Duration::from_secs(3_600);
const LONGEST: Duration = Duration::from_secs(12 * 3_600);

/// The time from a login to a logout.
#[derive(Debug)]
pub(crate) struct Session {
    began: Instant,
    used: Mutex<Instant>,
    has_ended: AtomicBool,
}

impl Session {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, used: Mutex::new(now), has_ended: AtomicBool::new(false) }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let is_idle = now.duration_since(*locked(&self.used)) >= IDLE;
        is_idle || now.duration_since(self.began) >= LONGEST || self.has_ended.load(Ordering::Acquire)
    }

    /// Whether it still goes on, and if so, it is used now.
    fn is_used(&self, now: Instant) -> bool {
        let goes_on = !self.is_over(now);
        if goes_on {
            *locked(&self.used) = now;
        }
        goes_on
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.is_used(Instant::now())
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_nothing_is_asked_for_and_in_any_case_after_half_a_day() {
        let (begin, minute) = (Instant::now(), Duration::from_secs(60));
        let idle = Session::new(begin);
        assert!(idle.is_used(begin + 59 * minute) && idle.is_used(begin + 118 * minute));
        assert!(!idle.is_used(begin + 178 * minute) && idle.is_over(begin + 179 * minute));
        let busy = Session::new(begin);
        for at in 1..24 {
            assert!(busy.is_used(begin + at * 30 * minute), "{at}");
        }
        assert!(!busy.is_used(begin + 24 * 30 * minute));
    }
}
