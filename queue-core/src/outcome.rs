//! What a handler answers, and what happens to the task next.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::budget::{self, Budget};
use crate::flow;
use crate::limits::LAST_SECOND;
use crate::mask::mask_passwords;
use crate::options::DEFAULT_TIMEOUT;
use crate::retry::RetryPolicy;
use crate::wire::TaskMessage;

type BoxError = Box<dyn Error + Send + Sync>;

/// The longest error text that is stored with a task, in bytes. Longer ones are cut.
pub const MAX_ERROR_LEN: usize = 16 * 1024;

/// How the error of a task begins that a worker took and has no handler for; followed by its type, as in asynq.
pub const NO_HANDLER: &str = "handler not found for task";

/// Why a handler did not succeed, and what should happen next.
///
/// Any error turns into [`Failure::Retry`] by `?`. `Failure` itself does not implement
/// [`Error`], which is what makes that conversion possible.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Try again after the delay of the retry policy; archive when the retries are used up.
    Retry(BoxError),
    /// The same, after this delay.
    RetryIn(Duration, BoxError),
    /// Archive at once; asynq's `SkipRetry`. Counts as a failure.
    Archive(BoxError),
    /// Drop the task as if it had succeeded, also when it has a retention; asynq's `RevokeTask`.
    Revoke(BoxError),
    /// Snooze the task: it is taken again after this delay, and no retry is spent (`None`: the delay
    /// of the retry policy). Does not count as a failure, and archives only a task whose deadline has
    /// passed.
    Snooze(Option<Duration>, BoxError),
    /// Snooze the task, because somebody else has said that it is too much (HTTP's 429), and let nothing start for this
    /// long that has the same key of this [limit](crate::limit).
    TooMany {
        /// Name of the limit of the queue.
        limit: String,
        /// For how long.
        delay: Duration,
        /// What was said.
        error: BoxError,
    },
}

impl Failure {
    /// Archive at once.
    pub fn archive(error: impl Into<BoxError>) -> Self {
        Self::Archive(error.into())
    }

    /// Try again after this delay; spends a retry.
    pub fn retry_in(delay: Duration, error: impl Into<BoxError>) -> Self {
        Self::RetryIn(delay, error.into())
    }

    /// Drop the task.
    pub fn revoke(reason: impl Into<BoxError>) -> Self {
        Self::Revoke(reason.into())
    }

    /// Snooze the task for this long, without spending a retry.
    pub fn snooze(delay: Duration, reason: impl Into<BoxError>) -> Self {
        Self::Snooze(Some(delay), reason.into())
    }

    /// Somebody else has said that it is too much (HTTP's 429): snooze the task, and let nothing start for `retry_after`
    /// that has the same key of this [limit](crate::limit) of its queue. Where there is no limit of this name, only the task is
    /// snoozed.
    pub fn too_many(limit: impl Into<String>, retry_after: Duration) -> Self {
        let limit = limit.into();
        let error = format!("too many requests: limit {limit:?} lets nothing start for {retry_after:?}").into();
        Self::TooMany { limit, delay: retry_after, error }
    }

    /// The same with where its error came from, for errors that know it, as `anyhow::Error::backtrace`: `task show --attempts`
    /// shows it for the last attempt, up to 4 KiB of it. The text of the error stays; [`error`](Self::error) is of another type.
    /// Those of panics are kept without this.
    #[must_use]
    pub fn traced(mut self, backtrace: impl fmt::Display) -> Self {
        let place = match &mut self {
            Self::Retry(error)
            | Self::RetryIn(_, error)
            | Self::Archive(error)
            | Self::Revoke(error)
            | Self::Snooze(_, error)
            | Self::TooMany { error, .. } => error,
        };
        let error = std::mem::replace(place, Box::new(fmt::Error));
        *place = Box::new(Traced { error, backtrace: backtrace.to_string() });
        self
    }

    /// What [`traced`](Self::traced) was given.
    pub fn backtrace(&self) -> Option<&str> {
        self.error().downcast_ref::<Traced>().map(|traced| &*traced.backtrace)
    }

    /// What went wrong.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        match self {
            Self::Retry(error)
            | Self::RetryIn(_, error)
            | Self::Archive(error)
            | Self::Revoke(error)
            | Self::Snooze(_, error)
            | Self::TooMany { error, .. } => &**error,
        }
    }
}

