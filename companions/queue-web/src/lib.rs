#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! * [`Web`]: the dashboard and the REST API of one Redis; [`Web::router`] nests anywhere.
//! * [`Identity`], [`Tokens`], [`Users`]: who may do what. [`Redact`]: what nobody sees.
//! * [`Address`], [`Listening`]: serves the router alone, on a port or a Unix socket.
//!
//! There is no queue logic here: all that is read or changed goes through `queue_admin`.

mod access;
mod api;
mod assets;
mod asynqmon;
mod auth;
mod feed;
mod guard;
mod http;
mod live;
mod login;
mod openapi;
mod problem;
mod redact;
mod request;
mod route;
mod serve;
mod session;
mod users;

pub use auth::{Identity, TokenError, Tokens, new_token};
pub use redact::{Redact, RedactError};
pub use serve::{Address, AddressError, Listening};
pub use users::{HashError, UserError, Users, new_user};

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use queue_admin::Inspector;
use queue_core::limits::OPERATIONS_AT_ONCE;
use queue_redis::{Client, Redis};

use crate::access::Auth;

/// The dashboard and the REST API of one Redis.
///
/// Without [`tokens`](Builder::tokens), [`users`](Builder::users) or [`identify`](Builder::identify) nobody logs in, and everybody who is let in is an admin.
/// Then only requests to `localhost`, `127.0.0.1` and `[::1]` are answered, and to hosts that are [named](Builder::host): else
/// any page in a browser on this machine could use it, by a name that leads here (DNS rebinding).
#[derive(Clone)]
pub struct Web {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) redis: Redis,
    pub(crate) inspector: Inspector,
    pub(crate) client: Client,
    pub(crate) auth: Auth,
    pub(crate) hosts: Vec<String>,
    pub(crate) redact: Redact,
    pub(crate) read_only: bool,
    pub(crate) proxies: usize,
    pub(crate) prometheus: Option<Arc<asynqmon::metrics::Prometheus>>,
    pub(crate) live: live::Live,
    pub(crate) feed: feed::Feed,
    pub(crate) checkup: api::doctor::Checkup,
    pub(crate) failures: api::failures::Watch,
    pub(crate) assets: assets::Assets,
    /// The description of the API.
    pub(crate) openapi: serde_json::Value,
    /// Requests that wait for the end of a task.
    pub(crate) waits: tokio::sync::Semaphore,
    /// Operations under way here, and those that wait for a place among them.
    pub(crate) operations: tokio::sync::Semaphore,
    pub(crate) running: std::sync::Mutex<std::collections::HashSet<String>>,
    /// Searches under way: each keeps Redis busy for a part of the time.
    pub(crate) searches: tokio::sync::Semaphore,
    /// The same of those who explain where a task is.
    pub(crate) explains: tokio::sync::Semaphore,
    /// Places for questions to a Prometheus.
    pub(crate) metrics: tokio::sync::Semaphore,
}

/// Most requests that wait for the end of a task at once: each has a connection to Redis.
const WAITS: usize = 100;
/// Most searches at once.
const SEARCHES: usize = 4;

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("redis", &self.inner.redis.target()).finish_non_exhaustive()
    }
}

/// Makes a [`Web`].
#[must_use]
pub struct Builder {
    redis: Redis,
    inspector: Option<Inspector>,
    auth: Auth,
    hosts: Vec<String>,
    redact: Redact,
    read_only: bool,
    proxies: usize,
    prometheus: Option<Arc<asynqmon::metrics::Prometheus>>,
}

queue_core::debug_some!(Builder, read_only);

impl Web {
    /// A dashboard of this Redis: for local use, without login.
    pub fn builder(redis: Redis) -> Builder {
        let (auth, redact) = (Auth::Open, Redact::default());
        Builder {
            redis,
            inspector: None,
            auth,
            hosts: Vec::new(),
            redact,
            read_only: false,
            proxies: 0,
            prometheus: None,
        }
    }

    /// The router: nest it under any path. It has a fallback of its own, and needs no state.
    pub fn router(&self) -> axum::Router {
        axum::Router::new().fallback(http::answer).with_state(self.inner.clone())
    }

