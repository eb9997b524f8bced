//! The file of periodic entries: TOML, of which each entry is read by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use queue_core::clock::UnixSecond;
use queue_core::queue_name::Family;
use queue_core::{RawTask, RetryPolicy, duration};
use queue_scheduler::{BoxError, ConfigProvider, Entry, EntryProblem, Missed, Overlap, Zone};
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::value::Datetime;

use crate::error::CliError;
use crate::given::Given as _;
use crate::toml_value::to_json;

/// An entry as it stands in the file. `scheduler.example.toml` explains it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: Option<String>,
    spec: Spanned<String>,
    timezone: Option<String>,
    r#type: String,
    payload: Option<serde_json::Value>,
    queue: Option<String>,
    max_retry: Option<u32>,
    #[serde(default, deserialize_with = "read_duration")]
    timeout: Option<Duration>,
    #[serde(default, deserialize_with = "read_duration")]
    unique: Option<Duration>,
    #[serde(default, deserialize_with = "read_duration")]
    retention: Option<Duration>,
    #[serde(default, deserialize_with = "read_duration")]
    process_in: Option<Duration>,
    group: Option<String>,
    priority: Option<u8>,
    only: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    max_crashes: Option<u32>,
    max_snoozes: Option<u32>,
    #[serde(default, deserialize_with = "read_duration")]
    give_up_after: Option<Duration>,
    #[serde(default, deserialize_with = "read_policy")]
    backoff: Option<RetryPolicy>,
    on_exhausted: Option<String>,
    on_exhausted_queue: Option<String>,
    #[serde(default, deserialize_with = "read_duration")]
    fallback: Option<Duration>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "read_missed")]
    missed: Missed,
    #[serde(default)]
    overlap: OverlapChoice,
    #[serde(default, deserialize_with = "read_duration")]
    jitter: Option<Duration>,
    #[serde(default, deserialize_with = "read_instant")]
    starts: Option<SystemTime>,
    #[serde(default, deserialize_with = "read_instant")]
    ends: Option<SystemTime>,
    max_runs: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OverlapChoice {
    #[default]
    Allow,
    Skip,
    Queue,
}

fn read_duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    duration::parse(&String::deserialize(value)?).map(Some).map_err(D::Error::custom)
}

fn read_policy<'de, D: Deserializer<'de>>(value: D) -> Result<Option<RetryPolicy>, D::Error> {
    String::deserialize(value)?.parse().map(Some).map_err(D::Error::custom)
}

fn read_missed<'de, D: Deserializer<'de>>(value: D) -> Result<Missed, D::Error> {
    String::deserialize(value)?.parse().map_err(D::Error::custom)
}

fn read_instant<'de, D: Deserializer<'de>>(value: D) -> Result<Option<SystemTime>, D::Error> {
    let date = Datetime::deserialize(value)?.to_string();
    let read = chrono::DateTime::parse_from_rfc3339(&date);
    let read =
        read.map_err(|_| D::Error::custom(format!("{date} lacks a time or its zone; write 2030-01-31T18:00:00Z")));
    read.map(|date| Some(date.into()))
}

/// The payload of a task: a text as it is, anything else as JSON.
fn payload(value: serde_json::Value) -> Result<Vec<u8>, String> {
    Ok(match to_json(value)? {
        serde_json::Value::String(text) => text.into_bytes(),
        value => value.to_string().into_bytes(),
    })
}

