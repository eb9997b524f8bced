//! This process, as it tells how members of batches have ended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::UnboundedSender;

/// Outcomes that one call has told, all of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) queue: String,
    /// The list they stand in.
    pub(crate) list: String,
    /// The entry, as it stands there.
    pub(crate) entry: String,
}

/// Names the lists of this process, numbers its entries, and passes them on to whoever records them. Clones of a broker
/// share it.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    who: OnceLock<String>,
    entries: AtomicU64,
    recorder: OnceLock<UnboundedSender<Told>>,
}

impl Teller {
    /// The name of the process in the names of its lists.
    pub(crate) fn who(&self) -> &str {
        self.who.get_or_init(|| uuid::Uuid::new_v4().simple().to_string())
    }

    /// The number of the next entry.
    pub(crate) fn next_entry(&self) -> u64 {
        self.entries.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether anybody in this process records.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.get().is_some()
    }

    /// Passes an entry on; what nobody here records, the leader does.
    pub(crate) fn pass_on(&self, told: Told) {
        if let Some(recorder) = self.recorder.get() {
            let _ = recorder.send(told);
        }
    }

    /// From now on the recorder hears of all entries; only the first one does.
    pub(crate) fn record_with(&self, recorder: UnboundedSender<Told>) {
        let _ = self.recorder.set(recorder);
    }
}
