//! Metrics and health over HTTP.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use prometheus::Registry;
use queue_redis::Redis;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::warn;

#[cfg(feature = "queues")]
use crate::QueueMetrics;
use crate::{CONTENT_TYPE, WorkerMetrics, text};

#[cfg(feature = "queues")]
/// Less than the 10 s after which Prometheus gives a scrape up.
const SCRAPE_LIMIT: Duration = Duration::from_secs(9);
/// How long a health check waits for Redis.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);
/// How long a shutdown waits for answers that are under way.
const DRAIN: Duration = Duration::from_secs(2);

/// How many connections are open at once. Whoever comes next waits until one of them ends: the files of the process are
/// for its work.
const CONNECTIONS: usize = 64;
/// How long a client may take to send the head of its request.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take for all of it, its answer included. Each connection is for one request.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// The pause after the operating system had no file for a connection, as in axum.
const NO_FILE: Duration = Duration::from_secs(1);

/// What an HTTP endpoint shows: `/metrics` in Prometheus' text format, and `/healthz`, which is 200 while
/// Redis answers and 503, with the reason, while it does not; with [`worker`](Self::worker), also while Redis refuses
/// what the servers ask (it is full, a replica, cannot write to its disk).
#[derive(Debug, Clone)]
pub struct Endpoint {
    redis: Redis,
    worker: Option<WorkerMetrics>,
    #[cfg(feature = "queues")]
    queues: Option<QueueMetrics>,
    registries: Vec<Registry>,
}

/// Why an endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for HTTP on {address}: {source}{hint}")]
pub struct BindError {
    address: String,
    source: io::Error,
    hint: &'static str,
}

impl Endpoint {
    /// An endpoint that shows nothing yet but whether this Redis answers.
    pub fn new(redis: Redis) -> Self {
        Self {
            redis,
            worker: None,
            #[cfg(feature = "queues")]
            queues: None,
            registries: Vec::new(),
        }
    }

    /// Shows what servers of this process do.
    #[must_use]
    pub fn worker(mut self, metrics: WorkerMetrics) -> Self {
        self.worker = Some(metrics);
        self
    }

    /// Shows what is in the queues.
    #[cfg(feature = "queues")]
    #[must_use]
    pub fn queues(mut self, metrics: QueueMetrics) -> Self {
        self.queues = Some(metrics);
        self
    }

    /// Shows metrics of the program's own beside; may be given more than once.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registries.push(registry);
        self
    }

    /// The routes, to be merged into a program's own.
    pub fn router(self) -> Router {
        Router::new().route("/metrics", get(metrics)).route("/healthz", get(health)).with_state(Arc::new(self))
    }

    /// Listens on an address, such as `127.0.0.1:9876`; port 0 is any free one. Nothing is answered before
    /// [`Listening::serve`].
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn bind(self, address: &str) -> Result<Listening, BindError> {
        let listener = TcpListener::bind(address).await.map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "; another program listens there, perhaps another worker or exporter: choose another port"
                }
                io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
                io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege: choose another port",
                io::ErrorKind::InvalidInput => "; write it like 127.0.0.1:9876",
                _ => "",
            };
            BindError { address: address.to_owned(), source, hint }
        })?;
        Ok(Listening { listener, router: self.router() })
    }
}

/// An endpoint that has its address.
pub struct Listening {
    listener: TcpListener,
    router: Router,
}

queue_core::debug_some!(Listening, listener);

impl Listening {
    /// The address.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until `shutdown` ends; those under way then may go on for 2 s.
    ///
    /// At most 64 connections are open at once, each for one request: the head has to come within 5 s, and all is over
    /// after 30 s. Others wait.
    ///
    /// # Errors
    /// None at present: what the operating system refuses is tried again.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let Self { listener, router } = self;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).keep_alive(false);
        let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                stream = accept(&listener), if connections.len() < CONNECTIONS => {
                    let service = TowerToHyperService::new(router.clone());
                    let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
                    connections.spawn(tokio::time::timeout(CONNECTION_LIMIT, connection));
                }
            }
        }
        drop(listener);
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
        Ok(())
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client has gone again.
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                warn!(%error, "a connection to the metrics cannot be accepted");
                tokio::time::sleep(NO_FILE).await;
            }
        }
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn metrics(State(endpoint): State<Arc<Endpoint>>) -> Response {
    let mut all = String::new();
    #[cfg(feature = "queues")]
    if let Some(queues) = &endpoint.queues {
        match tokio::time::timeout(SCRAPE_LIMIT, queues.text()).await {
            Ok(text) => all.push_str(&text),
            Err(_) => {
                queues.took_too_long(SCRAPE_LIMIT);
                return (StatusCode::SERVICE_UNAVAILABLE, "Redis takes too long to answer\n").into_response();
            }
        }
    }
    if let Some(worker) = &endpoint.worker {
        all.push_str(&worker.text());
    }
    for registry in &endpoint.registries {
        all.push_str(&text(registry));
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], all).into_response()
}

async fn health(State(endpoint): State<Arc<Endpoint>>) -> (StatusCode, String) {
    match tokio::time::timeout(HEALTH_LIMIT, endpoint.redis.ping()).await {
        Ok(Ok(())) => match endpoint.worker.as_ref().and_then(WorkerMetrics::outage) {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, format!("Redis does not answer within {HEALTH_LIMIT:?}\n")),
    }
}
