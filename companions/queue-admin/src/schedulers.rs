use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::Clock as _;
use queue_core::keys::{SCHEDULERS, scheduler_history};
use queue_core::option_text;
use queue_core::wire::{self, Timestamp};

use super::{Inspector, Page};
use crate::error::Error;

/// A periodic entry, Go's or ours, as the scheduler that carries it described it at its last heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerEntry {
    /// Id of the entry: a random UUID for one of Go's, the entry's name for one of ours.
    pub id: String,
    /// Cron spec as it was given.
    pub spec: String,
    /// Task type.
    pub task_type: String,
    /// Payload bytes.
    pub payload: Bytes,
    /// Options as text, for example `Queue("low")`.
    pub options: Vec<String>,
    /// Next tick; `None` when there is none.
    pub next: Option<DateTime<Utc>>,
    /// When its task was enqueued last; `None` for never.
    pub prev: Option<DateTime<Utc>>,
}

impl SchedulerEntry {
    /// The queue of its tasks.
    pub fn queue(&self) -> String {
        let queue = self.options.iter().rev().find_map(|option| option_text::parse_queue(option));
        queue.unwrap_or_else(|| queue_core::keys::DEFAULT_QUEUE.to_owned())
    }
}

/// One time that a periodic entry's task was enqueued.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueEvent {
    /// Task id.
    pub task_id: String,
    /// When.
    pub enqueued_at: Option<DateTime<Utc>>,
}

impl Inspector {
    /// The periodic entries of all schedulers that are alive, Go's and ours, by spec and id. An entry that
    /// several of Go's schedulers carry is listed once for each, because each enqueues its task; one of ours
    /// is listed once.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn scheduler_entries(&self) -> Result<Vec<SchedulerEntry>, Error> {
        self.look_at_the_clock().await?;
        let mut connection = self.redis.pooled().await?;
        let keys: Vec<Vec<u8>> =
            connection.command("ZRANGEBYSCORE", (SCHEDULERS, self.clock.now_secs(), "+inf")).await?;
        let mut entries = Vec::new();
        for key in keys {
            let list: Vec<Vec<u8>> = connection.command("LRANGE", (key, 0, -1)).await?;
            // Go pushes to the head, so the order is the reverse of how they were registered.
            entries.extend(list.iter().rev().filter_map(|raw| wire::SchedulerEntry::from_bytes(raw).ok()));
        }
        let mut entries: Vec<SchedulerEntry> = entries
            .into_iter()
            .map(|entry| SchedulerEntry {
                id: entry.id,
                spec: entry.spec,
                task_type: entry.task_type,
                payload: entry.task_payload,
                options: entry.enqueue_options,
                next: entry.next_enqueue_time.and_then(Timestamp::to_date),
                prev: entry.prev_enqueue_time.and_then(Timestamp::to_date),
            })
            .collect();
        entries.sort_by(|a, b| (&a.spec, &a.id).cmp(&(&b.spec, &b.id)));
        Ok(entries)
    }

    /// When the tasks of a periodic entry were enqueued, newest first; empty for an id that nobody knows.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn enqueue_events(&self, entry_id: &str, page: Page) -> Result<Vec<EnqueueEvent>, Error> {
        if page.size == 0 {
            return Ok(Vec::new());
        }
        let range = (scheduler_history(entry_id), page.places());
        let raw: Vec<Vec<u8>> = self.redis.pooled().await?.command("ZREVRANGE", range).await?;
        let events = raw.iter().filter_map(|raw| wire::SchedulerEnqueueEvent::from_bytes(raw).ok());
        Ok(events
            .map(|event| EnqueueEvent {
                task_id: event.task_id,
                enqueued_at: event.enqueue_time.and_then(Timestamp::to_date),
            })
            .collect())
    }
}
