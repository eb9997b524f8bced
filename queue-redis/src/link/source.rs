//! Where connections come from: a Redis on the network, or a store inside this process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::Runtime;
use deadpool::managed::{Manager, Metrics, Object, Pool, RecycleResult, TimeoutType};
use futures_util::future::BoxFuture;
use redis::aio::PubSub;
use redis::{AsyncConnectionConfig, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult};
use tokio::io::DuplexStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::link::dial::Dialer;
use crate::link::wire::{Watched, Wire};
use crate::options::RedisOptions;

/// Why the pool has no connection.
pub(crate) type PoolError = deadpool::managed::PoolError<RedisError>;

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
    Network { dialer: Arc<Dialer>, pool: Pool<Pooling>, places: Arc<Semaphore> },
    // Opening a connection costs next to nothing, so that there is nothing to pool.
    InProcess(Arc<dyn InProcess>),
}

/// Makes the connections of a pool.
#[derive(Debug)]
pub(crate) struct Pooling(Arc<Dialer>);

impl Manager for Pooling {
    type Type = Wire;
    type Error = RedisError;

    async fn create(&self) -> RedisResult<Wire> {
        self.0.connect().await
    }

    async fn recycle(&self, connection: &mut Wire, _: &Metrics) -> RecycleResult<RedisError> {
        Ok(redis::cmd("PING").exec_async(connection).await?)
    }
}

impl Source {
    /// Connections to a server, none of them opened yet.
    pub(crate) fn network(info: &ConnectionInfo, options: &RedisOptions) -> Result<Self, Error> {
        let dialer = Arc::new(Dialer::new(info, options));
        let pool = Pool::builder(Pooling(dialer.clone()))
            .max_size(options.pool_size.max(1) + RESERVED)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.response_timeout))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.response_timeout))
            .build()
            .map_err(|error| Error::InvalidUrl { reason: error.to_string() })?;
        let places = Arc::new(Semaphore::new(options.pool_size.max(1)));
        Ok(Self::Network { dialer, pool, places })
    }

    /// A connection to be shared.
    pub(crate) async fn connect(&self, options: &RedisOptions) -> RedisResult<Wire> {
        match self {
            Self::Network { dialer, .. } => dialer.connect().await,
            Self::InProcess(store) => speak(&**store, ProtocolVersion::RESP2, options.config(), options).await,
        }
    }

    /// A connection that is told what the server has to say by itself; `config` says where that goes.
    pub(crate) async fn connect_to_listen(
        &self,
        config: AsyncConnectionConfig,
        options: &RedisOptions,
    ) -> RedisResult<Wire> {
        match self {
            Self::Network { dialer, .. } => dialer.connect_to_listen(config).await,
            Self::InProcess(store) => speak(&**store, ProtocolVersion::RESP3, config, options).await,
        }
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2.
    pub(crate) async fn pubsub(&self) -> RedisResult<PubSub> {
        match self {
            Self::Network { dialer, .. } => dialer.pubsub().await,
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
                    let connection = self.connect(options).await;
                    connection.map(Own::InProcess).map_err(PoolError::Backend)
                }
            }
        })
    }
}

/// A connection of the pool. One that was idle is asked first whether it still answers. If it does not in time, the network may have
/// been cut without a sign: the others that were idle all that time are not asked one after another, but given up.
async fn pooled(pool: &Pool<Pooling>, patience: Duration) -> Result<Object<Pooling>, PoolError> {
    let asked = Instant::now();
    if pool.status().available > 0 {
        match tokio::time::timeout(patience, pool.get()).await {
            Ok(connection) => return connection,
            Err(_) => pool.retain(|_, metrics| metrics.recycled.unwrap_or(metrics.created) >= asked),
        };
    }
    pool.get().await
}

/// Speaks with the store on a connection of its own.
async fn speak(
    store: &dyn InProcess,
    protocol: ProtocolVersion,
    config: AsyncConnectionConfig,
    options: &RedisOptions,
) -> RedisResult<Wire> {
    let settings = RedisConnectionInfo::default().set_protocol(protocol);
    Wire::over(Watched::new(store.open()).into(), &settings, config, options.response_timeout).await
}

/// A connection that nobody else uses.
pub(crate) enum Own {
    Pooled { connection: Object<Pooling>, _place: Option<OwnedSemaphorePermit> },
    InProcess(Wire),
}

impl Own {
    pub(crate) fn connection(&mut self) -> &mut Wire {
        match self {
            Self::Pooled { connection, .. } => connection,
            Self::InProcess(connection) => connection,
        }
    }

    /// Closes it, instead of giving it back.
    pub(crate) fn close(self) {
        if let Self::Pooled { connection, .. } = self {
            drop(Object::take(connection));
        }
    }
}
