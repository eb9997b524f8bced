//! Limits of a queue: how many tasks of one key may run at once, how many may start in a time, and whether they run in order.
//!
//! A limit is decided when a task is taken, so that no worker is held up by a task that has to wait. Its key divides the
//! tasks of the queue into *lanes*: one for each type, each value of a header, or each value of a field of a JSON
//! payload. A task whose lane has no room waits, for asynq's tools as a scheduled task, and others pass it.
//!
//! ```
//! use std::time::Duration;
//! use queue_core::limit::{Limit, LimitKey};
//!
//! let limit = Limit::new("tenant", LimitKey::header("tenant"))
//!     .concurrency(2)
//!     .rate(100, Duration::from_secs(60))
//!     .burst(10);
//! assert!(limit.check().is_ok());
//! ```

mod breaker;
mod key;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::breaker::Breaker;
pub use self::key::LimitKey;
use crate::clock::secs_ceil;
use crate::limits::{LANE_FALLBACK_SECS, MAX_LANE_KEY_BYTES, MAX_LIMITS, MAX_WEIGHT};

/// Why a limit is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The key is none of the four.
    #[error("{0:?} is no key: queue, type, header:NAME or payload:/PATH")]
    Key(String),
    /// The name cannot be part of a lane's name.
    #[error("{0:?} is no name of a limit: 1 to 40 letters a to z, digits and hyphens")]
    Name(String),
    /// It limits nothing.
    #[error("limit {0:?} limits nothing: give it a concurrency, a rate, or a breaker")]
    Empty(String),
    /// In order, tasks run one after another.
    #[error("limit {0:?} is in strict order: one task of a key runs at once, so its concurrency is 1")]
    StrictConcurrency(String),
    /// A task could be at turn under one of them and not under the other.
    #[error("limit {0:?} is in strict order already, and a queue has one such limit at the most")]
    SecondStrict(String),
    /// A number is zero.
    #[error("limit {0:?} lets nothing start, ever: pause the queue, or a key of the limit, instead")]
    Zero(String),
    /// A rate that nobody can mean.
    #[error("limit {0:?} cannot have this rate: {1}")]
    Rate(String, &'static str),
    /// An adaptive rate that is none.
    #[error("limit {0:?} cannot have an adaptive rate: {1}")]
    Adaptive(String, &'static str),
    /// A fallback that is none.
    #[error("the fallback of limit {0:?} is a second to a year")]
    Fallback(String),
    /// A star that is not the end of the pattern, or no text at all.
    #[error(
        "{0:?} is no type of tasks: it is a whole one, or what types begin with and a star at its end, such as email:*"
    )]
    Type(String),
    /// The path of a field of the payload is none.
    #[error(
        "{0:?} is no path of a field: write the names of the fields with a slash before each, such as /account/id; \
         a name that is empty, or has a slash or a tilde in it, cannot be written: use a header"
    )]
    Path(String),
    /// Keys so long have names that nobody can say.
    #[error("{0:?} is longer than the {MAX_LANE_KEY_BYTES} bytes up to which a key can be named")]
    LongKey(String),
    /// There are as many as a queue can have.
    #[error("a queue has {MAX_LIMITS} limits at the most")]
    TooMany,
    /// Keys can take turns only where each task has one of them, and nothing else says who comes first.
    #[error("limit {0:?} cannot be fair: {1}")]
    Fair(String, &'static str),
    /// A weight is too small or too large.
    #[error("a weight is a number from 1 to {MAX_WEIGHT}, and only a fair limit has some")]
    Weight,
    /// A breaker whose numbers make no sense.
    #[error("limit {0:?} cannot have this breaker: {1}")]
    Breaker(String, &'static str),
    /// The text in Redis is none of ours.
    #[error("the limits of the queue cannot be read: {0}")]
    Unreadable(String),
}

/// In which order the tasks of one key run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LaneOrder {
    /// As they come, up to the concurrency at once. One that is retried comes again behind the others.
    #[default]
    Free,
    /// One after another, in the order in which they became pending: the next one starts when the one before it has
    /// succeeded, is archived or deleted, and not while it is retried.
    Strict,
}

impl fmt::Display for LaneOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Strict { "strict" } else { "free" })
    }
}

impl FromStr for LaneOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "free" => Ok(Self::Free),
            "strict" => Ok(Self::Strict),
            _ => Err(format!("{text:?} is no order: free or strict")),
        }
    }
}

