//! What becomes of a task after an attempt or a crash, whatever the numbers in its message are.

use std::time::Duration;

use bytes::Bytes;
use queue_core::crash::{Crashes, step_after_crash};
use queue_core::outcome::{Failure, MAX_ERROR_LEN, Outcome, attempt_deadline_ns, next_step};
use queue_core::{RetryPolicy, Step, TaskMessage};

use crate::words::Words;

/// Scores beyond the year 9999 Redis would print with an exponent.
const FARTHEST: i64 = 253_402_300_799;

/// Decides what becomes of a task.
///
/// # Panics
/// When a score is beyond what Go can read, or an error text too long.
pub fn run(data: &[u8]) {
    let mut words = Words::new(data);
    let now = words.number();
    let message = TaskMessage {
        r#type: words.text(),
        retry: words.number() as i32,
        retried: words.number() as i32,
        timeout: words.number(),
        deadline: words.number(),
        retention: words.number(),
        ..TaskMessage::default()
    };
    let _ = attempt_deadline_ns(&message, queue_core::options::DEFAULT_TIMEOUT, now);
    let text = words.text();
    let error = || text.clone().into();
    let delay = words.duration();
    let policy = match words.byte() % 3 {
        0 => RetryPolicy::Asynq,
        1 => RetryPolicy::Fixed(delay),
        _ => RetryPolicy::Exponential { base: delay, max: Duration::MAX },
    };
    let outcome = match words.byte() % 8 {
        0 => Outcome::Done(None),
        1 => Outcome::Done(Some(Bytes::from(text.clone()))),
        2 => Outcome::Aborted,
        3 => Outcome::Failed(Failure::Retry(error())),
        4 => Outcome::Failed(Failure::RetryIn(delay, error())),
        5 => Outcome::Failed(Failure::Archive(error())),
        6 => Outcome::Failed(Failure::Revoke(error())),
        _ => Outcome::Failed(Failure::Snooze(Some(delay), error())),
    };
    check(&next_step(&message, outcome, now, &policy));

    let crashes = Crashes::parse(&words.text());
    assert_eq!(Crashes::parse(&crashes.to_string()), crashes);
    let crashes = crashes.and(&words.text(), words.number());
    assert_eq!(Crashes::parse(&crashes.to_string()), crashes);
    check(&step_after_crash(&message, &crashes, u32::from(words.byte()), now, &policy));
}

fn check(step: &Step) {
    match step {
        Step::Complete { expires_at, .. } => assert!(*expires_at <= FARTHEST),
        Step::Retry { message, at, .. } => {
            assert!(*at <= FARTHEST);
            assert!(message.error_msg.len() <= MAX_ERROR_LEN);
        }
        Step::Archive { message } => assert!(message.error_msg.len() <= MAX_ERROR_LEN),
        Step::Done | Step::Revoke | Step::Requeue => {}
    }
}
