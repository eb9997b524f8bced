//! Whether attempts are short.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What is shorter than this is not worth another thread: one thread starts and ends as many such attempts as Redis hands
/// out tasks.
///
/// Tests are not optimized, and an attempt takes ten times as long.
const SHORT: Duration = Duration::from_micros(if cfg!(debug_assertions) { 400 } else { 20 });

/// What is longer than this has not merely been interrupted: it blocks its thread.
const LONG: Duration = Duration::from_millis(1);

/// Attempts count as short from half of this score on. A short one adds a point; one that is not takes sixteen, so
/// that one of a hundred which the machine has interrupted changes nothing; one that waits or blocks takes all.
const SURE: u32 = 128;

/// Whether attempts are short.
#[derive(Debug, Default)]
pub(super) struct Pace {
    // Attempts that end at the same time may lose a point.
    score: AtomicU32,
}

impl Pace {
    pub(super) fn is_short(&self) -> bool {
        self.score.load(Ordering::Relaxed) >= SURE / 2
    }

    /// Learns from the first poll of an attempt.
    pub(super) fn learn(&self, has_ended: bool, took: Duration) {
        let score = self.score.load(Ordering::Relaxed);
        let next = if !has_ended || took >= LONG {
            0
        } else if took >= SHORT {
            score.saturating_sub(16)
        } else {
            (score + 1).min(SURE)
        };
        if next != score {
            self.score.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_short_when_nearly_all_of_them_end_soon() {
        let (pace, short) = (Pace::default(), Duration::from_micros(5));
        let learn = |times: u32, has_ended, took| (0..times).for_each(|_| pace.learn(has_ended, took));
        assert!(!pace.is_short(), "nothing is known yet");
        learn(64, true, short);
        assert!(pace.is_short());
        for _ in 0..100 {
            learn(99, true, short);
            learn(1, true, SHORT);
            assert!(pace.is_short(), "the machine interrupted one of a hundred");
        }
        for (has_ended, took, times) in [(true, SHORT, 8), (true, LONG, 1), (false, short, 1)] {
            learn(200, true, short);
            learn(times, has_ended, took);
            assert!(!pace.is_short(), "{times} of {took:?}, ended: {has_ended}");
        }
    }
}
