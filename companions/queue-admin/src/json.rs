//! JSON that people write, and what is wrong with it in words of JSON.

use serde::Deserialize;
use serde_json::{Error, Value};

use crate::payload::shorten;

/// Most letters of a wrong value that are told.
const SHOWN: usize = 80;

/// Why a text is not the object that it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misread {
    /// The field that has a wrong value, such as `headers.k` or `types[0]`; none where it is another fault.
    pub field: Option<String>,
    reason: String,
    /// Whether the reason says what the value is and what it must be.
    is_kind: bool,
}

impl Misread {
    /// What is wrong; `whole` is what the text is called.
    pub fn of(&self, whole: &str) -> String {
        let reason = &self.reason;
        match (&self.field, self.is_kind) {
            (Some(field), true) => format!("`{field}` {reason}"),
            (Some(field), false) => format!("`{field}`: {reason}"),
            (None, true) => format!("{whole} {reason}"),
            (None, false) => reason.clone(),
        }
    }
}

/// Reads an object.
///
/// # Errors
/// When the text is no JSON, no object, or not this one.
pub fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Misread> {
    if text.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        // serde takes a list for an object without names.
        let value: Value = serde_json::from_slice(text).map_err(|error| explain(None, &error))?;
        let is = match value {
            Value::Array(_) => "a list".to_owned(),
            Value::String(text) => shorten(&format!("the text {text:?}"), SHOWN),
            Value::Number(number) => format!("the number {number}"),
            other => other.to_string(),
        };
        return Err(Misread { field: None, reason: format!("is {is}; it must be an object"), is_kind: true });
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        explain(Some(field).filter(|field| field != "."), error.inner())
    })?;
    json.end().map_err(|error| explain(None, &error))?;
    Ok(read)
}

/// What the error says, without the line: that is mostly 1, and would contradict whoever counts lines of tasks.
pub(crate) fn words(error: &Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(&*text, |(words, _)| words).to_owned()
}

fn explain(field: Option<String>, error: &Error) -> Misread {
    let words = words(error);
    let about_names = ["unknown field", "missing field", "duplicate field"];
    if !error.is_data() || about_names.iter().any(|begin| words.starts_with(begin)) {
        let what = if error.is_data() { "" } else { "it is not JSON: " };
        return Misread { field: None, reason: format!("{what}{words} (column {})", error.column()), is_kind: false };
    }
    let kind = ["invalid type: ", "invalid value: ", "unknown variant "].iter().find_map(|begin| {
        let (is, must) = words.strip_prefix(begin)?.rsplit_once(", expected ")?;
        Some(format!("is {}; it must be {}", seen(is), wanted(must)))
    });
    Misread { field, is_kind: kind.is_some(), reason: kind.unwrap_or(words) }
}

/// What serde has met, which calls a list a sequence.
fn seen(words: &str) -> String {
    let quoted = words.split_once('`').map_or("", |(_, rest)| rest.trim_end_matches('`'));
    match words {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        _ if words.starts_with("boolean ") => quoted.to_owned(),
        _ if words.starts_with("integer ") || words.starts_with("floating point ") => format!("the number {quoted}"),
        // A variant that is unknown.
        _ if words.starts_with('`') => shorten(&format!("{quoted:?}"), SHOWN),
        _ => shorten(&words.replacen("string ", "the text ", 1), SHOWN),
    }
}

/// What serde would have, in the words of who writes JSON.
fn wanted(words: &str) -> String {
    let number = |least: u32, most: u32| format!("a whole number from {least} to {most}");
    match words {
        "a string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "u8" => number(0, u32::from(u8::MAX)),
        "u16" => number(0, u32::from(u16::MAX)),
        "u32" => number(0, u32::MAX),
        "a nonzero u32" => number(1, u32::MAX),
        "u64" | "usize" => "a whole number, and not below 0".to_owned(),
        "i64" => "a whole number".to_owned(),
        _ if words.starts_with("struct ") => "an object".to_owned(),
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "they are read")]
    struct Wish {
        #[serde(default)]
        name: String,
        #[serde(default)]
        list: Vec<BTreeMap<String, u8>>,
        #[serde(default)]
        on: Option<bool>,
        rate: Option<crate::Rate>,
    }

    #[test]
    fn a_wrong_value_is_named_with_its_field_wherever_it_stands() {
        for (text, said) in [
            (r#"{"name":5}"#, "`name` is the number 5; it must be a text"),
            (r#"{"name":null,"on":true}"#, "`name` is null; it must be a text"),
            (r#"{"name":["a"]}"#, "`name` is a list; it must be a text"),
            (r#"{"on":{"a":1}}"#, "`on` is an object; it must be true or false"),
            (r#"{"on":"yes, expected no"}"#, "`on` is the text \"yes, expected no\"; it must be true or false"),
            (
                "{\"name\":\"}\\\"{[,\",\n \"list\":[{},{\"a\":1,\n\"b\":256}]}",
                "`list[1].b` is the number 256; it must be a whole number from 0 to 255",
            ),
            (r#"{"list":[{"a":1},{"a":2},3],"on":true}"#, "`list[2]` is the number 3; it must be an object"),
            (r#"{"list":[{"\u0061":-1}]}"#, "`list[0].a` is the number -1; it must be a whole number from 0 to 255"),
            (r#"{"list":true}"#, "`list` is true; it must be a list"),
            ("[]", "it is a list; it must be an object"),
            (" \"x\"", "it is the text \"x\"; it must be an object"),
            ("null", "it is null; it must be an object"),
            (r#"{"nam":5}"#, "unknown field `nam`, expected one of `name`, `list`, `on`, `rate` (column 6)"),
            (r#"{"name":5"#, "`name` is the number 5; it must be a text"),
            (r#"{"name":"a""#, "it is not JSON: EOF while parsing an object (column 11)"),
            ("[", "it is not JSON: EOF while parsing a list (column 1)"),
            ("", "it is not JSON: EOF while parsing a value (column 0)"),
        ] {
            assert_eq!(read::<Wish>(text.as_bytes()).unwrap_err().of("it"), said, "{text}");
        }
        for text in [r#"{"rate":"5"}"#, r#"{"rate":"5","on":true}"#] {
            let said = read::<Wish>(text.as_bytes()).unwrap_err();
            assert_eq!(said.field.as_deref(), Some("rate"));
            assert!(said.of("it").starts_with("`rate`: ") && said.of("it").contains("such as 100/1m"), "{said:?}");
        }
        let long = read::<Wish>(format!("{{\"on\":\"{}\"}}", "x".repeat(1_000)).as_bytes()).unwrap_err();
        assert!(long.of("it").len() < 200, "{long:?}");
    }
}
