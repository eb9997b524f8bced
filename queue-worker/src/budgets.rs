//! What becomes of a task by its budgets and those of its server, and a word about budgets that cannot be read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use queue_core::budget::unreadable;
use queue_core::outcome::{Outcome, Step, next_step};
use queue_core::{RetryPolicy, TaskMessage};

use crate::log::warn;

/// Decides what happens to a task after an attempt; see [`next_step`].
pub(crate) fn decide(message: &TaskMessage, outcome: Outcome, now: i64, policy: &RetryPolicy) -> Step {
    if matches!(outcome, Outcome::Failed(_)) {
        complain(message);
    }
    next_step(message, outcome, now, policy)
}

/// Says in the log that a budget of a task cannot be read, once for each header: whoever enqueues such tasks enqueues many.
pub(crate) fn complain(message: &TaskMessage) {
    static TOLD: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    for error in unreadable(&message.headers) {
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(error.header) {
            warn!(
                task = message.id,
                task_type = message.r#type,
                queue = message.queue,
                %error,
                "a budget cannot be read; the rules of this server hold instead. Of this header no other task is mentioned"
            );
        }
    }
}
