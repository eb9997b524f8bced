//! What servers say beyond asynq's format, and what operators want of them: `asynq:x:servers:…`, `asynq:x:want:…` and
//! `asynq:x:want-name:…`.

use std::collections::HashMap;

use queue_core::keys;
use queue_core::limits::{SERVER_ENTRY_TTL_SECS, WANT_TTL_SECS};
use queue_core::registry::{Order, ServerEntry, Want};
use redis::RedisResult;

use super::Broker;
use crate::error::Error;

/// Whom an order is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordered<'a> {
    /// One server, `<host>:<pid>:<uuid>`.
    Server(&'a str),
    /// All that have this name, now and later.
    Name(&'a str),
}

impl Ordered<'_> {
    fn key(self) -> String {
        match self {
            Self::Server(server) => keys::want(server),
            Self::Name(name) => keys::want_name(name),
        }
    }
}

/// What operators want of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Of this one; `None` where nothing was ordered within the last hour.
    pub of_server: Option<Want>,
    /// Of all servers of its name.
    pub of_name: Want,
}

impl Wants {
    pub(crate) fn look(server: &str, name: Option<&str>) -> redis::Pipeline {
        let mut look = redis::pipe();
        look.cmd("HGETALL").arg(keys::want(server));
        if let Some(name) = name {
            look.cmd("HGETALL").arg(keys::want_name(name));
        }
        look.ignore_errors();
        look
    }

    /// A key of another type is one that cannot be read, and does not hide the other.
    pub(crate) fn read(found: Vec<RedisResult<HashMap<Vec<u8>, Vec<u8>>>>) -> RedisResult<Self> {
        let keys = ["the key of its own orders", "the key of the orders by name"];
        let mut wants = found.into_iter().zip(keys).map(|(fields, key)| match fields {
            Ok(fields) if fields.is_empty() => Ok(None),
            Ok(fields) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Ok(Some(Want::parse(&fields.iter().map(|(field, value)| (text(field), text(value))).collect())))
            }
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Some(Want::unreadable(key))),
            Err(error) => Err(error),
        });
        let mut next = || wants.next().transpose().map(Option::flatten);
        Ok(Self { of_server: next()?, of_name: next()?.unwrap_or_default() })
    }
}

impl Broker {
    /// Writes what a server says of itself; `server` is `<host>:<pid>:<uuid>`.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn write_server_entry(&self, server: &str, entry: &ServerEntry) -> Result<(), Error> {
        self.redis.command("SET", (keys::server_entry(server), entry.to_json(), "EX", SERVER_ENTRY_TTL_SECS)).await
    }

    /// Takes it back: the server has ended.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; it expires within a day.
    pub async fn forget_server_entry(&self, server: &str) -> Result<(), Error> {
        self.redis.command("DEL", keys::server_entry(server)).await
    }

    /// What a server of ours says of itself; `None` of all others.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn server_entry(&self, server: &str) -> Result<Option<ServerEntry>, Error> {
        let json: Option<Vec<u8>> = self.redis.command("GET", keys::server_entry(server)).await?;
        Ok(json.and_then(|json| ServerEntry::parse(&json)))
    }

    /// What operators want of a server of this name, or of none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn wants(&self, server: &str, name: Option<&str>) -> Result<Wants, Error> {
        let found = self.redis.pipeline("HGETALL", &Wants::look(server, name)).await?;
        Wants::read(found).map_err(|error| self.redis.explain("HGETALL", error))
    }

    /// Whether anything was ordered of the servers of a name that was not taken back.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn has_orders(&self, name: &str) -> Result<bool, Error> {
        self.redis.command("EXISTS", keys::want_name(name)).await
    }

    /// The revision of the last order.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn last_order(&self, whom: Ordered<'_>) -> Result<Option<String>, Error> {
        self.redis.command("HGET", (whom.key(), "revision")).await
    }

    /// Records an order, in addition to what was ordered before; `None` takes all of it back. `revision` is what the servers
    /// say in their entries when they go by it. What is for one server is kept for an hour, an order by name until it is taken back.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. It may have been recorded all the same.
    pub async fn order(
        &self,
        whom: Ordered<'_>,
        order: Option<&Order>,
        revision: &str,
        by: &str,
        now_ms: i64,
    ) -> Result<(), Error> {
        let key = whom.key();
        let mut write = redis::pipe();
        // One step, or the key might be left without its end.
        write.atomic();
        if order.is_none() {
            write.cmd("DEL").arg(&key).ignore();
        }
        let set = write.cmd("HSET").arg(&key).arg("revision").arg(revision).arg("by").arg(by);
        let reset = || vec![("reset".to_owned(), revision.to_owned())];
        for (field, value) in order.map_or_else(reset, |order| order.fields(now_ms)) {
            set.arg(field).arg(value);
        }
        set.ignore();
        // What was taken back is told, and then forgotten.
        if order.is_none() || matches!(whom, Ordered::Server(_)) {
            write.cmd("EXPIRE").arg(&key).arg(WANT_TTL_SECS).ignore();
        } else {
            write.cmd("PERSIST").arg(&key).ignore();
        }
        self.redis.pooled().await?.pipeline("recording the order", &write).await
    }
}
