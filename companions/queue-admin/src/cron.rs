use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::keys::{CRON_ENTRIES, QueueKeys};
use queue_core::options::{Composed, Placement, compose};
use queue_core::{Clock as _, RawTask, TaskMessage, TaskOptions};
use serde::Deserialize;

use super::{Inspector, Page};
use crate::error::Error;
use queue_redis::broker::{Overlap, Tick, TickVerdict, Why};

/// A periodic entry of ours, as all schedulers that carry it know it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CronEntry {
    /// Its name, which is also the id under which Go's tools show it.
    pub name: String,
    /// The queue of its tasks.
    pub queue: String,
    /// Cron spec, with its time zone unless that is the schedulers' own.
    pub spec: String,
    /// Its time zone.
    pub zone: String,
    /// Task type.
    pub task_type: String,
    /// Payload bytes.
    pub payload: Bytes,
    /// What happens to missed ticks: `skip`, `last` or `all:N`.
    pub missed: String,
    /// What happens to a tick while the run before is unfinished: `allow`, `skip` or `queue`.
    pub overlap: String,
    /// Seconds by which a tick may be delayed.
    pub jitter_secs: i64,
    /// When its ticks begin.
    pub starts: Option<DateTime<Utc>>,
    /// When its ticks end.
    pub ends: Option<DateTime<Utc>>,
    /// Most runs there may be.
    pub max_runs: Option<u64>,
    /// How many runs there were.
    pub runs: u64,
    /// Since when it is paused.
    pub paused: Option<DateTime<Utc>>,
    /// Up to when all its ticks are dealt with.
    pub upto: Option<DateTime<Utc>>,
    /// A tick that waits for the end of the run before.
    pub waiting: Option<DateTime<Utc>>,
    /// Id of the task that was enqueued last.
    pub last_task: Option<String>,
    /// When that was.
    pub last: Option<DateTime<Utc>>,
    /// When a scheduler carried it last.
    pub seen: Option<DateTime<Utc>>,
}

/// What became of one tick, or of some that were let go together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CronEvent {
    /// `enqueued`, `missed` (let go), `unfinished` (left out because of the run before) or `locked` (left out
    /// because another task holds the uniqueness lock).
    pub outcome: String,
    /// `tick`, `missed` (made up for), `waiting`, `let-go`, `manual` or `forced`.
    pub why: String,
    /// The tick; for somebody's wish, when that was.
    pub tick: Option<DateTime<Utc>>,
    /// Of several that were let go, the first.
    pub from: Option<DateTime<Utc>>,
    /// When it was dealt with.
    pub at: DateTime<Utc>,
    /// Id of the task that was enqueued, or would have been.
    pub task_id: String,
}

/// The policies in an entry's hash.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    spec: String,
    zone: String,
    missed: String,
    jitter_secs: i64,
    starts: Option<i64>,
    ends: Option<i64>,
    max_runs: Option<u64>,
}

/// An item of the history list.
#[derive(Debug, Deserialize)]
struct HistoryItem {
    outcome: String,
    why: String,
    tick: i64,
    from: i64,
    at_ns: i64,
    task: String,
}

fn date(secs: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(secs, 0)
}

