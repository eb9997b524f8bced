//! What is shown to somebody who looks at a task.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};

use crate::clock::date_from_secs;
use crate::progress::Progress;
use crate::state::TaskState;
use crate::wire::TaskMessage;

/// A task as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Task id, unique within its queue.
    pub id: String,
    /// Queue name.
    pub queue: String,
    /// Task type.
    pub task_type: String,
    /// Payload bytes.
    pub payload: Bytes,
    /// Where the task is.
    pub state: TaskState,
    /// How often it may be retried.
    pub max_retry: i32,
    /// How often it was retried.
    pub retried: i32,
    /// Text of the last error; `None` if it never failed.
    pub last_error: Option<String>,
    /// When it failed last.
    pub last_failed_at: Option<DateTime<Utc>>,
    /// How long one attempt may take; `None` for no limit.
    pub timeout: Option<Duration>,
    /// After when no attempt may run.
    pub deadline: Option<DateTime<Utc>>,
    /// The group it belongs to.
    pub group: Option<String>,
    /// When it is processed next: the due time of a scheduled or retried task, now for a pending one,
    /// `None` otherwise.
    pub next_process_at: Option<DateTime<Utc>>,
    /// How long it is kept after success; zero for not at all.
    pub retention: Duration,
    /// When it succeeded; only with a retention.
    pub completed_at: Option<DateTime<Utc>>,
    /// The result its handler stored.
    pub result: Option<Bytes>,
    /// How far the task is, or was in its last attempt that said so.
    pub progress: Option<Progress>,
    /// How often its workers went silent since it last ended an attempt properly.
    pub crashes: u32,
    /// User metadata.
    pub headers: BTreeMap<String, String>,
    /// Whether it is active although its lease has expired: its worker is gone or silent.
    pub is_orphaned: bool,
}

impl TaskInfo {
    /// The info of a message in this state; `next_process_at`, `result`, `progress` and `crashes` come from elsewhere.
    pub fn new(message: TaskMessage, state: TaskState) -> Self {
        let seconds = |secs: i64| Duration::from_secs(u64::try_from(secs).unwrap_or(0));
        Self {
            state,
            max_retry: message.retry,
            retried: message.retried,
            last_error: Some(message.error_msg).filter(|text| !text.is_empty()),
            last_failed_at: date_from_secs(message.last_failed_at),
            timeout: Some(seconds(message.timeout)).filter(|timeout| !timeout.is_zero()),
            deadline: date_from_secs(message.deadline),
            group: Some(message.group_key).filter(|group| !group.is_empty()),
            next_process_at: None,
            retention: seconds(message.retention),
            completed_at: date_from_secs(message.completed_at),
            result: None,
            progress: None,
            crashes: 0,
            headers: message.headers,
            id: message.id,
            queue: message.queue,
            task_type: message.r#type,
            payload: message.payload,
            is_orphaned: false,
        }
    }

    /// The same, due at this time.
    #[must_use]
    pub fn due_at(mut self, at: Option<DateTime<Utc>>) -> Self {
        self.next_process_at = at;
        self
    }
}
