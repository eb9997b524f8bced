//! How this process is connected to Redis.
//!
//! Two ways, for two needs, both measured before they were chosen (see `docs/design.md`):
//!
//! * One multiplexed connection carries the many small calls: calls that meet travel together, which
//!   gives 2.8 times the throughput of a pooled connection per call.
//! * A deadpool-redis pool serves calls that need a connection of their own: the leases, which must be
//!   renewed while the shared connection is busy, and large replies of the inspector.
//!
//! The shared connection is replaced when it breaks, and also when Redis does not answer several calls
//! in a row: a server that hangs keeps its sockets open, and the redis crate alone would wait for ever.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_redis::PoolError;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Cmd, Value};

use crate::address;
use crate::calls::{Call, Calls};
use crate::error::Error;
use crate::script::{self, Script};
use crate::source::{InProcess, Own, Source};

/// Calls that may go unanswered one after another before the shared connection is replaced.
const TIMEOUTS_BEFORE_RECONNECT: u32 = 2;

/// When the operating system begins to ask whether a silent peer is still there, and how often. A connection
/// that was cut without a sign is then found out within a minute, also while nothing is sent on it.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// How to connect.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Time to make a connection. Defaults to 5 s, as in Go's client.
    pub connect_timeout: Duration,
    /// Time to wait for an answer. Defaults to 5 s.
    pub response_timeout: Duration,
    /// Most pooled connections that may be open at once. Defaults to 8.
    pub pool_size: usize,
    /// Certificates and keys for `rediss://`. Defaults to none: the server is checked against the roots of
    /// the system, and the client shows nothing.
    pub tls: TlsOptions,
}

/// What a `rediss://` connection trusts and shows; all in PEM.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// Root certificates to check the server against, instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate and its private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ca, client) = (self.ca.is_some(), self.client.is_some());
        f.debug_struct("TlsOptions").field("ca", &ca).field("client", &client).finish()
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            pool_size: 8,
            tls: TlsOptions::default(),
        }
    }
}

impl RedisOptions {
    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout))
            // More calls than this would wait for room in the channel to the connection's driver.
            .set_pipeline_buffer_size(1024)
    }
}

/// A handle on one Redis; clones share the connections.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    target: String,
    options: RedisOptions,
    shared: Mutex<Shared>,
    /// Held while connecting, so that a broken connection is replaced once and not by every caller.
    connecting: tokio::sync::Mutex<()>,
    /// Counts how often a connection said that its server is not the right one any more, for those who only
    /// listen and would never be told.
    moved: tokio::sync::watch::Sender<u64>,
    calls: Calls,
}

