//! Answers as asynqmon writes them. Times are UTC.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use queue_admin::{DailyStats, EnqueueEvent, GroupInfo, QueueInfo, SchedulerEntry, ServerInfo, WorkerInfo, payload};
use queue_core::{TaskInfo, TaskState, duration};
use serde_json::{Value, json};

use crate::redact::{HIDDEN, Redact};

/// How Go writes that there is no time.
const ZERO: &str = "0001-01-01T00:00:00Z";
/// What is told of bytes that are no text.
const NO_TEXT: &str = "non-printable bytes";

fn seconds(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn or_empty(at: Option<DateTime<Utc>>) -> String {
    at.map_or_else(String::new, seconds)
}

fn or_zero(at: Option<DateTime<Utc>>) -> String {
    at.map_or_else(|| ZERO.to_owned(), seconds)
}

/// asynqmon takes line breaks for no text, too; and so empty bytes, and blanks.
fn text(bytes: &[u8]) -> &str {
    payload::text(bytes).filter(|text| !text.trim().is_empty()).unwrap_or(NO_TEXT)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn snapshot(queue: &QueueInfo, memory: u64) -> Value {
    let latency = milliseconds(queue.latency);
    let displayed = Duration::from_millis(latency.saturating_add(5) / 10 * 10);
    json!({
        "queue": queue.name,
        "memory_usage_bytes": memory,
        "size": queue.size(),
        "groups": queue.groups,
        "latency_msec": latency,
        "display_latency": duration::format(displayed),
        "active": queue.active,
        "pending": queue.pending,
        "aggregating": queue.aggregating,
        "scheduled": queue.scheduled,
        "retry": queue.retry,
        "archived": queue.archived,
        "completed": queue.completed,
        "processed": queue.processed,
        "succeeded": queue.processed.saturating_sub(queue.failed),
        "failed": queue.failed,
        "paused": queue.paused,
        "timestamp": queue.timestamp.to_rfc3339_opts(SecondsFormat::AutoSi, true),
    })
}

pub(super) fn days(queue: &str, days: &[DailyStats]) -> Value {
    let day = |day: &DailyStats| {
        let succeeded = day.processed.saturating_sub(day.failed);
        json!({
            "queue": queue, "processed": day.processed, "succeeded": succeeded, "failed": day.failed,
            "date": day.date.to_string(),
        })
    };
    days.iter().map(day).collect()
}

pub(super) fn groups(groups: &[GroupInfo]) -> Value {
    groups.iter().map(|group| json!({ "group": group.name, "size": group.size })).collect()
}

/// Seconds that a completed task is still kept.
fn ttl(task: &TaskInfo, now: DateTime<Utc>) -> i64 {
    let kept = i64::try_from(task.retention.as_secs()).unwrap_or(i64::MAX);
    task.completed_at.map_or(0, |at| (at - now).num_seconds().saturating_add(kept))
}

/// A task in the list of its state.
pub(super) fn listed(task: &TaskInfo, worker: Option<&WorkerInfo>, now: DateTime<Utc>) -> Value {
    let mut shown = json!({
        "id": task.id,
        "type": task.task_type,
        "payload": text(&task.payload),
        "queue": task.queue,
        "max_retry": task.max_retry,
        "retried": task.retried,
        "error_message": task.last_error.as_deref().unwrap_or_default(),
    });
    match task.state {
        TaskState::Active => {
            let of_worker = |at: fn(&WorkerInfo) -> Option<DateTime<Utc>>| {
                worker.map_or_else(|| "-".to_owned(), |it| or_zero(at(it)))
            };
            shown["start_time"] = of_worker(|worker| worker.started).into();
            shown["deadline"] = of_worker(|worker| worker.deadline).into();
            shown["is_orphaned"] = task.is_orphaned.into();
        }
        TaskState::Pending => {}
        TaskState::Scheduled | TaskState::Retry => shown["next_process_at"] = or_zero(task.next_process_at).into(),
        TaskState::Archived => shown["last_failed_at"] = or_zero(task.last_failed_at).into(),
        TaskState::Completed => {
            shown["completed_at"] = or_zero(task.completed_at).into();
            shown["result"] = text(task.result.as_deref().unwrap_or_default()).into();
            shown["ttl_seconds"] = ttl(task, now).into();
        }
        TaskState::Aggregating => shown["group"] = task.group.as_deref().unwrap_or_default().into(),
    }
    shown
}

/// A task alone.
pub(super) fn alone(task: &TaskInfo, now: DateTime<Utc>) -> Value {
    json!({
        "id": task.id,
        "queue": task.queue,
        "type": task.task_type,
        "payload": text(&task.payload),
        "state": task.state.as_str(),
        "max_retry": task.max_retry,
        "retried": task.retried,
        "error_message": task.last_error.as_deref().unwrap_or_default(),
        "last_failed_at": or_empty(task.last_failed_at),
        "timeout_seconds": task.timeout.map_or(0, |timeout| timeout.as_secs()),
        "deadline": or_empty(task.deadline),
        "next_process_at": or_empty(task.next_process_at),
        "completed_at": or_empty(task.completed_at),
        "result": text(task.result.as_deref().unwrap_or_default()),
        "ttl_seconds": if task.state == TaskState::Completed { ttl(task, now) } else { 0 },
    })
}

pub(super) fn server(server: &ServerInfo) -> Value {
    let worker = |worker: &WorkerInfo| {
        json!({
            "task_id": worker.task_id,
            "queue": worker.queue,
            "task_type": worker.task_type,
            "task_payload": text(&worker.payload),
            "start_time": or_zero(worker.started),
        })
    };
    json!({
        "id": server.id,
        "host": server.host,
        "pid": server.pid,
        "concurrency": server.concurrency,
        "queue_priorities": server.queues,
        "strict_priority_enabled": server.strict_priority,
        "start_time": or_zero(server.started),
        "status": server.status,
        "active_workers": server.workers.iter().map(worker).collect::<Vec<_>>(),
    })
}

pub(super) fn entry(entry: &SchedulerEntry, redact: &Redact) -> Value {
    let is_hidden = redact.hides_payload(&entry.task_type);
    let mut shown = json!({
        "id": entry.id,
        "spec": entry.spec,
        "task_type": entry.task_type,
        "task_payload": if is_hidden { HIDDEN } else { text(&entry.payload) },
        "options": redact.options(&entry.options),
        "next_enqueue_at": or_zero(entry.next),
    });
    if let Some(prev) = entry.prev {
        shown["prev_enqueue_at"] = seconds(prev).into();
    }
    shown
}

pub(super) fn event(event: &EnqueueEvent) -> Value {
    json!({ "task_id": event.task_id, "enqueued_at": or_zero(event.enqueued_at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        for (bytes, shown) in [
            (&b"a b"[..], "a b"),
            (b"a\nb", "a\nb"),
            (b"", NO_TEXT),
            (b" \n", NO_TEXT),
            (b"a\0", NO_TEXT),
            (b"\xff", NO_TEXT),
        ] {
            assert_eq!(text(bytes), shown, "{bytes:?}");
        }
    }

    #[test]
    fn latency_is_shown_as_go_rounds_it() {
        let shown = |ms| {
            let mut queue = QueueInfo::default();
            queue.latency = Duration::from_millis(ms);
            snapshot(&queue, 0)["display_latency"].clone()
        };
        for (ms, text) in [(0, "0s"), (4, "0s"), (5, "10ms"), (1_234, "1.23s"), (61_000, "1m1s")] {
            assert_eq!(shown(ms), text);
        }
    }
}