impl Item {
    fn into_entry(self, timezone: Option<&str>) -> Result<Entry, String> {
        let mut task = RawTask::new(self.r#type);
        if let Some(value) = self.payload {
            task.payload = Some(payload(value).map_err(|problem| format!("payload: {problem}"))?.into());
        }
        let options = &mut task.options;
        (options.queue, options.max_retry, options.timeout) = (self.queue, self.max_retry, self.timeout);
        (options.unique, options.retention, options.group) = (self.unique, self.retention, self.group);
        (options.max_crashes, options.max_snoozes) = (self.max_crashes, self.max_snoozes);
        (options.give_up_after, options.backoff) = (self.give_up_after, self.backoff);
        (options.on_exhausted, options.on_exhausted_queue) = (self.on_exhausted, self.on_exhausted_queue);
        options.process = self.process_in.map(queue_core::options::ProcessTime::In);
        options.headers = self.headers;
        options.family = Family::choose(self.priority, self.only, self.labels).map_err(|error| error.to_string())?;
        options.fallback = self.fallback;
        let spec = self.spec.into_inner();
        let has_zone = spec.starts_with("TZ=") || spec.starts_with("CRON_TZ=");
        let entry = Entry::new(spec, task).missed(self.missed).overlap(match self.overlap {
            OverlapChoice::Allow => Overlap::Allow,
            OverlapChoice::Skip => Overlap::Skip,
            OverlapChoice::Queue => Overlap::Queue,
        });
        let zone = self.timezone.or_else(|| timezone.filter(|_| !has_zone).map(str::to_owned));
        Ok(entry
            .jitter(self.jitter.unwrap_or_default())
            .given(self.name, Entry::name)
            .given(zone, Entry::zone)
            .given(self.starts, Entry::starts)
            .given(self.ends, Entry::ends)
            .given(self.max_runs, Entry::max_runs))
    }
}

/// Why a file has no entries.
#[derive(Debug)]
pub(crate) struct Unread {
    /// On one line, for the log.
    line: String,
    /// On several, which show the place, where there is one.
    shown: Option<String>,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Unread {}

impl From<String> for Unread {
    fn from(line: String) -> Self {
        Self { line, shown: None }
    }
}

impl From<Unread> for CliError {
    fn from(unread: Unread) -> Self {
        Self::Misread(unread.shown.unwrap_or(unread.line))
    }
}

/// The entries of a file; those that cannot be read are [broken](Entry::broken). `None` where it does not say a word of
/// entries, not even that there are none. `name` is that of the file.
///
/// # Errors
/// When the file is no TOML, or holds something else than entries.
pub(crate) fn parse(text: &str, name: &str) -> Result<Option<Vec<Entry>>, Unread> {
    let line = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    let problem = |mut error: toml::de::Error| {
        let at = error.span().map_or(1, |span| line(span.start));
        error.set_input(Some(text));
        let shown = Some(format!("{name}:{at}: {error}"));
        Unread { line: format!("{name}:{at}: {}", error.message()), shown }
    };
    let mut file = DeTable::parse(text).map_err(problem)?.into_inner();
    let timezone = match file.remove("timezone") {
        None => None,
        Some(zone) => Some(String::deserialize(zone.into_deserializer()).map_err(problem)?),
    };
    let items = match file.remove("cron").map(Spanned::into_inner) {
        None => None,
        Some(DeValue::Array(items)) => Some(items.into_iter()),
        Some(_) => return Err(format!("{name}: cron must be an array of tables; write each as [[cron]]").into()),
    };
    if let Some((key, _)) = file.into_iter().next() {
        let at = line(key.span().start);
        return Err(format!("{name}:{at}: there is no {:?}; a file has timezone and [[cron]]", key.into_inner()).into());
    }
    let read = |item: Spanned<DeValue<'_>>| {
        let at = line(item.span().start);
        let given = item.as_ref().get("name").and_then(|given| given.as_ref().as_str().map(str::to_owned));
        match Item::deserialize(item.into_deserializer()) {
            Err(error) => {
                let at = error.span().map_or(at, |span| line(span.start));
                Entry::broken(given.unwrap_or_default(), error.message()).origin(format!("{name}:{at}"))
            }
            Ok(item) => {
                let spec_at = line(item.spec.span().start);
                let entry = match item.into_entry(timezone.as_deref()) {
                    Ok(entry) => entry,
                    Err(error) => {
                        let broken = Entry::broken(given.unwrap_or_default(), error);
                        return broken.origin(format!("{name}:{at}"));
                    }
                };
                let bad_spec = |error: queue_scheduler::EntryError| matches!(error.problem, EntryProblem::Spec { .. });
                let at = if entry.ticks(&Zone::UTC, UnixSecond(0), 0).is_err_and(bad_spec) { spec_at } else { at };
                entry.origin(format!("{name}:{at}"))
            }
        }
    };
    Ok(items.map(|items| items.map(read).collect()))
}

/// How often it is looked whether the file has changed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Entries from a file.
#[derive(Debug, Clone)]
pub(crate) struct EntryFile {
    path: PathBuf,
    /// Whether it had entries when it was read last.
    had_some: Arc<AtomicBool>,
}

/// What tells whether a file has changed.
pub(crate) type Stamp = Option<(u64, u64, Option<SystemTime>)>;

impl EntryFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), had_some: Arc::default() }
    }

    /// Reads it; the error names the file.
    pub(crate) fn read(&self) -> Result<Vec<Entry>, Unread> {
        let name = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path).map_err(|error| format!("{name}: {error}"))?;
        let none = || format!("{name}: it has no [[cron]]; write cron = [] if there are to be no entries").into();
        parse(&text, &name)?.ok_or_else(none)
    }

    /// Waits until the file looks the same twice: somebody may be writing it.
    async fn settles(&self) {
        let mut before = self.stamp();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.stamp();
            if now == before {
                return;
            }
            before = now;
        }
    }

    pub(crate) fn stamp(&self) -> Stamp {
        use std::os::unix::fs::MetadataExt as _;
        let data = std::fs::metadata(&self.path).ok()?;
        Some((data.ino(), data.len(), data.modified().ok()))
    }
}

