//! The bytes that Go asynq wrote, in `tests/golden`, read and written by us.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::wire::{SchedulerEnqueueEvent, SchedulerEntry, ServerInfo, TaskMessage, Timestamp, WorkerInfo};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Vector {
    name: String,
    message: String,
    hex: String,
    canonical: bool,
    fields: Value,
    state: Option<TaskState>,
    unique_key: Option<String>,
    container: Option<Container>,
    hash_fields: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Container {
    key: String,
}

#[derive(Deserialize)]
struct Durations {
    format: Vec<Format>,
    parse: Vec<Parse>,
}

#[derive(Deserialize)]
struct Format {
    nanos: i64,
    text: String,
}

#[derive(Deserialize)]
struct Parse {
    input: String,
    nanos: Option<i64>,
    error: Option<String>,
}

fn read<T: DeserializeOwned>(file: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn bytes(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect::<Vec<_>>().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn time(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| json!({"seconds": time.seconds, "nanos": time.nanos}))
}

/// The fields of a message by their proto names, and the bytes we write for it.
fn decode(vector: &Vector) -> (Value, Vec<u8>) {
    let bytes = bytes(&vector.hex);
    match vector.message.as_str() {
        "TaskMessage" => {
            let message = TaskMessage::from_bytes(bytes).unwrap();
            let fields = json!({
                "type": message.r#type, "payload": hex(&message.payload), "id": message.id, "queue": message.queue,
                "retry": message.retry, "retried": message.retried, "error_msg": message.error_msg,
                "timeout": message.timeout, "deadline": message.deadline, "unique_key": message.unique_key,
                "last_failed_at": message.last_failed_at, "retention": message.retention,
                "completed_at": message.completed_at, "group_key": message.group_key, "headers": message.headers,
            });
            (fields, message.to_bytes().to_vec())
        }
        "ServerInfo" => {
            let info = ServerInfo::from_bytes(&bytes).unwrap();
            let fields = json!({
                "host": info.host, "pid": info.pid, "server_id": info.server_id, "concurrency": info.concurrency,
                "queues": info.queues, "strict_priority": info.strict_priority, "status": info.status,
                "start_time": time(info.start_time), "active_worker_count": info.active_worker_count,
            });
            (fields, info.encode_to_vec())
        }
        "WorkerInfo" => {
            let info = WorkerInfo::from_bytes(&bytes).unwrap();
            let fields = json!({
                "host": info.host, "pid": info.pid, "server_id": info.server_id, "task_id": info.task_id,
                "task_type": info.task_type, "task_payload": hex(&info.task_payload), "queue": info.queue,
                "start_time": time(info.start_time), "deadline": time(info.deadline),
            });
            (fields, info.encode_to_vec())
        }
        "SchedulerEntry" => {
            let entry = SchedulerEntry::decode(bytes).unwrap();
            let fields = json!({
                "id": entry.id, "spec": entry.spec, "task_type": entry.task_type,
                "task_payload": hex(&entry.task_payload), "enqueue_options": entry.enqueue_options,
                "next_enqueue_time": time(entry.next_enqueue_time), "prev_enqueue_time": time(entry.prev_enqueue_time),
            });
            (fields, entry.encode_to_vec())
        }
        "SchedulerEnqueueEvent" => {
            let event = SchedulerEnqueueEvent::decode(bytes).unwrap();
            (json!({"task_id": event.task_id, "enqueue_time": time(event.enqueue_time)}), event.encode_to_vec())
        }
        other => panic!("{}: a message {other:?} is not known", vector.name),
    }
}

/// Go writes key and value of a header even if they are empty, prost does not; both read both.
fn has_empty_header(vector: &Vector) -> bool {
    let headers = vector.fields["headers"].as_object();
    headers.is_some_and(|headers| headers.iter().any(|(key, value)| key.is_empty() || value == ""))
}

#[test]
fn every_message_of_go_is_read_and_written_alike() {
    let mut kinds = std::collections::BTreeSet::new();
    for file in ["task_messages.json", "servers.json", "schedulers.json"] {
        for vector in read::<Vec<Vector>>(file) {
            let (fields, written) = decode(&vector);
            assert_eq!(fields, vector.fields, "{}", vector.name);
            if vector.canonical && !has_empty_header(&vector) {
                assert_eq!(hex(&written), vector.hex, "{}", vector.name);
            }
            kinds.insert(vector.message);
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn keys_are_named_as_in_go() {
    for vector in read::<Vec<Vector>>("task_messages.json") {
        let message = TaskMessage::from_bytes(bytes(&vector.hex)).unwrap();
        let keys = QueueKeys::new(&message.queue);
        let state = vector.state.unwrap();
        let container = keys.container(state).unwrap_or_else(|| keys.group(&message.group_key));
        assert_eq!(container, vector.container.unwrap().key, "{}", vector.name);
        let stored = &vector.hash_fields.unwrap()["state"];
        assert_eq!(stored, state.as_str(), "{}", vector.name);
        let unique_key = vector.unique_key.unwrap();
        if !unique_key.is_empty() {
            // The message does not tell a missing payload from an empty one.
            let payload = Some(&message.payload[..]).filter(|_| !vector.name.ends_with("unique_nil_payload"));
            assert_eq!(keys.unique(&message.r#type, payload), unique_key, "{}", vector.name);
        }
    }
}

#[test]
fn durations_are_written_as_in_go() {
    for Format { nanos, text } in read::<Durations>("go_durations.json").format {
        assert_eq!(queue_core::duration::format_ns(nanos), text, "{nanos}");
        assert_eq!(queue_core::duration::parse_ns(&text), Ok(nanos), "{text}");
    }
}

/// What we read although Go does not: days.
const MORE_THAN_GO: [&str; 1] = ["3d"];
/// Where Go is a nanosecond off, because it computes fractions in floating point.
const BETTER_THAN_GO: [&str; 1] = ["0.3333333333333333333h"];

#[test]
fn durations_are_read_as_in_go() {
    for Parse { input, nanos, error } in read::<Durations>("go_durations.json").parse {
        assert!(nanos.is_some() != error.is_some(), "{input:?}");
        if MORE_THAN_GO.contains(&input.as_str()) {
            assert_eq!(nanos, None, "Go reads {input:?} too");
            continue;
        }
        let off = i64::from(BETTER_THAN_GO.contains(&input.as_str()));
        let ours = queue_core::duration::parse_ns(&input).ok();
        assert_eq!(ours.map(|ns| ns + off), nanos, "{input:?}");
    }
}
