//! The Redis a command works on.

use queue_admin::{Actor, Admin, Inspector, Role};
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Redis};

use crate::error::CliError;
use crate::global::{Global, Source};

#[cfg(feature = "memory")]
pub(crate) use queue_testing::Store;

/// There is none in a queuectl without it.
#[cfg(not(feature = "memory"))]
#[derive(Debug)]
pub(crate) enum Store {}

#[cfg(not(feature = "memory"))]
impl Store {
    pub(crate) fn command(&self, _: &[String]) -> String {
        match *self {}
    }
}

/// A connection, and the server behind it if it is ours.
#[derive(Debug)]
pub(crate) struct Session {
    /// The URL as it was given, credentials and all: not for printing.
    pub(crate) url: String,
    redis: Redis,
    client: Client,
    embedded: Option<RedisServer>,
    memory: Option<Store>,
}

impl Session {
    /// Starts a private server if one is wanted; somebody's is not asked yet.
    pub(crate) async fn open(global: &Global, embedded_by_default: bool) -> Result<Self, CliError> {
        let directory = match global.source(std::env::var("REDIS_URL").ok(), embedded_by_default) {
            Source::Url(url) => {
                let url = global.connection.adjust(url)?;
                let redis = Redis::lazy(&url, global.options()?)?;
                return Ok(Self { url, client: Client::new(redis.clone()), redis, embedded: None, memory: None });
            }
            Source::Embedded(directory) => directory,
        };
        let server = RedisServer::start_with(directory, &[]).await?;
        let (url, redis) = (server.url().to_owned(), server.redis());
        Ok(Self { url, client: Client::new(redis.clone()), redis, embedded: Some(server), memory: None })
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<(), CliError> {
        self.redis.answers().await.map_err(explain)
    }

    /// A store inside this process, instead of a Redis.
    #[cfg(feature = "memory")]
    pub(crate) fn in_memory() -> Result<Self, CliError> {
        let store = Store::new();
        let redis = store.redis();
        let client = Client::new(redis.clone());
        Ok(Self { url: String::new(), client, redis, embedded: None, memory: Some(store) })
    }

    #[cfg(not(feature = "memory"))]
    pub(crate) fn in_memory() -> Result<Self, CliError> {
        Err(CliError::failed(
            "this queuectl was built without the store for --memory; build it with `cargo build -p queue-cli --features memory`",
        ))
    }

    /// The connections.
    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn inspector(&self) -> Inspector {
        Inspector::new(self.redis.clone())
    }

    /// Changes that are written down as ours. Whoever can reach Redis may do everything.
    pub(crate) fn admin(&self, via: &'static str) -> Admin {
        let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
        let name = name.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
        Admin::new(self.inspector(), Actor { name, role: Role::Admin, via, address: None })
    }

    /// The private server, if this is one.
    pub(crate) fn embedded(&self) -> Option<&RedisServer> {
        self.embedded.as_ref()
    }

    /// The store inside this process, if this is one.
    pub(crate) fn memory(&self) -> Option<&Store> {
        self.memory.as_ref()
    }

    /// Ends the private server, if there is one; what it has in its append-only file is on disk then.
    pub(crate) async fn close(self) {
        if let Some(server) = self.embedded {
            server.stop().await;
        }
    }

    /// Leaves the private server running.
    pub(crate) async fn keep(self) -> Result<(), CliError> {
        if let Some(server) = self.embedded {
            server.detach().await?;
        }
        Ok(())
    }
}

/// A newcomer may not know where the address comes from.
fn explain(error: queue_redis::Error) -> CliError {
    match &error {
        queue_redis::Error::Unreachable { .. } => {
            CliError::failed(format!("{error} --redis URL or REDIS_URL name another one, --embedded starts one"))
        }
        _ => error.into(),
    }
}
