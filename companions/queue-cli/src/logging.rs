//! Log lines, on standard error.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use chrono::SecondsFormat;
use clap::ValueEnum;
use queue_core::{Clock as _, SystemClock};
use queue_redis::Stderr;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::CliError;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(feature = "full")]
impl LogFormat {
    /// As the global flag says.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Starts logging, of these levels unless QUEUECTL_LOG says otherwise.
pub(crate) fn start((default, format): (&'static str, LogFormat)) -> Result<(), CliError> {
    let asked = std::env::var("QUEUECTL_LOG").unwrap_or_default();
    let text = if asked.trim().is_empty() { default } else { &asked };
    let filter: Targets = text
        .parse()
        .map_err(|error| CliError::failed(format!("QUEUECTL_LOG is no log filter: {error}; try QUEUECTL_LOG=debug")))?;
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(|| Stderr)
        .with_target(false)
        // A reader of our log that goes away would otherwise be complained about with `eprintln!`, which panics.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).finish().with(filter).init(),
        LogFormat::Json => lines.event_format(Json).finish().with(filter).init(),
    }
    Ok(())
}

/// An object on each line: `timestamp`, `level`, and the fields. tracing-subscriber's own form writes lists as text.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let now = SystemClock.now().to_rfc3339_opts(SecondsFormat::Micros, true);
        let mut line = Line(format!(r#"{{"timestamp":"{now}","level":"{}""#, event.metadata().level()));
        event.record(&mut line);
        writeln!(writer, "{}}}", line.0)
    }
}

/// A line without its end.
struct Line(String);

impl Line {
    fn add(&mut self, field: &Field, value: impl Into<serde_json::Value>) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, ",{}:{}", serde_json::Value::from(field.name()), value.into());
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    /// tracing knows no lists. `?list` comes as Rust writes it, which for names and numbers is as JSON does.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match serde_json::from_str::<Vec<serde_json::Value>>(&text) {
            Ok(list) => self.add(field, list),
            Err(_) => self.add(field, text),
        }
    }
}
