//! How long a call goes on while Redis is away.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::options::RedisOptions;

/// How often a call is sent again when its answer was lost, and how long to wait first.
const RESENDS: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// The longest pause between attempts of a call that waits for Redis.
const LONGEST: Duration = Duration::from_secs(5);

/// The attempts of one call.
#[derive(Debug)]
pub(super) struct Attempts {
    failed: u32,
    /// Later than this, no attempt begins for a caller without patience, but to find out about a lost answer.
    brief_until: Instant,
    /// Later than this, none begins at all.
    until: Instant,
}

impl Attempts {
    /// Those of a call whose caller waits until then for a Redis that is away.
    pub(super) fn begin(now: Instant, until: Instant, options: &RedisOptions) -> Self {
        Self { failed: 0, brief_until: now + options.connect_timeout.max(options.response_timeout), until }
    }

    /// The pause before the next attempt; none when the error is to be told. A lost answer is worth another
    /// attempt, however long it was waited for: that tells whether the task was stored. `jitter` is from 0 to 1.
    pub(super) fn next(&mut self, error: &Error, now: Instant, jitter: f64) -> Option<Duration> {
        let left = self.until.saturating_duration_since(now);
        // A password that is refused is worth waiting for only to those who wait.
        if !error.is_transient() && (left.is_zero() || !error.is_outage()) {
            return None;
        }
        let brief = RESENDS.get(self.failed as usize).copied();
        self.failed = self.failed.saturating_add(1);
        if let Some(pause) = brief
            && (now < self.brief_until || error.is_ambiguous() || !left.is_zero())
        {
            return Some(pause);
        }
        if left.is_zero() {
            return None;
        }
        let doubled = 2_u32.saturating_pow(self.failed.saturating_sub(u32::try_from(RESENDS.len()).unwrap_or(0)));
        let ceiling = Duration::from_millis(500).saturating_mul(doubled).min(LONGEST);
        // The last attempt is made when the time is over.
        Some(ceiling.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0).min(left))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn unreachable() -> Error {
        Error::Unreachable { target: "r".to_owned(), source: Arc::new(std::io::Error::other("away")) }
    }

    fn lost() -> Error {
        Error::Timeout { target: "r".to_owned(), timeout: SECOND }
    }

    fn refused(code: &str) -> Error {
        Error::Refused { operation: "enqueue", code: code.to_owned(), message: String::new(), hint: "" }
    }

    /// The pauses of a call whose attempts fail after so long each.
    fn pauses(error: &Error, patience: Duration, each: Duration) -> Vec<u64> {
        let mut now = Instant::now();
        let mut attempts = Attempts::begin(now, now + patience, &RedisOptions::default());
        let mut pauses = Vec::new();
        loop {
            now += each;
            let Some(pause) = attempts.next(error, now, 1.0) else { return pauses };
            pauses.push(u64::try_from(pause.as_millis()).unwrap());
            now += pause;
            assert!(pauses.len() < 100, "{pauses:?}");
        }
    }

    #[test]
    fn without_patience_a_call_fails_after_three_quick_attempts_or_one_that_took_long() {
        assert_eq!(pauses(&unreachable(), Duration::ZERO, Duration::ZERO), [20, 100, 500]);
        assert!(pauses(&unreachable(), Duration::ZERO, 5 * SECOND).is_empty());
        assert_eq!(pauses(&lost(), Duration::ZERO, 5 * SECOND), [20, 100, 500], "to know what became of it");
        assert!(pauses(&refused("WRONGTYPE"), Duration::ZERO, Duration::ZERO).is_empty());
        assert!(pauses(&refused("WRONGPASS"), Duration::ZERO, Duration::ZERO).is_empty());
    }

    #[test]
    fn with_patience_the_pauses_grow_up_to_a_limit_and_end_with_the_time() {
        let waits = pauses(&unreachable(), 20 * SECOND, Duration::ZERO);
        assert_eq!(waits, [20, 100, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 2_380]);
        assert_eq!(waits.iter().sum::<u64>(), 20_000);
        assert!(pauses(&refused("WRONGTYPE"), 20 * SECOND, Duration::ZERO).is_empty(), "waiting does not help");
        assert_eq!(pauses(&refused("WRONGPASS"), 20 * SECOND, Duration::ZERO), waits, "somebody is changing passwords");
        assert_eq!(pauses(&unreachable(), 12 * SECOND, 5 * SECOND), [20, 100], "attempts count too");
    }

    #[test]
    fn pauses_have_jitter() {
        let now = Instant::now();
        let pause = |jitter| {
            let mut attempts = Attempts::begin(now, now + 60 * SECOND, &RedisOptions::default());
            attempts.failed = 10;
            attempts.next(&unreachable(), now, jitter).unwrap()
        };
        assert_eq!((pause(0.0), pause(1.0)), (Duration::from_millis(2_500), 5 * SECOND));
    }
}
