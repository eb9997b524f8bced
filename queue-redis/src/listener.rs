//! What Redis tells by itself: cancelations, and that there may be work.
//!
//! One connection listens for both. Work is noticed by client tracking (RESP3, Redis 6 and later): a
//! look at some keys arms the connection, and the first change of one of them afterwards, also by a
//! script of Go's, pushes a message. Nothing is written, one connection serves any number of queues, and
//! since the look itself arms, nothing is missed in between. Where tracking is not to be had, only the
//! cancelations are heard, and the caller polls.
//!
//! A connection on which nothing has to be sent would not notice that it was cut. So a listener that hears
//! nothing asks for a sign of life, and gives itself up when none comes, when a look through it fails, and
//! when another connection finds that its server is no longer the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use queue_core::State;
use queue_core::keys::{CANCEL_CHANNEL, QueueKeys};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::broker::{heads_of, read_heads};
use crate::connection::Redis;
use crate::error::Error;

/// How long nothing may be heard before the listener asks whether Redis is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// Something that Redis told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The task with this id is to be canceled.
    Cancel(String),
    /// A list of pending tasks that was looked at has changed, or a pause.
    Work,
    /// A set of scheduled or retried tasks that was looked at has changed.
    Schedule,
    /// A group that was looked at has changed, or which groups there are.
    Groups,
    /// The connection broke; connect again.
    Lost,
}

/// A connection that listens.
pub struct Listener {
    source: Source,
    redis: Redis,
    /// Counts how often the master has moved.
    moves: tokio::sync::watch::Receiver<u64>,
    looks: Arc<Looks>,
}

/// What looks through the connection have shown.
#[derive(Default)]
struct Looks {
    failed: Notify,
    answered: AtomicBool,
}

enum Source {
    Tracking { connection: MultiplexedConnection, pushes: UnboundedReceiver<PushInfo> },
    PubSub(Box<PubSub>),
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("redis", &self.redis).field("tracking", &self.watch().is_some()).finish()
    }
}

impl Listener {
    /// Begins to listen. Falls back to cancelations alone when the server has no client tracking, or the
    /// user no right to it.
    ///
    /// # Errors
    /// When Redis cannot be reached, or refuses the subscription.
    pub async fn connect(redis: &Redis) -> Result<Self, Error> {
        let moves = redis.moves();
        let source = match Self::tracking(redis).await {
            Ok(source) => source,
            // It may have tracking once it is there.
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                crate::log::warn!(%error, "no client tracking; new tasks are noticed by polling");
                Source::PubSub(Box::new(redis.pubsub().await?))
            }
        };
        Ok(Self { source, redis: redis.clone(), moves, looks: Arc::default() })
    }

    async fn tracking(redis: &Redis) -> Result<Source, Error> {
        let (sender, pushes) = unbounded_channel();
        let mut connection = redis.subscriber(sender).await?;
        let mut setup = redis::pipe();
        setup.cmd("CLIENT").arg("TRACKING").arg("ON").ignore();
        setup.cmd("SUBSCRIBE").arg(CANCEL_CHANNEL).ignore();
        let done: RedisResult<()> = setup.query_async(&mut connection).await;
        done.map_err(|error| redis.explain("CLIENT TRACKING", error))?;
        Ok(Source::Tracking { connection, pushes })
    }

    /// A handle that looks at keys and arms this connection; `None` when there is no tracking.
    pub fn watch(&self) -> Option<Watch> {
        match &self.source {
            Source::Tracking { connection, .. } => {
                let (connection, redis, looks) = (connection.clone(), self.redis.clone(), self.looks.clone());
                Some(Watch { connection, redis, looks })
            }
            Source::PubSub(_) => None,
        }
    }

    /// Waits for the next signal. After [`Signal::Lost`] there are no more.
    ///
    /// # Cancel safety
    /// Cancel safe: no signal is lost.
    pub async fn signal(&mut self) -> Signal {
        loop {
            let Self { source, moves, looks, .. } = self;
            tokio::select! {
                signal = source.signal() => return signal,
                _ = moves.changed() => return Signal::Lost,
                () = looks.failed.notified() => return Signal::Lost,
                () = tokio::time::sleep(SILENCE) => {}
            }
            if self.looks.answered.swap(false, Ordering::AcqRel) {
                continue;
            }
            let limit = self.redis.options().response_timeout;
            // What arrives meanwhile waits in the source.
            if !matches!(tokio::time::timeout(limit, self.source.ping()).await, Ok(Ok(()))) {
                return Signal::Lost;
            }
        }
    }
}

impl Source {
    async fn signal(&mut self) -> Signal {
        match self {
            Source::Tracking { pushes, .. } => loop {
                match pushes.recv().await {
                    None => return Signal::Lost,
                    Some(push) => {
                        if let Some(signal) = read(push) {
                            return signal;
                        }
                    }
                }
            },
            Source::PubSub(subscription) => match subscription.on_message().next().await {
                Some(message) => Signal::Cancel(String::from_utf8_lossy(message.get_payload_bytes()).into_owned()),
                None => Signal::Lost,
            },
        }
    }

    async fn ping(&mut self) -> RedisResult<()> {
        match self {
            Source::Tracking { connection, .. } => redis::cmd("PING").query_async(connection).await,
            Source::PubSub(subscription) => subscription.ping::<Value>().await.map(drop),
        }
    }
}

