//! Bytes that may be anything, shown to people.

use rmpv::Value;

/// Bytes on one line of at most `limit` characters: text as it is, anything else as a placeholder.
pub fn preview(bytes: &[u8], limit: usize) -> String {
    match text(bytes) {
        Some(text) => shorten(text, limit),
        None => placeholder(bytes),
    }
}

/// Text on one line of at most `limit` characters.
pub fn shorten(text: &str, limit: usize) -> String {
    let line: String = text.chars().take(limit + 1).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= limit {
        return line;
    }
    line.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// Text that comes from somebody else, without what could drive the terminal.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The same on one line.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The bytes as text, if a terminal can show them.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.chars().all(printable).then_some(text)
}

/// What kind of bytes these are, and how many.
pub fn placeholder(bytes: &[u8]) -> String {
    let kind = if message_pack(bytes).is_some() { "MessagePack" } else { "binary" };
    format!("<{kind}, {} bytes>", bytes.len())
}

/// The bytes over many lines: text as it is, MessagePack as the JSON that comes nearest, and a placeholder
/// for anything else.
pub fn pretty(bytes: &[u8]) -> String {
    if let Some(text) = text(bytes) {
        return text.to_owned();
    }
    match message_pack(bytes) {
        Some(value) => serde_json::to_string_pretty(&value).unwrap_or_else(|_| placeholder(bytes)),
        None => placeholder(bytes),
    }
}

/// The deepest nesting that is read. The decoder recurses, and its own limit of 1,024 overflows a stack of 2 MiB.
const MAX_DEPTH: usize = 64;

/// The JSON that comes nearest to a MessagePack map or array. Anything else that begins like MessagePack is
/// more likely something other: nearly every byte begins some MessagePack value.
pub fn message_pack(bytes: &[u8]) -> Option<serde_json::Value> {
    let mut rest = bytes;
    let value = rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH).ok()?;
    (rest.is_empty() && (value.is_map() || value.is_array())).then(|| as_json(value))
}

fn as_json(value: Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Boolean(flag) => flag.into(),
        Value::Integer(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into(),
            (_, Some(number)) => number.into(),
            _ => number.to_string().into(),
        },
        Value::F32(number) => f64::from(number).into(),
        Value::F64(number) => number.into(),
        Value::String(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        Value::Binary(bytes) => preview(&bytes, usize::MAX - 1).into(),
        Value::Array(values) => values.into_iter().map(as_json).collect(),
        Value::Map(entries) => entries.into_iter().map(|(key, value)| (as_key(key), as_json(value))).collect(),
        Value::Ext(kind, bytes) => format!("<extension {kind}, {} bytes>", bytes.len()).into(),
    }
}

/// JSON has only text for keys.
fn as_key(key: Value) -> String {
    match as_json(key) {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_and_cut_and_cannot_drive_the_terminal() {
        assert_eq!(preview(b"{\"a\":\n1}", 60), "{\"a\": 1}");
        assert_eq!(preview("größer".as_bytes(), 4), "grö…");
        assert_eq!(preview(b"1234", 4), "1234");
        assert_eq!(preview(b"\x1b[2J", 60), "<binary, 4 bytes>");
        assert_eq!(preview(&[0xff, 0xfe], 60), "<binary, 2 bytes>");
        assert_eq!(harmless("a\x1b[31m\n"), "a\u{fffd}[31m\n");
    }

    #[test]
    fn message_pack_maps_and_arrays_are_recognised() {
        let map = rmp_serde::to_vec_named(&serde_json::json!({"user": 7, "tags": ["a", null], "ratio": 0.5})).unwrap();
        assert_eq!(preview(&map, 60), format!("<MessagePack, {} bytes>", map.len()));
        assert_eq!(message_pack(&map), Some(serde_json::json!({"user": 7, "tags": ["a", null], "ratio": 0.5})));
        assert!(pretty(&map).contains("\"user\": 7"));
        // A number, a truncated map, a map and something after it: no payload of a task.
        for bytes in [&[0x07][..], &map[..map.len() - 1], &[&map[..], b"x"].concat()] {
            assert_eq!(message_pack(bytes), None);
        }
    }

    #[test]
    fn message_pack_values_that_json_lacks_become_text() {
        let value = Value::Map(vec![
            (Value::from(5), Value::Binary(vec![0, 1])),
            (Value::Nil, Value::Ext(3, vec![1])),
            (Value::from("i"), Value::from(-1)),
        ]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        let expected = serde_json::json!({"5": "<binary, 2 bytes>", "null": "<extension 3, 1 bytes>", "i": -1});
        assert_eq!(message_pack(&bytes), Some(expected));
    }

    #[test]
    fn nesting_without_end_is_no_message_pack() {
        let mut deep = vec![0x91; 100_000];
        deep.push(0xc0);
        assert_eq!(message_pack(&deep), None);
    }
}
