//! What happens, told to those who listen: `asynq:x:watchers`, `asynq:x:events` and the `x:events` of the queues.

use std::collections::HashMap;

use queue_core::event::Wanted;
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{EVENT_ENTRIES, EVENTS_TTL_SECS, HEARD_FOR};

use super::Broker;
use crate::error::Error;
use crate::feed::Feed;

/// Entries that one look reads of a stream.
pub(crate) const LOOK: usize = 20;
/// Streams that one call looks at.
const STREAMS: usize = 100;

/// An entry of a stream: its id and its fields.
pub(crate) type RawEntry = (String, HashMap<String, Vec<u8>>);

/// Who listens.
pub(crate) fn watchers() -> redis::Pipeline {
    let mut look = redis::pipe();
    look.cmd("HGETALL").arg(keys::WATCHERS);
    look
}

pub(crate) fn read_watchers((found,): (HashMap<String, String>,)) -> Vec<Wanted> {
    found.values().filter_map(|json| Wanted::parse(json)).collect()
}

impl Broker {
    /// What this process tells, and its clones.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// What those want to hear who listen, or did so a while ago.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn wanted(&self) -> Result<Vec<Wanted>, Error> {
        Ok(read_watchers(self.redis.pipeline("HGETALL", &watchers()).await?))
    }

    /// Whether anybody has said in the last minute that they listen.
    pub(crate) async fn has_watchers(&self) -> Result<bool, Error> {
        self.redis.command("EXISTS", keys::WATCHERS).await
    }

    /// Writes what has gathered in the [`feed`](Self::feed). What cannot be written is dropped, and counted.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn tell_events(&self, now_ms: i64) -> Result<(), Error> {
        let entries = self.feed.take(now_ms);
        for (at, entry) in entries.iter().enumerate() {
            let key =
                entry.queue.as_ref().map_or_else(|| keys::EVENTS.to_owned(), |queue| QueueKeys::new(queue).events());
            let mut write = redis::pipe();
            // One step, or the key might be left without its end.
            write.atomic();
            let add = write.cmd("XADD").arg(&key).arg("MAXLEN").arg("~").arg(EVENT_ENTRIES).arg("*");
            add.arg("s").arg(self.feed.teller()).arg("n").arg(entry.number).arg("e").arg(&entry.lines).ignore();
            write.cmd("EXPIRE").arg(&key).arg(EVENTS_TTL_SECS).ignore();
            // Not on the connection of the reports, which these are not to hold up.
            let written = match self.redis.pooled().await {
                Ok(mut connection) => connection.pipeline::<()>("telling events", &write).await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                self.feed.lose(entries[at..].iter().map(|entry| entry.events).sum());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that this one listens for another while. Returns whether one who `was` there has done so until now; the same one, or
    /// one from whose cursor it goes on.
    pub(crate) async fn listen(&self, who: &str, was: &str, wanted: &Wanted, now_ms: i64) -> Result<bool, Error> {
        let mut write = redis::pipe();
        write.atomic();
        write.cmd("HGETALL").arg(keys::WATCHERS);
        write.cmd("HSET").arg(keys::WATCHERS).arg(who).arg(wanted.to_json()).ignore();
        write.cmd("EXPIRE").arg(keys::WATCHERS).arg(2 * HEARD_FOR.as_secs()).ignore();
        let mut connection = self.redis.pooled().await?;
        let (before,): (HashMap<String, String>,) = connection.pipeline("listening", &write).await?;
        let until = |json: &String| Wanted::parse(json).map_or(0, |wanted| wanted.until);
        // Those that nobody will renew any more. One that does so all the same notices that it was forgotten.
        let long_ago = now_ms.saturating_sub(i64::try_from(2 * HEARD_FOR.as_millis()).unwrap_or(0));
        let stale: Vec<&String> =
            before.iter().filter(|(_, json)| until(json) < long_ago).map(|(who, _)| who).collect();
        if !stale.is_empty() {
            connection.command::<()>("HDEL", (keys::WATCHERS, stale)).await?;
        }
        Ok(before.get(was).is_some_and(|json| until(json) > now_ms))
    }

    /// The next entries of streams, each from this id on: the range of `XRANGE` that begins there.
    pub(crate) async fn read_events(
        &self,
        from: &[(String, String)],
        most: usize,
    ) -> Result<Vec<Vec<RawEntry>>, Error> {
        let mut connection = self.redis.pooled().await?;
        let mut found = Vec::with_capacity(from.len());
        for part in from.chunks(STREAMS) {
            let mut look = redis::pipe();
            for (key, start) in part {
                look.cmd("XRANGE").arg(key).arg(start).arg("+").arg("COUNT").arg(most);
            }
            found.extend(connection.pipeline::<Vec<Vec<RawEntry>>>("XRANGE", &look).await?);
        }
        Ok(found)
    }
}