impl ConfigProvider for EntryFile {
    async fn entries(&self) -> Result<Vec<Entry>, BoxError> {
        if self.had_some.load(Ordering::Relaxed) {
            self.settles().await;
        }
        let entries = self.read()?;
        self.had_some.store(!entries.is_empty(), Ordering::Relaxed);
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDNIGHT: i64 = 1_772_323_200;

    fn problems(text: &str) -> Vec<String> {
        let entries = parse(text, "f").unwrap().unwrap();
        entries
            .iter()
            .filter_map(|entry| entry.ticks(&Zone::UTC, UnixSecond(0), 1).err())
            .map(|error| error.to_string())
            .collect()
    }

    #[test]
    fn the_example_is_in_order() {
        let entries = parse(include_str!("../../scheduler.example.toml"), "f").unwrap().unwrap();
        assert!(entries.len() >= 4);
        for entry in entries {
            entry.ticks(&Zone::UTC, UnixSecond(MIDNIGHT), 5).unwrap();
        }
    }

    #[test]
    fn each_bad_entry_is_reported_with_its_line() {
        let text = "timezone = 'UTC'\n\n[[cron]]\nname = 'good'\nspec = '@daily'\ntype = 't'\n\n\
                    [[cron]]\nname = 'spec'\ntype = 't'\nspec = '61 * * * *'\n\n\
                    [[cron]]\nname = 'field'\nspec = '@daily'\ntype = 't'\nmax_retri = 5\n\n\
                    [[cron]]\nspec = '@daily'\ntype = 't'\ntimeout = '5 minutes'\n\n\
                    [[cron]]\nname = 'missing'\nspec = '@daily'\n";
        let problems = problems(text);
        assert_eq!(problems.len(), 4, "{problems:#?}");
        assert!(problems[0].starts_with("f:11: entry \"spec\": spec \"61 * * * *\": minute"), "{}", problems[0]);
        assert!(problems[1].starts_with("f:17: entry \"field\": unknown field `max_retri`"), "{}", problems[1]);
        assert!(problems[2].starts_with("f:22: entry \"\": invalid duration \"5 minutes\""), "{}", problems[2]);
        assert!(problems[3].starts_with("f:24: entry \"missing\": missing field `type`"), "{}", problems[3]);
    }

    #[test]
    fn a_file_that_is_none_is_refused_as_a_whole() {
        for (text, expected) in [
            ("[[cron]]\nspec = \n", "f:2: "),
            ("cron = 5", "f: cron must be"),
            ("\ntimezon = 'UTC'", "f:2: there is no \"timezon\""),
            ("timezone = 5", "f:1: invalid type"),
        ] {
            let problem = parse(text, "f").unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
        for text in ["", "timezone = 'UTC'"] {
            assert!(parse(text, "f").unwrap().is_none());
        }
        assert!(parse("cron = []", "f").unwrap().is_some_and(|entries| entries.is_empty()));
    }

    #[test]
    fn payloads_are_json_or_text() {
        let read = |text: &str| {
            let table: Result<BTreeMap<String, serde_json::Value>, _> = toml::from_str(text);
            payload(table.unwrap().remove("p").unwrap()).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        for (toml, expected) in [
            ("p = 'plain text'", "plain text"),
            ("p = { user = 7, tags = ['a', 1.5, true] }", r#"{"tags":["a",1.5,true],"user":7}"#),
            ("p = 5", "5"),
            ("[p]\nat = 2030-01-31T18:00:00Z", r#"{"at":"2030-01-31T18:00:00Z"}"#),
        ] {
            assert_eq!(read(toml).as_deref(), Ok(expected));
        }
        for toml in ["p = nan", "p = { a = [1, -inf] }"] {
            assert!(read(toml).unwrap_err().starts_with("nan and inf"));
        }
    }

    #[test]
    fn the_time_zone_of_the_file_counts_where_an_entry_names_none() {
        let text = "timezone = 'Asia/Tokyo'\n[[cron]]\nspec = '@daily'\ntype = 't'\n\
                    [[cron]]\nspec = 'CRON_TZ=UTC @daily'\ntype = 't'\n\
                    [[cron]]\nspec = '@daily'\ntimezone = 'Europe/Berlin'\ntype = 't'\n";
        let ticks: Vec<i64> = parse(text, "f")
            .unwrap()
            .unwrap()
            .iter()
            .map(|entry| entry.ticks(&Zone::UTC, UnixSecond(MIDNIGHT), 1).unwrap()[0].0)
            .collect();
        assert_eq!(ticks, [MIDNIGHT + 15 * 3_600, MIDNIGHT + 24 * 3_600, MIDNIGHT + 23 * 3_600]);
    }
}
