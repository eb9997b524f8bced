//! Filters as people write them: `type:email:* error:"connection refused" -older:1h`.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use queue_core::fingerprint::NoFingerprint;
use queue_core::{TaskState, duration};

use super::Filter;

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} in the filter: {reason}")]
pub struct FilterError {
    word: String,
    reason: String,
}

/// Most bytes that the text of a filter may have.
const MAX_BYTES: usize = 4_096;

/// The names of conditions; `header` and `payload` have a part of their own behind a dot.
const NAMES: &str = "state, type, id, group, error, fingerprint, older, text, header.NAME, payload.PATH";

/// Reads words with spaces between them, each a condition `name:value`; all of them have to apply.
///
/// | word | tasks |
/// | --- | --- |
/// | `state:retry` | in this state; several: in one of them |
/// | `type:email:*` | of this type; with `*` at the end, of types that begin like this |
/// | `id:7` | with this id; several: one of them |
/// | `group:g` | of this group |
/// | `error:refused` | whose last error contains this; case counts |
/// | `fingerprint:v1-0b5c6a2f9d41` | whose last failure has this [fingerprint](queue_core::fingerprint) |
/// | `older:1h` | in their state for longer than this |
/// | `header.tenant`, `header.tenant:acme` | with this header; with this value |
/// | `payload.user.id:7` | whose payload has this value at this path |
/// | `text:refused`, `refused` | with this text in id, type, last error or the first 4 KiB of the payload; case does not count |
///
/// A `-` before a word means the tasks to which it does not apply. Spaces, colons and quotation marks of names and values
/// stand in quotation marks, with `\"` and `\\` inside.
impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_BYTES {
            return Err(error("…", format!("it is longer than {MAX_BYTES} bytes")));
        }
        // States that are left out count in the end, in whatever order the words stand.
        let (mut filter, mut left_out) = (Self::new(), BTreeSet::new());
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, behind) = next_word(rest)?;
            if word.negated {
                let negated = condition(Self::new(), &word)?;
                if !negated.ids.is_empty() {
                    return Err(error(word.raw, "an id cannot be left out"));
                }
                if negated.states.is_empty() {
                    filter.not.push(negated);
                } else {
                    left_out.extend(negated.states);
                }
            } else {
                filter = condition(filter, &word)?;
            }
            rest = behind.trim_start();
        }
        if !left_out.is_empty() {
            if filter.states.is_empty() {
                filter.states.extend(TaskState::ALL);
            }
            filter.states.retain(|state| !left_out.contains(state));
            if filter.states.is_empty() {
                return Err(error(text, "no state is left"));
            }
        }
        Ok(filter)
    }
}

/// A word; where there is a colon outside quotation marks, in two parts.
struct Word<'a> {
    raw: &'a str,
    negated: bool,
    /// Without its quotation marks.
    name: String,
    value: Option<String>,
    /// Whether it begins with a quotation mark: text, whatever is in it.
    quoted: bool,
}

fn error(word: &str, reason: impl Into<String>) -> FilterError {
    FilterError { word: word.chars().take(200).collect(), reason: reason.into() }
}

/// The first word, and what stands behind it.
fn next_word(text: &str) -> Result<(Word<'_>, &str), FilterError> {
    let negated = text.starts_with('-') && text.len() > 1;
    let begin = usize::from(negated);
    let quoted = text[begin..].starts_with('"');
    let (mut name, mut value) = (String::new(), None::<String>);
    let (mut inside, mut end) = (false, text.len());
    let mut characters = text.char_indices().skip(begin);
    while let Some((at, c)) = characters.next() {
        let is_name = value.is_none();
        let part = value.as_mut().unwrap_or(&mut name);
        match c {
            '"' => inside = !inside,
            '\\' if inside => match characters.next() {
                Some((_, c @ ('"' | '\\'))) => part.push(c),
                _ => return Err(error(text, "a \\ stands before \" or \\")),
            },
            ':' if !inside && is_name && !quoted => value = Some(String::new()),
            c if c.is_whitespace() && !inside => {
                end = at;
                break;
            }
            c => part.push(c),
        }
    }
    if inside {
        return Err(error(text, "a quotation mark is missing"));
    }
    Ok((Word { raw: &text[..end], negated, name, value, quoted }, &text[end..]))
}

