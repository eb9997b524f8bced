//! The header `Retry-After`.

use std::time::{Duration, SystemTime};

/// A snoozed task spends no retry, so that nothing else would slow it down.
const SHORTEST: Duration = Duration::from_secs(1);
/// Beyond this, an answer is more likely a mistake than a wish.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The delay that a service asks for, in seconds or as a date; `None` when it is neither.
pub(super) fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let delay = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that do not fit are a very long time.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(delay.clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_all_three_kinds_of_dates_are_understood() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 60);
        let minute = Some(Duration::from_secs(60));
        for value in [
            "60",
            " 60 ",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(value, now), minute, "{value}");
        }
        for over in ["Sun, 06 Nov 1994 08:00:00 GMT", "0"] {
            assert_eq!(parse(over, now), Some(SHORTEST), "{over}");
        }
        assert_eq!(parse("99999999999999999999999", now), Some(LONGEST));
        for value in ["", "soon", "-1", "1.5"] {
            assert_eq!(parse(value, now), None, "{value}");
        }
    }
}
