//! Durations as Go writes them: `1h30m0s`, `1.5s`, `100ms`.
//!
//! [`format()`] gives Go's `Duration.String()`. [`parse`] takes what Go's `ParseDuration` takes, and days
//! (`7d`) on top, so that the command line has one syntax everywhere.

use std::time::Duration;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: {reason}; write it like 90s, 10m, 1h30m or 7d")]
pub struct ParseDurationError {
    text: String,
    reason: &'static str,
}

/// Go's text of a signed number of nanoseconds, for example `1h0m0s` or `-1.5ms`.
pub fn format_ns(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let total = ns.unsigned_abs();
    if total == 0 {
        return "0s".to_owned();
    }
    if total < 1_000_000_000 {
        let (unit, size) = match total {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", decimal(total, size));
    }
    let (minutes, rest) = (total / 60_000_000_000, total % 60_000_000_000);
    let seconds = decimal(rest, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Go's text of a duration. Durations beyond Go's 292 years are written as the longest it has.
pub fn format(duration: Duration) -> String {
    format_ns(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// `value / unit` without trailing zeros.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Reads a duration: numbers with units `ns`, `us` (or `µs`), `ms`, `s`, `m`, `h`, `d`, one after another.
///
/// # Errors
/// When the text is empty, has no unit, an unknown unit, a minus sign, or does not fit 292 years.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(queue_core::duration::parse("1h30m").unwrap(), Duration::from_secs(5_400));
/// assert!(queue_core::duration::parse("90").is_err());
/// ```
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    match parse_ns(text) {
        Ok(ns) => u64::try_from(ns).map(Duration::from_nanos).map_err(|_| fail(text, "it is negative")),
        Err(reason) => Err(fail(text, reason)),
    }
}

fn fail(text: &str, reason: &'static str) -> ParseDurationError {
    ParseDurationError { text: text.chars().take(80).collect(), reason }
}

/// Like [`parse`], with a sign, in nanoseconds; the error is the reason alone.
///
/// # Errors
/// See [`parse`].
pub fn parse_ns(text: &str) -> Result<i64, &'static str> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err("it is empty");
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_len = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, after) = rest.split_at(number_len);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_len);
        let size: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "" => return Err("a number has no unit"),
            _ => return Err("a unit is unknown"),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err("a number is malformed");
        }
        // More digits than this cannot change the result by a nanosecond, or do not fit anyway.
        if whole.trim_start_matches('0').len() > 19 {
            return Err("it is too long");
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().map_err(|_| "a number is malformed")? };
        total += whole * size;
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let digits = fraction.parse::<u128>().map_err(|_| "a number is malformed")?;
            total += digits * size / 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(18));
        }
        if total > u128::from(i64::MIN.unsigned_abs()) {
            return Err("it is too long");
        }
        rest = next;
    }
    let signed = i128::try_from(total).map_err(|_| "it is too long")? * if negative { -1 } else { 1 };
    i64::try_from(signed).map_err(|_| "it is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (ns, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (5_400_000_000_000, "1h30m0s"),
            (-1_500_000, "-1.5ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format_ns(ns), text);
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_duration_are_refused() {
        for text in ["", "90", "-", "1.2.3s", "5x", ".s", "300000000h", "1h-5m", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("7d").unwrap(), Duration::from_secs(604_800));
        assert!(parse("-5s").unwrap_err().to_string().contains("negative"));
    }

    proptest::proptest! {
        #[test]
        fn every_duration_round_trips(ns in proptest::prelude::any::<i64>()) {
            proptest::prop_assert_eq!(parse_ns(&format_ns(ns)), Ok(ns));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}") {
            let _ = parse_ns(&text);
        }
    }
}
