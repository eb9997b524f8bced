//! Payloads and results over many lines.

use queue_admin::payload;
use queue_core::TaskInfo;
use serde::de::IgnoredAny;

use super::text::clean;

/// Bytes of a payload that are made readable; of the rest, only the length is told.
const MAX_BYTES: usize = 64 * 1024;
/// Lines of it that are shown.
const MAX_LINES: usize = 2_000;

/// Headers, payload and result of a task.
pub(super) fn body(task: &TaskInfo) -> Vec<String> {
    let mut lines = section("Payload", &task.payload);
    if let Some(result) = &task.result {
        lines.push(String::new());
        lines.extend(section("Result", result));
    }
    lines
}

fn section(name: &str, bytes: &[u8]) -> Vec<String> {
    let (kind, text, cut) = read(bytes);
    let mut lines = vec![format!("{name}, {kind}, {} bytes", bytes.len())];
    let mut rest = text.lines();
    lines.extend(rest.by_ref().take(MAX_LINES).map(clean));
    if cut || rest.next().is_some() {
        lines.push("… cut here: `queuectl task inspect` shows all of it".to_owned());
    }
    lines
}

/// What kind of bytes these are, the readable form of their beginning, and whether that is not all.
fn read(bytes: &[u8]) -> (&'static str, String, bool) {
    if bytes.is_empty() {
        return ("empty", String::new(), false);
    }
    let cut = bytes.len() > MAX_BYTES;
    let shown = &bytes[..bytes.len().min(MAX_BYTES)];
    if !cut && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return ("JSON", indent(&String::from_utf8_lossy(bytes)), false);
    }
    if !cut && let Some(value) = payload::message_pack(bytes) {
        return ("MessagePack", serde_json::to_string_pretty(&value).unwrap_or_default(), false);
    }
    match std::str::from_utf8(shown) {
        Ok(text) => ("text", text.to_owned(), cut),
        // The cut may have gone through a character.
        Err(error) if cut && error.valid_up_to() + 4 > shown.len() => {
            ("text", String::from_utf8_lossy(&shown[..error.valid_up_to()]).into_owned(), true)
        }
        Err(_) => ("binary", hex(shown), cut || shown.len() > 16 * HEX_LINES),
    }
}

const HEX_LINES: usize = 64;

/// Bytes as `xxd` shows them.
fn hex(bytes: &[u8]) -> String {
    let line = |(number, bytes): (usize, &[u8])| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            bytes.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        format!("{:06x}  {:<47}  {text}\n", number * 16, hex.join(" "))
    };
    bytes.chunks(16).take(HEX_LINES).enumerate().map(line).collect()
}

/// Valid JSON with its parts on lines of their own. Nothing else changes: a parser would round large numbers and
/// sort the names.
fn indent(json: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(40)));
    };
    let mut chars = json.chars().filter(|c| *c != '\r').peekable();
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_nothing_else_of_it_changes() {
        let json = r#"{"z":12345678901234567890123, "a" : [1.0e5,{},[ ],"x\"{,}\\"],"e":{"n":null}}"#;
        let expected = "{\n  \"z\": 12345678901234567890123,\n  \"a\": [\n    1.0e5,\n    {},\n    [],\n    \
                        \"x\\\"{,}\\\\\"\n  ],\n  \"e\": {\n    \"n\": null\n  }\n}";
        assert_eq!(indent(json), expected);
    }

    #[test]
    fn each_kind_of_payload_is_told_and_shown() {
        assert_eq!(section("Payload", b"{\"a\":1}"), ["Payload, JSON, 7 bytes", "{", "  \"a\": 1", "}"]);
        let pack = rmp_serde::to_vec_named(&serde_json::json!({"user": 7})).unwrap();
        assert_eq!(section("Result", &pack), ["Result, MessagePack, 7 bytes", "{", "  \"user\": 7", "}"]);
        assert_eq!(section("Payload", b"plain \x1b[2J"), ["Payload, text, 10 bytes", "plain \u{fffd}[2J"]);
        let binary = section("Payload", &[0xff, 0x00, b'a']);
        assert_eq!(binary[1].split_whitespace().collect::<Vec<_>>(), ["000000", "ff", "00", "61", "..a"]);
        assert_eq!(section("Payload", b""), ["Payload, empty, 0 bytes"]);
    }

    #[test]
    fn a_huge_payload_is_cut() {
        for bytes in ["ü".repeat(200_000).into_bytes(), format!("[{}0]", "0,".repeat(100_000)).into_bytes()] {
            let lines = section("Payload", &bytes);
            assert!(lines.iter().map(String::len).sum::<usize>() < MAX_BYTES + 200);
            assert!(lines.last().unwrap().starts_with("… cut here"), "{}", lines.len());
        }
        let lines = section("Payload", format!("[{}0]", "0,".repeat(3_000)).as_bytes());
        assert_eq!(lines.len(), MAX_LINES + 2);
        assert!(section("Payload", &[0xff; 2_000]).last().unwrap().starts_with("… cut"));
    }
}
