//! A clock that the user has given.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use queue_core::{Clock, SystemClock};

use crate::panic::Guard;

/// The user's clock, which may panic: then time goes on from what it told last.
#[derive(Debug)]
pub(super) struct OwnClock {
    clock: Arc<dyn Clock>,
    guard: Guard,
    // A std mutex: held to copy two numbers.
    told: Mutex<Option<(i64, Instant)>>,
}

impl OwnClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, guard: Guard::default(), told: Mutex::default() }
    }
}

impl Clock for OwnClock {
    fn now_ns(&self) -> i64 {
        let now = self.guard.call("the clock", || self.clock.now_ns());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match (now, *told) {
            (Some(now), _) => {
                *told = Some((now, Instant::now()));
                now
            }
            (None, Some((then, at))) => then.saturating_add(i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX)),
            (None, None) => SystemClock.now_ns(),
        }
    }
}