/// A std mutex guards this: it is held for a clone of a few pointers, never across an await.
#[derive(Default)]
struct Shared {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that an error of an old one does not close its successor.
    generation: u64,
    unanswered: u32,
    /// Counts attempts to connect that failed, and why the last one did.
    failures: u64,
    failure: Option<Error>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("target", &self.inner.target).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects to `redis://`, `rediss://` or a Unix socket (`redis+unix:///path?db=1`, `unix:///path`).
    ///
    /// # Errors
    /// When the URL is not one of these, or Redis cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let redis = Self::lazy(url, RedisOptions::default())?;
        redis.ping().await?;
        Ok(redis)
    }

    /// A handle that connects when it is first used.
    ///
    /// # Errors
    /// When the URL is not one of a Redis.
    pub fn lazy(url: &str, options: RedisOptions) -> Result<Self, Error> {
        let info = address::parse(url, &options.tls)?;
        let target = address::describe(&info);
        let settings = info.redis_settings().clone().set_lib_name("asynq-rust", env!("CARGO_PKG_VERSION"));
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
        let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let source = Source::network(info, &options)?;
        Ok(Self::from_source(source, target, options))
    }

    /// A handle on a store inside this process, for tests. `name` takes the place of the address.
    pub fn in_process(name: impl Into<String>, store: Arc<dyn InProcess>) -> Self {
        Self::from_source(Source::InProcess(store), name.into(), RedisOptions::default())
    }

    fn from_source(source: Source, target: String, options: RedisOptions) -> Self {
        let inner = Inner {
            source,
            target,
            options,
            shared: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            moved: tokio::sync::watch::Sender::new(0),
            calls: Calls::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The address, without credentials.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// Asks Redis for a sign of life.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ping(&self) -> Result<(), Error> {
        self.query::<()>("PING", &redis::cmd("PING")).await
    }

    /// Has a function called after every call to Redis, by this handle and all its clones, with how it
    /// went. It should return quickly and must not panic. More than one may be added; none can be removed.
    /// While there is none, nothing is measured.
    pub fn on_call(&self, observer: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        self.inner.calls.add(Box::new(observer));
    }

    /// Calls a script on the shared connection.
    pub(crate) async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        let watched = self.inner.calls.begin(script.name);
        let reply = async {
            let (generation, mut connection) = self.shared().await?;
            let reply = script.send(&mut connection, call).await;
            self.settle(generation, script.name, reply)
        };
        watched.end(reply.await)
    }

    /// Sends a command on the shared connection.
    pub(crate) async fn query<T: redis::FromRedisValue>(&self, operation: &'static str, cmd: &Cmd) -> Result<T, Error> {
        let watched = self.inner.calls.begin(operation);
        let reply = async {
            let (generation, mut connection) = self.shared().await?;
            let reply = cmd.query_async(&mut connection).await;
            self.settle(generation, operation, reply)
        };
        watched.end(reply.await)
    }

    /// Sends a pipeline on the shared connection.
    pub(crate) async fn pipeline<T: redis::FromRedisValue>(
        &self,
        operation: &'static str,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let (generation, mut connection) = self.shared().await?;
        let reply = pipeline.query_async(&mut connection).await;
        self.settle(generation, operation, reply)
    }

    /// A connection of one's own, from the pool.
    ///
    /// # Errors
    /// When none can be made, or none becomes free in time.
    pub async fn pooled(&self) -> Result<Connection, Error> {
        let connecting = self.inner.calls.begin("connecting");
        let connection = match self.inner.source.own(&self.inner.options).await {
            Ok(connection) => connection,
            Err(PoolError::Backend(error)) => return connecting.end(Err(self.unreachable(&error))),
            Err(other) => {
                let error = Error::Unreachable { target: self.inner.target.clone(), source: Arc::new(other) };
                return connecting.end(Err(error));
            }
        };
        Ok(Connection { connection: Some(connection), redis: self.clone(), broken: false })
    }

    /// A connection outside the pool, for a subscription; pushes of the server go to `pushes`.
    pub(crate) async fn subscriber(
        &self,
        pushes: tokio::sync::mpsc::UnboundedSender<redis::PushInfo>,
    ) -> Result<MultiplexedConnection, Error> {
        let config = self.inner.options.config().set_push_sender(pushes);
        self.inner.source.subscriber(config).await.map_err(|error| self.unreachable(&error))
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2.
    pub(crate) async fn pubsub(&self) -> Result<redis::aio::PubSub, Error> {
        let limit = self.inner.options.connect_timeout;
        let connect = async {
            let mut pubsub = self.inner.source.pubsub().await.map_err(|error| self.unreachable(&error))?;
            let subscribed = pubsub.subscribe(queue_core::keys::CANCEL_CHANNEL).await;
            subscribed.map_err(|error| self.explain("SUBSCRIBE", error))?;
            Ok(pubsub)
        };
        // This kind of connection knows no time limits of its own.
        let timed_out = |_| Err(Error::Timeout { target: self.inner.target.clone(), timeout: limit });
        tokio::time::timeout(limit, connect).await.unwrap_or_else(timed_out)
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.inner.options
    }

    /// Tells whenever some connection has met the wrong server (after a failover).
    pub(crate) fn moves(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.moved.subscribe()
    }

    fn unreachable(&self, error: &redis::RedisError) -> Error {
        Error::from_connecting(error, &self.inner.target)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // Nothing panics while it is held; a poisoned lock is still consistent.
        self.inner.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn shared(&self) -> Result<(u64, MultiplexedConnection), Error> {
        if let Some(found) = self.existing() {
            return Ok(found);
        }
        let failures = self.lock().failures;
        let _single = self.inner.connecting.lock().await;
        if let Some(found) = self.existing() {
            return Ok(found);
        }
        // Somebody has tried while we waited; trying again, each in turn, would add up.
        if let Some(error) =
            Some(self.lock()).filter(|shared| shared.failures != failures).and_then(|s| s.failure.clone())
        {
            return Err(error);
        }
        let connected = self.connect_shared().await;
        if let Err(error) = &connected {
            let mut shared = self.lock();
            shared.failures += 1;
            shared.failure = Some(error.clone());
        }
        connected
    }

    async fn connect_shared(&self) -> Result<(u64, MultiplexedConnection), Error> {
        let config = self.inner.options.config();
        let mut connection = self.inner.source.multiplexed(config).await.map_err(|error| self.unreachable(&error))?;
        script::load_all(&mut connection).await.map_err(|error| self.explain("loading the scripts", error))?;
        let mut shared = self.lock();
        shared.generation += 1;
        shared.unanswered = 0;
        shared.connection = Some(connection.clone());
        Ok((shared.generation, connection))
    }

    fn existing(&self) -> Option<(u64, MultiplexedConnection)> {
        let shared = self.lock();
        Some((shared.generation, shared.connection.clone()?))
    }

    pub(crate) fn explain(&self, operation: &'static str, error: redis::RedisError) -> Error {
        Error::from_redis(error, operation, &self.inner.target, self.inner.options.response_timeout)
    }

    /// Turns a reply into ours and drops the shared connection if the reply shows that it is no use.
    fn settle<T>(&self, generation: u64, operation: &'static str, reply: redis::RedisResult<T>) -> Result<T, Error> {
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
                Error::Timeout { .. } => {
                    shared.unanswered += 1;
                    shared.unanswered >= TIMEOUTS_BEFORE_RECONNECT
                }
                error => error.is_wrong_server(),
            };
            if give_up {
                shared.connection = None;
            }
            if error.is_wrong_server() {
                self.inner.moved.send_modify(|moves| *moves += 1);
            }
        }
        Err(error)
    }
}

