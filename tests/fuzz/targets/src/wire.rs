//! The protobuf messages. What can be read is written again and reads the same; nothing that is done with a
//! message afterwards minds what is in it.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use queue_core::wire::{SchedulerEnqueueEvent, SchedulerEntry, ServerInfo, Timestamp, WorkerInfo};
use queue_core::{FromMessage as _, RawTask, TaskInfo, TaskMessage, TaskState, option_text};

/// Reads the bytes as each of the messages.
///
/// # Panics
/// When a message does not read the same after it was written.
pub fn run(data: &[u8]) {
    if let Ok(message) = TaskMessage::from_bytes(Bytes::copy_from_slice(data)) {
        assert_eq!(TaskMessage::from_bytes(message.to_bytes()).as_ref(), Ok(&message));
        let _ = RawTask::from_message(&message);
        for state in TaskState::ALL {
            let _ = format!("{:?}", TaskInfo::new(message.clone(), state));
        }
    }
    if let Some(info) = read(data, ServerInfo::from_bytes) {
        date(info.start_time);
    }
    if let Some(info) = read(data, WorkerInfo::from_bytes) {
        date(info.start_time);
        date(info.deadline);
    }
    if let Some(entry) = read(data, SchedulerEntry::from_bytes) {
        date(entry.next_enqueue_time);
        date(entry.prev_enqueue_time);
        entry.enqueue_options.iter().for_each(|text| drop(option_text::parse_queue(text)));
    }
    if let Some(event) = read(data, SchedulerEnqueueEvent::from_bytes) {
        date(event.enqueue_time);
    }
}

fn read<M: Message + Clone + PartialEq + Debug, E: std::fmt::Display>(
    data: &[u8],
    read: impl Fn(&[u8]) -> Result<M, E>,
) -> Option<M> {
    match read(data) {
        Ok(message) => {
            let again = read(&message.encode_to_vec()).map_err(|error| error.to_string());
            assert_eq!(again.as_ref(), Ok(&message));
            Some(message)
        }
        Err(error) => {
            let _ = error.to_string();
            None
        }
    }
}

fn date(stamp: Option<Timestamp>) {
    if let Some(date) = stamp.and_then(Timestamp::to_date) {
        let _ = date.to_rfc3339();
    }
}
