//! How long to wait before the next attempt.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::duration;
use crate::wire::TaskMessage;

type DelayFn = dyn Fn(&TaskMessage, &str) -> Duration + Send + Sync;

/// The delay between a failure and the next attempt.
///
/// The number of retries so far is `message.retried`, not counting the failure at hand.
///
/// As text, on command lines and in headers:
///
/// ```
/// use std::time::Duration;
/// use queue_core::RetryPolicy;
///
/// let (base, max) = (Duration::from_secs(10), Duration::from_secs(3_600));
/// assert_eq!("asynq".parse(), Ok(RetryPolicy::Asynq));
/// assert_eq!("10s".parse(), Ok(RetryPolicy::Fixed(base))); // or "constant 10s"
/// assert_eq!("10s..1h".parse(), Ok(RetryPolicy::Exponential { base, max })); // or "exponential 10s..1h"
/// assert_eq!("linear 10s..1h".parse(), Ok(RetryPolicy::Linear { base, max }));
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// asynq's formula: `n^4 + 15 + r * (n + 1)` seconds after n retries, r drawn from 0 to 29.
    /// The first delay is 15 to 44 seconds, the 25th about 3.8 days.
    #[default]
    Asynq,
    /// Always the same delay.
    Fixed(Duration),
    /// `base * (n + 1)` after n retries, at most `max`.
    Linear {
        /// The delay after the first failure, and by how much it grows with each.
        base: Duration,
        /// The longest delay of all.
        max: Duration,
    },
    /// `base * 2^n` after n retries, at most `max`; drawn evenly from half of that up to all of it. So the first delay is
    /// between half of `base` and `base`.
    Exponential {
        /// The longest delay after the first failure; the shortest is half of it.
        base: Duration,
        /// The longest delay of all.
        max: Duration,
    },
    /// A function of the message as it was when the attempt started, and of the error's text. If it
    /// panics, asynq's formula is used.
    Custom(Arc<DelayFn>),
}

impl RetryPolicy {
    /// A policy from a closure.
    ///
    /// ```
    /// use std::time::Duration;
    /// use queue_core::RetryPolicy;
    ///
    /// let policy = RetryPolicy::custom(|task, error| {
    ///     if error.contains("rate limit") { Duration::from_secs(60) }
    ///     else { Duration::from_secs(5 * (1 + task.retried as u64)) }
    /// });
    /// ```
    pub fn custom(delay: impl Fn(&TaskMessage, &str) -> Duration + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(delay))
    }

    /// The policy as text, as it is [parsed](FromStr); `None` for a function.
    pub fn text(&self) -> Option<String> {
        let range =
            |base: &Duration, max: &Duration| format!("{}..{}", duration::format(*base), duration::format(*max));
        Some(match self {
            Self::Asynq => "asynq".to_owned(),
            Self::Fixed(delay) => duration::format(*delay),
            Self::Linear { base, max } => format!("linear {}", range(base, max)),
            Self::Exponential { base, max } => range(base, max),
            Self::Custom(_) => return None,
        })
    }

    /// The delay after this failure.
    pub fn delay(&self, message: &TaskMessage, error: &str) -> Duration {
        let retried = u32::try_from(message.retried).unwrap_or(0);
        match self {
            Self::Asynq => asynq_delay(u64::from(retried), fastrand::u64(0..30)),
            Self::Fixed(delay) => *delay,
            Self::Linear { base, max } => base.saturating_mul(retried.saturating_add(1)).min(*max),
            Self::Exponential { base, max } => {
                let ceiling = base.saturating_mul(1_u32.checked_shl(retried.min(31)).unwrap_or(u32::MAX)).min(*max);
                ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)
            }
            // A policy that panics must not take the task with it.
            Self::Custom(delay) => catch_unwind(AssertUnwindSafe(|| delay(message, error)))
                .unwrap_or_else(|_| Self::Asynq.delay(message, error)),
        }
    }
}

/// Functions are equal if they are the same.
impl PartialEq for RetryPolicy {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Custom(one), Self::Custom(other)) => Arc::ptr_eq(one, other),
            (Self::Custom(_), _) | (_, Self::Custom(_)) => false,
            _ => self.text() == other.text(),
        }
    }
}

impl Eq for RetryPolicy {}

/// A text that is no retry policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write asynq, 30s, 10s..1h or linear 10s..1h")]
pub struct ParsePolicyError(String);

impl FromStr for RetryPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let fail = |reason: String| Err(ParsePolicyError(reason));
        let read = |text: &str| duration::parse(text).map_err(|_| ParsePolicyError(format!("{text:?} is no duration")));
        if text == "asynq" {
            return Ok(Self::Asynq);
        }
        let (word, delays) = text.split_once(' ').map_or((None, text), |(word, delays)| (Some(word), delays));
        match (word, delays.split_once("..")) {
            (None | Some("constant"), None) => Ok(Self::Fixed(read(delays)?)),
            (None | Some("exponential" | "linear"), Some((first, last))) => match (read(first)?, read(last)?) {
                (Duration::ZERO, _) => fail("0s stays 0s however often it grows".to_owned()),
                (base, max) if base > max => fail(format!("{first} is longer than {last}")),
                (base, max) if word == Some("linear") => Ok(Self::Linear { base, max }),
                (base, max) => Ok(Self::Exponential { base, max }),
            },
            (Some("exponential" | "linear"), None) => fail(format!("{text:?} has no longest delay")),
            _ => fail(format!("{text:?} is no retry policy")),
        }
    }
}