/// A limit of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limit {
    /// Name, unique within the queue: `a` to `z`, digits and hyphens.
    pub name: String,
    /// By what tasks are told apart.
    pub key: LimitKey,
    /// Only tasks of these types: whole ones, or with a star at the end what they begin with. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// How many of one key may run at once. `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many of one key may start in [`per`](Self::per). `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The time of the rate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<u64>,
    /// How many may start at once after a rest. In no window of `per` start more than `rate + burst - 1`.
    #[serde(default = "one")]
    pub burst: u32,
    /// Down to one in how many starts the rate of a key goes where handlers say that it is too much. `None`: it stays what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapt: Option<u32>,
    /// In which order the tasks of one key run.
    #[serde(default, skip_serializing_if = "is_free")]
    pub order: LaneOrder,
    /// Whether its keys take turns, by their weights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// When nothing of a key starts for a while, because what has started has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Seconds after which a task that waits becomes pending for servers that know nothing of limits, and is looked at
    /// again by those that do; by a tenth more or less.
    #[serde(default = "fallback")]
    pub fallback: u64,
}

/// What lasts longer is a mistake of the unit, and of more than this the scripts could not reckon.
const YEAR_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

fn one() -> u32 {
    1
}

fn is_free(order: &LaneOrder) -> bool {
    *order == LaneOrder::Free
}

fn fallback() -> u64 {
    LANE_FALLBACK_SECS
}

impl Limit {
    /// A limit that limits nothing yet.
    pub fn new(name: impl Into<String>, key: LimitKey) -> Self {
        let (types, concurrency, rate, per, adapt, breaker) = Default::default();
        let (name, burst, order, fallback) = (name.into(), one(), LaneOrder::Free, fallback());
        Self { name, key, types, concurrency, rate, per, burst, adapt, order, fair: false, breaker, fallback }
    }

    /// How many of one key may run at once.
    #[must_use]
    pub fn concurrency(mut self, most: u32) -> Self {
        self.concurrency = Some(most);
        self
    }

