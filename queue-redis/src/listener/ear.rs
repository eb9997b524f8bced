//! One connection that listens to one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use queue_core::keys::{CANCEL_CHANNEL, QUEUES, queue_prefix};
use redis::aio::PubSub;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::Signal;
use crate::broker::Holding;
use crate::error::Error;
use crate::link::server::Server;
use crate::link::wire::Wire;

/// How long nothing may be heard before the listener asks whether Redis is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// What our keys that belong to no queue begin with.
const OURS: &str = "asynq:x:";

/// A connection that listens.
pub(super) struct Ear {
    source: Source,
    server: Arc<Server>,
    /// Counts how often the master has moved.
    moves: tokio::sync::watch::Receiver<u64>,
    looks: Arc<Looks>,
}

/// What looks through the connection have shown.
#[derive(Default)]
pub(super) struct Looks {
    failed: Notify,
    answered: AtomicBool,
}

impl Looks {
    /// A look was answered, or not: then the connection is of no use.
    pub(super) fn note<T>(&self, found: &Result<T, Error>) {
        match found {
            Err(error) if error.is_outage() => self.give_up(),
            _ => self.answered.store(true, Ordering::Release),
        }
    }

    pub(super) fn give_up(&self) {
        self.failed.notify_one();
    }
}

enum Source {
    Tracking { connection: Wire, pushes: UnboundedReceiver<PushInfo> },
    PubSub(Box<PubSub>),
}

/// The sending end of an ear with client tracking: a look through it arms it.
#[derive(Clone)]
pub(super) struct Arm {
    pub(super) server: Arc<Server>,
    pub(super) connection: Wire,
    pub(super) looks: Arc<Looks>,
}

impl Ear {
    /// Listens for changes of what was looked at, and of a server also for cancelations.
    pub(super) async fn tracking(server: &Arc<Server>, hears_cancelations: bool) -> Result<Self, Error> {
        let moves = server.moves();
        let (sender, pushes) = unbounded_channel();
        let mut connection = server.subscriber(sender).await?;
        let mut setup = redis::pipe();
        setup.cmd("CLIENT").arg("TRACKING").arg("ON").ignore();
        if hears_cancelations {
            setup.cmd("SUBSCRIBE").arg(CANCEL_CHANNEL).ignore();
        }
        let done: RedisResult<()> = setup.query_async(&mut connection).await;
        done.map_err(|error| server.explain("CLIENT TRACKING", error))?;
        let source = Source::Tracking { connection, pushes };
        Ok(Self { source, server: server.clone(), moves, looks: Arc::default() })
    }

    /// Listens for cancelations only.
    pub(super) async fn plain(server: &Arc<Server>) -> Result<Self, Error> {
        let moves = server.moves();
        let source = Source::PubSub(Box::new(server.pubsub().await?));
        Ok(Self { source, server: server.clone(), moves, looks: Arc::default() })
    }

    pub(super) fn arm(&self) -> Option<Arm> {
        match &self.source {
            Source::Tracking { connection, .. } => {
                let (server, connection, looks) = (self.server.clone(), connection.clone(), self.looks.clone());
                Some(Arm { server, connection, looks })
            }
            Source::PubSub(_) => None,
        }
    }

    /// Waits for the next signal. After [`Signal::Lost`] there are no more.
    ///
    /// # Cancel safety
    /// Cancel safe: no signal is lost.
    pub(super) async fn signal(&mut self) -> Signal {
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
            let limit = self.server.options().response_timeout;
            let Self { source, moves, .. } = self;
            tokio::select! {
                // What arrives meanwhile waits in the source.
                answer = tokio::time::timeout(limit, source.ping()) => {
                    if !matches!(answer, Ok(Ok(()))) {
                        return Signal::Lost;
                    }
                }
                // A master that hangs does not answer, and Sentinel may say sooner that it is none.
                _ = moves.changed() => return Signal::Lost,
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
        (PushKind::Invalidate, [Value::Array(keys)]) => match &keys[..] {
            [Value::BulkString(key)] => Some(changed(key)),
            _ => Some(Signal::Everything),
        },
        // Redis forgot all keys (FLUSHALL).
        (PushKind::Invalidate, _) => Some(Signal::Everything),
        _ => None,
    }
}

/// What the change of a key means. A key that nobody is known to look at may mean anything.
fn changed(key: &[u8]) -> Signal {
    let part = queue_prefix(key).and_then(|prefix| {
        let name = prefix.strip_prefix(b"asynq:{")?.strip_suffix(b"}:")?;
        Some((std::str::from_utf8(name).ok()?.to_owned(), std::str::from_utf8(&key[prefix.len()..]).ok()?))
    });
    let Some((queue, part)) = part else {
        let shared = str::from_utf8(key).ok().filter(|key| key.starts_with(OURS) || *key == QUEUES);
        return shared.map_or(Signal::Everything, |key| Signal::Shared(key.to_owned()));
    };
    match part {
        "pending" | "paused" | "x:due" => Signal::Work(queue),
        "scheduled" | "retry" => Signal::Schedule(queue),
        "groups" => Signal::Groups(queue),
        part => match (part.split_once(':'), Holding::of(part)) {
            (Some(("g", group)), _) => Signal::Group(queue, group.to_owned()),
            (Some(("t", id)), _) => Signal::Task(queue, id.to_owned()),
            (_, Some(holding)) => Signal::Holding(queue, holding),
            (_, None) => Signal::Everything,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_key_names_its_queue_and_its_part() {
        let queue = || "mail".to_owned();
        for (part, signal) in [
            ("pending", Signal::Work(queue())),
            ("paused", Signal::Work(queue())),
            ("x:due", Signal::Work(queue())),
            ("scheduled", Signal::Schedule(queue())),
            ("retry", Signal::Schedule(queue())),
            ("groups", Signal::Groups(queue())),
            ("g:a:pending", Signal::Group(queue(), "a:pending".to_owned())),
            ("lease", Signal::Holding(queue(), Holding::Leases)),
            ("x:aggregated", Signal::Holding(queue(), Holding::Aggregations)),
            ("t:7:8", Signal::Task(queue(), "7:8".to_owned())),
            ("x:once", Signal::Everything),
        ] {
            assert_eq!(changed(format!("asynq:{{mail}}:{part}").as_bytes()), signal);
        }
        assert_eq!(changed(b"asynq:queues"), Signal::Shared("asynq:queues".to_owned()));
        assert_eq!(changed(b"asynq:servers"), Signal::Everything);
        assert_eq!(changed(b"asynq:x:duties"), Signal::Shared("asynq:x:duties".to_owned()));
        assert_eq!(changed(b"asynq:{\xff}:pending"), Signal::Everything);
    }
}
