//! Answers for people to read, in the form that `redis-cli` has for a terminal.

use std::fmt::Write as _;

use super::number;
use super::reply::Reply;

/// The answer, without an end of line.
pub(crate) fn show(reply: &Reply) -> String {
    let mut text = String::new();
    write(&mut text, reply, 0);
    text
}

/// `indent`: where the lines after the first one begin.
fn write(text: &mut String, reply: &Reply, indent: usize) {
    match reply {
        Reply::Status(word) => text.push_str(word),
        Reply::Error(error) => {
            let _ = write!(text, "(error) {error}");
        }
        Reply::Integer(number) => {
            let _ = write!(text, "(integer) {number}");
        }
        Reply::Bulk(bytes) => quote(text, bytes),
        Reply::Nil => text.push_str("(nil)"),
        Reply::Double(number) => quote(text, number::show(*number).as_bytes()),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => list(text, items.iter(), items.len(), indent),
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            let items = pairs.iter().flat_map(|(first, second)| [first, second]);
            list(text, items, 2 * pairs.len(), indent);
        }
    }
}

fn list<'a>(text: &mut String, items: impl Iterator<Item = &'a Reply>, count: usize, indent: usize) {
    if count == 0 {
        text.push_str("(empty array)");
    }
    let width = count.to_string().len();
    for (position, item) in items.enumerate() {
        if position > 0 {
            let _ = write!(text, "\n{:indent$}", "");
        }
        let _ = write!(text, "{:>width$}) ", position + 1);
        write(text, item, indent + width + 2);
    }
}

fn quote(text: &mut String, bytes: &[u8]) {
    text.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_look_as_redis_cli_shows_them() {
        let items = |count: usize| Reply::Array((0..count).map(|_| Reply::text("x")).collect());
        assert_eq!(show(&items(0)), "(empty array)");
        assert_eq!(show(&items(2)), "1) \"x\"\n2) \"x\"");
        assert!(show(&items(10)).starts_with(" 1) \"x\"\n 2) "));
        let nested = Reply::Array(vec![Reply::Integer(1), items(2), Reply::Nil]);
        assert_eq!(show(&nested), "1) (integer) 1\n2) 1) \"x\"\n   2) \"x\"\n3) (nil)");
        assert_eq!(show(&Reply::text("a\"\\\n\x01\u{e9}")), r#""a\"\\\n\x01\xc3\xa9""#);
        assert_eq!(show(&Reply::Error("ERR no".into())), "(error) ERR no");
    }
}
