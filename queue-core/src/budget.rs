//! Budgets that a task brings with it, in headers: how often its workers may go silent, how often it may be snoozed, for how
//! long it is tried, and how long it waits in between; and what [follows](crate::exhausted) when they are spent.
//!
//! What is spent stands in headers too, because every server has them where it decides: the message is stored again with each
//! attempt that did not succeed. Go's servers heed none of them. From asynq 0.26 on they keep headers; before, the first attempt
//! that fails there drops them, and the task goes on by the rules of its servers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::clock::{UnixSecond, secs_ceil};
use crate::duration;
use crate::retry::RetryPolicy;
use crate::wire::TaskMessage;

/// The header that says how many crashes of its workers the task may survive.
pub const MAX_CRASHES: &str = "x-max-crashes";
/// The header that says how often the task may be snoozed.
pub const MAX_SNOOZES: &str = "x-max-snoozes";
/// The header that says how long after its first failure the task is given up, as a duration: `24h`.
pub const GIVE_UP_AFTER: &str = "x-give-up-after";
/// The header that says how long the task waits for its next attempt: see [`RetryPolicy`]'s text.
pub const BACKOFF: &str = "x-backoff";
/// The header with the type of the task that is enqueued when this one is archived.
pub const ON_EXHAUSTED: &str = "x-on-exhausted";
/// The header with the queue of that task.
pub const ON_EXHAUSTED_QUEUE: &str = "x-on-exhausted-queue";
/// The header that counts the snoozes of a task with a budget for them.
const SNOOZED: &str = "x-snoozed";
/// The header with the Unix second at which a task that is to be given up after some time has failed first.
const FIRST_FAILED: &str = "x-first-failed";

type Headers = BTreeMap<String, String>;

/// The budgets of one task. What it has none for is decided by its server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Crashes of its workers that it may survive.
    pub max_crashes: Option<u32>,
    /// How often it may be snoozed.
    pub max_snoozes: Option<u32>,
    /// How long after its first failure it is given up.
    pub give_up_after: Option<Duration>,
    /// How long it waits for its next attempt.
    pub backoff: Option<RetryPolicy>,
    /// The type of the task that is enqueued when a server archives this one.
    pub on_exhausted: Option<String>,
    /// The queue of that task; that of this one if there is none.
    pub on_exhausted_queue: Option<String>,
}

impl Budget {
    /// What the headers of a task say. One that cannot be read counts for nothing; [`unreadable`] names it.
    pub fn of(headers: &Headers) -> Self {
        fn read<T>(headers: &Headers, name: &str, read: fn(&str) -> Result<T, String>) -> Option<T> {
            headers.get(name).and_then(|text| read(text).ok())
        }
        if headers.is_empty() {
            return Self::default();
        }
        Self {
            max_crashes: read(headers, MAX_CRASHES, count),
            max_snoozes: read(headers, MAX_SNOOZES, count),
            give_up_after: read(headers, GIVE_UP_AFTER, time),
            backoff: read(headers, BACKOFF, policy),
            on_exhausted: read(headers, ON_EXHAUSTED, name),
            on_exhausted_queue: read(headers, ON_EXHAUSTED_QUEUE, name),
        }
    }

    /// Writes the headers of a new task, which has spent nothing. A budget that there is takes the place of a header that
    /// there was.
    pub(crate) fn write(&self, headers: &mut Headers) -> Result<(), BudgetError> {
        forget(headers);
        let backoff = match &self.backoff {
            None => None,
            Some(policy) => Some(policy.text().ok_or_else(|| BudgetError {
                header: BACKOFF,
                reason: "a function cannot travel with a task; give the policy to the server".to_owned(),
            })?),
        };
        let texts = [
            (MAX_CRASHES, self.max_crashes.map(|count| count.to_string())),
            (MAX_SNOOZES, self.max_snoozes.map(|count| count.to_string())),
            (GIVE_UP_AFTER, self.give_up_after.map(duration::format)),
            (BACKOFF, backoff),
            (ON_EXHAUSTED, self.on_exhausted.clone()),
            (ON_EXHAUSTED_QUEUE, self.on_exhausted_queue.clone()),
        ];
        for (header, text) in texts {
            if let Some(text) = text {
                headers.insert(header.to_owned(), text);
            }
        }
        if headers.contains_key(ON_EXHAUSTED_QUEUE) && !headers.contains_key(ON_EXHAUSTED) {
            let reason = "it is the queue of a task that has no type; give on_exhausted, too".to_owned();
            return Err(BudgetError { header: ON_EXHAUSTED_QUEUE, reason });
        }
        unreadable(headers).next().map_or(Ok(()), Err)
    }

