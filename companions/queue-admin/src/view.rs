//! What tools write as JSON: the values of this crate with the names and units that programs rely on.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use queue_core::{TaskInfo, TaskState};
use serde::Serialize;

use crate::{QueueInfo, ServerInfo, WorkerInfo, payload};

/// Bytes: as text if they are, else in base64, and read as MessagePack if they are that.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Bytes {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Binary {
        /// The bytes.
        base64: String,
        /// The same as JSON, if they are a map or an array.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_pack: Option<serde_json::Value>,
    },
}

impl Bytes {
    /// These bytes.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Binary { base64: STANDARD.encode(bytes), message_pack: payload::message_pack(bytes) },
        }
    }
}

/// A task.
#[derive(Debug, Serialize)]
pub struct Task {
    id: String,
    queue: String,
    r#type: String,
    state: TaskState,
    payload: Bytes,
    max_retry: i32,
    retried: i32,
    last_error: Option<String>,
    last_failed_at: Option<DateTime<Utc>>,
    timeout_secs: Option<u64>,
    deadline: Option<DateTime<Utc>>,
    group: Option<String>,
    next_process_at: Option<DateTime<Utc>>,
    retention_secs: u64,
    completed_at: Option<DateTime<Utc>>,
    result: Option<Bytes>,
    headers: BTreeMap<String, String>,
    orphaned: bool,
}

impl From<TaskInfo> for Task {
    fn from(task: TaskInfo) -> Self {
        Self {
            payload: Bytes::new(&task.payload),
            result: task.result.as_deref().map(Bytes::new),
            timeout_secs: task.timeout.map(|timeout| timeout.as_secs()),
            retention_secs: task.retention.as_secs(),
            id: task.id,
            queue: task.queue,
            r#type: task.task_type,
            state: task.state,
            max_retry: task.max_retry,
            retried: task.retried,
            last_error: task.last_error,
            last_failed_at: task.last_failed_at,
            deadline: task.deadline,
            group: task.group,
            next_process_at: task.next_process_at,
            completed_at: task.completed_at,
            headers: task.headers,
            orphaned: task.is_orphaned,
        }
    }
}

/// A queue.
#[derive(Debug, Serialize)]
pub struct Queue {
    queue: String,
    paused: bool,
    size: u64,
    #[serde(flatten)]
    states: BTreeMap<&'static str, u64>,
    groups: u64,
    latency_ms: u64,
    processed_today: u64,
    failed_today: u64,
    processed_total: u64,
    failed_total: u64,
    timestamp: DateTime<Utc>,
}

impl From<&QueueInfo> for Queue {
    fn from(queue: &QueueInfo) -> Self {
        Self {
            queue: queue.name.clone(),
            paused: queue.paused,
            size: queue.size(),
            states: TaskState::ALL.map(|state| (state.as_str(), queue.count(state))).into(),
            groups: queue.groups,
            latency_ms: u64::try_from(queue.latency.as_millis()).unwrap_or(u64::MAX),
            processed_today: queue.processed,
            failed_today: queue.failed,
            processed_total: queue.processed_total,
            failed_total: queue.failed_total,
            timestamp: queue.timestamp,
        }
    }
}

/// A server.
#[derive(Debug, Serialize)]
pub struct Server {
    id: String,
    host: String,
    pid: i32,
    status: String,
    started: Option<DateTime<Utc>>,
    concurrency: i32,
    strict_priority: bool,
    queues: BTreeMap<String, i32>,
    workers: Vec<Worker>,
}

/// A task in the hands of a server.
#[derive(Debug, Serialize)]
struct Worker {
    task_id: String,
    r#type: String,
    queue: String,
    payload: Bytes,
    started: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
}

impl From<ServerInfo> for Server {
    fn from(server: ServerInfo) -> Self {
        Self {
            workers: server.workers.into_iter().map(Worker::from).collect(),
            id: server.id,
            host: server.host,
            pid: server.pid,
            status: server.status,
            started: server.started,
            concurrency: server.concurrency,
            strict_priority: server.strict_priority,
            queues: server.queues,
        }
    }
}

impl From<WorkerInfo> for Worker {
    fn from(worker: WorkerInfo) -> Self {
        Self {
            payload: Bytes::new(&worker.payload),
            task_id: worker.task_id,
            r#type: worker.task_type,
            queue: worker.queue,
            started: worker.started,
            deadline: worker.deadline,
        }
    }
}
