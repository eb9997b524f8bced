//! Tasks whose worker went silent: how often that may happen, and who had them.
//!
//! A crash is not the failure of a task, so it spends no retry. But some tasks kill their workers (they eat
//! all memory, they abort the process); those have a budget of their own, and end in the archive with the
//! names of those that had them.

use std::fmt;
use std::time::Duration;

use crate::clock::{UnixSecond, secs_ceil};
use crate::limits::LAST_SECOND;
use crate::outcome::Step;
use crate::retry::RetryPolicy;
use crate::wire::TaskMessage;

/// Crashes that a task may survive, if nothing else is said.
pub const DEFAULT_LIMIT: u32 = 5;

/// asynq's text for a task whose lease has ended, which tools and people recognise.
pub const LEASE_EXPIRED: &str = "asynq: task lease expired";

/// So many of those that had a task are remembered, the last ones.
const REMEMBERED: usize = 10;

/// The crashes since a task was enqueued, run by hand, or last ended an attempt properly. In Redis it is the
/// hash field `x_crashes`: their number, and for each of the last ten ` <unix second>@<holder>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Crashes {
    count: u32,
    /// When the lease ended, and who had it; oldest first.
    holders: Vec<(UnixSecond, String)>,
}

impl Crashes {
    /// Reads the hash field. What cannot be read counts as nothing.
    pub fn parse(field: &str) -> Self {
        let mut words = field.split(' ');
        let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let holder = |word: &str| {
            let (until, name) = word.split_once('@')?;
            Some((UnixSecond(until.parse().ok()?), name.to_owned()))
        };
        Self { count, holders: words.filter_map(holder).collect() }
    }

    /// The same and one more: the lease of `owner` (the field of that name, empty for none) ended at `until`,
    /// a Unix second.
    #[must_use]
    pub fn and(mut self, owner: &str, until: i64) -> Self {
        // The number of the take says nothing to anybody.
        let name = owner.rsplit_once(':').map_or(owner, |(name, _)| name);
        let name = if name.is_empty() { "unknown".to_owned() } else { name.replace([' ', '@'], "_") };
        self.count = self.count.saturating_add(1);
        self.holders.push((UnixSecond(until), name));
        let excess = self.holders.len().saturating_sub(REMEMBERED);
        self.holders.drain(..excess);
        self
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The last ten of them, oldest first: when the lease ended, and who had it.
    pub fn holders(&self) -> &[(UnixSecond, String)] {
        &self.holders
    }

    /// For people.
    fn story(&self) -> String {
        let when = |until: UnixSecond| until.date().map_or(String::new(), |time| format!("{time:?}"));
        let holders: Vec<String> =
            self.holders.iter().map(|(until, name)| format!("{name} until {}", when(*until))).collect();
        format!("{LEASE_EXPIRED}; given up after {} crashes, it was held by {}", self.count, holders.join(", "))
    }
}

impl fmt::Display for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.holders.iter().try_for_each(|(until, name)| write!(f, " {}@{name}", until.0))
    }
}

