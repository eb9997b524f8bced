//! The protobuf messages of asynq (proto3, package `asynq`), field for field.
//!
//! Go re-encodes messages from a struct and drops fields it does not know, so nothing of ours is ever
//! put into an extra field here (rule R16). Maps are kept sorted, so that our own bytes are stable;
//! Go's are not, and neither side compares them.

mod timestamp;

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
pub use timestamp::Timestamp;

/// The header of a task whose payload is encrypted, as `queue-crypt` does it.
pub const ENCRYPTED: &str = "x-encrypted";

/// A task as it is stored in the `msg` field of its hash.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TaskMessage {
    /// Task type, for example `email:send`. Never blank.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Payload; protobuf cannot tell "none" from "empty".
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
    /// Task id, unique within the queue.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Queue name. Go builds every key from it, so it must equal the queue that holds the task (R3).
    #[prost(string, tag = "4")]
    pub queue: String,
    /// Maximum number of retries. 0: the first failure archives.
    #[prost(int32, tag = "5")]
    pub retry: i32,
    /// Retries counted so far.
    #[prost(int32, tag = "6")]
    pub retried: i32,
    /// Text of the last error; empty for none.
    #[prost(string, tag = "7")]
    pub error_msg: String,
    /// Seconds one attempt may take; 0 for no timeout.
    #[prost(int64, tag = "8")]
    pub timeout: i64,
    /// Unix second after which no attempt may run; 0 for none.
    #[prost(int64, tag = "9")]
    pub deadline: i64,
    /// Name of the uniqueness lock this task holds; empty for none.
    #[prost(string, tag = "10")]
    pub unique_key: String,
    /// Unix second of the last failure, also of one that did not count; 0 for never.
    #[prost(int64, tag = "11")]
    pub last_failed_at: i64,
    /// Seconds to keep the task after success; 0 deletes it at once.
    #[prost(int64, tag = "12")]
    pub retention: i64,
    /// Unix second of success, only set with a retention.
    #[prost(int64, tag = "13")]
    pub completed_at: i64,
    /// Group name; empty for none.
    #[prost(string, tag = "14")]
    pub group_key: String,
    /// User metadata.
    #[prost(btree_map = "string, string", tag = "15")]
    pub headers: BTreeMap<String, String>,
}

/// What a running server tells about itself; value of the server-info key.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerInfo {
    /// Host name, or `unknown-host`.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Process id.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// UUID of this server instance.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// How many tasks it runs at once.
    #[prost(int32, tag = "4")]
    pub concurrency: i32,
    /// Queue name to configured priority.
    #[prost(btree_map = "string, int32", tag = "5")]
    pub queues: BTreeMap<String, i32>,
    /// Whether queues are served strictly by priority.
    #[prost(bool, tag = "6")]
    pub strict_priority: bool,
    /// `new`, `active`, `stopped` or `closed`.
    #[prost(string, tag = "7")]
    pub status: String,
    /// When it started. Always present (R14).
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Timestamp>,
    /// Tasks in hand.
    #[prost(int32, tag = "9")]
    pub active_worker_count: i32,
}

/// One running task of a server; value in the server's worker hash, under the task's id.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkerInfo {
    /// Host name.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Process id.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// UUID of the server.
    #[prost(string, tag = "3")]
    pub server_id: String,
    /// Task id.
    #[prost(string, tag = "4")]
    pub task_id: String,
    /// Task type.
    #[prost(string, tag = "5")]
    pub task_type: String,
    /// The whole payload.
    #[prost(bytes = "bytes", tag = "6")]
    pub task_payload: Bytes,
    /// Queue name.
    #[prost(string, tag = "7")]
    pub queue: String,
    /// When this attempt started. Always present.
    #[prost(message, optional, tag = "8")]
    pub start_time: Option<Timestamp>,
    /// When this attempt times out. Always present.
    #[prost(message, optional, tag = "9")]
    pub deadline: Option<Timestamp>,
}

/// A periodic entry of a scheduler.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchedulerEntry {
    /// UUID of the entry.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Cron spec as it was given.
    #[prost(string, tag = "2")]
    pub spec: String,
    /// Task type.
    #[prost(string, tag = "3")]
    pub task_type: String,
    /// Task payload.
    #[prost(bytes = "bytes", tag = "4")]
    pub task_payload: Bytes,
    /// Options as text; each must contain an opening parenthesis, or Go's Inspector panics (R13).
    #[prost(string, repeated, tag = "5")]
    pub enqueue_options: Vec<String>,
    /// Next firing; [`Timestamp::NO_MORE`] when there is none. Always present.
    #[prost(message, optional, tag = "6")]
    pub next_enqueue_time: Option<Timestamp>,
    /// Previous firing; [`Timestamp::NEVER`] before the first.
    #[prost(message, optional, tag = "7")]
    pub prev_enqueue_time: Option<Timestamp>,
}

/// One firing in the history of a periodic entry.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchedulerEnqueueEvent {
    /// Id of the task that was enqueued.
    #[prost(string, tag = "1")]
    pub task_id: String,
    /// When. Always present.
    #[prost(message, optional, tag = "2")]
    pub enqueue_time: Option<Timestamp>,
}

/// Bytes that are not the message they should be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("failed to decode {what} of {len} bytes: {source}")]
pub struct WireError {
    what: &'static str,
    len: usize,
    source: prost::DecodeError,
}

impl TaskMessage {
    /// Decodes the `msg` field of a task hash. The payload is a slice of `bytes`, not a copy.
    ///
    /// # Errors
    /// When the bytes are not a task message, for example truncated or with invalid UTF-8 in a text.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, WireError> {
        let len = bytes.len();
        Self::decode(bytes).map_err(|source| WireError { what: "task message", len, source })
    }

    /// The bytes to store in the `msg` field.
    pub fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }
}

impl ServerInfo {
    /// Decodes the value of a server-info key.
    ///
    /// # Errors
    /// When the bytes are not a server info.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode(bytes).map_err(|source| WireError { what: "server info", len: bytes.len(), source })
    }
}

impl WorkerInfo {
    /// Decodes a value of a server's worker hash.
    ///
    /// # Errors
    /// When the bytes are not a worker info.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode(bytes).map_err(|source| WireError { what: "worker info", len: bytes.len(), source })
    }
}

impl SchedulerEntry {
    /// Decodes an element of a scheduler's list.
    ///
    /// # Errors
    /// When the bytes are not a scheduler entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode(bytes).map_err(|source| WireError { what: "scheduler entry", len: bytes.len(), source })
    }
}

impl SchedulerEnqueueEvent {
    /// Decodes a member of an entry's history.
    ///
    /// # Errors
    /// When the bytes are not an enqueue event.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        Self::decode(bytes).map_err(|source| WireError { what: "enqueue event", len: bytes.len(), source })
    }
}

#[cfg(test)]
mod tests;
