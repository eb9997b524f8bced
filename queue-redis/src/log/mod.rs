//! Log lines that are seen even if nobody collects any.
//!
//! The library speaks by `tracing`, which drops everything while the program has no subscriber. A server
//! that fails without a word is the worst default, so then, and only then, what matters is written to
//! standard error. Nothing is installed for that: a program that installs a subscriber, or a logger of the
//! `log` crate, gets the lines from that moment on.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use queue_core::{Clock as _, SystemClock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};

pub mod panic;
mod stderr;

pub use stderr::Stderr;

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Whether this library writes its log lines, from the level `info` up, to standard error while the program
/// has neither a `tracing` subscriber nor a logger of the `log` crate. For the whole process. Defaults to
/// `true`. They go through [`Stderr`], which nobody waits for.
pub fn log_to_stderr(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Runs a `tracing` macro so that its line is not lost. By reference, since a copy of this for each line was a sixtieth of a
/// program.
#[doc(hidden)]
#[cold]
pub fn emit(line: &mut dyn FnMut()) {
    static FALLBACK: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Fallback));
    if is_silent() && ENABLED.load(Ordering::Relaxed) {
        dispatcher::with_default(&FALLBACK, line);
    } else {
        line();
    }
}

/// `tracing::error!`, but for a line that is not lost.
#[doc(hidden)]
#[macro_export]
macro_rules! __error {
    ($($line:tt)*) => { $crate::log::emit(&mut || ::tracing::error!($($line)*)) };
}

/// `tracing::warn!`, but for a line that is not lost.
#[doc(hidden)]
#[macro_export]
macro_rules! __warn {
    ($($line:tt)*) => { $crate::log::emit(&mut || ::tracing::warn!($($line)*)) };
}

/// `tracing::info!`, but for a line that is not lost.
#[doc(hidden)]
#[macro_export]
macro_rules! __info {
    ($($line:tt)*) => { $crate::log::emit(&mut || ::tracing::info!($($line)*)) };
}

#[doc(hidden)]
pub use {__error as error, __info as info, __warn as warn};

/// Whether nobody collects log lines.
fn is_silent() -> bool {
    log::max_level() == log::LevelFilter::Off && dispatcher::get_default(Dispatch::is::<NoSubscriber>)
}

/// Writes our own lines to standard error; knows no spans.
struct Fallback;

impl Subscriber for Fallback {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("queue_")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        Stderr.write_line(&line(event));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn line(event: &Event<'_>) -> String {
    let metadata = event.metadata();
    let now = SystemClock.now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let source = metadata.target().split("::").next().unwrap_or_default();
    let mut text = Text::default();
    event.record(&mut text);
    let line = format!("{now} {:>5} {source}: {}{}", metadata.level(), text.message, text.fields);
    // What comes from a task's error must not begin a line of its own, nor talk to a terminal.
    let mut plain = String::with_capacity(line.len() + 1);
    for c in line.chars() {
        if c.is_control() { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain.push('\n');
    plain
}

/// An event as text.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps lines instead of writing them.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            Fallback.enabled(metadata)
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            Fallback.new_span(span)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(line(event));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// What is logged meanwhile on this thread.
    pub(crate) fn lines_of(work: impl FnOnce()) -> Vec<String> {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        tracing::subscriber::with_default(Kept(lines.clone()), work);
        std::mem::take(&mut *lines.lock().unwrap())
    }

    #[test]
    fn lines_have_level_message_and_fields_and_stay_one_line() {
        let lines = lines_of(|| {
            let error = "boom\n\u{1b}[31m";
            tracing::warn!(task = "a b", attempt = 2, %error, "task failed");
            tracing::debug!("too fine");
            tracing::error!(target: "hyper", "not ours");
        });
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let (_, rest) = line.split_once("Z ").unwrap();
        assert_eq!(rest, " WARN queue_redis: task failed task=\"a b\" attempt=2 error=boom\\n\\u{1b}[31m\n");
    }

    #[test]
    fn a_subscriber_ends_the_silence_while_it_is_there() {
        assert!(is_silent());
        tracing::subscriber::with_default(Kept(Arc::default()), || assert!(!is_silent()));
        assert!(is_silent());
    }
}