    /// The policy by which the task waits: its own, or else that of its server.
    pub(crate) fn policy<'a>(&'a self, of_server: &'a RetryPolicy) -> &'a RetryPolicy {
        self.backoff.as_ref().unwrap_or(of_server)
    }

    /// Why a task is given up that has failed at `now` (Unix seconds), or was lost then: its time is over.
    pub(crate) fn time_is_over(&self, message: &TaskMessage, now: i64) -> Option<String> {
        let (after, first) = (self.give_up_after?, first_failed(message)?);
        let is_over = now.saturating_sub(first) >= secs_ceil(after);
        let after = duration::format(after);
        is_over.then(|| format!("; given up: it failed first at {}, and give_up_after is {after}", UnixSecond(first)))
    }

    /// Why a task is given up instead of being snoozed once more.
    pub(crate) fn snoozes_are_spent(&self, message: &TaskMessage) -> Option<String> {
        let (most, spent) = (self.max_snoozes?, snoozed(&message.headers));
        (spent >= most).then(|| format!("; given up: it was snoozed {spent} times before, and max_snoozes is {most}"))
    }

    /// Takes note of a snooze.
    pub(crate) fn snooze(&self, message: &mut TaskMessage) {
        if self.max_snoozes.is_some() {
            let snoozed = snoozed(&message.headers).saturating_add(1);
            message.headers.insert(SNOOZED.to_owned(), snoozed.to_string());
        }
    }

    /// Takes note of a failure at `now`; `before` is the message as it was.
    pub(crate) fn fail(&self, before: &TaskMessage, message: &mut TaskMessage, now: i64) {
        if self.give_up_after.is_some() {
            let first = first_failed(before).unwrap_or(now);
            message.headers.insert(FIRST_FAILED.to_owned(), first.to_string());
        }
    }
}

/// Forgets what a task has spent: it has ended, and if it is run again it has all of its budgets.
pub(crate) fn forget(headers: &mut Headers) {
    headers.remove(SNOOZED);
    headers.remove(FIRST_FAILED);
}

fn snoozed(headers: &Headers) -> u32 {
    headers.get(SNOOZED).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// When a task failed first at a server of ours since it was enqueued or run again.
fn first_failed(message: &TaskMessage) -> Option<i64> {
    message.headers.get(FIRST_FAILED).and_then(|text| text.parse().ok())
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "it is no number from 0 to 4294967295".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| error.to_string())?;
    if time < Duration::from_secs(1) { Err("it must be at least 1s".to_owned()) } else { Ok(time) }
}

fn policy(text: &str) -> Result<RetryPolicy, String> {
    text.parse().map_err(|error: crate::retry::ParsePolicyError| error.to_string())
}

/// [`compose`](crate::options::compose) asks more of a name.
fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("it is blank".to_owned()) } else { Ok(text.to_owned()) }
}

/// A header with a budget that cannot be read, or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header {header:?} cannot be used: {reason}")]
pub struct BudgetError {
    /// Name of the header.
    pub header: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

/// The headers of a task that are named like budgets and are none.
pub fn unreadable(headers: &Headers) -> impl Iterator<Item = BudgetError> {
    let check = |header: &'static str, problem: fn(&str) -> Option<String>| {
        let reason = headers.get(header).and_then(|text| Some((text, problem(text)?)));
        reason.map(|(text, reason)| BudgetError { header, reason: format!("{text:?}: {reason}") })
    };
    [
        check(MAX_CRASHES, |text| count(text).err()),
        check(MAX_SNOOZES, |text| count(text).err()),
        check(GIVE_UP_AFTER, |text| time(text).err()),
        check(BACKOFF, |text| policy(text).err()),
        check(ON_EXHAUSTED, |text| name(text).err()),
        check(ON_EXHAUSTED_QUEUE, |text| name(text).err()),
    ]
    .into_iter()
    .flatten()
}

/// The budgets of a task and what is spent of them, for whoever looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The budgets; one at least.
    pub budget: Budget,
    /// Crashes of its workers since it last ended an attempt properly.
    pub crashes: u32,
    /// How often it was snoozed.
    pub snoozes: u32,
    /// When it failed first, as a Unix second, if that is noted.
    pub first_failed: Option<UnixSecond>,
}

impl Account {
    /// Those of a task with these headers, after so many crashes; `None` where it has no budget of its own.
    pub fn of(headers: &Headers, crashes: u32) -> Option<Self> {
        let budget = Budget::of(headers);
        let first_failed = headers.get(FIRST_FAILED).and_then(|text| text.parse().ok()).map(UnixSecond);
        let has_any = budget != Budget::default();
        has_any.then(|| Self { budget, crashes, snoozes: snoozed(headers), first_failed })
    }

