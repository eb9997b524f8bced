//! Options of periodic entries as text, as Go's schedulers write them and its Inspector reads them:
//! `Queue("low")`, `Timeout(20m0s)`.
//!
//! Each text has an opening parenthesis, or Go's Inspector panics (R13). Those it does not know it leaves out.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};

use crate::clock::secs_ceil;
use crate::duration;
use crate::options::{ProcessTime, TaskOptions};

/// The options that are set, in a fixed order. `TaskID`, `Group` and `Header` Go's Inspector leaves out.
pub fn format(options: &TaskOptions) -> Vec<String> {
    let mut texts = Vec::new();
    let mut add = |name: &str, value: Option<String>| texts.extend(value.map(|value| format!("{name}({value})")));
    add("MaxRetry", options.max_retry.map(|count| count.to_string()));
    let queue = match options.family {
        None => options.queue.clone(),
        Some(_) => Some(options.queue_name()),
    };
    add("Queue", queue.as_deref().map(quote));
    add("TaskID", options.task_id.as_deref().map(quote));
    add("Timeout", options.timeout.map(duration::format));
    add("Deadline", options.deadline.map(date));
    add("Unique", options.unique.map(duration::format));
    match options.process {
        Some(ProcessTime::At(at)) => add("ProcessAt", Some(date(at))),
        Some(ProcessTime::In(delay)) => add("ProcessIn", Some(duration::format(delay))),
        None => {}
    }
    add("Retention", options.retention.map(duration::format));
    add("Group", options.group.as_deref().map(quote));
    for (key, value) in &options.headers {
        let pair = serde_json::json!([key, value]);
        add("Header", Some(pair.to_string()));
    }
    texts
}

/// The queue's name in a text like `Queue("low")`; `None` for other options, and for names with a closing
/// parenthesis, which Go cannot read back either.
pub fn parse_queue(text: &str) -> Option<String> {
    let quoted = text.strip_prefix("Queue(")?.split(')').next()?;
    // Go's quoting and JSON's are the same for all names but those with control characters.
    serde_json::from_str(quoted).ok()
}

/// The name and the value in a text like `Header(["name","value"])`; `None` for other options.
pub fn parse_header(text: &str) -> Option<(String, String)> {
    serde_json::from_str(text.strip_prefix("Header(")?.strip_suffix(')')?).ok()
}

/// The layout of Go's `time.UnixDate`, in UTC. For a time beyond all dates, for which chrono's own conversion panics,
/// its Unix second.
fn date(at: SystemTime) -> String {
    let secs = match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -secs_ceil(before.duration()),
    };
    DateTime::<Utc>::from_timestamp(secs, 0)
        .map_or_else(|| secs.to_string(), |date| date.format("%a %b %e %H:%M:%S UTC %Y").to_string())
}

/// A text in double quotes as Go's `%q` writes it.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\0'..' ' | '\x7f' => _ = write!(quoted, "\\x{:02x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn options_read_as_go_writes_them() {
        let options = TaskOptions::new()
            .max_retry(5)
            .queue("low")
            .task_id("x")
            .timeout(Duration::from_secs(1_200))
            .deadline(UNIX_EPOCH + Duration::from_secs(1_893_553_445))
            .unique(Duration::from_secs(3_600))
            .process_at(UNIX_EPOCH + Duration::from_secs(1_952_255_655))
            .retention(Duration::from_secs(86_400))
            .group("g \"quoted\" (1)\n")
            .header("k", "v");
        // All but the header from tests/golden/schedulers.json.
        let expected = [
            "MaxRetry(5)",
            "Queue(\"low\")",
            "TaskID(\"x\")",
            "Timeout(20m0s)",
            "Deadline(Wed Jan  2 03:04:05 UTC 2030)",
            "Unique(1h0m0s)",
            "ProcessAt(Wed Nov 12 13:14:15 UTC 2031)",
            "Retention(24h0m0s)",
            "Group(\"g \\\"quoted\\\" (1)\\n\")",
            "Header([\"k\",\"v\"])",
        ];
        assert_eq!(format(&options), expected);
        assert_eq!(parse_header(expected[expected.len() - 1]), Some(("k".to_owned(), "v".to_owned())));
        let later = TaskOptions::new().process_in(Duration::from_millis(1_500));
        assert_eq!(format(&later), ["ProcessIn(1.5s)"]);
    }

    /// Found by the fuzz target `options`: it was a panic.
    #[test]
    fn a_time_beyond_all_dates_is_written_in_seconds() {
        let far = UNIX_EPOCH + Duration::from_secs(1 << 60);
        assert_eq!(format(&TaskOptions::new().deadline(far)), ["Deadline(1152921504606846976)"]);
        let past = UNIX_EPOCH - Duration::from_millis(1_500);
        assert_eq!(format(&TaskOptions::new().process_at(past)), ["ProcessAt(Wed Dec 31 23:59:58 UTC 1969)"]);
    }

    #[test]
    fn option_texts_tell_the_queue() {
        for queue in ["low", "a \"b\" \\ c", "Привет", "tab\there"] {
            let text = format(&TaskOptions::new().queue(queue));
            assert_eq!(parse_queue(&text[0]).as_deref(), Some(queue));
        }
        for text in ["Queue(\"a)b\")", "Queue(x)", "MaxRetry(5)", "Queue", ""] {
            assert_eq!(parse_queue(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_text_has_an_opening_parenthesis(queue in ".{0,20}", group in ".{0,20}", header in ".{0,20}") {
            let options = TaskOptions::new().queue(queue).group(group).header(header.clone(), header);
            for text in format(&options) {
                proptest::prop_assert!(text.contains('('), "{text}");
            }
        }
    }
}
