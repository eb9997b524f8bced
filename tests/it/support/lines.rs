//! Log lines, as a program that collects them sees them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// What this thread logs from the level `info` up, while the guard lives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(crate) fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        // tracing remembers of each place whether anybody listens. While other tests begin and end to listen, it may take it that
        // nobody does; with somebody who always listens it cannot.
        static ALWAYS: Once = Once::new();
        ALWAYS.call_once(|| drop(tracing::subscriber::set_global_default(tracing_subscriber::registry())));
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
        (lines, guard)
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl<S: Subscriber> tracing_subscriber::Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() <= Level::INFO && metadata.target().starts_with("queue_") {
            let mut line = Line(metadata.level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
    }
}

/// The level, and then the fields; the message is one of them.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}
