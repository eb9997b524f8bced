//! Where connections come from: a Redis on the network, or a store inside this process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_redis::{Manager, Pool, PoolError, Runtime, TimeoutType};
use futures_util::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::io::DuplexStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::options::RedisOptions;

/// When the operating system begins to ask whether a silent peer is still there, and how often. A connection
/// that was cut without a sign is then found out within a minute, also while nothing is sent on it.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// A store inside this process that speaks Redis' protocol; what a testing kit hands to
/// [`Redis::in_process`](crate::Redis::in_process).
pub trait InProcess: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection and serves it in the background. Called within a tokio runtime.
    fn open(&self) -> DuplexStream;
}

/// What a connection of one's own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A call of any kind; there are as many as the size of the pool says.
    Any,
    /// To renew leases and write heartbeats: nobody else's calls hold these up.
    Upkeep,
}

/// Connections for [`Use::Upkeep`], beside those of the pool's size.
const RESERVED: usize = 2;

/// What opens the connections of a handle.
pub(crate) enum Source {
    Network { client: Box<redis::Client>, pool: Pool, places: Arc<Semaphore> },
    // Opening a connection costs next to nothing, so that there is nothing to pool.
    InProcess(Arc<dyn InProcess>),
}

impl Source {
    /// Connections to a server, none of them opened yet.
    pub(crate) fn network(info: ConnectionInfo, options: &RedisOptions) -> Result<Self, Error> {
        let invalid = |reason: String| Error::InvalidUrl { reason };
        let info = with_manners(info);
        let client = redis::Client::open(info.clone()).map_err(|error| invalid(error.to_string()))?;
        let manager = Manager::new_with_config(info, options.config()).map_err(|error| invalid(error.to_string()))?;
        let pool = Pool::builder(manager)
            .max_size(options.pool_size.max(1) + RESERVED)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.response_timeout))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.response_timeout))
            .build()
            .map_err(|error| invalid(error.to_string()))?;
        let places = Arc::new(Semaphore::new(options.pool_size.max(1)));
        Ok(Self::Network { client: Box::new(client), pool, places })
    }

    /// A connection to be shared.
    pub(crate) async fn multiplexed(&self, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Network { client, .. } => client.get_multiplexed_async_connection_with_config(&config).await,
            Self::InProcess(store) => drive(&**store, ProtocolVersion::RESP2, config).await,
        }
    }

    /// A connection that is told what the server has to say by itself; `config` says where that goes.
    pub(crate) async fn subscriber(&self, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Network { client, .. } => {
                let info = client.get_connection_info().clone();
                let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
                let client = redis::Client::open(info.set_redis_settings(settings))?;
                client.get_multiplexed_async_connection_with_config(&config).await
            }
            Self::InProcess(store) => drive(&**store, ProtocolVersion::RESP3, config).await,
        }
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2.
    pub(crate) async fn pubsub(&self) -> RedisResult<PubSub> {
        match self {
            Self::Network { client, .. } => client.get_async_pubsub().await,
            Self::InProcess(store) => PubSub::new(&RedisConnectionInfo::default(), store.open()).await,
        }
    }

    /// A connection of one's own, of those that are for this use.
    ///
    /// Boxed, since it is large and called from many places, each of which would have a copy of it in the program.
    pub(crate) fn own<'a>(&'a self, options: &'a RedisOptions, usage: Use) -> BoxFuture<'a, Result<Own, PoolError>> {
        Box::pin(async move {
            match self {
                Self::Network { pool, places, .. } => {
                    let place = match usage {
                        Use::Any => {
                            let place = tokio::time::timeout(options.response_timeout, places.clone().acquire_owned());
                            let waited = |_| PoolError::Timeout(TimeoutType::Wait);
                            place.await.map_err(waited)?.ok()
                        }
                        Use::Upkeep => None,
                    };
                    let connection = pooled(pool, options.response_timeout).await?;
                    Ok(Own::Pooled { connection, _place: place })
                }
                Self::InProcess(_) => {
                    let connection = self.multiplexed(options.config()).await;
                    connection.map(Own::InProcess).map_err(PoolError::Backend)
                }
            }
        })
    }
}

/// A connection of the pool. One that was idle is asked first whether it still answers. If it does not in time, the network may have
/// been cut without a sign: the others that were idle all that time are not asked one after another, but given up.
async fn pooled(pool: &Pool, patience: Duration) -> Result<deadpool_redis::Connection, PoolError> {
    let asked = Instant::now();
    if pool.status().available > 0 {
        match tokio::time::timeout(patience, pool.get()).await {
            Ok(connection) => return connection,
            Err(_) => pool.retain(|_, metrics| metrics.recycled.unwrap_or(metrics.created) >= asked),
        };
    }
    pool.get().await
}

/// What every connection of ours has in common.
pub(crate) fn with_manners(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_lib_name("asynq-rust", env!("CARGO_PKG_VERSION"));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
    info.set_redis_settings(settings).set_tcp_settings(tcp)
}

/// Speaks with the store on a connection of its own; it ends when the last clone of it is dropped.
async fn drive(
    store: &dyn InProcess,
    protocol: ProtocolVersion,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let settings = RedisConnectionInfo::default().set_protocol(protocol);
    let (connection, driver) = MultiplexedConnection::new_with_config(&settings, store.open(), config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// A connection that nobody else uses.
pub(crate) enum Own {
    Pooled { connection: deadpool_redis::Connection, _place: Option<OwnedSemaphorePermit> },
    InProcess(MultiplexedConnection),
}

impl Own {
    pub(crate) fn connection(&mut self) -> &mut MultiplexedConnection {
        match self {
            Self::Pooled { connection, .. } => connection,
            Self::InProcess(connection) => connection,
        }
    }

    /// Closes it, instead of giving it back.
    pub(crate) fn close(self) {
        if let Self::Pooled { connection, .. } = self {
            drop(deadpool_redis::Connection::take(connection));
        }
    }
}
