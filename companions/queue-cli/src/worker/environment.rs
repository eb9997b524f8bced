//! What a program or a service is told about its task, besides the payload.

use std::fmt::Write as _;

use chrono::SecondsFormat;
use queue_worker::Job;

/// Names as they stand in the environment after `TASK_` and, with dashes, in HTTP after `X-Task-`.
pub(super) fn describe(job: &Job) -> [(&'static str, String); 7] {
    [
        ("ID", job.id().to_owned()),
        ("TYPE", job.task_type().to_owned()),
        ("QUEUE", job.queue().to_owned()),
        ("RETRIED", job.retried().to_string()),
        ("MAX_RETRY", job.max_retry().to_string()),
        ("DEADLINE", job.deadline().to_rfc3339_opts(SecondsFormat::Millis, true)),
        ("HEADERS", ascii_json(job.headers())),
    ]
}

/// JSON without anything beyond ASCII, which HTTP headers do not carry well.
pub(super) fn ascii_json(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\x7f' {
            ascii.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_ascii_json() {
        let headers = [("k\n".to_owned(), "ä\u{1f600}\x7f\"".to_owned())].into();
        let json = ascii_json(&headers);
        assert_eq!(json, r#"{"k\n":"\u00e4\ud83d\ude00\u007f\""}"#);
        assert_eq!(serde_json::from_str::<std::collections::BTreeMap<String, String>>(&json).unwrap(), headers);
    }
}