    /// Goes on with operations that another process has left, for as long as it is polled; [`Listening::serve`] does so by itself.
    /// Without it, only those are carried out that are asked for here.
    pub async fn run(&self) {
        if self.inner.read_only {
            return std::future::pending().await;
        }
        api::operations::look(self.inner.clone()).await;
    }
}

impl Builder {
    /// Asks for one of these tokens, beside [`users`](Self::users) if there are any.
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.auth = self.auth.with(Some(tokens), None);
        self
    }

    /// Has these people log in on a page, with name and password, beside [`tokens`](Self::tokens) if there are any. The pages
    /// themselves are then answered to everybody: there is nothing in them. Sessions are kept in the memory of this [`Web`].
    pub fn users(mut self, users: Users) -> Self {
        self.auth = self.auth.with(None, Some(Arc::new(login::Login::new(users))));
        self
    }

    /// Has the program say who sends a request, for example by what a layer before has put into its extensions; `None` refuses
    /// it. The program is then responsible for requests that a foreign page has a browser send.
    pub fn identify(mut self, identify: impl Fn(&Parts) -> Option<Identity> + Send + Sync + 'static) -> Self {
        self.auth = Auth::Custom(Arc::new(identify));
        self
    }

    /// Also answers requests to this host without login, such as `tasks.example.com` or `10.0.0.7:9878`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Answers requests to any host without login, for an address that nobody else reaches. A page in a browser that does reach
    /// it could then do everything.
    pub fn any_host(self) -> Self {
        self.host("*")
    }

    /// Hides parts of tasks. Without it, the values of headers that look like secrets are hidden.
    pub fn redact(mut self, redact: Redact) -> Self {
        self.redact = redact;
        self
    }

    /// Refuses every change, whoever wants it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// All requests come through so many proxies, one behind the other, each of which appends to `X-Forwarded-For` by whom it was
    /// asked: the first of them says whose attempts to log in are counted, and who stands in the log and in the audit. Whoever can
    /// ask without them can be whoever they like there. Without this, it is whoever has connected.
    pub fn proxies(mut self, count: usize) -> Self {
        self.proxies = count;
        self
    }

    /// Answers asynqmon's route `metrics` from a Prometheus that scrapes asynq's exporter or ours. `ask` gets what comes behind the
    /// address of that Prometheus, such as `/api/v1/query_range?query=…`, and gives the body of its answer, whatever its status, or
    /// why there is none. Without it, there is no such route.
    pub fn prometheus<F>(mut self, ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<bytes::Bytes, String>> + Send + 'static,
    {
        self.prometheus = Some(Arc::new(move |asked| Box::pin(ask(asked))));
        self
    }

    /// Looks through this inspector, for example one with the clock of a test.
    pub fn inspector(mut self, inspector: Inspector) -> Self {
        self.inspector = Some(inspector);
        self
    }

    /// The dashboard. Nothing is asked of Redis before somebody looks.
    pub fn build(self) -> Web {
        let Self { redis, inspector, auth, hosts, redact, read_only, proxies, prometheus } = self;
        let inspector = inspector.unwrap_or_else(|| Inspector::new(redis.clone()));
        let inner = Inner {
            client: Client::new(redis.clone()),
            live: live::Live::default(),
            feed: feed::Feed::default(),
            checkup: api::doctor::Checkup::default(),
            failures: api::failures::Watch::default(),
            assets: assets::Assets::new(),
            openapi: openapi::document(),
            waits: tokio::sync::Semaphore::new(WAITS),
            searches: tokio::sync::Semaphore::new(SEARCHES),
            metrics: tokio::sync::Semaphore::new(SEARCHES),
            explains: tokio::sync::Semaphore::new(SEARCHES),
            operations: tokio::sync::Semaphore::new(OPERATIONS_AT_ONCE),
            running: std::sync::Mutex::default(),
            redis,
            inspector,
            auth,
            hosts,
            redact,
            read_only,
            proxies,
            prometheus,
        };
        Web { inner: Arc::new(inner) }
    }
}
