//! One Redis server: the shared connection to it, and a pool of others.
//!
//! The shared connection is made when it is first used, loads all scripts, and is replaced when it breaks, and
//! also when Redis does not answer several calls in a row: a server that hangs keeps its sockets open, and the
//! redis crate alone would wait for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deadpool::managed::TimeoutType;
use futures_util::future::{BoxFuture, join_all};
use redis::aio::ConnectionLike as _;
use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;

use crate::error::Error;
use crate::link::joint::Joint;
use crate::link::source::{Own, PoolError, Source, Use};
use crate::link::wire::Wire;
use crate::options::RedisOptions;
use crate::script::{self, Dialect, Script};

/// Calls that may go unanswered one after another before the shared connection is replaced.
const TIMEOUTS_BEFORE_RECONNECT: u32 = 2;

/// A server and the connections to it.
pub(crate) struct Server {
    source: Source,
    target: String,
    options: RedisOptions,
    /// How its scripts are written.
    dialect: Dialect,
    shared: Mutex<Shared>,
    /// A broken connection is replaced once, and not by every caller.
    connecting: Joint<(u64, Wire)>,
    /// Counts how often a connection said that its server is not the right one any more, for those who only
    /// listen and would never be told.
    moved: tokio::sync::watch::Sender<u64>,
}

/// A std mutex guards this: it is held for a clone of a few pointers, never across an await.
#[derive(Default)]
struct Shared {
    connection: Option<Wire>,
    /// The number of the connection, so that an error of an old one does not close its successor.
    generation: u64,
    unanswered: u32,
}

/// Numbers shared connections, those of all servers: one to another server is another one.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// What is sent in one go.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    /// A call of a script; one that the server has forgotten is loaded first. With when it is given up, however much has
    /// moved by then.
    Script(&'static Script, &'a Cmd, Option<Instant>),
    /// A command.
    Command(&'a Cmd),
    /// The same for a server that takes over the slot of the command's key, and has not been told to serve it
    /// (`ASKING`).
    Asking(&'a Cmd),
}

impl Request<'_> {
    async fn send(self, connection: &mut Wire, dialect: Dialect) -> redis::RedisResult<Value> {
        match self {
            Self::Script(script, call, None) => script.send(connection, call, dialect).await,
            Self::Script(script, call, Some(deadline)) => {
                script.send(&mut connection.until(deadline), call, dialect).await
            }
            Self::Command(command) => command.query_async(connection).await,
            Self::Asking(command) => {
                let mut asking = redis::pipe();
                asking.cmd("ASKING").ignore().add_command(command.clone());
                let (reply,): (Value,) = asking.query_async(connection).await?;
                Ok(reply)
            }
        }
    }
}

/// Sends a pipeline; returns the replies as they came, errors of single commands among them.
pub(crate) async fn send_all(connection: &mut Wire, pipeline: &Pipeline) -> redis::RedisResult<Vec<Value>> {
    let commands = pipeline.len();
    let (offset, count) = if pipeline.is_transaction() { (commands + 1, 1) } else { (0, commands) };
    connection.req_packed_commands(pipeline, offset, count).await
}

/// The value of a reply. One that is not what it should be says nothing against the connection.
pub(crate) fn read<T: redis::FromRedisValue>(operation: &'static str, reply: Value) -> Result<T, Error> {
    T::from_redis_value(reply).map_err(|error| Error::unexpected(operation, &error.to_string()))
}

impl Server {
    pub(crate) fn new(source: Source, target: String, options: RedisOptions, dialect: Dialect) -> Self {
        Self {
            source,
            target,
            options,
            dialect,
            shared: Mutex::default(),
            connecting: Joint::default(),
            moved: tokio::sync::watch::Sender::new(0),
        }
    }

    /// Whether it is a store inside this process.
    pub(crate) fn is_in_process(&self) -> bool {
        matches!(self.source, Source::InProcess(_))
    }

    /// The address, without credentials.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// Sends on the shared connection.
    pub(crate) async fn send(self: &Arc<Self>, operation: &'static str, request: Request<'_>) -> Result<Value, Error> {
        let (generation, mut connection) = self.shared().await?;
        let reply = request.send(&mut connection, self.dialect).await;
        self.settle((generation, &connection), operation, reply)
    }