impl Inspector {
    /// The periodic entries of our schedulers, by name, also those that no scheduler carries just now.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cron_entries(&self) -> Result<Vec<CronEntry>, Error> {
        let mut connection = self.redis.pooled().await?;
        let listed: Vec<(String, i64)> = connection.command("ZRANGE", (CRON_ENTRIES, 0, -1, "WITHSCORES")).await?;
        let mut entries = Vec::new();
        for chunk in listed.chunks(queue_redis::broker::MAX_BATCH) {
            let places: Vec<(&str, &str, i64)> =
                chunk.iter().filter_map(|(place, seen)| place.split_once(' ').map(|(n, q)| (n, q, *seen))).collect();
            if places.is_empty() {
                continue;
            }
            let mut fetch = redis::pipe();
            for (name, queue, _) in &places {
                fetch.cmd("HGETALL").arg(QueueKeys::new(queue).cron_entry(name));
            }
            let hashes: Vec<HashMap<String, Bytes>> = connection.pipeline("reading periodic entries", &fetch).await?;
            let read = places.iter().zip(hashes);
            entries.extend(read.filter_map(|((name, queue, seen), fields)| entry(name, queue, *seen, &fields)));
        }
        entries.sort_by(|a, b| (&a.name, &a.queue).cmp(&(&b.name, &b.queue)));
        Ok(entries)
    }

    /// A periodic entry of our schedulers; if its queue was changed, as it is now.
    ///
    /// # Errors
    /// When there is none of this name, or Redis cannot be asked or refuses.
    pub async fn cron_entry(&self, name: &str) -> Result<CronEntry, Error> {
        let entries = self.cron_entries().await?.into_iter().filter(|entry| entry.name == name);
        entries.max_by_key(|entry| entry.seen).ok_or_else(|| Error::EntryNotFound(name.to_owned()))
    }

    /// Forgets a periodic entry: its state and its history. One that a scheduler still carries is there again at
    /// the next heartbeat, and its ticks count from then.
    ///
    /// # Errors
    /// When there is no entry of this name, or Redis cannot be asked or refuses.
    pub async fn remove_cron(&self, name: &str) -> Result<(), Error> {
        let entry = self.cron_entry(name).await?;
        let keys = QueueKeys::new(&entry.queue);
        // The state last: as long as it is there, this can be repeated.
        self.redis.command::<()>("DEL", queue_core::keys::scheduler_history(name)).await?;
        self.redis.command::<()>("DEL", (keys.cron_history(name), keys.cron_entry(name))).await?;
        Ok(self.broker().unlist_entry(&entry.queue, name).await?)
    }

    /// What became of the ticks of an entry, newest first; up to 1000 are kept, for 30 days after the last.
    ///
    /// # Errors
    /// When there is no entry of this name, or Redis cannot be asked or refuses.
    pub async fn cron_history(&self, name: &str, page: Page) -> Result<Vec<CronEvent>, Error> {
        let entry = self.cron_entry(name).await?;
        if page.size == 0 {
            return Ok(Vec::new());
        }
        let range = (QueueKeys::new(&entry.queue).cron_history(name), page.places());
        let raw: Vec<Vec<u8>> = self.redis.pooled().await?.command("LRANGE", range).await?;
        let items = raw.iter().filter_map(|raw| serde_json::from_slice::<HistoryItem>(raw).ok());
        Ok(items
            .map(|item| CronEvent {
                outcome: item.outcome,
                why: item.why,
                tick: date(item.tick),
                from: date(item.from),
                at: DateTime::from_timestamp_nanos(item.at_ns),
                task_id: item.task,
            })
            .collect())
    }

    /// Pauses an entry on all schedulers, with whatever queue they carry it: its ticks enqueue nothing, and do not count as
    /// missed. Returns whether it was running before.
    ///
    /// # Errors
    /// When there is no entry of this name, or Redis cannot be asked or refuses.
    pub async fn pause_cron(&self, name: &str) -> Result<bool, Error> {
        self.set_cron_pause(name, true).await
    }

    /// Resumes an entry. Returns whether it was paused before.
    ///
    /// # Errors
    /// As [`pause_cron`](Self::pause_cron).
    pub async fn resume_cron(&self, name: &str) -> Result<bool, Error> {
        self.set_cron_pause(name, false).await
    }

    async fn set_cron_pause(&self, name: &str, pause: bool) -> Result<bool, Error> {
        self.look_at_the_clock().await?;
        let (mut changed, now) = (None, self.clock.now_secs());
        // Schedulers with an older or a newer file may carry it with another queue.
        for entry in self.cron_entries().await?.into_iter().filter(|entry| entry.name == name) {
            let here = self.broker().pause_entry(&entry.queue, name, pause.then_some(now), now).await?;
            changed = changed.max(here);
        }
        changed.ok_or_else(|| Error::EntryNotFound(name.to_owned()))
    }

    /// Enqueues the task of an entry now, also while it is paused, and returns its id; it counts as a run. With
    /// `force` even while the run before is unfinished and the entry's overlap policy is not to allow that.
    ///
    /// # Errors
    /// When there is no entry of this name, its policies or a uniqueness lock refuse it
    /// ([`Error::RunRefused`]), or Redis cannot be asked or refuses.
    pub async fn run_cron(&self, name: &str, force: bool) -> Result<String, Error> {
        let entry = self.cron_entry(name).await?;
        let keys = QueueKeys::new(&entry.queue);
        let (template, unique_ttl): (Option<Vec<u8>>, Option<i64>) =
            self.redis.command("HMGET", (keys.cron_entry(name), "task", "unique")).await?;
        let template = template.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
        let template = template.ok_or_else(|| Error::EntryNotFound(name.to_owned()))?;
        let unique_ttl = unique_ttl.unwrap_or(0);
        self.look_at_the_clock().await?;
        let now_ns = self.clock.now_ns();
        let now = now_ns.div_euclid(1_000_000_000);
        // Made by the library's own rule for ids.
        let id = compose(RawTask::new("t"), TaskOptions::new(), now_ns).map(|task| task.message.id).unwrap_or_default();
        let placement = if template.group_key.is_empty() { Placement::Pending } else { Placement::Aggregating };
        let message = TaskMessage { id: format!("{name}:{now}:{id}"), ..template };
        let task = Composed { message, placement, unique_ttl, generated_id: false, has_own_lock: false };
        let broker = self.broker();
        broker.publish_queue(&entry.queue).await?;
        let overlap = match entry.overlap.as_str() {
            "skip" => Overlap::Skip,
            "queue" => Overlap::Queue,
            _ => Overlap::Allow,
        };
        let why = if force { Why::Forced } else { Why::Manual };
        let max_runs = entry.max_runs.unwrap_or(0);
        let tick = Tick { entry: name, why, at: now, task: &task, overlap, max_runs };
        let mut reply = broker.enqueue_tick(tick, now_ns).await;
        if reply.as_ref().is_err_and(queue_redis::Error::is_ambiguous) {
            // The id refuses a second task.
            reply = broker.enqueue_tick(tick, now_ns).await;
        }
        let reply = reply?;
        match reply.verdict {
            TickVerdict::Enqueued | TickVerdict::Exists => {
                broker.tell_enqueued(std::iter::once((&task.message, None)), now_ns);
                // Only a line in a list depends on this.
                let _ = broker.record_enqueue_event(name, &task.message.id, now_ns).await;
                // Whoever runs an entry by hand may end right afterwards. It takes a tenth of a second, if anybody listens.
                broker.events_told(Duration::from_secs(1)).await;
                Ok(task.message.id)
            }
            verdict => {
                let reason = match verdict {
                    TickVerdict::Unfinished => format!("its last run {:?} is unfinished", reply.last_id),
                    TickVerdict::Locked => "another task of its type and payload holds the uniqueness lock".to_owned(),
                    TickVerdict::Exhausted => "it has had all its runs".to_owned(),
                    verdict => format!("{verdict:?}"),
                };
                Err(Error::RunRefused { entry: name.to_owned(), reason, verdict })
            }
        }
    }
}

