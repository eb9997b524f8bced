//! A task as a JSON object: a line of a batch, or the body of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use queue_core::queue_name::Family;
use queue_core::unique::UniqueUntil;
use queue_core::{RawTask, RetryPolicy, TaskOptions};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json;

/// A task as it stands on a line. Unknown names are refused: a misspelled option must not be ignored.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    r#type: String,
    // Without the function, `null` would be no payload; it is the JSON text `null`.
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    /// Bytes that are no text.
    payload_base64: Option<String>,
    queue: Option<String>,
    max_retry: Option<u32>,
    #[serde(default, deserialize_with = "duration")]
    timeout: Option<Duration>,
    #[serde(default, deserialize_with = "instant")]
    deadline: Option<SystemTime>,
    #[serde(default, deserialize_with = "duration")]
    r#in: Option<Duration>,
    #[serde(default, deserialize_with = "instant")]
    at: Option<SystemTime>,
    #[serde(default, deserialize_with = "duration")]
    unique: Option<Duration>,
    #[serde(default, deserialize_with = "until")]
    unique_until: Option<UniqueUntil>,
    unique_key: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    retention: Option<Duration>,
    task_id: Option<String>,
    group: Option<String>,
    priority: Option<u8>,
    only: Option<String>,
    labels: Option<BTreeSet<String>>,
    max_crashes: Option<u32>,
    max_snoozes: Option<u32>,
    #[serde(default, deserialize_with = "duration")]
    give_up_after: Option<Duration>,
    #[serde(default, deserialize_with = "policy")]
    backoff: Option<RetryPolicy>,
    on_exhausted: Option<String>,
    on_exhausted_queue: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    fallback: Option<Duration>,
    #[serde(default)]
    front: bool,
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| queue_core::duration::parse(&text).map_err(D::Error::custom)).transpose()
}

fn until<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UniqueUntil>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RetryPolicy>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

pub(crate) fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an instant is text like \"2030-01-31T18:00:00Z\" or Unix seconds")]
    enum Instant {
        Secs(i64),
        Text(String),
    }
    let text = match Option::<Instant>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Instant::Secs(secs)) => secs.to_string(),
        Some(Instant::Text(text)) => text,
    };
    parse_instant(&text).map(Some).map_err(D::Error::custom)
}

/// Reads an instant: a date with its time zone (RFC 3339), or Unix seconds.
///
/// # Errors
/// When it is neither; the text says how it is written.
pub fn parse_instant(text: &str) -> Result<SystemTime, String> {
    let date = match text.parse::<i64>() {
        Ok(secs) => DateTime::from_timestamp(secs, 0),
        Err(_) => DateTime::parse_from_rfc3339(text).ok().map(|date| date.with_timezone(&Utc)),
    };
    date.map(SystemTime::from).ok_or_else(|| {
        format!("{text:?} is not an instant; write it like 2030-01-31T18:00:00Z, 2030-01-31T18:00:00+01:00, or in Unix seconds")
    })
}