fn asynq_delay(retried: u64, jitter: u64) -> Duration {
    let polynomial = retried.saturating_pow(4).saturating_add(15);
    Duration::from_secs(polynomial.saturating_add(jitter.saturating_mul(retried + 1)))
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asynq => f.write_str("Asynq"),
            Self::Fixed(delay) => f.debug_tuple("Fixed").field(delay).finish(),
            Self::Linear { base, max } => f.debug_struct("Linear").field("base", base).field("max", max).finish(),
            Self::Exponential { base, max } => {
                f.debug_struct("Exponential").field("base", base).field("max", max).finish()
            }
            Self::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(retried: i32) -> TaskMessage {
        TaskMessage { retried, ..TaskMessage::default() }
    }

    /// The shortest and longest delays that follow from the formula.
    #[test]
    fn asynqs_formula_stays_within_its_table() {
        for (retried, min, max) in [(0, 15, 44), (1, 16, 74), (5, 640, 814), (24, 331_791, 332_516)] {
            assert_eq!(asynq_delay(retried, 0).as_secs(), min);
            assert_eq!(asynq_delay(retried, 29).as_secs(), max);
            let drawn = RetryPolicy::Asynq.delay(&after(i32::try_from(retried).unwrap()), "").as_secs();
            assert!((min..=max).contains(&drawn));
        }
    }

    #[test]
    fn a_count_below_zero_is_none() {
        for retried in [-7, i32::MIN] {
            assert!((15..=44).contains(&RetryPolicy::Asynq.delay(&after(retried), "").as_secs()));
        }
    }

    #[test]
    fn exponential_grows_to_its_cap_and_never_beyond() {
        let policy = RetryPolicy::Exponential { base: Duration::from_secs(1), max: Duration::from_secs(60) };
        for (retried, ceiling) in [(0, 1.0), (1, 2.0), (5, 32.0), (6, 60.0), (1_000, 60.0)] {
            let delay = policy.delay(&after(retried), "").as_secs_f64();
            assert!((ceiling / 2.0..=ceiling).contains(&delay), "{retried}: {delay}");
        }
    }

    #[test]
    fn linear_grows_by_its_base_to_its_cap() {
        let policy = RetryPolicy::Linear { base: Duration::from_secs(10), max: Duration::from_secs(35) };
        for (retried, secs) in [(-1, 10), (0, 10), (1, 20), (2, 30), (3, 35), (i32::MAX, 35)] {
            assert_eq!(policy.delay(&after(retried), ""), Duration::from_secs(secs));
        }
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        let (base, max) = (Duration::from_millis(1_500), Duration::from_secs(86_400));
        for policy in [
            RetryPolicy::Asynq,
            RetryPolicy::Fixed(Duration::ZERO),
            RetryPolicy::Fixed(max),
            RetryPolicy::Linear { base, max },
            RetryPolicy::Exponential { base, max },
        ] {
            assert_eq!(policy.text().unwrap().parse(), Ok(policy));
        }
        assert_eq!(RetryPolicy::custom(|_, _| Duration::ZERO).text(), None);
        for (nonsense, reason) in [
            ("", "is no duration"),
            ("10", "is no duration"),
            ("linear 10s", "no longest delay"),
            ("constant 10s..1h", "no retry policy"),
            ("quadratic 10s..1h", "no retry policy"),
            ("0s..1h", "0s stays 0s"),
            ("linear 1h..10s", "1h is longer than 10s"),
            ("10s..1h..2h", "is no duration"),
        ] {
            let refusal = nonsense.parse::<RetryPolicy>().unwrap_err().to_string();
            assert!(refusal.contains(reason), "{nonsense}: {refusal}");
        }
    }

    #[test]
    fn functions_are_equal_only_to_themselves() {
        let one = RetryPolicy::custom(|_, _| Duration::ZERO);
        assert_eq!(one, one.clone());
        assert_ne!(one, RetryPolicy::custom(|_, _| Duration::ZERO));
        assert_ne!(one, RetryPolicy::Asynq);
    }

    #[test]
    fn a_closure_that_panics_is_replaced_by_asynqs_formula() {
        let policy = RetryPolicy::custom(|_, _| panic!("no idea"));
        assert!((15..=44).contains(&policy.delay(&after(0), "").as_secs()));
    }

    #[test]
    fn a_closure_sees_the_error() {
        let policy = RetryPolicy::custom(|task, error| Duration::from_secs(error.len() as u64 + task.retried as u64));
        assert_eq!(policy.delay(&after(2), "abc"), Duration::from_secs(5));
    }
}
