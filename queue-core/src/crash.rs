//! Tasks whose worker went silent: how often that may happen, and who had them.
//!
//! A crash is not the failure of a task, so it spends no retry. But some tasks kill their workers (they eat
//! all memory, they abort the process); those have a budget of their own, and end in the archive with the
//! names of those that had them.

use std::fmt;
use std::time::Duration;

use crate::budget::{self, Budget};
use crate::clock::{UnixSecond, secs_ceil};
use crate::limits::LAST_SECOND;
use crate::outcome::{Step, with_reason};
use crate::retry::RetryPolicy;
use crate::wire::TaskMessage;

/// Crashes that a task may survive, if nothing else is said.
pub const DEFAULT_LIMIT: u32 = 5;

/// asynq's text for a task whose lease has ended, which tools and people recognise.
pub const LEASE_EXPIRED: &str = "asynq: task lease expired";

/// The field of a task's hash with its crashes.
pub const CRASHES: &str = "x_crashes";

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
/// archived; likewise when its deadline has passed, or when it may be tried only once (no retries). What the task says itself
/// of its [budgets](crate::budget) wins over `limit` and `policy`, and one for crashes over having no retries.
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
    let own = Budget::of(&message.headers);
    let time_is_over = own.time_is_over(message, now);
    let once = message.retry <= 0 && own.max_crashes.is_none();
    let is_spent = crashes.count > own.max_crashes.unwrap_or(limit);
    if is_spent {
        after.error_msg = crashes.story();
    } else {
        after.error_msg = with_reason(after.error_msg, time_is_over.as_deref().filter(|_| !too_late && !once));
    }
    if is_spent || too_late || once || time_is_over.is_some() {
        budget::forget(&mut after.headers);
        return Step::Archive { message: after };
    }
    let delay = match i32::try_from(crashes.count).unwrap_or(i32::MAX).saturating_sub(2) {
        ..0 => Duration::ZERO,
        again => {
            let as_if = TaskMessage { retried: message.retried.saturating_add(again), ..message.clone() };
            own.policy(policy).delay(&as_if, LEASE_EXPIRED)
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
    fn a_task_may_bring_its_own_budgets() {
        let with = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            TaskMessage { retry: 3, headers, ..TaskMessage::default() }
        };
        // The server's limit is 2.
        let (none, many) = (with(&[(budget::MAX_CRASHES, "0")]), with(&[(budget::MAX_CRASHES, "7")]));
        let Step::Archive { message } = step(&none, 1) else { panic!("not given up") };
        assert!(message.error_msg.contains("given up after 1 crashes"), "{}", message.error_msg);
        assert!(matches!(step(&many, 7), Step::Retry { .. }));
        assert!(matches!(step(&many, 8), Step::Archive { .. }));
        // Also where a failure would end it.
        assert!(matches!(step(&TaskMessage { retry: 0, ..many }, 1), Step::Retry { .. }));
        let own_policy = with(&[(budget::BACKOFF, "7s")]);
        let Step::Retry { at, .. } = step(&own_policy, 2) else { panic!("given up") };
        assert_eq!(at, NOW + 7);
        let first = (NOW - 60).to_string();
        let late = with(&[(budget::GIVE_UP_AFTER, "60s"), ("x-first-failed", &first)]);
        let Step::Archive { message } = step(&late, 1) else { panic!("not given up") };
        assert_eq!(
            message.error_msg,
            "asynq: task lease expired; given up: it failed first at 2023-11-14T22:12:20Z, and give_up_after is 1m0s"
        );
        let unreadable = with(&[(budget::MAX_CRASHES, "none")]);
        assert!(matches!(step(&unreadable, 2), Step::Retry { .. }));
        assert!(matches!(step(&unreadable, 3), Step::Archive { .. }));
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
