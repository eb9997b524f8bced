//! A checked entry: when its ticks are, and which of those that are due are run. No I/O.

use std::str::FromStr;

use queue_core::clock::UnixSecond;
use queue_core::options::{Composed, compose};
use queue_core::{OptionError, RawTask, TaskOptions};
use queue_redis::broker::{Overlap, Why};
use sha2::{Digest as _, Sha256};

use crate::spec::Spec;

/// What happens to ticks that came while no scheduler was at work.
///
/// A tick counts as missed when it is more than a minute late, or more than five seconds when a later one has
/// come too. So a restart or a failover of a few seconds misses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missed {
    /// They are let go. The default, as in asynq.
    #[default]
    Skip,
    /// One run makes up for them all.
    Last,
    /// The latest of them, so many at the most, are made up for one by one.
    All(u32),
}

/// The most missed ticks that can be made up for.
pub const MAX_MISSED: u32 = 1_000;

impl std::fmt::Display for Missed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skip => f.write_str("skip"),
            Self::Last => f.write_str("last"),
            Self::All(most) => write!(f, "all:{most}"),
        }
    }
}

impl FromStr for Missed {
    type Err = String;

    /// Reads `skip`, `last` or `all:N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let most = text.strip_prefix("all:").and_then(|most| most.parse().ok());
        match (text, most) {
            ("skip", _) => Ok(Self::Skip),
            ("last", _) => Ok(Self::Last),
            (_, Some(most)) if (1..=MAX_MISSED).contains(&most) => Ok(Self::All(most)),
            _ => Err(format!("{text:?} is none of skip, last and all:N with N from 1 to {MAX_MISSED}")),
        }
    }
}

/// Seconds a tick may be late and is still no missed one.
const GRACE: i64 = 60;
/// The same when a later tick has come too.
const GRACE_WITH_LATER: i64 = 5;

/// An entry that has been checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) name: String,
    pub(crate) queue: String,
    /// The spec as Go's tools show it.
    pub(crate) text: String,
    pub(crate) spec: Spec,
    pub(crate) task: RawTask,
    pub(crate) options: Vec<String>,
    pub(crate) missed: Missed,
    pub(crate) overlap: Overlap,
    pub(crate) jitter: i64,
    pub(crate) starts: i64,
    pub(crate) ends: i64,
    pub(crate) max_runs: u64,
}

/// Something to do about a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) why: Why,
    pub(crate) tick: i64,
}

impl Schedule {
    /// The first tick after a Unix second.
    pub(crate) fn next_tick(&self, after: i64) -> Option<i64> {
        let next = self.spec.next_from(UnixSecond(self.starts), UnixSecond(after))?;
        Some(next.0).filter(|tick| *tick <= self.ends)
    }

    /// When a tick is run: later than itself by the jitter, but before the next one.
    pub(crate) fn due_at(&self, tick: i64) -> i64 {
        if self.jitter == 0 {
            return tick;
        }
        let gap = self.next_tick(tick).map_or(i64::MAX, |next| next - tick);
        let digest = Sha256::digest(format!("{}:{tick}", self.name));
        let draw = digest.iter().take(6).fold(0_i64, |draw, byte| draw << 8 | i64::from(*byte));
        tick + draw % self.jitter.min(gap)
    }

    /// When there is something to do next, if all ticks up to `upto` are dealt with.
    pub(crate) fn next_due(&self, upto: i64) -> Option<i64> {
        self.next_tick(upto).map(|tick| self.due_at(tick))
    }

    /// The task of a tick.
    pub(crate) fn compose(&self, tick: i64, now_ns: i64) -> Result<Composed, OptionError> {
        compose(self.task.clone(), TaskOptions::new().task_id(self.task_id(tick)), now_ns)
    }

    /// Names the tick, so that no second task for it can be stored while the first is there.
    pub(crate) fn task_id(&self, tick: i64) -> String {
        format!("{}:{tick}", self.name)
    }

    /// What decides about the ticks; when it changes, they are counted anew.
    pub(crate) fn identity(&self) -> String {
        let zone =
            if self.text.contains("TZ=") { String::new() } else { format!("CRON_TZ={} ", self.spec.zone().name()) };
        let starts = if self.starts == 0 { String::new() } else { format!(" from {}", self.starts) };
        format!("{zone}{}{starts}", self.text)
    }

    /// The Unix second after which there are no ticks, if there is one.
    pub(crate) fn end(&self) -> Option<i64> {
        Some(self.ends).filter(|ends| *ends != i64::MAX)
    }

    /// The policies, for whoever looks at the entry.
    pub(crate) fn policy(&self) -> String {
        let given = |value: i64, none: i64| Some(value).filter(|value| *value != none);
        serde_json::json!({
            "spec": self.text,
            "zone": self.spec.zone().name(),
            "missed": self.missed.to_string(),
            "jitter_secs": self.jitter,
            "starts": given(self.starts, 0),
            "ends": self.end(),
            "max_runs": Some(self.max_runs).filter(|runs| *runs > 0),
        })
        .to_string()
    }

    /// What to do at `now`, if all ticks up to `upto` are dealt with: in the order of the ticks.
    pub(crate) fn plan(&self, upto: i64, now: i64) -> Vec<Step> {
        let most = match self.missed {
            Missed::Skip | Missed::Last => 1,
            Missed::All(most) => most as usize,
        };
        // The ticks of the grace, and so many before them.
        let recent = self.latest(upto, now, most + GRACE as usize + 1);
        let Some(newest) = recent.last().copied() else { return Vec::new() };
        let is_missed = |tick: i64| {
            let late = now - self.due_at(tick);
            late > GRACE || late > GRACE_WITH_LATER && tick != newest
        };
        let (missed, timely): (Vec<i64>, Vec<i64>) = recent.iter().copied().partition(|tick| is_missed(*tick));
        let made_up = match self.missed {
            Missed::Skip => 0,
            // A run that takes place anyway makes up for them too.
            Missed::Last => usize::from(timely.is_empty()),
            Missed::All(most) => most as usize,
        };
        let (let_go, made_up) = missed.split_at(missed.len().saturating_sub(made_up));
        let mut steps = Vec::new();
        if let (Some(last), Some(first)) = (let_go.last(), self.next_tick(upto)) {
            steps.push(Step { why: Why::LetGo { from: first }, tick: *last });
        }
        steps.extend(made_up.iter().map(|tick| Step { why: Why::Missed, tick: *tick }));
        steps.extend(timely.iter().map(|tick| Step { why: Why::Tick, tick: *tick }));
        steps
    }

    /// The latest ticks after `upto` that are due at `now`, at least `most` if there are so many, oldest first.
    fn latest(&self, upto: i64, now: i64, most: usize) -> Vec<i64> {
        // Years may have passed, of which only the end matters: look back in steps that double.
        let mut span = 2 * GRACE;
        loop {
            let from = upto.max(now.saturating_sub(span));
            let ticks = std::iter::successors(self.next_tick(from), |tick| self.next_tick(*tick));
            // Only the last of those that have come can still have jitter to wait for.
            let ticks: Vec<i64> =
                ticks.take_while(|tick| *tick <= now).filter(|tick| self.due_at(*tick) <= now).collect();
            if from == upto || ticks.len() >= most {
                return ticks;
            }
            span = span.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests;