/// Decides what happens to a task whose lease has ended at `now` (Unix seconds) or before; `crashes` includes
/// this one.
///
/// It goes back without a retry spent: at once after the first crash, since the worker has been silent for
/// long enough; then after the delay of the policy. asynq spends a retry. With more than `limit` crashes it is
/// archived; likewise when its deadline has passed, or when it may be tried only once (no retries).
///
/// ```
/// use queue_core::crash::{Crashes, step_after_crash};
/// use queue_core::{RetryPolicy, Step, TaskMessage};
///
/// let message = TaskMessage { retry: 25, retried: 3, ..Default::default() };
/// let crashes = Crashes::default().and("host:7:5f0c:1", 1_700_000_000);
/// let Step::Retry { message, at, .. } = step_after_crash(&message, &crashes, 5, 1_700_000_030, &RetryPolicy::Asynq)
/// else {
///     panic!("it has not crashed often")
/// };
/// assert_eq!((message.retried, at), (3, 1_700_000_030));
/// ```
pub fn step_after_crash(message: &TaskMessage, crashes: &Crashes, limit: u32, now: i64, policy: &RetryPolicy) -> Step {
    let mut after = message.clone();
    after.last_failed_at = now;
    after.error_msg = LEASE_EXPIRED.to_owned();
    let too_late = message.deadline != 0 && now >= message.deadline;
    if crashes.count > limit {
        after.error_msg = crashes.story();
        return Step::Archive { message: after };
    }
    if too_late || message.retry <= 0 {
        return Step::Archive { message: after };
    }
    let delay = match i32::try_from(crashes.count).unwrap_or(i32::MAX).saturating_sub(2) {
        ..0 => Duration::ZERO,
        again => {
            let as_if = TaskMessage { retried: message.retried.saturating_add(again), ..message.clone() };
            policy.delay(&as_if, LEASE_EXPIRED)
        }
    };
    let at = now.saturating_add(secs_ceil(delay)).min(LAST_SECOND);
    Step::Retry { message: after, at, is_failure: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn crashed(times: u32) -> Crashes {
        (0..times).fold(Crashes::default(), |crashes, n| crashes.and(&format!("h:{n}:uuid:{n}"), NOW + i64::from(n)))
    }

    fn step(message: &TaskMessage, times: u32) -> Step {
        step_after_crash(
            message,
            &crashed(times),
            2,
            NOW,
            &RetryPolicy::custom(|task, _| Duration::from_secs(100 * (1 + task.retried as u64))),
        )
    }

    #[test]
    fn a_crash_spends_no_retry_and_waits_longer_each_time() {
        let message = TaskMessage { retry: 3, retried: 3, ..TaskMessage::default() };
        for (times, wait) in [(1, 0), (2, 400)] {
            let Step::Retry { message, at, is_failure } = step(&message, times) else { panic!("given up") };
            assert_eq!((message.retried, at - NOW, is_failure), (3, wait, true));
            assert_eq!((message.error_msg.as_str(), message.last_failed_at), (LEASE_EXPIRED, NOW));
        }
    }

    #[test]
    fn too_many_crashes_end_in_the_archive_with_the_names_of_the_holders() {
        let message = TaskMessage { retry: 3, ..TaskMessage::default() };
        let Step::Archive { message } = step(&message, 3) else { panic!("not given up") };
        assert_eq!(
            message.error_msg,
            "asynq: task lease expired; given up after 3 crashes, it was held by h:0:uuid until 2023-11-14T22:13:20Z, \
             h:1:uuid until 2023-11-14T22:13:21Z, h:2:uuid until 2023-11-14T22:13:22Z"
        );
    }

    #[test]
    fn a_task_that_may_be_tried_once_or_is_too_late_is_not_tried_again() {
        let once = TaskMessage { retry: 0, ..TaskMessage::default() };
        let late = TaskMessage { retry: 3, deadline: NOW, ..TaskMessage::default() };
        for message in [once, late] {
            let Step::Archive { message } = step(&message, 1) else { panic!("tried again") };
            assert_eq!(message.error_msg, LEASE_EXPIRED);
        }
    }

    #[test]
    fn the_field_is_read_as_it_was_written_and_does_not_grow_for_ever() {
        let crashes = crashed(12);
        let field = crashes.to_string();
        assert!(field.starts_with("12 1700000002@h:2:uuid "), "{field}");
        assert_eq!(field.split(' ').count(), 1 + REMEMBERED);
        assert_eq!(Crashes::parse(&field), crashes);
        for nonsense in ["", "x", "-1", "9999999999999"] {
            assert_eq!(Crashes::parse(nonsense), Crashes::default());
        }
        assert_eq!(Crashes::parse("3 x@y 5@z").count(), 3);
        assert_eq!(Crashes::default().and("", 7).to_string(), "1 7@unknown");
        assert_eq!(Crashes::default().and("a b@c:1", 7).to_string(), "1 7@a_b_c");
    }
}