    /// How many of one key may start in a time, of whole milliseconds.
    #[must_use]
    pub fn rate(mut self, starts: u32, per: Duration) -> Self {
        self.rate = Some(starts);
        self.per = Some(u64::try_from(per.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// How many may start at once after a rest. Default: 1.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// The rate of a key adapts: when a handler says that it is [too much](crate::outcome::Failure::too_many), it is halved for
    /// this key, down to one in so many starts, and each [`per`](Self::per) from the end of that pause on gives a tenth
    /// of it back. What handlers say during the pause, or within a second, halves it once.
    #[must_use]
    pub fn adaptive(mut self, slowest: u32) -> Self {
        self.adapt = Some(slowest);
        self
    }

    /// The tasks of one key run one after another, in the order in which they became pending, also over retries: the
    /// next one starts when the one before it has succeeded, is archived or deleted. A queue has one such limit at the
    /// most.
    #[must_use]
    pub fn strict_order(mut self) -> Self {
        self.order = LaneOrder::Strict;
        self.concurrency = Some(1);
        self
    }

    /// The keys take turns: while more waits than is taken, tasks start in proportion to the
    /// [weights](LaneChange::weight) of their keys, and of one key in the order in which they came. Tasks without the
    /// key are one key together. A queue has one such limit at the most, for all its types, and then none in strict
    /// order.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Nothing of a key starts for a while when what has started has failed.
    #[must_use]
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Only tasks of this type, or, with a star at the end, of all types that begin so; may be called again.
    #[must_use]
    pub fn task_type(mut self, pattern: impl Into<String>) -> Self {
        self.types.push(pattern.into());
        self
    }

    /// After how long a task that waits becomes pending for servers that know nothing of limits. Default: an hour.
    #[must_use]
    pub fn fallback(mut self, after: Duration) -> Self {
        self.fallback = u64::try_from(secs_ceil(after)).unwrap_or(u64::MAX);
        self
    }

    /// The name of the lane of a key of this limit. The scripts make the same, of the message of a task.
    ///
    /// # Errors
    /// When the key is longer than names are: the scripts cut such a one.
    pub fn lane(&self, key: &str) -> Result<String, LimitError> {
        let written = key.replace('%', "%25").replace(' ', "%20");
        if written.len() > MAX_LANE_KEY_BYTES {
            return Err(LimitError::LongKey(key.to_owned()));
        }
        Ok(format!("{}:{written}", self.name))
    }

    /// The key of a lane, from what stands behind the colon of its name.
    pub fn key_of_lane(&self, written: &str) -> String {
        written.replace("%20", " ").replace("%25", "%")
    }

    /// Whether tasks without room are parked in lanes. One for all of a queue lets them stay pending, and less is taken,
    /// unless it is in strict order.
    pub fn parks(&self) -> bool {
        self.key != LimitKey::Queue || !self.types.is_empty() || self.is_strict()
    }

    /// Whether the tasks of a key run one after another, in their order.
    pub fn is_strict(&self) -> bool {
        self.order == LaneOrder::Strict
    }

    /// Whether it can be one.
    ///
    /// # Errors
    /// When its name is none, it lets all start, or nothing, or has numbers or texts that nobody can mean.
    pub fn check(&self) -> Result<(), LimitError> {
        self.check_stored()?;
        if let Some(pattern) = self
            .types
            .iter()
            .find(|pattern| pattern.find('*').unwrap_or(pattern.len()) + 1 < pattern.len() || pattern.is_empty())
        {
            return Err(LimitError::Type(pattern.clone()));
        }
        if let LimitKey::Payload(path) = &self.key
            && path.split('/').skip(1).any(|name| name.is_empty() || name.contains('~'))
        {
            return Err(LimitError::Path(path.clone()));
        }
        if let (Some(rate), Some(per)) = (self.rate, self.per) {
            let impossible = |why| Err(LimitError::Rate(self.name.clone(), why));
            match () {
                () if per > YEAR_MS => return impossible("its time is a year at the most"),
                // What a rate has charged is kept in microseconds.
                () if u64::from(rate) > per.saturating_mul(1_000) => {
                    return impossible("more than one start in a microsecond is none: leave it out");
                }
                () if u64::from(self.burst).saturating_mul(per) / u64::from(rate) > YEAR_MS => {
                    return impossible("such a burst takes more than a year to come back");
                }
                () => {}
            }
        }
        if self.adapt.is_some_and(|slowest| slowest > 1_000) {
            return Err(LimitError::Adaptive(self.name.clone(), "it goes down to a thousandth at the most"));
        }
        if !(1..=YEAR_MS / 1_000).contains(&self.fallback) {
            return Err(LimitError::Fallback(self.name.clone()));
        }
        Ok(())
    }

    /// The same of one that is stored, perhaps by a release that knew fewer reasons to refuse it.
    fn check_stored(&self) -> Result<(), LimitError> {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 40 || !self.name.chars().all(is_part) {
            return Err(LimitError::Name(self.name.clone()));
        }
        let unfair = |why| Err(LimitError::Fair(self.name.clone(), why));
        match self.fair {
            true if self.key == LimitKey::Queue => return unfair("all tasks of a queue have one key"),
            true if !self.types.is_empty() => return unfair("it holds for all types of a queue"),
            true if self.is_strict() => return unfair("it is in strict order"),
            _ => {}
        }
        if let Some(why) = self.breaker.and_then(|breaker| breaker.check().err()) {
            return Err(LimitError::Breaker(self.name.clone(), why));
        }
        if self.concurrency.is_none() && self.rate.is_none() && !self.fair && self.breaker.is_none() {
            return Err(LimitError::Empty(self.name.clone()));
        }
        match self.adapt {
            Some(_) if self.rate.is_none() => return Err(LimitError::Adaptive(self.name.clone(), "it has no rate")),
            Some(0 | 1) => return Err(LimitError::Adaptive(self.name.clone(), "it goes down to a half at the least")),
            _ => {}
        }
        if self.is_strict() && self.concurrency != Some(1) {
            return Err(LimitError::StrictConcurrency(self.name.clone()));
        }
        if self.rate.is_some_and(|rate| rate > 0) && self.per == Some(0) {
            return Err(LimitError::Rate(self.name.clone(), "its time is a millisecond at the least"));
        }
        let numbers = [self.concurrency.map(u64::from), self.rate.map(u64::from), self.per, Some(self.burst.into())];
        if numbers.contains(&Some(0)) || self.rate.is_some() != self.per.is_some() {
            return Err(LimitError::Zero(self.name.clone()));
        }
        Ok(())
    }
}

/// All limits of a queue, as they stand in Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Counts the changes.
    #[serde(default)]
    pub v: u64,
    /// The limits.
    pub rules: Vec<Limit>,
}

impl Limits {
    /// From what stands in Redis.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(text: &str) -> Result<Self, LimitError> {
        let limits: Self = serde_json::from_str(text).map_err(|error| LimitError::Unreadable(error.to_string()))?;
        limits.rules.iter().try_for_each(Limit::check_stored)?;
        Ok(limits)
    }

    /// Sets a limit, in the place of one of the same name if there is one.
    ///
    /// # Errors
    /// When it is none, or there are too many.
    pub fn set(&mut self, limit: Limit) -> Result<(), LimitError> {
        limit.check()?;
        let other = self.rules.iter().find(|other| other.is_strict() && limit.is_strict() && other.name != limit.name);
        if let Some(other) = other {
            return Err(LimitError::SecondStrict(other.name.clone()));
        }
        let mut others = self.rules.iter().filter(|other| other.name != limit.name);
        let unfair = |limit: &Limit, why| Err(LimitError::Fair(limit.name.clone(), why));
        if limit.fair && others.clone().any(|other| other.fair) {
            return unfair(&limit, "another limit of the queue is");
        }
        if limit.fair && others.clone().any(Limit::is_strict) {
            return unfair(&limit, "another limit of the queue is in strict order");
        }
        if let Some(fair) = others.find(|other| other.fair && limit.is_strict()) {
            return unfair(fair, "another limit of the queue is to be in strict order");
        }
        match self.rules.iter().position(|old| old.name == limit.name) {
            Some(place) => self.rules[place] = limit,
            None if self.rules.len() >= MAX_LIMITS => return Err(LimitError::TooMany),
            None => self.rules.push(limit),
        }
        self.v += 1;
        Ok(())
    }

    /// Removes a limit; whether there was one of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.rules.len();
        self.rules.retain(|limit| limit.name != name);
        self.v += 1;
        self.rules.len() < before
    }

