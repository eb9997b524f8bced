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
    now: Told,
    steady: Told,
}

/// What it told last, and when. A std mutex: held to copy two numbers.
type Told = Mutex<Option<(i64, Instant)>>;

impl OwnClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, guard: Guard::default(), now: Told::default(), steady: Told::default() }
    }

    fn ask(&self, told: &Told, ask: fn(&dyn Clock) -> i64) -> i64 {
        let answer = self.guard.call("the clock", || ask(&*self.clock));
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        match (answer, *told) {
            (Some(time), _) => {
                *told = Some((time, Instant::now()));
                time
            }
            (None, Some((then, at))) => then.saturating_add(i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX)),
            (None, None) => ask(&SystemClock),
        }
    }
}

impl Clock for OwnClock {
    fn now_ns(&self) -> i64 {
        self.ask(&self.now, |clock| clock.now_ns())
    }

    fn steady_ns(&self) -> i64 {
        self.ask(&self.steady, |clock| clock.steady_ns())
    }
}