/// Reads a task: `type`, `payload` (a text is taken as it is, other JSON as its text) or `payload_base64`, `queue`, `max_retry`, `timeout`,
/// `deadline`, `in` or `at`, `unique`, `unique_until`, `unique_key`, `retention`, `task_id`, `group`, `priority` or `only` or `labels`, `fallback`, `front`, `max_crashes`, `max_snoozes`,
/// `give_up_after`, `backoff`, `on_exhausted`, `on_exhausted_queue`, `headers`. Durations are written `90s`, instants as in RFC 3339 or in Unix seconds, a backoff as
/// [`RetryPolicy`] is.
///
/// # Errors
/// The reason for refusing it.
pub fn parse(line: &[u8]) -> Result<RawTask, String> {
    if std::str::from_utf8(line).is_err() {
        return Err("it is not UTF-8 text".to_owned());
    }
    let line: Line<'_> = json::read(line).map_err(|wrong| wrong.of("it"))?;
    let mut task = RawTask::new(line.r#type);
    if let Some(json) = line.payload {
        // A string is taken as it is. The text of anything else is kept to the byte: parsing it would round
        // numbers and sort keys.
        task = match json.get().starts_with('"') {
            true => {
                // Only now the escapes are looked at.
                let text = serde_json::from_str::<String>(json.get());
                task.payload(text.map_err(|error| format!("its payload is no text: {}", json::words(&error)))?)
            }
            false => task.payload(json.get().to_owned()),
        };
    }
    if let Some(text) = line.payload_base64 {
        if line.payload.is_some() {
            return Err("`payload` and `payload_base64` exclude each other".to_owned());
        }
        task = task.payload(STANDARD.decode(text).map_err(|_| "`payload_base64` is no base64".to_owned())?);
    }
    let family = Family::choose(line.priority, line.only, line.labels.unwrap_or_default());
    let mut options = TaskOptions {
        queue: line.queue,
        max_retry: line.max_retry,
        timeout: line.timeout,
        deadline: line.deadline,
        task_id: line.task_id,
        unique: line.unique,
        unique_until: line.unique_until,
        unique_key: line.unique_key,
        retention: line.retention,
        group: line.group,
        max_crashes: line.max_crashes,
        max_snoozes: line.max_snoozes,
        give_up_after: line.give_up_after,
        backoff: line.backoff,
        on_exhausted: line.on_exhausted,
        on_exhausted_queue: line.on_exhausted_queue,
        fallback: line.fallback,
        front: line.front,
        family: family.map_err(|error| error.to_string())?,
        headers: line.headers.unwrap_or_default(),
        ..TaskOptions::new()
    };
    match (line.r#in, line.at) {
        (Some(_), Some(_)) => return Err("`in` and `at` exclude each other".to_owned()),
        (Some(delay), None) => options = options.process_in(delay),
        (None, Some(at)) => options = options.process_at(at),
        (None, None) => {}
    }
    Ok(task.with(options))
}

#[cfg(test)]
mod tests {
    use queue_core::options::ProcessTime;

    use super::*;

    fn payload(line: &str) -> Option<String> {
        parse(line.as_bytes()).unwrap().payload.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn a_string_is_taken_as_it_is_and_other_json_as_its_text() {
        assert_eq!(payload(r#"{"type":"t","payload":"a \"b\"\n"}"#).as_deref(), Some("a \"b\"\n"));
        for json in [r#"{"z":1, "a":1.10,"big":12345678901234567890123}"#, "[1,2]", "null", "true", "-0.50"] {
            assert_eq!(payload(&format!(r#"{{"type":"t","payload":{json}}}"#)).as_deref(), Some(json));
        }
        assert_eq!(payload(r#"{"type":"t","payload":""}"#).as_deref(), Some(""));
        assert_eq!(payload(r#"{"type":"t","payload_base64":"w6k="}"#).as_deref(), Some("é"));
        assert_eq!(payload(r#"{"type":"t"}"#), None);
    }

    #[test]
    fn every_option_is_understood() {
        let task = parse(
            br#"{"type":"t","queue":"q","max_retry":3,"timeout":"90s","deadline":1700000000,"at":"2023-11-14T22:13:20Z",
                "unique":"1h30m","unique_until":"window","unique_key":"k","retention":"7d","task_id":"i","group":"g","priority":9,
                "max_crashes":1,"max_snoozes":2,"front":true,"give_up_after":"3h","backoff":"4s",
                "on_exhausted":"alert","on_exhausted_queue":"ops","headers":{"k":"v"}}"#,
        )
        .unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let expected = TaskOptions::new()
            .queue("q")
            .max_retry(3)
            .timeout(Duration::from_secs(90))
            .deadline(at)
            .process_at(at)
            .unique(Duration::from_secs(5_400))
            .unique_until(UniqueUntil::Window)
            .unique_key("k")
            .retention(Duration::from_secs(604_800))
            .task_id("i")
            .group("g")
            .priority(9)
            .front()
            .max_crashes(1)
            .max_snoozes(2)
            .give_up_after(Duration::from_secs(3 * 3_600))
            .backoff(RetryPolicy::Fixed(Duration::from_secs(4)))
            .on_exhausted("alert")
            .on_exhausted_queue("ops")
            .header("k", "v");
        assert_eq!(task.options, expected);
        let task = parse(br#"{"type":"t","only":"web-1"}"#).unwrap();
        assert_eq!(task.options, TaskOptions::new().only("web-1"));
        let task = parse(br#"{"type":"t","labels":["gpu","eu"],"only":null,"fallback":"10m"}"#).unwrap();
        let expected = TaskOptions::new().label("eu").label("gpu").fallback(Duration::from_secs(600));
        assert_eq!(task.options, expected);
        let task = parse(br#"{"type":"t","in":"10m","queue":null,"timeout":null}"#).unwrap();
        assert_eq!(
            task.options,
            TaskOptions { process: Some(ProcessTime::In(Duration::from_secs(600))), ..TaskOptions::new() }
        );
    }

    #[test]
    fn options_that_cannot_be_honoured_are_refused_with_the_reason() {
        for (line, reason) in [
            (r#"{"type":"t","quue":"q"}"#, "unknown field `quue`"),
            (r#"{"payload":1}"#, "missing field `type`"),
            (r#"{"type":"t""#, "EOF"),
            (r#"{"type":"t"} x"#, "trailing characters"),
            (r#"{"type":"t","type":"u"}"#, "duplicate field"),
            (r#"{"type":"t","timeout":"90"}"#, "`timeout`: invalid duration \"90\""),
            (r#"{"type":"t","timeout":90}"#, "`timeout` is the number 90; it must be a text"),
            (r#"{"type":"t","at":"tomorrow"}"#, "not an instant"),
            (r#"{"type":"t","at":true}"#, "an instant is text like"),
            (r#"{"type":"t","in":"1s","at":1}"#, "exclude each other"),
            (r#"{"type":"t","priority":9,"only":"web-1"}"#, "not two of these"),
            (r#"{"type":"t","payload":1,"payload_base64":"eA=="}"#, "exclude each other"),
            (r#"{"type":"t","payload_base64":"?"}"#, "no base64"),
            (
                r#"{"type":"t","max_retry":-1}"#,
                "`max_retry` is the number -1; it must be a whole number from 0 to 4294967295",
            ),
            (r#"{"type":"t","backoff":"fast"}"#, "write asynq, 30s"),
            (
                r#"{"type":"t","unique":"1h","unique_until":"end"}"#,
                "`unique_until`: it is success, start, finish or window",
            ),
            (r#"{"type":"t","headers":{"k":1}}"#, "`headers.k` is the number 1; it must be a text"),
            (r#"{"type":"t","payload":"\ud800"}"#, "its payload is no text"),
            ("[]", "it is a list; it must be an object"),
        ] {
            let refusal = parse(line.as_bytes()).unwrap_err();
            assert!(refusal.contains(reason) && !refusal.contains("at line"), "{line}: {refusal}");
        }
        assert!(parse(b"\xff").is_err());
    }
}