    /// The first second at which a failure archives the task, once it has failed.
    pub fn gives_up_at(&self) -> Option<UnixSecond> {
        Some(UnixSecond(self.first_failed?.0.saturating_add(secs_ceil(self.budget.give_up_after?))))
    }
}

/// `1 of 5 crashes, 12 of 50 snoozes, given up 24h0m0s after its first failure, waits 10s..1h0m0s, followed by ops:alert in the
/// queue ops when it is archived`.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Budget { max_crashes, max_snoozes, give_up_after, backoff, on_exhausted, on_exhausted_queue } =
            &self.budget;
        let time = match (self.gives_up_at(), give_up_after) {
            (Some(at), _) => Some(format!("given up by a failure at {at} or later")),
            (None, Some(after)) => Some(format!("given up {} after its first failure", duration::format(*after))),
            (None, None) => None,
        };
        let parts = [
            max_crashes.map(|most| format!("{} of {most} crashes", self.crashes)),
            max_snoozes.map(|most| format!("{} of {most} snoozes", self.snoozes)),
            time,
            backoff.as_ref().and_then(RetryPolicy::text).map(|text| format!("waits {text}")),
            on_exhausted.as_ref().map(|task_type| {
                let queue =
                    on_exhausted_queue.as_ref().map(|queue| format!(" in the queue {queue}")).unwrap_or_default();
                format!("followed by {task_type}{queue} when it is archived")
            }),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, MAX_ERROR_LEN, Outcome, Step, next_step};

    const NOW: i64 = 1_700_000_000;
    const MINUTE: RetryPolicy = RetryPolicy::Fixed(Duration::from_secs(60));

    fn message(headers: &[(&str, &str)]) -> TaskMessage {
        let headers = headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        TaskMessage { retry: 25, headers, ..TaskMessage::default() }
    }

    fn step(message: &TaskMessage, failure: Failure, now: i64) -> Step {
        next_step(message, Outcome::Failed(failure), now, &MINUTE)
    }

    fn busy() -> Failure {
        Failure::snooze(Duration::from_secs(5), "busy")
    }

    /// The message of a task that waits for another attempt.
    fn waits(step: Step) -> TaskMessage {
        let Step::Retry { message, .. } = step else { panic!("{step:?}") };
        message
    }

    fn archived(step: Step) -> TaskMessage {
        let Step::Archive { message } = step else { panic!("{step:?}") };
        message
    }

    #[test]
    fn so_many_snoozes_and_the_next_archives() {
        let mut task = message(&[(MAX_SNOOZES, "2"), ("k", "v")]);
        for spent in ["1", "2"] {
            task = waits(step(&task, busy(), NOW));
            assert_eq!((&*task.headers[SNOOZED], task.retried), (spent, 0));
        }
        // A failure in between spends a retry and no snooze.
        task = waits(step(&task, Failure::retry_in(Duration::ZERO, "boom"), NOW));
        assert_eq!((&*task.headers[SNOOZED], task.retried), ("2", 1));
        let too_many = Failure::too_many("api", Duration::from_secs(1));
        for last in [busy(), too_many] {
            let gone = archived(step(&task, last, NOW));
            let why = "; given up: it was snoozed 2 times before, and max_snoozes is 2";
            assert!(gone.error_msg.ends_with(why), "{}", gone.error_msg);
            // Run again, it has all of its budget.
            assert_eq!(gone.headers, message(&[(MAX_SNOOZES, "2"), ("k", "v")]).headers);
        }
        let none = message(&[(MAX_SNOOZES, "0")]);
        archived(step(&none, busy(), NOW));
        let unlimited = waits(step(&message(&[]), busy(), NOW));
        assert!(unlimited.headers.is_empty());
    }

    #[test]
    fn time_counts_from_the_first_failure_and_a_failure_ends_it() {
        let task = message(&[(GIVE_UP_AFTER, "1h")]);
        // A snooze is no failure.
        let task = waits(step(&task, busy(), NOW - 9_000));
        assert_eq!(task.headers.get(FIRST_FAILED), None);
        let task = waits(step(&task, Failure::from("boom"), NOW));
        let task = waits(step(&task, Failure::from("boom"), NOW + 3_599));
        assert_eq!(task.headers[FIRST_FAILED], NOW.to_string());
        // Nor does one end it.
        waits(step(&task, busy(), NOW + 3_600));
        let gone = archived(step(&task, Failure::from("boom"), NOW + 3_600));
        assert_eq!(
            gone.error_msg,
            "boom; given up: it failed first at 2023-11-14T22:13:20Z, and give_up_after is 1h0m0s"
        );
        assert_eq!(gone.headers.get(FIRST_FAILED), None);
    }

    #[test]
    fn a_task_that_is_run_again_or_failed_elsewhere_has_its_whole_time() {
        let before = TaskMessage { retried: 2, last_failed_at: NOW, ..message(&[(GIVE_UP_AFTER, "60s")]) };
        let task = waits(step(&before, Failure::from("boom"), NOW + 3_600));
        assert_eq!(task.headers[FIRST_FAILED], (NOW + 3_600).to_string());
        waits(step(&task, Failure::from("boom"), NOW + 3_659));
        archived(step(&task, Failure::from("boom"), NOW + 3_660));
    }

    #[test]
    fn a_success_that_is_kept_has_its_budgets_again() {
        let task = TaskMessage { retention: 60, ..message(&[(SNOOZED, "3"), (FIRST_FAILED, "5"), (MAX_SNOOZES, "3")]) };
        let Step::Complete { message: kept, .. } = next_step(&task, Outcome::Done(None), NOW, &MINUTE) else {
            panic!()
        };
        assert_eq!(kept.headers, message(&[(MAX_SNOOZES, "3")]).headers);
    }

    #[test]
    fn the_policy_of_the_task_wins_and_what_the_handler_says_wins_over_both() {
        let own = message(&[(BACKOFF, "linear 10s..25s")]);
        for (retried, delay) in [(0, 10), (1, 20), (2, 25), (9, 25)] {
            let task = TaskMessage { retried, ..own.clone() };
            let Step::Retry { at, .. } = step(&task, Failure::from("boom"), NOW) else { panic!() };
            assert_eq!(at, NOW + delay);
        }
        let Step::Retry { at, .. } = step(&own, Failure::retry_in(Duration::from_secs(3), "boom"), NOW) else {
            panic!()
        };
        assert_eq!(at, NOW + 3);
    }

    #[test]
    fn what_cannot_be_read_leaves_the_rules_of_the_server_and_is_named() {
        let bad = message(&[
            (MAX_SNOOZES, "many"),
            (BACKOFF, "fast"),
            (GIVE_UP_AFTER, "0s"),
            (MAX_CRASHES, "-1"),
            (ON_EXHAUSTED, " "),
            (ON_EXHAUSTED_QUEUE, ""),
        ]);
        assert_eq!(Budget::of(&bad.headers), Budget::default());
        let Step::Retry { at, message: after, .. } = step(&bad, Failure::from("boom"), NOW) else { panic!() };
        assert_eq!((at, after.headers), (NOW + 60, bad.headers.clone()));
        let named: Vec<_> = unreadable(&bad.headers).map(|error| error.header).collect();
        assert_eq!(named, [MAX_CRASHES, MAX_SNOOZES, GIVE_UP_AFTER, BACKOFF, ON_EXHAUSTED, ON_EXHAUSTED_QUEUE]);
        // What is spent is not trusted blindly either.
        let garbled = message(&[(MAX_SNOOZES, "1"), (SNOOZED, "x"), (GIVE_UP_AFTER, "1h"), (FIRST_FAILED, "x")]);
        waits(step(&garbled, busy(), NOW));
        waits(step(&garbled, Failure::from("boom"), NOW));
    }

    #[test]
    fn the_reason_is_not_cut_off_behind_a_long_error() {
        let task = message(&[(MAX_SNOOZES, "0")]);
        let gone = archived(step(&task, Failure::snooze(Duration::ZERO, "ü".repeat(MAX_ERROR_LEN)), NOW));
        assert!(gone.error_msg.len() <= MAX_ERROR_LEN && gone.error_msg.ends_with("max_snoozes is 0"));
    }

    #[test]
    fn an_account_says_what_is_left() {
        let task = message(&[
            (MAX_CRASHES, "5"),
            (MAX_SNOOZES, "50"),
            (SNOOZED, "12"),
            (GIVE_UP_AFTER, "24h"),
            (BACKOFF, "10s..1h"),
            (ON_EXHAUSTED, "ops:alert"),
        ]);
        let account = Account::of(&task.headers, 1).unwrap();
        let text = "1 of 5 crashes, 12 of 50 snoozes, given up 24h0m0s after its first failure, waits 10s..1h0m0s, \
                    followed by ops:alert when it is archived";
        assert_eq!((account.to_string().as_str(), account.gives_up_at()), (text, None));
        let failed = message(&[(GIVE_UP_AFTER, "24h"), (FIRST_FAILED, "1700000000")]);
        let account = Account::of(&failed.headers, 0).unwrap();
        assert_eq!(account.to_string(), "given up by a failure at 2023-11-15T22:13:20Z or later");
        assert_eq!(Account::of(&message(&[("k", "v"), (MAX_CRASHES, "?")]).headers, 1), None);
    }
}