/// An error with where it came from.
#[derive(Debug)]
struct Traced {
    error: BoxError,
    backtrace: String,
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Traced {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Retry(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_text(self.error()))
    }
}

/// The error and its causes in one line, without passwords of URLs, cut to [`MAX_ERROR_LEN`].
#[doc(hidden)]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Many error types already have the text of their source in their own.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    // Masked before it is cut, so that no half of a URL is overlooked.
    let mut text = mask_passwords(text);
    text.truncate(text.floor_char_boundary(MAX_ERROR_LEN));
    text
}

/// How one attempt ended.
#[derive(Debug)]
pub enum Outcome {
    /// Success, with the result to keep if the task has a retention.
    Done(Option<Bytes>),
    /// The handler failed.
    Failed(Failure),
    /// The server is shutting down and took the task from the handler.
    Aborted,
}

/// What happens to an active task; each variant is one atomic transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Delete the task and count it as processed.
    Done,
    /// The same for a task that its handler has dropped: in a flow it has not succeeded.
    Revoke,
    /// Keep the task as completed.
    Complete {
        /// The message to store.
        message: TaskMessage,
        /// Unix second at which the retention ends.
        expires_at: i64,
        /// The result to store with it; `None` leaves one that is already there.
        result: Option<Bytes>,
    },
    /// Wait for another attempt.
    Retry {
        /// The message to store.
        message: TaskMessage,
        /// Unix second of the next attempt.
        at: i64,
        /// Whether this counts as a failure (and the message as one more retry).
        is_failure: bool,
    },
    /// Give up and keep the task for inspection.
    Archive {
        /// The message to store.
        message: TaskMessage,
    },
    /// Back to the front of the queue, untouched.
    Requeue,
}

impl Step {
    /// The error that is stored with the task, which also says by what budget it was given up.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { message, .. } | Self::Archive { message } => Some(&message.error_msg),
            Self::Done | Self::Revoke | Self::Complete { .. } | Self::Requeue => None,
        }
    }
}

/// Decides what happens to a task after an attempt that ended at `now` (Unix seconds). `policy` is that of its server; the
/// task may have one of its own, and [budgets](crate::budget) of its own.
///
/// The order is asynq's, with three deliberate differences (`docs/differences.md`): a task that was put
/// back is not archived because its retries are used up (asynq does that, W18); a task whose
/// deadline has passed is archived at once instead of burning its retries on attempts that cannot run
/// (W55); and error texts are cut to [`MAX_ERROR_LEN`] (W38).
///
/// ```
/// use queue_core::outcome::{Failure, Outcome, Step, next_step};
/// use queue_core::{RetryPolicy, TaskMessage};
///
/// let exhausted = TaskMessage { retry: 3, retried: 3, ..Default::default() };
/// let outcome = Outcome::Failed(Failure::Retry("boom".into()));
/// assert!(matches!(next_step(&exhausted, outcome, 0, &RetryPolicy::Asynq), Step::Archive { .. }));
/// ```
pub fn next_step(message: &TaskMessage, outcome: Outcome, now: i64, policy: &RetryPolicy) -> Step {
    let failure = match outcome {
        Outcome::Aborted => return Step::Requeue,
        Outcome::Done(_) if flow::retention(message) <= 0 => return Step::Done,
        Outcome::Done(result) => {
            let mut message = message.clone();
            message.completed_at = now;
            budget::forget(&mut message.headers);
            let expires_at = now.saturating_add(flow::retention(&message)).min(LAST_SECOND);
            return Step::Complete { message, expires_at, result };
        }
        Outcome::Failed(Failure::Revoke(_)) => return Step::Revoke,
        Outcome::Failed(failure) => failure,
    };
    let text = error_text(failure.error());
    let counts = !matches!(failure, Failure::Snooze(..) | Failure::TooMany { .. });
    let exhausted = message.retried >= message.retry;
    let too_late = message.deadline != 0 && now >= message.deadline;
    let own = Budget::of(&message.headers);
    let spent = if counts { own.time_is_over(message, now) } else { own.snoozes_are_spent(message) };
    let gives_up = matches!(failure, Failure::Archive(_)) || (counts && exhausted) || too_late;
    // What would have ended it in any case needs no other reason.
    let spent = spent.filter(|_| !gives_up);
    let gives_up = gives_up || spent.is_some();
    let delay = match &failure {
        Failure::RetryIn(delay, _) | Failure::Snooze(Some(delay), _) | Failure::TooMany { delay, .. } => *delay,
        _ if gives_up => Duration::ZERO,
        _ => own.policy(policy).delay(message, &text),
    };
    let mut after = message.clone();
    after.error_msg = with_reason(text, spent.as_deref());
    after.last_failed_at = now;
    if gives_up {
        budget::forget(&mut after.headers);
        return Step::Archive { message: after };
    }
    if counts {
        after.retried = after.retried.saturating_add(1);
        own.fail(message, &mut after, now);
    } else {
        own.snooze(&mut after);
    }
    let at = now.saturating_add(crate::clock::secs_ceil(delay)).min(LAST_SECOND);
    Step::Retry { message: after, at, is_failure: counts }
}

