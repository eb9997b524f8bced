//! A queue on its way from one Redis to another: what there is to carry.
//!
//! `queue-admin` reads it; [`Broker::restore_queue`](crate::broker::Broker::restore_queue) and
//! [`Broker::restore`](crate::broker::Broker::restore) write it.

use std::collections::BTreeMap;

use bytes::Bytes;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::limits::LAST_SECOND;
use queue_core::wire::{TaskMessage, WireError};

/// Hash fields that make sense only in the Redis where they are: the state is named apart, and a run ends with
/// the move, as does the wait in a lane.
#[doc(hidden)]
pub const FIELDS_LEFT_BEHIND: [&str; 3] = ["state", "owner", "x_waits"];

/// What is true of a queue as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredQueue {
    /// Queue name.
    pub queue: String,
    /// The value of the pause (a Unix second, as a rule); `None` when the queue is not paused.
    pub paused: Option<String>,
    /// What has been counted.
    pub counters: Vec<StoredCounter>,
}

/// A counter of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCounter {
    /// `processed` or `failed`, with `:YYYY-MM-DD` for one of a day.
    pub name: String,
    /// What it has come to.
    pub value: i64,
    /// Unix second at which it expires.
    pub expires_at: Option<i64>,
}

impl StoredCounter {
    /// Whether the name is one of a counter. Others would be written elsewhere in the queue.
    pub fn is_known(&self) -> bool {
        let day = match self.name.split_once(':') {
            Some((name, day)) => ["processed", "failed"].contains(&name).then_some(Some(day)),
            None => ["processed", "failed"].contains(&self.name.as_str()).then_some(None),
        };
        let is_date = |day: &str| day.len() == 10 && chrono::NaiveDate::parse_from_str(day, "%Y-%m-%d").is_ok();
        self.value > 0 && day.is_some_and(|day| day.is_none_or(is_date))
    }
}

/// A task with everything that Redis holds about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTask {
    /// Task id.
    pub id: String,
    /// Its state; never [`TaskState::Active`].
    pub state: TaskState,
    /// Its place in the set of its state or in its group, a Unix second; `None` when pending.
    pub score: Option<i64>,
    /// The group in which it waits, or will; `None` without one.
    pub group: Option<String>,
    /// The fields of its hash, `msg` among them, without `state` and `owner`.
    pub fields: BTreeMap<String, Bytes>,
    /// Unix millisecond until which it holds its uniqueness lock; `None` when it holds none.
    pub lock_expires_at_ms: Option<i64>,
}

impl StoredTask {
    /// Its message.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn message(&self) -> Result<TaskMessage, WireError> {
        TaskMessage::from_bytes(self.fields.get("msg").cloned().unwrap_or_default())
    }

    /// Why it cannot be stored in this queue; `None` if it can. Storing it would break a rule of the format.
    pub fn unfit(&self, queue: &str) -> Option<String> {
        let message = match self.message() {
            Ok(message) => message,
            Err(error) => return Some(error.to_string()),
        };
        let needs_score = self.state != TaskState::Pending;
        let keys = QueueKeys::new(queue);
        let group = self.group.as_deref().map(str::as_bytes);
        let faults = [
            (message.id != self.id, "its message has another id"),
            (message.queue != queue, "its message belongs to another queue"),
            (self.state == TaskState::Active, "it is active"),
            (needs_score != self.score.is_some(), "its score does not fit its state"),
            (
                self.score.is_some_and(|score| score.unsigned_abs() > LAST_SECOND.unsigned_abs()),
                "its score is no second of a year up to 9999",
            ),
            (self.state == TaskState::Aggregating && self.group.is_none(), "it has no group"),
            (
                self.state == TaskState::Aggregating && self.fields.get("group").map(|group| &group[..]) != group,
                "its field group does not name its group",
            ),
            (self.fields.len() > 50, "it has more than 50 fields"),
            (self.fields.keys().any(|name| FIELDS_LEFT_BEHIND.contains(&name.as_str())), "it has a field of a run"),
            (
                self.lock_expires_at_ms.is_some() && !keys.may_own(&message.unique_key),
                "its lock is not one of the queue",
            ),
        ];
        faults.into_iter().find(|(fault, _)| *fault).map(|(_, reason)| reason.to_owned())
    }

    /// Whether this message is the one of this task, perhaps after some attempts: all that does not change
    /// over a task's life is the same.
    pub fn is_same_task(&self, other: &[u8]) -> bool {
        let constant = |mut message: TaskMessage| {
            message.retried = 0;
            message.error_msg.clear();
            message.last_failed_at = 0;
            message.completed_at = 0;
            message
        };
        match (self.message(), TaskMessage::from_bytes(Bytes::copy_from_slice(other))) {
            (Ok(ours), Ok(theirs)) => constant(ours) == constant(theirs),
            _ => false,
        }
    }
}
