//! What a test expects to be enqueued.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use queue_core::{Codec as _, Task, TaskInfo};
use serde_json::Value;

use crate::queue::TestQueue;

type Check = Box<dyn Fn(&TaskInfo) -> Result<(), String> + Send + Sync>;

/// A description of tasks that wait: pending, scheduled, in a group, or for another attempt.
///
/// [`assert_enqueued!`](crate::assert_enqueued) makes one out of its arguments.
#[must_use]
pub struct Expected {
    wanted: String,
    times: Option<usize>,
    // Why a task is not the one, by whoever finds out first.
    checks: Vec<Check>,
}

queue_core::debug_some!(Expected, wanted, times);

impl Expected {
    /// Tasks of this type.
    pub fn of<T: Task>() -> Self {
        Self::task_type(T::TYPE)
    }

    /// Tasks of this type, by its name.
    pub fn task_type(task_type: impl Into<String>) -> Self {
        let task_type = task_type.into();
        let expected = Self { wanted: task_type.clone(), times: None, checks: Vec::new() };
        expected.check(move |task| unless(task.task_type == task_type, || "another type".to_owned()))
    }

    fn check(mut self, check: impl Fn(&TaskInfo) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.checks.push(Box::new(check));
        self
    }

    fn and(mut self, words: &str) -> Self {
        let _ = write!(self.wanted, ", {words}");
        self
    }

    /// Whose payload, decoded, fulfils this.
    pub fn matching<T: Task>(self, condition: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.and("that fulfils the condition").check(move |task| {
            let payload = T::Codec::decode(&task.payload).map_err(|error| format!("unreadable payload: {error}"))?;
            unless(condition(&payload), || "the condition does not hold".to_owned())
        })
    }

    /// Who as a whole fulfil this.
    pub fn where_task(self, condition: impl Fn(&TaskInfo) -> bool + Send + Sync + 'static) -> Self {
        self.and("that fulfils the condition")
            .check(move |task| unless(condition(task), || "the condition does not hold".to_owned()))
    }

    /// Whose payload is JSON and has at least these fields, with these values, at any depth. Arrays have to
    /// be equal in length.
    pub fn json(self, subset: Value) -> Self {
        let words = format!("payload {subset}");
        self.and(&words).check(move |task| {
            let payload = serde_json::from_slice(&task.payload).map_err(|_| "the payload is not JSON".to_owned())?;
            difference(&subset, &payload, "payload").map_or(Ok(()), Err)
        })
    }

    /// In this queue. Otherwise in any.
    pub fn queue(self, name: impl Into<String>) -> Self {
        let name = name.into();
        let words = format!("in queue {name}");
        self.and(&words).check(move |task| unless(task.queue == name, || format!("it is in queue {}", task.queue)))
    }

    /// Due at this time: scheduled, or to be retried, at this second (a fraction counts as the next one, as
    /// when it is enqueued), or pending if the time has come.
    pub fn at(self, time: DateTime<Utc>) -> Self {
        let second_of = |time: DateTime<Utc>| time.timestamp() + i64::from(time.timestamp_subsec_nanos() > 0);
        let second = second_of(time);
        let words = format!("at {}", time.to_rfc3339());
        self.and(&words).check(move |task| match task.next_process_at {
            Some(due) => unless(second_of(due) == second, || format!("it is due at {}", due.to_rfc3339())),
            None => Err("it has no time".to_owned()),
        })
    }

    /// With this header.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        let words = format!("header {name}={value}");
        self.and(&words).check(move |task| {
            let found = task.headers.get(&name);
            unless(found == Some(&value), || format!("its header {name} is {found:?}"))
        })
    }

    /// Exactly so many. Otherwise one or more.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Why a task is not one of these; `None` if it is.
    fn objection(&self, task: &TaskInfo) -> Option<String> {
        self.checks.iter().find_map(|check| check(task).err())
    }
}

fn unless(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}

/// Where a value lacks something of the wanted one.
fn difference(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(name, wanted)| {
            let path = format!("{path}.{name}");
            match found.get(name) {
                Some(found) => difference(wanted, found, &path),
                None => Some(format!("{path} is missing")),
            }
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let mut pairs = wanted.iter().zip(found).enumerate();
            pairs.find_map(|(at, (wanted, found))| difference(wanted, found, &format!("{path}[{at}]")))
        }
        (wanted, found) if wanted == found => None,
        (_, found) => Some(format!("{path} is {found}")),
    }
}

impl TestQueue {
    /// The tasks that are as expected; what [`assert_enqueued!`](crate::assert_enqueued) gives.
    ///
    /// # Errors
    /// When there are none, or not as many as expected: the text says what was expected, and what there is.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn find_enqueued(&self, expected: &Expected) -> Result<Vec<TaskInfo>, String> {
        let tasks = self.enqueued().await;
        let (found, others): (Vec<_>, Vec<_>) = tasks
            .into_iter()
            .map(|task| (expected.objection(&task), task))
            .partition(|(objection, _)| objection.is_none());
        if expected.times.map_or(!found.is_empty(), |times| found.len() == times) {
            return Ok(found.into_iter().map(|(_, task)| task).collect());
        }
        let count = expected.times.map_or_else(|| "a task".to_owned(), |times| format!("{times} tasks"));
        let mut text = format!("expected {count} {}; found {}", expected.wanted, found.len());
        list(&mut text, found.into_iter().chain(others));
        Err(text)
    }

    /// The opposite; what [`refute_enqueued!`](crate::refute_enqueued) asks for.
    ///
    /// # Errors
    /// When there are such tasks; the text lists them.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn find_none_enqueued(&self, expected: &Expected) -> Result<(), String> {
        let found: Vec<_> =
            self.enqueued().await.into_iter().filter(|task| expected.objection(task).is_none()).collect();
        if found.is_empty() {
            return Ok(());
        }
        let mut text = format!("expected no task {}; found {}", expected.wanted, found.len());
        list(&mut text, found.into_iter().map(|task| (None, task)));
        Err(text)
    }
}

/// Lists tasks, a line each, with what is wrong with it.
fn list(text: &mut String, tasks: impl Iterator<Item = (Option<String>, TaskInfo)>) {
    let mut is_empty = true;
    for (objection, task) in tasks {
        if is_empty {
            text.push_str("\nwhat is enqueued:");
        }
        is_empty = false;
        let payload: String = String::from_utf8_lossy(&task.payload).chars().take(200).collect();
        let _ = write!(text, "\n  {} in {}, {}", task.task_type, task.queue, task.state);
        if let Some(due) = task.next_process_at {
            let _ = write!(text, ", due {}", due.to_rfc3339());
        }
        let _ = write!(text, ": {payload:?}");
        if let Some(objection) = objection {
            let _ = write!(text, " ({objection})");
        }
    }
    if is_empty {
        text.push_str("\nnothing is enqueued");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subset_is_looked_for_at_any_depth() {
        let found = json!({"user": {"id": 7, "name": "ada"}, "tags": [1, {"a": 1, "b": 2}]});
        let check = |wanted: Value| difference(&wanted, &found, "payload");
        assert_eq!(check(json!({"user": {"id": 7}})), None);
        assert_eq!(check(json!({"tags": [1, {"b": 2}]})), None);
        assert_eq!(check(json!({"user": {"id": 8}})).unwrap(), "payload.user.id is 7");
        assert_eq!(check(json!({"users": 1})).unwrap(), "payload.users is missing");
        assert!(check(json!({"tags": [1]})).unwrap().starts_with("payload.tags is [1,"));
    }
}