    /// What is to stand in Redis.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// What is different for one key of a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneChange {
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Whether nothing starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How many times as often as one without a weight the key is at turn under a [fair](Limit::fair) limit, up to
    /// [`MAX_WEIGHT`]. `None`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl LaneChange {
    /// Whether it can be for a key of this limit.
    ///
    /// # Errors
    /// When it has a weight that is none, or the limit has nothing to weigh.
    pub fn check(&self, limit: &Limit) -> Result<(), LimitError> {
        if limit.is_strict() && self.concurrency.is_some_and(|most| most != 1) {
            return Err(LimitError::StrictConcurrency(limit.name.clone()));
        }
        if self.concurrency == Some(0) {
            return Err(LimitError::Zero(limit.name.clone()));
        }
        match self.weight {
            Some(weight) if !limit.fair || !(1..=MAX_WEIGHT).contains(&weight) => Err(LimitError::Weight),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_lets_all_or_nothing_start_is_none() {
        let limit = || Limit::new("tenant", LimitKey::Type);
        assert_eq!(limit().check(), Err(LimitError::Empty("tenant".to_owned())));
        for zero in [
            limit().concurrency(0),
            limit().rate(0, Duration::from_secs(1)),
            limit().rate(5, Duration::from_secs(1)).burst(0),
        ] {
            assert_eq!(zero.check(), Err(LimitError::Zero("tenant".to_owned())), "{zero:?}");
        }
        let nothing = LaneChange { concurrency: Some(0), ..LaneChange::default() };
        assert_eq!(nothing.check(&limit().concurrency(1)), Err(LimitError::Zero("tenant".to_owned())));
        for name in ["", "Tenant", "a b", "a:b", &"a".repeat(41)] {
            assert!(Limit::new(name, LimitKey::Type).concurrency(1).check().is_err(), "{name:?}");
        }
    }

    /// A release that knows more reasons to refuse a limit goes by one that is stored.
    #[test]
    fn what_nobody_can_mean_is_refused_and_read_where_it_is_stored() {
        const SECOND: Duration = Duration::from_secs(1);
        let limit = |key: &str| Limit::new("x", key.parse().unwrap());
        let one = |key: &str| limit(key).concurrency(1);
        let year = Duration::from_millis(YEAR_MS);
        for fine in [
            limit("type").rate(1_000_000, SECOND).burst(u32::MAX),
            limit("type").rate(1, year),
            one("payload:/a/b c").task_type("a").task_type("*").task_type("mail:*").fallback(year),
        ] {
            assert_eq!(fine.check(), Ok(()), "{fine:?}");
        }
        for (refused, why) in [
            (limit("type").rate(1_000_000_000, Duration::from_nanos(1)), "a millisecond at the least"),
            (limit("type").rate(1_000_001, SECOND), "more than one start in a microsecond"),
            (limit("type").rate(1, year + SECOND), "a year at the most"),
            (limit("type").rate(1, year).burst(2), "more than a year to come back"),
            (one("type").task_type("a*b"), "a star at its end"),
            (one("type").task_type("a**"), "a star at its end"),
            (one("type").task_type(""), "a star at its end"),
            (one("payload:/a~2"), "no path of a field"),
            (one("payload:/a//b"), "no path of a field"),
            (one("payload:/a/"), "no path of a field"),
            (one("type").fallback(Duration::ZERO), "a second to a year"),
            (one("type").fallback(year + SECOND), "a second to a year"),
        ] {
            let mut limits = Limits::default();
            let error = limits.set(refused.clone()).unwrap_err().to_string();
            assert!(error.contains(why), "{refused:?}: {error}");
            let stored = Limits { v: 1, rules: vec![refused] };
            let is_read = Limits::read(&stored.text()).is_ok();
            assert_eq!(is_read, stored.rules[0].per != Some(0), "{stored:?}");
        }
    }

    #[test]
    fn a_limit_in_strict_order_lets_one_run_and_is_the_only_one_of_its_queue() {
        let strict = |name: &str| Limit::new(name, LimitKey::Type).strict_order();
        assert_eq!(strict("a").check(), Ok(()));
        assert_eq!(strict("a").concurrency(2).check(), Err(LimitError::StrictConcurrency("a".to_owned())));
        assert!(Limit::new("all", LimitKey::Queue).strict_order().parks());
        let mut limits = Limits::default();
        limits.set(strict("a")).unwrap();
        limits.set(strict("a").rate(5, Duration::from_secs(1))).unwrap();
        assert_eq!(limits.set(strict("b")), Err(LimitError::SecondStrict("a".to_owned())));
        limits.set(Limit::new("b", LimitKey::Type).concurrency(2)).unwrap();
        assert!(limits.text().contains(r#""order":"strict""#) && !limits.text().contains("free"), "{}", limits.text());
        assert_eq!(Limits::read(&limits.text()), Ok(limits));
        for order in [LaneOrder::Free, LaneOrder::Strict] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert!("fifo".parse::<LaneOrder>().is_err());
    }

    #[test]
    fn keys_take_turns_under_one_limit_that_every_task_falls_under() {
        let fair = |name: &str| Limit::new(name, LimitKey::header("tenant")).fair();
        assert_eq!(fair("a").check(), Ok(()), "it needs neither a concurrency nor a rate");
        for (limit, why) in [
            (Limit::new("a", LimitKey::Queue).fair(), "have one key"),
            (fair("a").task_type("mail:*"), "all types"),
            (fair("a").strict_order(), "in strict order"),
        ] {
            assert!(limit.check().unwrap_err().to_string().contains(why), "{limit:?}");
        }
        let mut limits = Limits::default();
        limits.set(fair("a")).unwrap();
        limits.set(fair("a").concurrency(3)).unwrap();
        assert!(limits.set(fair("b")).unwrap_err().to_string().contains("another limit of the queue is"));
        let strict = Limit::new("b", LimitKey::Type).strict_order();
        assert!(matches!(limits.set(strict.clone()), Err(LimitError::Fair(name, _)) if name == "a"));
        assert_eq!(Limits::read(&limits.text()), Ok(limits.clone()));
        assert!(limits.text().contains(r#""fair":true"#));
        limits.remove("a");
        limits.set(strict).unwrap();
        assert!(matches!(limits.set(fair("a")), Err(LimitError::Fair(..))));
        let weight = |weight| LaneChange { weight: Some(weight), ..LaneChange::default() };
        assert_eq!(weight(MAX_WEIGHT).check(&fair("a")), Ok(()));
        for refused in [weight(0).check(&fair("a")), weight(MAX_WEIGHT + 1).check(&fair("a"))] {
            assert_eq!(refused, Err(LimitError::Weight));
        }
        assert_eq!(weight(2).check(&Limit::new("a", LimitKey::Type).concurrency(1)), Err(LimitError::Weight));
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        let mut limits = Limits::default();
        limits.set(Limit::new("a", LimitKey::Queue).concurrency(3)).unwrap();
        let b = Limit::new("b", LimitKey::payload("/t")).task_type("mail:*").rate(50, Duration::from_secs(1)).burst(3);
        limits.set(b).unwrap();
        assert_eq!(Limits::read(&limits.text()), Ok(limits.clone()));
        limits.set(Limit::new("a", LimitKey::Queue).concurrency(4)).unwrap();
        assert_eq!((limits.v, limits.rules.len(), limits.rules[0].concurrency), (3, 2, Some(4)));
        assert!(limits.remove("a") && !limits.remove("a"));
        assert!(Limits::read("{}").is_err() && Limits::read("nothing").is_err());
    }
}