    /// Sends a pipeline on the shared connection.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        operation: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Value, Error> {
        let (generation, mut connection) = self.shared().await?;
        let reply = pipeline.query_async(&mut connection).await;
        self.settle((generation, &connection), operation, reply)
    }

    /// Sends a pipeline on the shared connection; the replies as they came.
    pub(crate) async fn replies(
        self: &Arc<Self>,
        operation: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        let (generation, mut connection) = self.shared().await?;
        let replies = send_all(&mut connection, pipeline).await;
        self.settle((generation, &connection), operation, replies)
    }

    /// A connection of one's own, from the pool.
    pub(crate) async fn own(&self, usage: Use) -> Result<Own, Error> {
        match self.source.own(&self.options, usage).await {
            Ok(connection) => Ok(connection),
            Err(PoolError::Backend(error)) => Err(self.unreachable(&error)),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(Error::PoolInUse {
                target: self.target.clone(),
                connections: self.options.pool_size,
                waited: self.options.response_timeout,
            }),
            Err(other) => Err(Error::Unreachable { target: self.target.clone(), source: Arc::new(other) }),
        }
    }

    /// A connection outside the pool, for a subscription; pushes of the server go to `pushes`.
    pub(crate) async fn subscriber(
        &self,
        pushes: tokio::sync::mpsc::UnboundedSender<redis::PushInfo>,
    ) -> Result<Wire, Error> {
        let config = self.options.config().set_push_sender(pushes);
        self.source.connect_to_listen(config, &self.options).await.map_err(|error| self.unreachable(&error))
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2.
    pub(crate) async fn pubsub(&self) -> Result<redis::aio::PubSub, Error> {
        let limit = self.options.connect_timeout;
        let connect = async {
            let mut pubsub = self.source.pubsub().await.map_err(|error| self.unreachable(&error))?;
            let subscribed = pubsub.subscribe(queue_core::keys::CANCEL_CHANNEL).await;
            subscribed.map_err(|error| self.explain("SUBSCRIBE", error))?;
            Ok(pubsub)
        };
        // This kind of connection knows no time limits of its own.
        let timed_out = |_| Err(Error::Timeout { target: self.target.clone(), timeout: limit });
        tokio::time::timeout(limit, connect).await.unwrap_or_else(timed_out)
    }

    /// Tells whenever some connection has met the wrong server (after a failover).
    pub(crate) fn moves(&self) -> tokio::sync::watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Gives up the shared connection, and tells those who listen to do likewise: this server is not, or no
    /// longer, the right one.
    pub(crate) fn abandon(&self) {
        self.lock().connection = None;
        self.moved.send_modify(|moves| *moves += 1);
    }

    fn unreachable(&self, error: &redis::RedisError) -> Error {
        Error::from_connecting(error, &self.target)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // Nothing panics while it is held; a poisoned lock is still consistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn shared(self: &Arc<Self>) -> Result<(u64, Wire), Error> {
        if let Some(found) = self.existing() {
            return Ok(found);
        }
        self.connect().await
    }

    /// Boxed, since it is seldom called, from many places, each of which would have a copy of it in the program.
    fn connect(self: &Arc<Self>) -> BoxFuture<'_, Result<(u64, Wire), Error>> {
        let server = self.clone();
        Box::pin(self.connecting.ask(&self.target, &self.options, async move {
            // Another attempt may have ended since we looked.
            match server.existing() {
                Some(found) => Ok(found),
                None => server.connect_shared().await,
            }
        }))
    }

    async fn connect_shared(&self) -> Result<(u64, Wire), Error> {
        let mut connection = self.source.connect(&self.options).await.map_err(|error| self.unreachable(&error))?;
        let tried = script::try_out(&mut connection, self.dialect).await;
        tried.map_err(|error| self.explain("loading a script", error))?;
        let mut shared = self.lock();
        shared.generation = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        shared.unanswered = 0;
        shared.connection = Some(connection.clone());
        Ok((shared.generation, connection))
    }

    /// The number of the shared connection; `None` while there is none.
    pub(crate) fn generation(&self) -> Option<u64> {
        let shared = self.lock();
        shared.connection.as_ref().map(|_| shared.generation)
    }

    fn existing(&self) -> Option<(u64, Wire)> {
        let shared = self.lock();
        Some((shared.generation, shared.connection.clone()?))
    }

    pub(crate) fn explain(&self, operation: &'static str, error: redis::RedisError) -> Error {
        Error::from_redis(error, operation, &self.target, self.options.response_timeout)
    }

    /// Turns a reply into ours and drops the shared connection if the reply shows that it is no use.
    fn settle<T>(
        &self,
        (generation, connection): (u64, &Wire),
        operation: &'static str,
        reply: redis::RedisResult<T>,
    ) -> Result<T, Error> {
        let error = match reply {
            Ok(value) => {
                // Only a call after a timeout has anything to reset.
                let mut shared = self.lock();
                if shared.unanswered != 0 && shared.generation == generation {
                    shared.unanswered = 0;
                }
                return Ok(value);
            }
            Err(error) => self.explain(operation, error),
        };
        let mut shared = self.lock();
        if shared.generation == generation {
            let give_up = match &error {
                Error::Disconnected { .. } => true,
                // Where something moves, an answer was too large for its deadline; or Redis has only begun to hang.
                Error::Timeout { .. } if connection.is_silent() => {
                    shared.unanswered += 1;
                    shared.unanswered >= TIMEOUTS_BEFORE_RECONNECT
                }
                error => error.is_wrong_server(),
            };
            if give_up {
                shared.connection = None;
            }
            if error.is_wrong_server() {
                self.moved.send_modify(|moves| *moves += 1);
            }
        }
        Err(error)
    }
}