/// The text of an error, and why the task was given up.
pub(crate) fn with_reason(mut text: String, reason: Option<&str>) -> String {
    if let Some(reason) = reason {
        text.truncate(text.floor_char_boundary(MAX_ERROR_LEN - reason.len()));
        text.push_str(reason);
    }
    text
}

/// The instant (Unix nanoseconds) at which an attempt that starts now must end: the earlier of timeout
/// and deadline.
///
/// `unchosen` is the timeout where none was chosen. A client writes [`DEFAULT_TIMEOUT`] into such a message (as
/// asynq does), so a message with exactly that has none; nor has one with neither timeout nor deadline.
pub fn attempt_deadline_ns(message: &TaskMessage, unchosen: Duration, now_ns: i64) -> i64 {
    const NANOS: i64 = 1_000_000_000;
    const DEFAULT_SECS: i64 = DEFAULT_TIMEOUT.as_secs().cast_signed();
    let by_unchosen = now_ns.saturating_add(i64::try_from(unchosen.as_nanos()).unwrap_or(i64::MAX));
    let by_timeout = match message.timeout {
        DEFAULT_SECS => by_unchosen,
        secs if secs > 0 => now_ns.saturating_add(secs.saturating_mul(NANOS)),
        _ if message.deadline == 0 => by_unchosen,
        _ => i64::MAX,
    };
    let by_deadline = if message.deadline == 0 { i64::MAX } else { message.deadline.saturating_mul(NANOS) };
    by_timeout.min(by_deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;
    const POLICY: RetryPolicy = RetryPolicy::Fixed(Duration::from_secs(10));

    fn message() -> TaskMessage {
        TaskMessage { retry: 3, retried: 1, timeout: 30, ..TaskMessage::default() }
    }

    fn step(message: &TaskMessage, failure: Failure) -> Step {
        next_step(message, Outcome::Failed(failure), NOW, &POLICY)
    }

    #[test]
    fn success_deletes_or_keeps_by_retention() {
        for none in [0, -1, i64::MIN] {
            let message = TaskMessage { retention: none, ..message() };
            assert_eq!(next_step(&message, Outcome::Done(None), NOW, &POLICY), Step::Done, "{none}");
        }
        let kept = TaskMessage { retention: 60, ..message() };
        let result = Some(Bytes::from_static(b"42"));
        let expected = Step::Complete {
            message: TaskMessage { completed_at: NOW, ..kept.clone() },
            expires_at: NOW + 60,
            result: result.clone(),
        };
        assert_eq!(next_step(&kept, Outcome::Done(result), NOW, &POLICY), expected);
    }

    #[test]
    fn a_failure_spends_a_retry_and_keeps_the_text() {
        let Step::Retry { message, at, is_failure } = step(&message(), Failure::Retry("boom".into())) else {
            panic!("not a retry")
        };
        assert_eq!((message.retried, message.error_msg.as_str(), message.last_failed_at), (2, "boom", NOW));
        assert_eq!((at, is_failure), (NOW + 10, true));
    }

    #[test]
    fn an_exhausted_or_skipped_task_is_archived_with_its_retries_unchanged() {
        let exhausted = TaskMessage { retried: 3, ..message() };
        let Step::Archive { message: archived } = step(&exhausted, Failure::Retry("boom".into())) else {
            panic!("not archived")
        };
        assert_eq!((archived.retried, archived.error_msg.as_str()), (3, "boom"));
        assert!(matches!(step(&message(), Failure::archive("no use")), Step::Archive { .. }));
    }

    #[test]
    fn snooze_spends_nothing_and_never_archives() {
        let exhausted = TaskMessage { retried: 3, ..message() };
        let Step::Retry { message, at, is_failure } =
            step(&exhausted, Failure::snooze(Duration::from_millis(1), "busy"))
        else {
            panic!("not snoozed")
        };
        assert_eq!((message.retried, at, is_failure), (3, NOW + 1, false));
    }

    #[test]
    fn no_delay_is_longer_than_go_can_read() {
        let Step::Retry { at, .. } = step(&message(), Failure::retry_in(Duration::MAX, "later")) else { panic!() };
        assert_eq!(at, LAST_SECOND);
    }

    #[test]
    fn revoke_drops_even_with_a_retention() {
        let kept = TaskMessage { retention: 60, ..message() };
        assert_eq!(step(&kept, Failure::revoke("obsolete")), Step::Revoke);
    }

    #[test]
    fn a_passed_deadline_archives_at_once() {
        let late = TaskMessage { deadline: NOW, ..message() };
        assert!(matches!(step(&late, Failure::Retry("context deadline exceeded".into())), Step::Archive { .. }));
        let still = TaskMessage { deadline: NOW + 1, ..message() };
        assert!(matches!(step(&still, Failure::Retry("boom".into())), Step::Retry { .. }));
    }

    #[test]
    fn long_errors_are_cut_at_a_character() {
        let long = "ü".repeat(MAX_ERROR_LEN);
        let Step::Retry { message, .. } = step(&message(), Failure::Retry(long.into())) else { panic!() };
        assert_eq!(message.error_msg.len(), MAX_ERROR_LEN);
    }

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("send mail")]
        struct Outer(#[source] std::io::Error);
        let failure = Failure::from(Outer(std::io::Error::other("connection refused")));
        assert_eq!(failure.to_string(), "send mail: connection refused");
        #[derive(Debug, thiserror::Error)]
        #[error("cannot send mail: {0}; is the server running?")]
        struct Hint(#[source] std::io::Error);
        let failure = Failure::from(Hint(std::io::Error::other("connection refused")));
        assert_eq!(failure.to_string(), "cannot send mail: connection refused; is the server running?");
    }

    #[test]
    fn no_password_of_a_url_gets_into_a_message() {
        let error = "cannot reach redis://app:secret@db:6379";
        let Step::Archive { message } = step(&message(), Failure::archive(error)) else { panic!() };
        assert_eq!(message.error_msg, "cannot reach redis://app:***@db:6379");
    }

    fn ends(timeout: i64, deadline: i64, unchosen: Duration) -> i64 {
        let message = TaskMessage { timeout, deadline, ..TaskMessage::default() };
        attempt_deadline_ns(&message, unchosen, NOW * 1_000_000_000) / 1_000_000_000
    }

    #[test]
    fn the_earlier_of_timeout_and_deadline_ends_an_attempt() {
        assert_eq!(ends(30, 0, DEFAULT_TIMEOUT), NOW + 30);
        assert_eq!(ends(30, NOW + 5, DEFAULT_TIMEOUT), NOW + 5);
        assert_eq!(ends(0, NOW + 5, DEFAULT_TIMEOUT), NOW + 5);
        assert_eq!(ends(0, 0, DEFAULT_TIMEOUT), NOW + 1_800);
        assert_eq!(ends(1_800, 0, DEFAULT_TIMEOUT), NOW + 1_800);
    }

    #[test]
    fn a_timeout_that_nobody_chose_is_that_of_the_worker() {
        let hours = Duration::from_secs(7_200);
        assert_eq!(ends(1_800, 0, hours), NOW + 7_200, "what clients write where none was chosen");
        assert_eq!(ends(0, 0, hours), NOW + 7_200);
        assert_eq!(ends(1_800, NOW + 5, hours), NOW + 5);
        assert_eq!(ends(1_799, 0, hours), NOW + 1_799);
        assert_eq!(ends(0, NOW + 9_000, hours), NOW + 9_000, "a deadline alone was chosen");
        assert_eq!(ends(0, 0, Duration::MAX), i64::MAX / 1_000_000_000);
    }
}
