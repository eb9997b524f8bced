//! Serving the dashboard alone.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tracing::warn;

use crate::Web;

/// How many connections are open at once. Whoever comes next waits.
const CONNECTIONS: usize = 2_000;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a client may read nothing of an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a shutdown waits for answers that are under way. Streams have no end of their own.
const DRAIN: Duration = Duration::from_secs(2);
/// The pause after the operating system had no file for a connection.
const NO_FILE: Duration = Duration::from_secs(1);

/// Where to listen: `127.0.0.1:9878`, `[::1]:0`, `localhost:9878`, or `unix:` and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port; port 0 is any free one.
    Tcp(String),
    /// A Unix socket. Who may connect is for the rights of its folder; one that is left from before is replaced.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no address; write HOST:PORT or unix:PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(AddressError(text.to_owned())) } else { Ok(Self::Unix(path.into())) };
        }
        let port =
            text.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>().ok())?);
        if port.is_some() { Ok(Self::Tcp(text.to_owned())) } else { Err(AddressError(text.to_owned())) }
    }
}

impl Address {
    /// Whether only programs on this machine reach it.
    pub fn is_local(&self) -> bool {
        let Self::Tcp(address) = self else { return true };
        let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A dashboard that has its address.
pub struct Listening {
    listener: Listener,
    web: Web,
    write_limit: Duration,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Web {
    /// Listens. Nothing is answered before [`Listening::serve`].
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn bind(&self, address: &Address) -> io::Result<Listening> {
        let listener = match address {
            Address::Tcp(address) => Listener::Tcp(TcpListener::bind(address).await?),
            Address::Unix(path) => {
                // One that somebody listens on is not ours to take.
                if tokio::net::UnixStream::connect(path).await.is_ok() {
                    return Err(io::Error::from(io::ErrorKind::AddrInUse));
                }
                let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if is_socket {
                    std::fs::remove_file(path)?;
                }
                Listener::Unix(UnixListener::bind(path)?, path.clone())
            }
        };
        Ok(Listening { listener, web: self.clone(), write_limit: WRITE_LIMIT })
    }
}

impl Listening {
    /// The address as a browser takes it, or `unix:` and the path.
    pub fn address(&self) -> String {
        match &self.listener {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|error| error.to_string(), |address| format!("http://{address}/"))
            }
            Listener::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Answers requests until `shutdown` ends; those under way then may go on for 2 s. A client has 10 s to send the head of a
    /// request, and is hung up on when it reads nothing of an answer for 30 s; at most 2,000 connections are open at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
        let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
        let mut shutdown = std::pin::pin!(shutdown);
        let (router, mut run) = (self.web.router(), std::pin::pin!(self.web.run()));
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                () = &mut run => continue,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener), if connections.len() < CONNECTIONS => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "a connection to the dashboard cannot be accepted");
                    tokio::time::sleep(NO_FILE).await;
                    continue;
                }
            };
            let mut router = router.clone();
            if let Some(peer) = peer {
                router = router.layer(axum::Extension(ConnectInfo(peer)));
            }
            let stream = TokioIo::new(Hasty { stream, limit: self.write_limit, stuck: None });
            let connection = http.serve_connection(stream, TowerToHyperService::new(router));
            connections.spawn(graceful.watch(connection));
        }
        if let Listener::Unix(_, path) = &self.listener {
            let _ = std::fs::remove_file(path);
        }
        drop(self.listener);
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A stream whose writes fail when the client takes nothing for a while.
struct Hasty {
    stream: Box<dyn Stream>,
    limit: Duration,
    /// The end of the patience, while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Hasty {
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let limit = self.limit;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stuck.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Hasty {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Hasty {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

async fn accept(listener: &Listener) -> io::Result<(Box<dyn Stream>, Option<SocketAddr>)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            let _ = stream.set_nodelay(true);
            Ok((Box::new(stream), Some(peer)))
        }
        Listener::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), None)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Two thousand of them held all places.
    #[tokio::test]
    async fn who_asks_and_reads_nothing_is_hung_up_on() {
        let redis = queue_redis::Redis::lazy("redis://127.0.0.1:1", queue_redis::RedisOptions::default()).unwrap();
        let web = Web::builder(redis).build();
        let mut listening = web.bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        listening.write_limit = Duration::from_millis(300);
        let address = listening.address();
        let served = tokio::spawn(listening.serve(std::future::pending()));
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let asking = async {
            while stream.write_all(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_ok() {}
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), asking).await;
        assert!(ended.is_ok(), "the connection is still held");
        served.abort();
    }

    #[test]
    fn an_address_is_local_or_not() {
        for (text, local) in [
            ("127.0.0.1:0", true),
            ("127.9.9.9:1", true),
            ("[::1]:9878", true),
            ("localhost:80", true),
            ("unix:/run/x.sock", true),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("localhost.example.com:80", false),
            ("10.0.0.1:80", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_local(), local, "{text}");
        }
        for text in ["", ":80", "localhost", "unix:", "h:99999", "h:x"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
