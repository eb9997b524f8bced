//! Opens connections to one server on the network: over TCP, TLS or a Unix socket.

use std::io;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::PubSub;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;

use crate::link::wire::{Stream, Wire};
use crate::options::RedisOptions;

/// When the operating system begins to ask whether a silent peer is still there, and how often. A connection
/// that was cut without a sign is then found out within a minute, also while nothing is sent on it.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// So many bytes wait in the operating system until the way takes them. More would look as if it had been sent, and what
/// then goes on its way cannot be seen any more.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNSENT_AT_MOST: u32 = 128 * 1024;

/// A server on the network.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: ConnectionAddr,
    settings: RedisConnectionInfo,
    options: RedisOptions,
    #[cfg(feature = "tls")]
    tls: crate::tls::Tls,
}

impl Dialer {
    pub(crate) fn new(info: &ConnectionInfo, options: &RedisOptions) -> Self {
        Self {
            address: info.addr().clone(),
            settings: info.redis_settings().clone().set_lib_name("asynq-rust", env!("CARGO_PKG_VERSION")),
            options: options.clone(),
            #[cfg(feature = "tls")]
            tls: crate::tls::Tls::new(options.tls.clone()),
        }
    }

    /// A connection, within the time that the options give for it.
    pub(crate) async fn connect(&self) -> RedisResult<Wire> {
        self.connect_with(self.options.config(), &self.settings).await
    }

    /// A connection that is told what the server has to say by itself; `config` says where that goes.
    pub(crate) async fn connect_to_listen(&self, config: AsyncConnectionConfig) -> RedisResult<Wire> {
        self.connect_with(config, &self.settings.clone().set_protocol(ProtocolVersion::RESP3)).await
    }

    async fn connect_with(&self, config: AsyncConnectionConfig, settings: &RedisConnectionInfo) -> RedisResult<Wire> {
        let connect = async { Wire::over(self.open().await?, settings, config, self.options.response_timeout).await };
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        tokio::time::timeout(self.options.connect_timeout, connect).await.unwrap_or_else(late)
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2. It knows no time limits.
    pub(crate) async fn pubsub(&self) -> RedisResult<PubSub> {
        PubSub::new(&self.settings, self.open().await?).await
    }

    async fn open(&self) -> io::Result<Stream> {
        match &self.address {
            ConnectionAddr::Tcp(host, port) => Ok(Box::pin(tcp(host, *port).await?)),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, insecure, .. } => {
                Ok(Box::pin(self.tls.over(tcp(host, *port).await?, host, *insecure).await?))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Ok(Box::pin(tokio::net::UnixStream::connect(path).await?)),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this kind of address is not supported here")),
        }
    }
}

/// To the first of the host's addresses that answers.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let attempts: Vec<_> = tokio::net::lookup_host((host, port)).await?.map(TcpStream::connect).map(Box::pin).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_notsent_lowat(UNSENT_AT_MOST)?;
    Ok(stream)
}
