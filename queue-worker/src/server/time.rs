//! What time it is: by the clock of this machine, unless that differs from Redis' clock.
//!
//! Leases and due times are compared by whichever server looks at them. One whose clock is a minute fast would
//! take the tasks of all others for abandoned; those of one that is slow would look abandoned to all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use queue_core::Clock;

use crate::log::{info, warn};

/// Clocks that differ by no more than this are taken for equal: Go's servers do not correct theirs, and all
/// scores are whole seconds anyway.
const TOLERANCE_NS: i64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    corrects: bool,
    offset_ns: AtomicI64,
}

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>, corrects: bool) -> Self {
        Self { clock, corrects, offset_ns: AtomicI64::new(0) }
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.clock.now_ns().saturating_add(self.offset_ns.load(Ordering::Relaxed))
    }

    /// Whether anybody has to ask Redis for its time.
    pub(super) fn corrects(&self) -> bool {
        self.corrects
    }

    /// The time as this machine has it, for [`compare`](Self::compare).
    pub(super) fn own_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Redis was asked at `sent_ns` what time it is, and the answer `redis_ns` was there at `received_ns`.
    pub(super) fn compare(&self, sent_ns: i64, redis_ns: i64, received_ns: i64) {
        let before = self.offset_ns.load(Ordering::Relaxed);
        let Some(offset) = offset(sent_ns, redis_ns, received_ns) else { return };
        if offset != 0 && (offset - before).abs() > TOLERANCE_NS {
            let seconds = -(offset as f64) / 1e9;
            warn!(seconds, "this machine's clock is not Redis'; the server goes by Redis', set this one right");
        } else if offset == 0 && before != 0 {
            info!("this machine's clock and Redis' agree again");
        }
        self.offset_ns.store(offset, Ordering::Relaxed);
    }
}

/// What has to be added to this machine's time; `None` when the answer took so long that it says nothing.
fn offset(sent_ns: i64, redis_ns: i64, received_ns: i64) -> Option<i64> {
    let took = received_ns.checked_sub(sent_ns).filter(|took| (0..=TOLERANCE_NS).contains(took))?;
    let difference = redis_ns.saturating_sub(sent_ns.saturating_add(took / 2));
    Some(if difference.abs() <= TOLERANCE_NS + took / 2 { 0 } else { difference })
}

#[cfg(test)]
mod tests {
    use queue_core::clock::ManualClock;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_clock_that_is_a_minute_off_is_corrected_and_one_that_is_a_little_off_is_not() {
        for (redis, corrected) in [(160, 60), (40, -60), (101, 0), (99, 0), (102, 2)] {
            assert_eq!(offset(100 * SECOND, redis * SECOND, 100 * SECOND), Some(corrected * SECOND));
        }
    }

    #[test]
    fn an_answer_that_took_long_says_nothing_and_one_that_took_a_while_says_less() {
        assert_eq!(offset(100 * SECOND, 160 * SECOND, 102 * SECOND), None);
        assert_eq!(offset(100 * SECOND, 160 * SECOND, 99 * SECOND), None);
        assert_eq!(offset(0, 17 * SECOND / 10, SECOND), Some(0));
        assert_eq!(offset(0, 21 * SECOND / 10, SECOND), Some(16 * SECOND / 10));
    }

    #[test]
    fn the_correction_goes_when_the_clock_is_set_right() {
        let time = Time::new(Arc::new(ManualClock::at_secs(100)), true);
        time.compare(100 * SECOND, 160 * SECOND, 100 * SECOND);
        assert_eq!(time.now_ns(), 160 * SECOND);
        time.compare(100 * SECOND, 100 * SECOND, 100 * SECOND);
        assert_eq!(time.now_ns(), 100 * SECOND);
    }
}
