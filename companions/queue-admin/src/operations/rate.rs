//! How fast an operation goes through its tasks.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use queue_core::duration;
use serde::{Deserialize, Serialize};

/// How many tasks are changed at once where there is time for them: those of so long.
const QUANTUM: Duration = Duration::from_millis(200);
/// The longest time of a rate.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// So many in a time, evenly: `100/1m`, or `100/m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    count: u32,
    per: Duration,
}

impl Rate {
    /// How many.
    pub fn count(self) -> u32 {
        self.count
    }

    /// In which time.
    pub fn per(self) -> Duration {
        self.per
    }

    /// How many may be changed together.
    pub(super) fn together(self) -> usize {
        let count = u128::from(self.count) * QUANTUM.as_millis() / self.per.as_millis().max(1);
        usize::try_from(count).unwrap_or(usize::MAX).max(1)
    }

    /// Milliseconds that so many take.
    pub(super) fn time_of(self, tasks: u64) -> i64 {
        let millis = (u128::from(tasks) * self.per.as_millis()).div_ceil(self.count.into());
        i64::try_from(millis).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut per = duration::format(self.per);
        // Go writes 1h0m0s.
        for (zero, unit) in [("m0s", "m"), ("h0m", "h")] {
            if let Some(begin) = per.strip_suffix(zero) {
                per = format!("{begin}{unit}");
            }
        }
        write!(f, "{}/{per}", self.count)
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

/// A text that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; a rate is a number, a slash and a duration, such as 100/1m")]
pub struct RateError(String);

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let fail = |reason: &dyn fmt::Display| RateError(reason.to_string());
        let (count, per) = text.split_once('/').ok_or_else(|| fail(&"there is no slash"))?;
        let count = count.parse().map_err(|error| fail(&format_args!("{count:?} is no number: {error}")))?;
        // The unit alone means one of it.
        let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
        let per = duration::parse(&per).map_err(|error| fail(&error))?;
        match count {
            0 => Err(fail(&"a rate of zero lets nothing start, ever")),
            _ if !(Duration::from_millis(1)..=LONGEST).contains(&per) => {
                Err(fail(&"the time of a rate is a millisecond to a year"))
            }
            _ => Ok(Self { count, per }),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = RateError;

    fn try_from(text: String) -> Result<Self, RateError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_written_and_nothing_else_is() {
        for (text, shown) in [
            ("100/1m", "100/1m"),
            ("5/s", "5/1s"),
            ("7/1m30s", "7/1m30s"),
            ("8/10m", "8/10m"),
            ("9/1h0m5s", "9/1h0m5s"),
            ("1/1h30m", "1/1h30m"),
            ("3/7d", "3/168h"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
        for text in ["", "5", "/s", "0/s", "-1/s", "5/", "5/0s", "5/1ns", "5/400d", "x/s", "5/m/s", "4294967296/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn so_many_take_at_least_the_time_that_the_rate_gives_them() {
        for (text, together) in
            [("1/1h", 1), ("3/s", 1), ("100/s", 20), ("1000/s", 200), ("4000000000/1ms", 800_000_000_000)]
        {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.together(), together, "{text}");
            for tasks in [1, 7, 1_000_000_007] {
                let exact = tasks as f64 * rate.per.as_secs_f64() * 1_000.0 / f64::from(rate.count);
                let time = rate.time_of(tasks) as f64;
                assert!((exact..exact + 1.0).contains(&time), "{text}: {tasks} take {time} of {exact}");
            }
        }
    }
}