fn condition(filter: Filter, word: &Word<'_>) -> Result<Filter, FilterError> {
    let fail = |reason: String| error(word.raw, reason);
    let Some(value) = &word.value else {
        return match word.name.strip_prefix("header.") {
            Some(name) if !name.is_empty() && !word.quoted => Ok(filter.header(name)),
            _ if word.name.is_empty() => Err(fail("it is empty".to_owned())),
            _ => Ok(filter.text(&word.name)),
        };
    };
    if value.is_empty() && !["error", "payload", "header"].iter().any(|name| word.name.starts_with(name)) {
        return Err(fail("the value is missing".to_owned()));
    }
    let twice = |is_twice: bool| match is_twice {
        true => Err(fail("it stands there twice".to_owned())),
        false => Ok(()),
    };
    Ok(match (word.name.as_str(), word.name.split_once('.')) {
        ("state", _) => {
            let names = || TaskState::ALL.map(TaskState::as_str).join(", ");
            filter.state(value.parse().map_err(|_| fail(format!("the states are {}", names())))?)
        }
        ("id", _) => filter.id(value),
        ("type", _) => {
            twice(filter.task_type.is_some())?;
            filter.task_type(value)
        }
        ("group", _) => {
            twice(filter.group.is_some())?;
            filter.group(value)
        }
        ("error", _) => {
            twice(filter.error.is_some())?;
            filter.error_contains(value)
        }
        ("fingerprint", _) => {
            twice(filter.fingerprint.is_some())?;
            filter.fingerprint(value.parse().map_err(|error: NoFingerprint| fail(error.to_string()))?)
        }
        ("older", _) => {
            twice(filter.older_than.is_some())?;
            filter.older_than(duration::parse(value).map_err(|error| fail(error.to_string()))?)
        }
        ("text", _) => filter.text(value),
        (_, Some(("header", name))) if !name.is_empty() => {
            twice(filter.headers.contains_key(name))?;
            filter.header_is(name, value)
        }
        (_, Some(("payload", path))) => filter.payload(path, value),
        _ => return Err(fail(format!("the conditions are {NAMES}; put text with a colon into quotation marks"))),
    })
}

/// The text that is read as this filter again. What [`Filter::not`] leaves out by several conditions, or by a `not` within, has none: what
/// is written then is refused when it is read.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        write_words(self, "", &mut words);
        f.write_str(&words.join(" "))
    }
}

fn write_words(filter: &Filter, sign: &str, words: &mut Vec<String>) {
    let bare = filter.headers.iter().filter(|(_, value)| value.is_none());
    words.extend(bare.map(|(name, _)| format!("{sign}{}", quote(&format!("header.{name}")))));
    let mut say = |name: &str, value: &str| words.push(format!("{sign}{}:{}", quote(name), quote(value)));
    filter.states.iter().for_each(|state| say("state", state.as_str()));
    filter.ids.iter().for_each(|id| say("id", id));
    for (name, value) in [("type", &filter.task_type), ("group", &filter.group), ("error", &filter.error)] {
        value.iter().for_each(|value| say(name, value));
    }
    filter.fingerprint.iter().for_each(|it| say("fingerprint", &it.to_string()));
    filter.older_than.iter().for_each(|age| say("older", &duration::format(*age)));
    filter.texts.iter().for_each(|text| say("text", text));
    filter.payload.iter().for_each(|(path, value)| say(&format!("payload.{path}"), value));
    for (name, value) in &filter.headers {
        value.iter().for_each(|value| say(&format!("header.{name}"), value));
    }
    for not in &filter.not {
        let mut of_it = Vec::new();
        write_words(not, "-", &mut of_it);
        match &of_it[..] {
            [word] if not.not.is_empty() => words.push(word.clone()),
            // By itself each word would leave out something else.
            _ => words.push(format!("not:{}", quote(&of_it.join(" ")))),
        }
    }
}