fn read(push: PushInfo) -> Option<Signal> {
    match (push.kind, push.data.as_slice()) {
        (PushKind::Disconnection, _) => Some(Signal::Lost),
        (PushKind::Message, [_, Value::BulkString(id)]) => {
            Some(Signal::Cancel(String::from_utf8_lossy(id).into_owned()))
        }
        (PushKind::Invalidate, [Value::Array(keys)]) => keys.iter().find_map(|key| match key {
            // A group may have any name, so these come first.
            Value::BulkString(key) if key.ends_with(b":pending") || key.ends_with(b":paused") => Some(Signal::Work),
            Value::BulkString(key) if is_group(key) => Some(Signal::Groups),
            Value::BulkString(key) if key.ends_with(b":scheduled") || key.ends_with(b":retry") => {
                Some(Signal::Schedule)
            }
            Value::BulkString(_) => Some(Signal::Work),
            _ => None,
        }),
        // Redis forgot all keys (FLUSHALL) or the table of tracked keys was full: look at everything.
        (PushKind::Invalidate, _) => Some(Signal::Work),
        _ => None,
    }
}

/// Looks at keys through a listening connection, so that their next change is signalled.
#[derive(Clone)]
pub struct Watch {
    connection: MultiplexedConnection,
    redis: Redis,
    looks: Arc<Looks>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("redis", &self.redis).finish_non_exhaustive()
    }
}

/// Whether a key is a group, or the list of them. A group whose name ends in `:pending` is taken for that;
/// it is looked at a little later.
fn is_group(key: &[u8]) -> bool {
    key.ends_with(b":groups") || key.windows(4).any(|part| part == b"}:g:")
}

impl Watch {
    /// Sends a look. One that fails tells the listener that its connection is of no use.
    async fn look<T: redis::FromRedisValue>(&mut self, name: &'static str, look: &redis::Pipeline) -> Result<T, Error> {
        let found = look.query_async(&mut self.connection).await.map_err(|error| self.redis.explain(name, error));
        match &found {
            Err(error) if error.is_transient() => self.looks.failed.notify_one(),
            _ => self.looks.answered.store(true, Ordering::Release),
        }
        found
    }

    /// Whether one of these queues has pending tasks and is not paused. Afterwards the first push to one
    /// of them, and the end of a pause that was in the way, gives [`Signal::Work`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn has_work<'a>(&mut self, queues: impl Iterator<Item = &'a str>) -> Result<bool, Error> {
        let queues: Vec<QueueKeys> = queues.map(QueueKeys::new).collect();
        let filled = self.existing(queues.iter().map(QueueKeys::pending)).await?;
        // Whether a queue is paused matters only where something waits.
        let filled: Vec<_> = queues.iter().zip(filled).filter(|(_, filled)| *filled).map(|(keys, _)| keys).collect();
        let paused = self.existing(filled.iter().map(|keys| keys.paused())).await?;
        Ok(paused.contains(&false))
    }

    /// Whether there is a task with this id. Afterwards the first change of it gives a signal, [`Signal::Work`]
    /// as a rule, also when it is deleted.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn has_task(&mut self, queue: &str, id: &str) -> Result<bool, Error> {
        Ok(self.existing(std::iter::once(QueueKeys::new(queue).task(id))).await?.contains(&true))
    }

    async fn existing(&mut self, keys: impl Iterator<Item = String>) -> Result<Vec<bool>, Error> {
        let mut look = redis::pipe();
        for key in keys {
            look.cmd("EXISTS").arg(key);
        }
        if look.is_empty() { Ok(Vec::new()) } else { self.look("EXISTS", &look).await }
    }

    /// As [`Broker::next_due`](crate::Broker::next_due). Afterwards the first change of one of the sets
    /// gives [`Signal::Schedule`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn next_due(&mut self, sets: &[(&str, State)]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
        let heads = self.look("ZRANGE", &heads_of(sets)).await?;
        Ok(read_heads(&self.redis, heads))
    }

    /// Looks at the groups of a queue, the first thousand or so. Afterwards the first change of one of them, or
    /// of which there are, gives [`Signal::Groups`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn groups(&mut self, queue: &str) -> Result<(), Error> {
        const MOST: usize = 1_000;
        let keys = QueueKeys::new(queue);
        let (mut cursor, mut groups) = (0, Vec::new());
        loop {
            let mut scan = redis::cmd("SSCAN");
            scan.arg(keys.groups()).arg(cursor).arg("COUNT").arg(100);
            let page: RedisResult<(u64, Vec<Vec<u8>>)> = scan.query_async(&mut self.connection).await;
            let (next, names) = page.map_err(|error| self.redis.explain("SSCAN", error))?;
            groups.extend(names);
            cursor = next;
            if cursor == 0 || groups.len() >= MOST {
                break;
            }
        }
        // Redis does not track the keys that a script finds by itself, so each is looked at by a command.
        let mut look = redis::pipe();
        for name in &groups {
            look.cmd("EXISTS").arg([keys.group_prefix().as_bytes(), name].concat()).ignore();
        }
        if look.is_empty() {
            return Ok(());
        }
        let looked: RedisResult<()> = look.query_async(&mut self.connection).await;
        looked.map_err(|error| self.redis.explain("EXISTS", error))
    }
}
