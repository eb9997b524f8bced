//! Many tasks at once: counting, finding, changing.
//!
//! Tasks are read and compared page by page, and changed by scripts that take up to
//! [`MAX_BATCH`](queue_redis::broker::MAX_BATCH) ids and look again whether each task is still where it was seen. So Redis
//! is never held up for long, and whoever is interrupted leaves each task either as it was or changed.

mod change;
mod filter;
mod list;
mod look;
mod payload;
mod text;
mod walk;

pub use change::{Changed, Progress};
pub(crate) use change::{Drive, Told};
pub use filter::Filter;
pub(crate) use list::question;
pub use list::{Cursor, Direction, Listing, Searched};
pub use text::FilterError;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use futures_util::future::try_join_all;
use queue_core::keys::QueueKeys;
use queue_core::limits::MAX_BATCH;
use queue_core::{Clock as _, TaskMessage, TaskState};

use super::Inspector;
use super::tasks::Entry;
use crate::error::Error;
use crate::lenient::sorted;
use queue_redis::Connection;
use walk::{Order, Walk};

/// The message of a task, and since when it is pending.
type Fields = (Option<Vec<u8>>, Option<i64>);

/// Ids looked at in one go.
const PAGE: usize = MAX_BATCH;

/// A list or set that holds tasks of one state, and for aggregating ones of one group.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) state: TaskState,
    pub(super) group: Option<String>,
    pub(super) key: String,
}

impl Place {
    fn is_list(&self) -> bool {
        matches!(self.state, TaskState::Pending | TaskState::Active)
    }

    /// The way through it. Who changes tasks must miss none; who looks wants the oldest first.
    fn walk(&self, to_change: bool) -> Walk {
        let order = match (self.is_list(), to_change) {
            (false, _) => Order::Score,
            (true, true) => Order::Newest,
            (true, false) => Order::Oldest,
        };
        Walk::new(self.key.clone(), order)
    }

    fn is_at(&self, cursor: &Cursor) -> bool {
        (self.state, &self.group) == (cursor.state(), cursor.group())
    }

    /// The way through it for somebody who reads a page now and another one later.
    fn read(&self, direction: Direction) -> Walk {
        let order = match (self.is_list(), direction) {
            (true, Direction::Oldest) => Order::Oldest,
            (true, Direction::Newest) => Order::Newest,
            (false, Direction::Oldest) => Order::Score,
            (false, Direction::Newest) => Order::ScoreDown,
        };
        Walk::new(self.key.clone(), order)
    }
}

/// When the attempts began that are under way, by queue and id; read only where a filter asks for it.
type Started = HashMap<String, DateTime<Utc>>;

impl Inspector {
    /// Where the tasks of these states are.
    pub(super) async fn places(&self, keys: &QueueKeys, states: &[TaskState]) -> Result<Vec<Place>, Error> {
        let mut places = Vec::new();
        for &state in states {
            if let Some(key) = keys.container(state) {
                places.push(Place { state, group: None, key });
                continue;
            }
            let groups = self.redis.command("SMEMBERS", keys.groups()).await.map(sorted)?;
            places.extend(groups.into_iter().map(|group| Place { state, key: keys.group(&group), group: Some(group) }));
        }
        Ok(places)
    }

    /// How many ids there are in each of the places.
    pub(super) async fn sizes(&self, places: &[Place]) -> Result<Vec<u64>, Error> {
        // By the connection of all: a page needs no other one before it reads.
        let counts = places.iter().map(async |place| {
            let count = if place.is_list() { "LLEN" } else { "ZCARD" };
            Ok(self.redis.query("counting tasks", redis::cmd(count).arg(&place.key)).await?)
        });
        try_join_all(counts).await
    }

    /// When active tasks were started, if the filter asks for ages.
    async fn started(&self, queue: &str, filter: &Filter, states: &[TaskState]) -> Result<Started, Error> {
        if !filter.needs_hash() || !states.contains(&TaskState::Active) {
            return Ok(Started::new());
        }
        let servers = self.servers().await?;
        let workers = servers.into_iter().flat_map(|server| server.workers).filter(|worker| worker.queue == queue);
        Ok(workers.filter_map(|worker| Some((worker.task_id, worker.started?))).collect())
    }

    /// Those of a page to which the filter applies.
    async fn select(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        place: &Place,
        filter: &Filter,
        started: &Started,
        page: &[Entry],
    ) -> Result<Vec<Entry>, Error> {
        let page: Vec<Entry> = page.iter().filter(|(id, _)| filter.may_be(id)).cloned().collect();
        if page.is_empty() || !filter.needs_hash() {
            return Ok(page);
        }
        self.look_at_the_clock().await?;
        let now = self.clock.now();
        let matches = |(entry, fields): (Entry, Option<Fields>)| {
            let (message, pending_since) = fields.unwrap_or_default();
            let message = message.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
            let started = std::str::from_utf8(&entry.0).ok().and_then(|id| started.get(id).copied());
            let score = entry.1.map(|score| score as i64);
            let candidate =
                filter::Candidate { state: place.state, message: message.as_ref(), score, pending_since, started };
            filter.matches(&candidate, now).then_some(entry)
        };
        let (mut selected, mut left) = (Vec::new(), &page[..]);
        while !left.is_empty() {
            let ids = left.iter().map(|(id, _)| &id[..]);
            let fields = connection.read_tasks(&keys.task_prefix(), ids, &["msg", "pending_since"]).await?;
            let read;
            (read, left) = left.split_at(fields.len());
            selected.extend(read.iter().cloned().zip(fields).filter_map(matches));
        }
        Ok(selected)
    }

    /// Those of a page, which was read a while ago, that are still there and to which the filter still applies.
    async fn select_anew(
        &self,
        queue: &str,
        keys: &QueueKeys,
        place: &Place,
        filter: &Filter,
        page: &[Entry],
    ) -> Result<Vec<Entry>, Error> {
        let started = self.started(queue, filter, &[place.state]).await?;
        let mut connection = self.redis.pooled().await?;
        let mut page = page.to_vec();
        if !place.is_list() {
            let mut look = redis::pipe();
            for (id, _) in &page {
                look.cmd("ZSCORE").arg(&place.key).arg(id);
            }
            let scores: Vec<Option<f64>> = connection.pipeline("ZSCORE", &look).await?;
            let entries = page.into_iter().zip(scores);
            page = entries.filter_map(|((id, _), score)| Some((id, Some(score?)))).collect();
        }
        self.select(&mut connection, keys, place, filter, &started, &page).await
    }
}
