//! Opens connections to one server on the network: over TCP, TLS or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::PubSub;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::link::wire::{Stream, Watched, Wire};
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

    /// Where it is.
    pub(crate) fn address(&self) -> &ConnectionAddr {
        &self.address
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
        let late = |_| {
            // A Redis without TLS waits for the rest of what it takes for a command.
            Err(match self.address {
                ConnectionAddr::TcpTls { .. } => {
                    let said = "timed out (where Redis speaks no TLS, the URL is redis:// and not rediss://)";
                    io::Error::new(io::ErrorKind::TimedOut, said)
                }
                _ => io::ErrorKind::TimedOut.into(),
            }
            .into())
        };
        tokio::time::timeout(self.options.connect_timeout, connect).await.unwrap_or_else(late)
    }

    /// A connection for subscriptions that needs nothing newer than Redis 2. It knows no time limits.
    pub(crate) async fn pubsub(&self) -> RedisResult<PubSub> {
        PubSub::new(&self.settings, self.open().await?.bytes).await
    }

    /// Opens a stream.
    async fn open(&self) -> io::Result<Stream> {
        let (host, port) = match &self.address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (&**host, *port),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => return Ok(Watched::new(UnixStream::connect(path).await?).into()),
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "this kind of address is not supported here")),
        };
        self.open_first(tokio::net::lookup_host((host, port)).await?).await
    }

    /// Opens a stream to the first of a host's addresses that is ready: with TLS where it is wanted, since what takes
    /// connections may say nothing on them.
    async fn open_first(&self, addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Stream> {
        let attempts: Vec<_> = addresses.map(|address| Box::pin(self.open_at(address))).collect();
        if attempts.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
        }
        Ok(select_ok(attempts).await?.0)
    }

    async fn open_at(&self, address: SocketAddr) -> io::Result<Stream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
        socket.set_tcp_keepalive(&keepalive)?;
        // A system that cannot do it sees less of a large request.
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let _ = socket.set_tcp_notsent_lowat(UNSENT_AT_MOST);
        let watched = Watched::new(stream);
        #[cfg(feature = "tls")]
        if let ConnectionAddr::TcpTls { host, insecure, .. } = &self.address {
            let moved = watched.moved();
            return Ok(Stream { bytes: Box::pin(self.tls.over(watched, host, *insecure).await?), moved });
        }
        Ok(watched.into())
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::sync::Arc;

    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::address::{self, Address};

    #[tokio::test]
    async fn whoever_waits_for_tls_in_vain_is_told_that_there_may_be_none() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = silent.local_addr().unwrap();
        let options = RedisOptions { connect_timeout: Duration::from_millis(50), ..RedisOptions::default() };
        for (scheme, is_told) in [("rediss", true), ("redis", false)] {
            let Address::Server(info) = address::parse(&format!("{scheme}://{at}"), &options.tls).unwrap() else {
                panic!("it is one server")
            };
            let connected = Dialer::new(&info, &options).connect_to_listen(options.config()).await;
            let error = connected.err().unwrap();
            let told = crate::Error::from_connecting(&error, "here").to_string();
            assert!(error.is_timeout() && told.contains("the URL is redis:// and not rediss://") == is_told, "{told}");
        }
    }

    #[tokio::test]
    async fn of_several_addresses_the_first_with_tls_counts_and_not_the_first_that_takes_connections() {
        let signed = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor =
            TlsAcceptor::from(Arc::new(config.with_single_cert(vec![signed.cert.der().clone()], key).unwrap()));
        let (speaks, silent) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let [free, mute] = [&speaks, &silent].map(|listener| listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = speaks.accept().await.unwrap();
                tokio::spawn(acceptor.accept(stream));
            }
        });

        let options = RedisOptions::default();
        let Address::Server(info) = address::parse("rediss://localhost#insecure", &options.tls).unwrap() else {
            panic!("it is one server")
        };
        let dialer = Dialer::new(&info, &options);
        for addresses in [[mute, free], [free, mute]] {
            let opened = dialer.open_first(addresses.into_iter());
            tokio::time::timeout(Duration::from_secs(60), opened).await.expect("the other one has TLS").unwrap();
        }
    }
}
