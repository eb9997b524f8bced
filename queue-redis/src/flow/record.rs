//! What this process has told goes into the ledgers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use queue_core::Clock;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Flows, Outcomes, told};
use crate::broker::Broker;
use crate::error::Error;
use crate::service::Service;
use crate::teller::Told;

/// The most entries that are recorded at once.
const ENTRIES: usize = 400;

/// Records outcomes as they are told. What comes while others are on their way to Redis travels together.
#[derive(Debug, Clone)]
pub struct Recorder {
    flows: Flows,
    // Locked while the loop runs: one that panicked leaves it to the next.
    inbox: Arc<Mutex<Inbox>>,
}

#[derive(Debug)]
struct Inbox {
    receiver: UnboundedReceiver<Told>,
    /// What was received and is not recorded yet.
    gathered: Vec<Told>,
}

impl Recorder {
    /// The recorder of this broker and its clones, by this clock; of two, only the first hears anything.
    pub fn new(broker: Broker, clock: Arc<dyn Clock>) -> Self {
        let (sender, receiver) = unbounded_channel();
        broker.teller().record_with(sender);
        Self { flows: Flows::new(broker, clock), inbox: Arc::new(Mutex::new(Inbox { receiver, gathered: Vec::new() })) }
    }
}

impl Service for Recorder {
    const NAME: &'static str = "recorder";
    const WORK: &'static str = "recording the outcomes of batches";

    /// Records what was told so far.
    async fn run_once(&mut self) -> Result<Duration, Error> {
        let mut inbox = self.inbox.lock().await;
        let Inbox { receiver, gathered } = &mut *inbox;
        loop {
            while gathered.len() < ENTRIES
                && let Ok(told) = receiver.try_recv()
            {
                gathered.push(told);
            }
            if gathered.is_empty() {
                return Ok(Duration::ZERO);
            }
            let groups: Vec<Outcomes> = gathered.iter().map(|it| told(&it.entry).unwrap_or_default()).collect();
            let recorded = self.flows.record_apart(&groups).await?;
            let mut lists: HashMap<(&str, &str), Vec<String>> = HashMap::new();
            let mut refusing = HashSet::new();
            // What is not recorded stays in its list, where the leader finds it.
            for (Told { queue, list, entry }, _) in
                gathered.iter().zip(recorded).filter(|(_, is_recorded)| *is_recorded)
            {
                if self.flows.has_followed(queue, entry, &mut refusing).await? {
                    lists.entry((queue, list)).or_default().push(entry.clone());
                }
            }
            for ((queue, list), entries) in lists {
                self.flows.broker.trim_outcomes(queue, list, &entries).await?;
            }
            gathered.clear();
        }
    }

    /// Waits until something is told.
    async fn wait(&mut self, _: Duration) {
        let mut inbox = self.inbox.lock().await;
        match inbox.receiver.recv().await {
            Some(told) => inbox.gathered.push(told),
            // The broker and all its clones are gone.
            None => std::future::pending().await,
        }
    }
}
