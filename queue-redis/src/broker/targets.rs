//! Queues whose tasks are for certain servers, and whether these are there: `list_fallbacks.lua`.

use std::collections::HashSet;

use bytes::Bytes;
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{MAX_BATCH, TARGET_GONE_TTL_SECS};
use queue_core::target::FALLBACK;
use queue_core::wire::ServerInfo;
use redis::Value;

use super::Broker;
use crate::error::Error;
use crate::script::LIST_FALLBACKS;

/// The duty that looks after such queues.
pub(crate) const TARGETS: &str = "targets";

/// Some of the tasks of a queue that are pending, or parked in a lane.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks {
    /// How many were looked at.
    pub(crate) seen: usize,
    /// The ids of those that say when others may run them, and what they say.
    pub(crate) found: Vec<(Bytes, String)>,
}

impl Broker {
    /// Asks the leader to look after the queues whose tasks are for certain servers. Whoever [lists](Self::publish_queue) one has
    /// asked.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn ask_for_targets(&self) -> Result<(), Error> {
        self.ask_for_duty(TARGETS, "", 0).await
    }

    /// The queues that servers which are alive say they serve.
    pub(crate) async fn served_queues(&self) -> Result<HashSet<String>, Error> {
        let mut list = redis::pipe();
        // Not by their time, which is that of their clocks: what they say of themselves ends by that of Redis.
        list.cmd("ZRANGE").arg(keys::SERVERS).arg(0).arg(-1);
        let (servers,): (Vec<Vec<u8>>,) = self.redis.pipeline("listing servers", &list).await?;
        if servers.is_empty() {
            return Ok(HashSet::new());
        }
        let mut look = redis::pipe();
        servers.iter().for_each(|key| {
            look.cmd("GET").arg(key);
        });
        let infos: Vec<Option<Vec<u8>>> = self.redis.pipeline("reading servers", &look).await?;
        let infos = infos.iter().flatten().filter_map(|raw| ServerInfo::from_bytes(raw).ok());
        Ok(infos.flat_map(|info| info.queues.into_keys()).collect())
    }

    /// Since when (Unix seconds) no server that is alive serves each of these queues, as it was noted; `None` where nothing was.
    pub(crate) async fn gone_since(&self, queues: &[&str]) -> Result<Vec<Option<i64>>, Error> {
        let mut look = redis::pipe();
        queues.iter().for_each(|queue| {
            look.cmd("GET").arg(QueueKeys::new(queue).gone());
        });
        if queues.is_empty() { Ok(Vec::new()) } else { self.redis.pipeline("GET", &look).await }
    }

    /// Notes that, for as long as it is noted again in time; or `None`, that one does.
    pub(crate) async fn note_gone(&self, queue: &str, since: Option<i64>) -> Result<(), Error> {
        let key = QueueKeys::new(queue).gone();
        match since {
            Some(since) => self.redis.command("SET", (key, since, "EX", TARGET_GONE_TTL_SECS)).await,
            None => self.redis.command("DEL", key).await,
        }
    }

    /// Which of the next [`MAX_BATCH`] pending tasks, the oldest first and without the first `skip`, have a fallback.
    pub(crate) async fn list_fallbacks(&self, queue: &str, skip: usize) -> Result<Fallbacks, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = LIST_FALLBACKS.call(2);
        call.arg(keys.pending())
            .arg(keys.lanes_waiting())
            .arg(keys.task_prefix())
            .arg(skip)
            .arg(MAX_BATCH)
            .arg(FALLBACK);
        let reply = self.redis.run(&LIST_FALLBACKS, &call).await?;
        let Value::Array(items) = &reply else { return Err(Error::unexpected(LIST_FALLBACKS.name, &reply)) };
        let [Value::Int(seen), pairs @ ..] = &items[..] else {
            return Err(Error::unexpected(LIST_FALLBACKS.name, &reply));
        };
        let mut some = Fallbacks { seen: usize::try_from(*seen).unwrap_or(0), found: Vec::new() };
        for pair in pairs.chunks_exact(2) {
            if let [Value::BulkString(id), Value::BulkString(text)] = pair {
                some.found.push((Bytes::copy_from_slice(id), String::from_utf8_lossy(text).into_owned()));
            }
        }
        Ok(some)
    }

    /// The message of a task; `None` where there is none.
    pub(crate) async fn message_of(&self, queue: &str, id: &[u8]) -> Result<Option<Bytes>, Error> {
        let key = [QueueKeys::new(queue).task_prefix().as_bytes(), id].concat();
        let message: Option<Vec<u8>> = self.redis.command("HGET", (key, "msg")).await?;
        Ok(message.map(Bytes::from))
    }

    pub(crate) async fn is_paused(&self, queue: &str) -> Result<bool, Error> {
        self.redis.command("EXISTS", QueueKeys::new(queue).paused()).await
    }

    /// Whether a queue has nothing that anybody could miss: no task in any state, no group, pause or limit, and no outcome that a batch
    /// has still to be told.
    pub(crate) async fn is_bare(&self, queue: &str) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let all = [
            keys.pending(),
            keys.active(),
            keys.scheduled(),
            keys.retry(),
            keys.archived(),
            keys.completed(),
            keys.aggregation_sets(),
            keys.groups(),
            keys.paused(),
            keys.rules(),
            keys.outcome_lists(),
        ];
        Ok(self.redis.command::<u64>("EXISTS", &all).await? == 0)
    }

    /// Takes a queue off the list of queues.
    pub(crate) async fn unlist_queue(&self, queue: &str) -> Result<(), Error> {
        self.redis.command("SREM", (keys::QUEUES, queue)).await
    }
}
