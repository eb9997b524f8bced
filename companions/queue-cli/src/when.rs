//! Instants and durations, read and shown.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

/// Reads a duration, for clap.
pub(crate) fn duration(text: &str) -> Result<Duration, queue_core::duration::ParseDurationError> {
    queue_core::duration::parse(text)
}

/// Reads an instant, for clap.
pub(crate) fn instant(text: &str) -> Result<SystemTime, String> {
    queue_admin::line::parse_instant(text)
}

/// A date with its distance from now: `2030-01-31 18:00:00Z (in 5m)`.
pub(crate) fn date(date: DateTime<Utc>, now: DateTime<Utc>) -> String {
    format!("{} ({})", date.format("%Y-%m-%d %H:%M:%SZ"), distance(date, now))
}

/// How far a date is from now: `in 5m`, `12s ago`, or `now`.
pub(crate) fn distance(date: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let secs = (date - now).num_seconds();
    match secs {
        0 => "now".to_owned(),
        1.. => format!("in {}", rough(Duration::from_secs(secs.unsigned_abs()))),
        _ => format!("{} ago", rough(Duration::from_secs(secs.unsigned_abs()))),
    }
}

/// How far a date is from now, or `-` where there is none.
pub(crate) fn ago(date: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    date.map_or_else(|| "-".to_owned(), |date| distance(date, now))
}

/// How far away is what comes again and again, or `-`. What was told of it a moment ago may be past by now.
pub(crate) fn next(date: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    date.map_or_else(|| "-".to_owned(), |date| distance(date.max(now), now))
}

/// A duration in its two largest units: `350ms`, `12s`, `5m30s`, `3d4h`.
pub(crate) fn rough(duration: Duration) -> String {
    let secs = duration.as_secs();
    let pair = |large: u64, large_unit, small: u64, small_unit| {
        if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
    };
    match secs {
        0 if duration.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", duration.as_millis().max(1)),
        1..60 => format!("{secs}s"),
        60..3_600 => pair(secs / 60, "m", secs % 60, "s"),
        3_600..86_400 => pair(secs / 3_600, "h", secs % 3_600 / 60, "m"),
        _ => pair(secs / 86_400, "d", secs % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_have_a_time_zone_or_are_unix_seconds() {
        let at = |text| instant(text).map(|at| DateTime::<Utc>::from(at).timestamp());
        assert_eq!(at("1700000000"), Ok(1_700_000_000));
        assert_eq!(at("2023-11-14T22:13:20Z"), Ok(1_700_000_000));
        assert_eq!(at("2023-11-14T23:13:20+01:00"), Ok(1_700_000_000));
        for text in ["", "tomorrow", "2023-11-14", "2023-11-14T22:13:20", "99999999999999999999"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_show_two_units_at_the_most() {
        for (secs, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (330, "5m30s"), (3_660, "1h1m"), (273_600, "3d4h")] {
            assert_eq!(rough(Duration::from_secs(secs)), text);
        }
        assert_eq!(rough(Duration::from_millis(350)), "350ms");
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(distance(now - Duration::from_secs(61), now), "1m1s ago");
        assert_eq!(next(Some(now - Duration::from_secs(61)), now), "now");
        assert_eq!((&*next(Some(now + Duration::from_secs(61)), now), &*next(None, now)), ("in 1m1s", "-"));
        assert_eq!(date(now + Duration::from_secs(5), now), "1970-01-12 13:46:45Z (in 5s)");
    }
}
