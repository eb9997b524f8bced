//! What happens to tasks and servers, as it happens: [`Events`].
//!
//! A listener notes in Redis what it wants to hear. Servers are told so by client tracking, and write what happens behind
//! the reports of it, packed, into a stream for each queue. While nobody listens, nothing is written and nothing is asked.
//!
//! It is news, no ledger. Go's programs tell nothing. A process that dies takes what it has gathered in the last tenth of a
//! second with it; one that has more than 1,000 events in a second tells the rest as a number ([`Kind::Dropped`]). What a
//! listener has missed it is told by a [`Kind::Gap`].

mod cursor;
mod stream;

pub use queue_core::clock::{UnixMilli, UnixSecond};
pub use queue_core::event::{Event, Kind, UnknownKind};

pub use self::cursor::{Cursor, CursorError};
pub use self::stream::{EventStream, Heard};

use queue_core::event::Wanted;

use crate::connection::Redis;
use crate::error::Error;

/// What somebody wants to hear.
///
/// ```no_run
/// use futures_util::TryStreamExt as _;
/// use queue_redis::Redis;
/// use queue_redis::events::{Events, Kind};
///
/// # async fn listen() -> Result<(), queue_redis::Error> {
/// let redis = Redis::connect("redis://localhost").await?;
/// let mut events = Events::of(&redis).queue("mail").kinds([Kind::Failed, Kind::Archived]).stream().await?;
/// while let Some(heard) = events.try_next().await? {
///     println!("{} {:?}: {:?}", heard.event.kind, heard.event.id, heard.event.error);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is heard without `stream`"]
pub struct Events {
    redis: Redis,
    wanted: Wanted,
    since: Option<Cursor>,
}

impl Events {
    /// All events of all queues and servers of this Redis.
    pub fn of(redis: &Redis) -> Self {
        Self { redis: redis.clone(), wanted: Wanted::default(), since: None }
    }

    /// Only those of this queue; may be given more than once. Priorities and targets of a queue are queues of their own, such as
    /// `mail}p9`, and are not heard with it. What belongs to no queue, as the start of a server, is left
    /// out then.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.wanted.queues.insert(name.into());
        self
    }

    /// Only those of these kinds. What tells of missing events ([`Kind::Gap`], [`Kind::Dropped`]) comes all the same.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.wanted.kinds.extend(kinds.into_iter().map(|kind| kind.as_str().to_owned()));
        self
    }

    /// Only those of tasks of this type; may be given more than once.
    pub fn task_type(mut self, name: impl Into<String>) -> Self {
        self.wanted.types.insert(name.into());
        self
    }

    /// Goes on behind an event that was heard before. Who comes back within 30 s has missed nothing that still stands in
    /// the streams, of each about 400 entries; else the first item is a [`Kind::Gap`].
    pub fn since(mut self, cursor: Cursor) -> Self {
        self.since = Some(cursor);
        self
    }

    /// Begins to listen. What happens from now on is heard as soon as the servers know of it, within milliseconds; with
    /// client tracking switched off, within 15 s. Clocks differ, so events of the second before are heard too, if somebody else
    /// listened then.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn stream(self) -> Result<EventStream, Error> {
        EventStream::open(&self.redis, self.wanted, self.since).await
    }
}
