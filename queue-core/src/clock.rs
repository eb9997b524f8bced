//! Where "now" comes from.
//!
//! Scores in Redis are whole Unix seconds and `pending_since` is Unix nanoseconds, both of the caller's
//! clock. Everything that decides by time takes a [`Clock`], so that tests can move it.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, TimeZone, Utc};
use serde::{Deserialize, Serialize};

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// A Unix second; scores in Redis are such. Written as people read it: `2026-11-22T17:35:13Z`.
///
/// ```
/// use queue_core::clock::UnixSecond;
///
/// let second = UnixSecond(1_795_368_913);
/// assert_eq!(second.to_string(), "2026-11-22T17:35:13Z");
/// assert_eq!(second.date().map(UnixSecond::from), Some(second));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSecond(pub i64);

impl UnixSecond {
    /// As a date; `None` for one that lies more than 262,000 years away.
    pub fn date(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(self.0, 0)
    }
}

/// Rounded down.
impl From<DateTime<Utc>> for UnixSecond {
    fn from(date: DateTime<Utc>) -> Self {
        Self(date.timestamp())
    }
}

impl fmt::Display for UnixSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.date() {
            Some(date) => f.write_str(&date.to_rfc3339_opts(SecondsFormat::Secs, true)),
            None => write!(f, "Unix second {}", self.0),
        }
    }
}

impl fmt::Debug for UnixSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A Unix millisecond, as the records beside a task have it. Written as people read it: `2026-11-22T17:35:13.250Z`.
///
/// ```
/// use queue_core::clock::{UnixMilli, UnixSecond};
///
/// let milli = UnixMilli(1_795_368_913_250);
/// assert_eq!(milli.to_string(), "2026-11-22T17:35:13.250Z");
/// assert_eq!(milli.second(), UnixSecond(1_795_368_913));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMilli(pub i64);

impl UnixMilli {
    /// The millisecond in which this Unix nanosecond lies.
    pub fn of_ns(ns: i64) -> Self {
        Self(ns.div_euclid(1_000_000))
    }

    /// The second in which it lies.
    pub fn second(self) -> UnixSecond {
        UnixSecond(self.0.div_euclid(1_000))
    }

    /// As a date; `None` for one that lies more than 262,000 years away.
    pub fn date(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.0)
    }
}

impl From<UnixSecond> for UnixMilli {
    fn from(second: UnixSecond) -> Self {
        Self(second.0.saturating_mul(1_000))
    }
}

impl fmt::Display for UnixMilli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.date() {
            Some(date) => f.write_str(&date.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "Unix millisecond {}", self.0),
        }
    }
}

impl fmt::Debug for UnixMilli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A source of wall-clock time.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// The current time in Unix nanoseconds. An `i64` holds them until the year 2262.
    fn now_ns(&self) -> i64;

    /// Nanoseconds since some moment, by a clock that nobody sets; only differences count. What carries a time on
    /// that was compared with another clock's goes by this. It may stand still while the machine is suspended.
    fn steady_ns(&self) -> i64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        i64::try_from(BEGAN.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// The current time in whole Unix seconds, rounded down as asynq does.
    fn now_secs(&self) -> i64 {
        self.now_ns().div_euclid(NANOS_PER_SEC)
    }

    /// The current time in whole Unix milliseconds, rounded down.
    fn now_ms(&self) -> i64 {
        self.now_ns().div_euclid(1_000_000)
    }

    /// The current time as a date.
    fn now(&self) -> DateTime<Utc> {
        Utc.timestamp_nanos(self.now_ns())
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now_ns(&self) -> i64 {
        (**self).now_ns()
    }

    fn steady_ns(&self) -> i64 {
        (**self).steady_ns()
    }
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine for the time")]
    fn now_ns(&self) -> i64 {
        unix_ns(SystemTime::now())
    }
}

/// A clock that stands still until it is told to move, for tests.
///
/// ```
/// use std::time::Duration;
/// use queue_core::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::at_secs(1_700_000_000);
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now_secs(), 1_700_000_030);
/// ```
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at this Unix second.
    pub fn at_secs(secs: i64) -> Self {
        Self(AtomicI64::new(secs.saturating_mul(NANOS_PER_SEC)))
    }

    /// Sets the clock, back or forth.
    pub fn set_secs(&self, secs: i64) {
        self.0.store(secs.saturating_mul(NANOS_PER_SEC), Ordering::SeqCst);
    }

    /// A clock that stands at this Unix nanosecond.
    pub fn at_ns(nanos: i64) -> Self {
        Self(AtomicI64::new(nanos))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Unix nanoseconds of a time; saturates outside the years 1677 to 2262.
pub fn unix_ns(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

/// Whole Unix seconds of a time, rounded **up**: a task must not start before the instant it was asked for.
///
/// asynq rounds down, which starts tasks up to a second early.
pub fn unix_secs_ceil(time: SystemTime) -> i64 {
    let secs = |distance: Duration| i64::try_from(distance.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => secs_ceil(after),
        // Rounded towards 1970, which is up.
        Err(before) => -secs(before.duration()),
    }
}

/// Whole seconds of a duration, rounded up, so that a sub-second value never turns into "none".
pub fn secs_ceil(duration: Duration) -> i64 {
    let secs = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    secs.saturating_add(i64::from(duration.subsec_nanos() > 0))
}

/// A date from Unix seconds as they stand in a message, where 0 means "none".
pub fn date_from_secs(secs: i64) -> Option<DateTime<Utc>> {
    if secs == 0 { None } else { DateTime::from_timestamp(secs, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_up_for_schedules_and_down_for_now() {
        let half_past = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(unix_secs_ceil(half_past), 2);
        assert_eq!(unix_secs_ceil(UNIX_EPOCH + Duration::from_secs(2)), 2);
        assert_eq!(secs_ceil(Duration::from_millis(1)), 1);
        assert_eq!(secs_ceil(Duration::ZERO), 0);
        let clock = ManualClock(AtomicI64::new(1_999_999_999));
        assert_eq!(clock.now_secs(), 1);
    }

    #[test]
    fn times_before_1970_are_negative() {
        assert_eq!(unix_secs_ceil(UNIX_EPOCH - Duration::from_millis(1_500)), -1);
        assert_eq!(unix_secs_ceil(UNIX_EPOCH - Duration::from_millis(500)), 0);
    }

    /// As nanoseconds they would not fit, and become a time in 2262.
    #[test]
    fn seconds_beyond_the_year_2262_are_what_they_are() {
        assert_eq!(unix_secs_ceil(UNIX_EPOCH + Duration::from_secs(9_400_000_000_000)), 9_400_000_000_000);
        assert_eq!(unix_secs_ceil(UNIX_EPOCH - Duration::from_secs(9_400_000_000_000)), -9_400_000_000_000);
    }
}