/// In quotation marks where it has to be. Never as a whole for a name: a word that begins with one is text.
fn quote(text: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | ':' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let (head, rest) = match text.split_once('.') {
        Some((head @ ("header" | "payload"), rest)) => (head, rest),
        _ => ("", text),
    };
    let mut quoted = if head.is_empty() { "\"".to_owned() } else { format!("{head}.\"") };
    for c in rest.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        let _ = quoted.write_char(c);
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use queue_core::fingerprint::Fingerprint;

    use super::*;

    fn parse(text: &str) -> Filter {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_text_is_the_filter_that_its_words_name() {
        let text = r#"state:retry type:email:* error:"connection refused" header.tenant:acme header.trace payload.user.id:7 older:1h -older:7d -type:x "a:b" text"#;
        let expected = Filter::new()
            .state(TaskState::Retry)
            .task_type("email:*")
            .error_contains("connection refused")
            .header_is("tenant", "acme")
            .header("trace")
            .payload("user.id", "7")
            .older_than(Duration::from_secs(3_600))
            .not(Filter::new().older_than(Duration::from_secs(604_800)))
            .not(Filter::new().task_type("x"))
            .text("a:b")
            .text("text");
        assert_eq!(parse(text), expected);
        assert_eq!(parse(r#"payload."a:b":"x \"y\" \\z""#), Filter::new().payload("a:b", "x \"y\" \\z"));
        assert_eq!(parse("  "), Filter::new());
        let rest = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Active);
        assert_eq!(parse("-state:active"), rest.fold(Filter::new(), Filter::state));
        // In whatever order.
        for text in
            ["-state:active state:archived", "state:archived -state:active", "-state:retry state:archived state:retry"]
        {
            assert_eq!(parse(text), Filter::new().state(TaskState::Archived), "{text}");
        }
    }

    #[test]
    fn a_filter_without_a_text_is_not_read_as_another_one() {
        let (a, b) = (Filter::new().task_type("a"), Filter::new().task_type("a").group("b"));
        for filter in [Filter::new().not(b), Filter::new().not(Filter::new().not(a)), Filter::new().not(Filter::new())]
        {
            let refusal = filter.to_string().parse::<Filter>().unwrap_err().to_string();
            assert!(refusal.contains("\"not:"), "{refusal}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused_with_the_reason() {
        for (text, reason) in [
            ("stat:retry", "the conditions are"),
            ("state:done", "the states are"),
            ("older:90", "write it like"),
            ("fingerprint:v1-7", "is written like v1-"),
            ("fingerprint:v1-0b5c6a2f9d41 fingerprint:v1-0b5c6a2f9d42", "twice"),
            ("type:", "the value is missing"),
            ("type:a type:b", "twice"),
            ("error:\"x", "quotation mark is missing"),
            ("\"a\\b\"", "a \\ stands before"),
            ("-id:7", "cannot be left out"),
            ("-state:retry state:retry", "no state is left"),
            ("\"\"", "empty"),
            ("header.:x", "the conditions are"),
            (&"x".repeat(MAX_BYTES + 1), "longer than"),
        ] {
            let refusal = text.parse::<Filter>().unwrap_err().to_string();
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_text_of_a_filter_is_read_as_the_same_filter(
            kind in proptest::option::of("[ -~é]{1,8}"),
            id in "[ -~]{1,8}",
            error in "[ -~\\n]{0,8}",
            header in "[ -~]{1,8}",
            value in proptest::option::of("[ -~]{0,8}"),
            payload in ("[ -~]{0,8}", "[ -~]{0,8}"),
            text in "[ -~]{1,8}",
            age in 0_u64..1_000_000,
        ) {
            let mut filter = Filter::new().id(id).state(TaskState::Retry).error_contains(&error).payload(payload.0, payload.1);
            filter = match value {
                Some(value) => filter.header_is(header, value),
                None => filter.header(header),
            };
            if let Some(kind) = &kind {
                filter = filter.task_type(kind).fingerprint(Fingerprint::of_pattern(kind, "")).not(Filter::new().text(kind));
            }
            filter = filter.text(text).not(Filter::new().older_than(Duration::from_secs(age)));
            proptest::prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[ -~é\"\\\\:.-]{0,40}") {
            if let Ok(filter) = text.parse::<Filter>() {
                proptest::prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter));
            }
        }
    }
}
