use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Bytes {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect::<Vec<_>>().into()
}

/// A message that Go has encoded; many more are in `tests/golden`.
const T1: &str = "0a0a656d61696c3a73656e6412087b226964223a317d1a2430653962316632612d303030302d343030302d383030302d303030303030303030303031220764656661756c74281940880e";

#[test]
fn vector_t1_encodes_to_the_same_bytes_as_go() {
    let message = TaskMessage {
        r#type: "email:send".into(),
        payload: Bytes::from_static(b"{\"id\":1}"),
        id: "0e9b1f2a-0000-4000-8000-000000000001".into(),
        queue: "default".into(),
        retry: 25,
        timeout: 1800,
        ..TaskMessage::default()
    };
    assert_eq!(message.to_bytes(), hex(T1));
    assert_eq!(TaskMessage::from_bytes(hex(T1)).unwrap(), message);
}

#[test]
fn never_is_gos_zero_time() {
    assert_eq!(Timestamp::NEVER.encode_to_vec(), hex("088092b8c398feffffff01"));
    assert_eq!(Timestamp::NEVER.to_date(), None);
}

#[test]
fn a_truncated_message_is_an_error_that_names_its_length() {
    let bytes = hex(T1);
    let error = TaskMessage::from_bytes(bytes.slice(..bytes.len() - 1)).unwrap_err();
    assert!(error.to_string().starts_with("failed to decode task message of 73 bytes"), "{error}");
}

#[test]
fn unknown_fields_are_tolerated() {
    let mut bytes = hex(T1).to_vec();
    bytes.extend([0xfa, 0x3f, 0x01, 0x78]);
    assert_eq!(TaskMessage::from_bytes(bytes.into()).unwrap().retry, 25);
}

prop_compose! {
    fn any_message()(
        text in proptest::array::uniform6(".{0,12}"),
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        counts in proptest::array::uniform2(any::<i32>()),
        times in proptest::array::uniform5(any::<i64>()),
        headers in proptest::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
    ) -> TaskMessage {
        let [r#type, id, queue, error_msg, unique_key, group_key] = text;
        let [timeout, deadline, last_failed_at, retention, completed_at] = times;
        TaskMessage {
            r#type, payload: payload.into(), id, queue, retry: counts[0], retried: counts[1], error_msg,
            timeout, deadline, unique_key, last_failed_at, retention, completed_at, group_key, headers,
        }
    }
}

proptest! {
    #[test]
    fn every_message_round_trips(message in any_message()) {
        prop_assert_eq!(TaskMessage::from_bytes(message.to_bytes()).unwrap(), message);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ServerInfo::from_bytes(&bytes);
        let _ = WorkerInfo::from_bytes(&bytes);
        let _ = SchedulerEntry::decode(&bytes[..]);
        let _ = SchedulerEnqueueEvent::decode(&bytes[..]);
        let _ = TaskMessage::from_bytes(bytes.into());
    }
}
