//! When nothing of a key starts for a while.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When nothing of a key starts for a while, because what has started has failed.
///
/// When so many percent of at least so many attempts have failed within a time, nothing of the key starts for a rest. Then one task
/// starts; if it succeeds, all may start again, and if it fails, the next rest is twice as long, up to the longest.
///
/// ```
/// use queue_core::limit::Breaker;
///
/// assert_eq!("50%/20/1m".parse(), Ok(Breaker::failures(50)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Breaker {
    /// How many percent of the attempts have to fail.
    pub percent: u32,
    /// Of how many attempts at least.
    pub of: u32,
    /// Within how many milliseconds, counted from the first.
    pub within: u64,
    /// For how many milliseconds nothing starts then.
    pub rest: u64,
    /// For how many at the most, when one after another has failed that was to find out whether it goes well again.
    pub most: u64,
}

impl Breaker {
    /// When so many percent have failed, of 20 at least within a minute; the first rest is 30 s, and the longest ten minutes.
    pub fn failures(percent: u32) -> Self {
        Self { percent, of: 20, within: 60_000, rest: 30_000, most: 600_000 }
    }

    /// Of how many attempts at least.
    #[must_use]
    pub fn of(self, attempts: u32) -> Self {
        Self { of: attempts, ..self }
    }

    /// Within how long.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self { within: whole_millis(time), ..self }
    }

    /// For how long nothing starts then, and for how long at the most.
    #[must_use]
    pub fn rest(self, first: Duration, longest: Duration) -> Self {
        Self { rest: whole_millis(first), most: whole_millis(longest), ..self }
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
        match () {
            () if !(1..=100).contains(&self.percent) => Err("the share of failures is 1 to 100 percent"),
            () if self.of == 0 => Err("it takes one attempt at least"),
            () if !(1..=DAY_MS).contains(&self.within) => Err("its time is a millisecond to a day"),
            () if !(1..=self.most).contains(&self.rest) => Err("its first rest is not longer than its longest"),
            () if self.most > DAY_MS => Err("its longest rest is a day at the most"),
            () => Ok(()),
        }
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Without the rests: `50%/20/1m`.
impl FromStr for Breaker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [percent, of, within] = parts[..] else {
            return Err("it is a share of failures, a number of attempts and a time, such as 50%/20/1m".to_owned());
        };
        let number = |text: &str| text.parse::<u32>().map_err(|error| format!("{text:?} is no number: {error}"));
        let percent = number(percent.strip_suffix('%').ok_or("the share of failures is written in percent: 50%")?)?;
        let within = crate::duration::parse(within).map_err(|error| error.to_string())?;
        Ok(Self::failures(percent).of(number(of)?).within(within))
    }
}
