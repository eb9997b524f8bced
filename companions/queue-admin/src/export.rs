//! The lines of an export, described in `docs/cli.md`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use queue_core::TaskState;
use queue_redis::broker::{StoredCounter, StoredQueue, StoredTask};
use serde::{Deserialize, Serialize};

/// The version that is written; others are refused.
pub const VERSION: u32 = 1;

/// One line. Unknown names are refused: what an older program leaves out would be lost.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// The first.
    Export(Header),
    /// The beginning of a queue.
    Queue(QueueLine),
    /// A task of it.
    Task(Box<TaskLine>),
    /// The last.
    End(End),
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// Tells exports apart, so that one is not imported twice.
    pub id: String,
    /// When it began.
    pub exported_at: DateTime<Utc>,
    /// Whether tasks may have gone on while they were read.
    pub live: bool,
}

/// The beginning of a queue; its tasks follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLine {
    /// Queue name.
    pub queue: String,
    paused: Option<String>,
    counters: Vec<Counter>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    name: String,
    value: i64,
    expires_at: Option<i64>,
}

/// A task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskLine {
    /// Queue name.
    pub queue: String,
    /// Task id.
    pub id: String,
    /// For people who search the file; the message counts.
    r#type: String,
    state: TaskState,
    score: Option<i64>,
    group: Option<String>,
    lock_expires_at_ms: Option<i64>,
    /// The message as it is stored, in base64.
    msg: String,
    /// The other fields of the hash.
    fields: BTreeMap<String, Blob>,
}

/// Bytes: text if they are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Blob {
    Text(String),
    Binary { base64: String },
}

/// The last line. Without it the file has been cut off.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// How many tasks there are of each queue.
    pub tasks: BTreeMap<String, u64>,
}

impl Line {
    /// The line with its end.
    pub fn to_text(&self) -> String {
        // All keys are text and all values plain, so that nothing can fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

impl From<StoredQueue> for QueueLine {
    fn from(queue: StoredQueue) -> Self {
        let counter = |StoredCounter { name, value, expires_at }| Counter { name, value, expires_at };
        Self { queue: queue.queue, paused: queue.paused, counters: queue.counters.into_iter().map(counter).collect() }
    }
}

impl From<QueueLine> for StoredQueue {
    fn from(line: QueueLine) -> Self {
        let counter = |Counter { name, value, expires_at }| StoredCounter { name, value, expires_at };
        Self { queue: line.queue, paused: line.paused, counters: line.counters.into_iter().map(counter).collect() }
    }
}

impl TaskLine {
    /// The line of a task of this queue.
    pub fn new(queue: &str, mut task: StoredTask) -> Self {
        let task_type = task.message().map(|message| message.r#type).unwrap_or_default();
        let message = task.fields.remove("msg").unwrap_or_default();
        let blob = |bytes: bytes::Bytes| match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Blob::Text(text),
            Err(error) => Blob::Binary { base64: STANDARD.encode(error.as_bytes()) },
        };
        Self {
            queue: queue.to_owned(),
            id: task.id,
            r#type: task_type,
            state: task.state,
            score: task.score,
            group: task.group,
            lock_expires_at_ms: task.lock_expires_at_ms,
            msg: STANDARD.encode(message),
            fields: task.fields.into_iter().map(|(name, value)| (name, blob(value))).collect(),
        }
    }

    /// The task that the line is about.
    ///
    /// # Errors
    /// When the line makes no task that fits its queue; the text says why.
    pub fn task(self) -> Result<StoredTask, String> {
        let decode = |name: &str, text: &str| {
            STANDARD.decode(text).map(bytes::Bytes::from).map_err(|error| format!("{name} is not base64: {error}"))
        };
        let mut fields = BTreeMap::from([("msg".to_owned(), decode("msg", &self.msg)?)]);
        for (name, blob) in self.fields {
            let value = match blob {
                Blob::Text(text) => text.into(),
                Blob::Binary { base64 } => decode(&name, &base64)?,
            };
            fields.insert(name, value);
        }
        let task = StoredTask {
            id: self.id,
            state: self.state,
            score: self.score,
            group: self.group,
            fields,
            lock_expires_at_ms: self.lock_expires_at_ms,
        };
        match task.unfit(&self.queue) {
            Some(reason) => Err(reason),
            None => Ok(task),
        }
    }
}