/// An entry from its hash; `None` if that is gone.
fn entry(name: &str, queue: &str, seen: i64, fields: &HashMap<String, Bytes>) -> Option<CronEntry> {
    let text = |field: &str| fields.get(field).map(|raw| String::from_utf8_lossy(raw).into_owned());
    let number = |field: &str| text(field).and_then(|text| text.parse::<i64>().ok());
    let task = TaskMessage::from_bytes(fields.get("task")?.clone()).ok()?;
    let policy: Policy = serde_json::from_slice(fields.get("policy")?).unwrap_or_default();
    Some(CronEntry {
        name: name.to_owned(),
        queue: queue.to_owned(),
        spec: policy.spec,
        zone: policy.zone,
        task_type: task.r#type,
        payload: task.payload,
        missed: policy.missed,
        overlap: text("overlap").unwrap_or_default(),
        jitter_secs: policy.jitter_secs,
        starts: policy.starts.and_then(date),
        ends: policy.ends.and_then(date),
        max_runs: policy.max_runs,
        runs: number("runs").and_then(|runs| u64::try_from(runs).ok()).unwrap_or(0),
        paused: number("paused").and_then(date),
        upto: number("upto").and_then(date),
        waiting: number("waiting").and_then(date),
        last_task: text("last_id"),
        last: number("last_ns").map(DateTime::from_timestamp_nanos),
        seen: date(seen),
    })
}
