//! Looking into payloads.

use bytes::Bytes;
use queue_core::{Codec as _, Json, MessagePack};
use serde_json::Value;

/// Whether the payload, as JSON or else as MessagePack, has this value at this path.
pub(super) fn has(payload: &Bytes, path: &str, value: &str) -> bool {
    let Some(payload) = read(payload) else { return false };
    let found = if path.starts_with('/') { payload.pointer(path) } else { dotted(&payload, path) };
    found.is_some_and(|found| is(found, value))
}

fn read(payload: &Bytes) -> Option<Value> {
    Json::decode(payload).or_else(|_| MessagePack::decode(payload)).ok()
}

/// `user.roles.0`; an empty path is the whole.
fn dotted<'a>(payload: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('.').filter(|_| !path.is_empty());
    steps.try_fold(payload, |at, step| match at {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// A text is compared as it is; anything else as JSON, so that `1` is not `1.5` but `"1"` is a text.
fn is(found: &Value, value: &str) -> bool {
    match found {
        Value::String(text) => text == value || serde_json::from_str(value).is_ok_and(|value: String| value == *text),
        other => serde_json::from_str(value).is_ok_and(|value: Value| value == *other),
    }
}

#[cfg(test)]
mod tests {
    use queue_core::Codec as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_into_objects_and_lists_of_json_and_messagepack() {
        let payload = json!({"user": {"id": 7, "name": "Ada", "roles": ["a", "b"]}, "a.b": null, "on": true});
        let json = Json::encode(&payload).unwrap();
        let pack = MessagePack::encode(&payload).unwrap();
        assert_ne!(json, pack);
        for bytes in [&json, &pack] {
            for (path, value) in [
                ("user.id", "7"),
                ("user.name", "Ada"),
                ("user.name", "\"Ada\""),
                ("user.roles.1", "b"),
                ("user.roles", "[\"a\", \"b\"]"),
                ("/user/roles/0", "a"),
                ("/a.b", "null"),
                ("on", "true"),
            ] {
                assert!(has(bytes, path, value), "{path} {value}");
            }
            for (path, value) in [
                ("user.id", "8"),
                ("user.id", "\"7\""),
                ("user", "Ada"),
                ("user.roles.2", "b"),
                ("a.b", "null"),
                ("x", ""),
            ] {
                assert!(!has(bytes, path, value), "{path} {value}");
            }
        }
        assert!(has(&Bytes::from("7"), "", "7"));
        assert!(!has(&Bytes::new(), "", "7"));
        assert!(!has(&Bytes::from("plain text"), "a", "plain text"));
    }
}
