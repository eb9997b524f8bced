//! What became of a task that was worked in a test.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::{Codec as _, Task, TaskInfo};
use queue_worker::End;
use serde_json::Value;

/// One attempt at one task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attempt {
    /// The task as it was taken.
    pub task: TaskInfo,
    /// How the attempt ended.
    pub end: End,
    /// What the handler returned, also where the task has no retention to keep it.
    pub result: Option<Bytes>,
    /// The error, as it is stored with the task.
    pub error: Option<String>,
    /// When it is tried again; `None` if it is not.
    pub next: Option<DateTime<Utc>>,
}

impl Attempt {
    /// The payload.
    ///
    /// # Panics
    /// When it is not that of such a task.
    #[track_caller]
    pub fn payload<T: Task>(&self) -> T {
        assert_eq!(self.task.task_type, T::TYPE, "the task is of another type");
        T::Codec::decode(&self.task.payload).unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// The result as JSON; null if there is none.
    ///
    /// # Panics
    /// When it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let Some(result) = &self.result else { return Value::Null };
        serde_json::from_slice(result).unwrap_or_else(|error| panic!("the result of {self} is not JSON: {error}"))
    }

    /// Fails unless the handler succeeded.
    ///
    /// # Panics
    /// When it did not, with its error.
    #[track_caller]
    pub fn assert_succeeded(&self) -> &Self {
        assert_eq!(self.end, End::Succeeded, "{self}");
        self
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskInfo { id, task_type, queue, retried, .. } = &self.task;
        write!(f, "{task_type} {id} in {queue}, attempt {}: {}", retried + 1, self.end.as_str())?;
        if let Some(next) = self.next {
            write!(f, " until {}", next.to_rfc3339())?;
        }
        self.error.iter().try_for_each(|error| write!(f, " ({error})"))
    }
}

/// A group that was aggregated, or was to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AggregatedGroup {
    /// Queue name.
    pub queue: String,
    /// Group name.
    pub group: String,
    /// What went wrong; the tasks are in their group again, unless the aggregator archived or dropped them.
    pub error: Option<String>,
}

/// What was worked, in the order in which it happened.
#[derive(Debug, Clone, Default)]
#[must_use = "it tells whether the tasks succeeded"]
pub struct Drained {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) groups: Vec<AggregatedGroup>,
}

impl Drained {
    /// The groups that were aggregated. The tasks that they have become were worked like all others.
    pub fn groups(&self) -> &[AggregatedGroup] {
        &self.groups
    }

    /// How many attempts ended like this.
    pub fn count(&self, end: End) -> usize {
        self.attempts.iter().filter(|attempt| attempt.end == end).count()
    }

    /// The attempts at tasks of this type.
    pub fn of<T: Task>(&self) -> impl Iterator<Item = &Attempt> {
        self.of_type(T::TYPE)
    }

    /// The attempts at tasks of this type, by its name.
    pub fn of_type(&self, task_type: &str) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(move |attempt| attempt.task.task_type == task_type)
    }

    /// Fails unless this many attempts were made, and all succeeded.
    ///
    /// # Panics
    /// When it is otherwise; says what happened instead.
    #[track_caller]
    pub fn assert_succeeded(&self, count: usize) -> &Self {
        let succeeded = self.count(End::Succeeded);
        assert!(
            succeeded == count && self.len() == count,
            "expected {count} attempts that succeed, but {succeeded} of {} did:\n{self}",
            self.len()
        );
        self
    }
}

impl Deref for Drained {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl IntoIterator for Drained {
    type Item = Attempt;
    type IntoIter = std::vec::IntoIter<Attempt>;

    fn into_iter(self) -> Self::IntoIter {
        self.attempts.into_iter()
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempts.is_empty() && self.groups.is_empty() {
            return f.write_str("  (nothing was due)");
        }
        let groups = self.groups.iter().map(|AggregatedGroup { queue, group, error }| match error {
            None => format!("  group {group} in {queue}: aggregated"),
            Some(error) => format!("  group {group} in {queue}: not aggregated ({error})"),
        });
        let lines = groups.chain(self.attempts.iter().map(|attempt| format!("  {attempt}")));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}