/// A pooled connection to a server; goes back to the pool when it is dropped.
pub(crate) struct Lent {
    /// `None` only while it is being dropped.
    connection: Option<Own>,
    server: Arc<Server>,
    /// Whether it is of no more use, although it may still answer: a master that was demoted, or one that
    /// does not answer in time.
    broken: bool,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.broken) {
            // Not back to the pool, which would take an answer to PING for health.
            connection.close();
        }
    }
}

impl Lent {
    pub(crate) async fn of(server: &Arc<Server>, usage: Use) -> Result<Self, Error> {
        Ok(Self { connection: Some(server.own(usage).await?), server: server.clone(), broken: false })
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Whether it is of no more use.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) async fn send(&mut self, operation: &'static str, request: Request<'_>) -> Result<Value, Error> {
        let dialect = self.server.dialect;
        let reply = request.send(self.connection()?, dialect).await;
        reply.map_err(|error| self.judge(operation, error))
    }

    /// Makes calls of a script in one flight.
    pub(crate) async fn send_all(&mut self, script: &'static Script, calls: &[Cmd]) -> Vec<Result<Value, Error>> {
        let dialect = self.server.dialect;
        let connection = match self.connection() {
            Ok(connection) => connection.clone(),
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        let sent = calls.iter().map(|call| {
            let mut connection = connection.clone();
            async move { script.send(&mut connection, call, dialect).await }
        });
        let replies = join_all(sent).await;
        replies.into_iter().map(|reply| reply.map_err(|error| self.judge(script.name, error))).collect()
    }

    pub(crate) async fn query<T: redis::FromRedisValue>(
        &mut self,
        operation: &'static str,
        cmd: &Cmd,
    ) -> Result<T, Error> {
        read(operation, self.send(operation, Request::Command(cmd)).await?)
    }

    pub(crate) async fn pipeline(&mut self, operation: &'static str, pipeline: &Pipeline) -> Result<Value, Error> {
        let reply = pipeline.query_async(self.connection()?).await;
        reply.map_err(|error| self.judge(operation, error))
    }

    pub(crate) async fn replies(&mut self, operation: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
        let replies = send_all(self.connection()?, pipeline).await;
        replies.map_err(|error| self.judge(operation, error))
    }

    fn connection(&mut self) -> Result<&mut Wire, Error> {
        let closed = || {
            let source = Arc::new(std::io::Error::other("the connection is being given back"));
            Error::Disconnected { target: self.server.target.clone(), source }
        };
        self.connection.as_mut().map(Own::connection).ok_or_else(closed)
    }

    fn judge(&mut self, operation: &'static str, error: redis::RedisError) -> Error {
        let error = self.server.explain(operation, error);
        if error.is_wrong_server() {
            // An idle server writes nothing but its heartbeat: nobody else would find out.
            self.server.abandon();
        }
        self.broken |= error.is_outage();
        error
    }
}