/// A connection of one's own; goes back to the pool when it is dropped.
pub struct Connection {
    /// `None` only while it is being dropped.
    connection: Option<Own>,
    redis: Redis,
    /// Whether it is of no more use, although it may still answer: a master that was demoted, or one that
    /// does not answer in time.
    broken: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.broken) {
            // Not back to the pool, which would take an answer to PING for health.
            connection.close();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("redis", &self.redis).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) async fn run(&mut self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        let redis = self.redis.clone();
        let watched = redis.inner.calls.begin(script.name);
        let reply = match &mut self.connection {
            Some(own) => script.send(own.connection(), call).await,
            None => return Err(self.closed()),
        };
        watched.end(reply.map_err(|error| self.judge(script.name, error)))
    }

    pub(crate) async fn query<T: redis::FromRedisValue>(
        &mut self,
        operation: &'static str,
        cmd: &Cmd,
    ) -> Result<T, Error> {
        let redis = self.redis.clone();
        let watched = redis.inner.calls.begin(operation);
        let reply = match &mut self.connection {
            Some(own) => cmd.query_async(own.connection()).await,
            None => return Err(self.closed()),
        };
        watched.end(reply.map_err(|error| self.judge(operation, error)))
    }

    pub(crate) async fn pipeline<T: redis::FromRedisValue>(
        &mut self,
        operation: &'static str,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let redis = self.redis.clone();
        let watched = redis.inner.calls.begin(operation);
        let reply = match &mut self.connection {
            Some(own) => pipeline.query_async(own.connection()).await,
            None => return Err(self.closed()),
        };
        watched.end(reply.map_err(|error| self.judge(operation, error)))
    }

    fn judge(&mut self, operation: &'static str, error: redis::RedisError) -> Error {
        let error = self.redis.explain(operation, error);
        if error.is_wrong_server() {
            // An idle server writes nothing but its heartbeat: nobody else would find out.
            self.redis.lock().connection = None;
            self.redis.inner.moved.send_modify(|moves| *moves += 1);
        }
        self.broken |= error.is_transient();
        error
    }

    fn closed(&self) -> Error {
        let source = Arc::new(std::io::Error::other("the connection is being given back"));
        Error::Disconnected { target: self.redis.target().to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_never_show() {
        let redis = Redis::lazy("redis://user:secret@localhost:6380/3", RedisOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let redis = redis.unwrap();
        assert_eq!(redis.target(), "localhost:6380/3");
        assert!(!format!("{redis:?}").contains("secret"));
        for url in ["redis://:secret@[bad", "ftp://:secret@host", "secret", "redis://:secret@host/x"] {
            let error = Redis::lazy(url, RedisOptions::default()).unwrap_err();
            if url != "secret" {
                assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            }
        }
    }
}
