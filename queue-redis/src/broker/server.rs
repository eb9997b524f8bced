//! What a server tells about itself: `list_server.lua`, `write_server_state.lua`, `clear_server_state.lua`.

use std::collections::BTreeMap;

use prost::Message as _;
use queue_core::keys;
use queue_core::limits::SERVER_TTL_SECS;
use queue_core::registry::{ServerEntry, is_unaware};
use queue_core::wire::{ServerInfo, WorkerInfo};
use redis::Value;

use super::{Broker, ExpiredLease};
use crate::connection::Connection;
use crate::error::Error;
use crate::script::{CLEAR_SERVER_STATE, LIST_SERVER, WRITE_SERVER_STATE};

impl Broker {
    /// Tells what a server is and what it works on, for asynqmon and the like; forgets servers that have
    /// not done so in time (asynq does that only when somebody lists them, W46).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn write_server_state(
        &self,
        connection: &mut Connection,
        server: &ServerInfo,
        workers: &[WorkerInfo],
        now: i64,
    ) -> Result<(), Error> {
        let (info, hash) = state_keys(server);
        let expires = now + SERVER_TTL_SECS;
        for (list, member) in [(keys::SERVERS, &info), (keys::WORKERS, &hash)] {
            let mut call = LIST_SERVER.call(1);
            call.arg(list).arg(member).arg(expires).arg(now);
            match connection.run(&LIST_SERVER, &call).await? {
                Value::Okay => {}
                reply => return Err(Error::unexpected(LIST_SERVER.name, &reply)),
            }
        }
        let mut call = WRITE_SERVER_STATE.call(2);
        call.arg(info).arg(hash).arg(SERVER_TTL_SECS).arg(server.encode_to_vec());
        for worker in workers {
            call.arg(&worker.task_id).arg(worker.encode_to_vec());
        }
        match connection.run(&WRITE_SERVER_STATE, &call).await? {
            Value::Okay => Ok(()),
            reply => Err(Error::unexpected(WRITE_SERVER_STATE.name, &reply)),
        }
    }

    /// As [`write_server_state`](Self::write_server_state) for a server that works on nothing, and has said so in its
    /// last heartbeat: two commands. What is not said, asynq's tools do not miss: a server without tasks need not be
    /// listed among those that have some.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn renew_server_state(
        &self,
        connection: &mut Connection,
        server: &ServerInfo,
        now: i64,
    ) -> Result<(), Error> {
        let (info, _) = state_keys(server);
        let mut renew = redis::pipe();
        renew.cmd("SET").arg(&info).arg(server.encode_to_vec()).arg("EX").arg(SERVER_TTL_SECS).ignore();
        renew.cmd("ZADD").arg(keys::SERVERS).arg(now + SERVER_TTL_SECS).arg(&info).ignore();
        match connection.pipeline("renewing the server's entry", &renew).await {
            // A script may, where commands may not.
            Err(error) if error.is_out_of_memory() => self.write_server_state(connection, server, &[], now).await,
            renewed => renewed,
        }
    }

    /// Which of these tasks of a queue some server, Go's or ours, has said in the last 10 s that it works on.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn are_worked_on(&self, queue: &str, leases: &[ExpiredLease]) -> Result<Vec<bool>, Error> {
        let mut worked_on = vec![false; leases.len()];
        if leases.is_empty() {
            return Ok(worked_on);
        }
        let mut connection = self.redis.pooled().await?;
        let mut list = redis::pipe();
        // All of them: the scores go by the clocks of the servers, the keys expire by Redis'.
        list.cmd("ZRANGE").arg(keys::WORKERS).arg(0).arg(-1);
        let (servers,): (Vec<String>,) = connection.pipeline("listing servers", &list).await?;
        let mut look = redis::pipe();
        for server in &servers {
            let look = look.cmd("HMGET").arg(server);
            leases.iter().for_each(|lease| {
                look.arg(&lease.raw_id[..]);
            });
        }
        let told: Vec<Vec<Option<Vec<u8>>>> =
            if servers.is_empty() { Vec::new() } else { connection.pipeline("reading workers", &look).await? };
        // An id is unique within its queue only. What cannot be read may be about any.
        let is_of_queue = |raw: &[u8]| WorkerInfo::from_bytes(raw).map_or(true, |worker| worker.queue == queue);
        for of_server in &told {
            for (worked_on, told) in worked_on.iter_mut().zip(of_server) {
                *worked_on |= told.as_deref().is_some_and(is_of_queue);
            }
        }
        Ok(worked_on)
    }

    /// By queue, the servers that are alive, serve it, and do not honour a
    /// [feature](queue_core::registry::FEATURES): `<host>:<pid>:<uuid>`. Servers whose entries cannot be read are left out.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn unaware_servers(&self, feature: &str, now: i64) -> Result<BTreeMap<String, Vec<String>>, Error> {
        let mut unaware: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (info, entry) in self.live_servers().await? {
            let started = info.start_time.map_or(0, |time| time.seconds);
            if is_unaware(entry.as_ref(), feature, started, now) {
                let name = format!("{}:{}:{}", info.host, info.pid, info.server_id);
                for queue in info.queues.into_keys() {
                    unaware.entry(queue).or_default().push(name.clone());
                }
            }
        }
        Ok(unaware)
    }

    /// The servers that are alive, Go's and ours, and what those of ours say beyond asynq's format. Servers whose entries cannot be
    /// read are left out.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn live_servers(&self) -> Result<Vec<(ServerInfo, Option<ServerEntry>)>, Error> {
        let mut connection = self.redis.pooled().await?;
        let mut list = redis::pipe();
        // All of them: the scores go by the clocks of the servers, the keys expire by Redis'.
        list.cmd("ZRANGE").arg(keys::SERVERS).arg(0).arg(-1);
        let (servers,): (Vec<Vec<u8>>,) = connection.pipeline("listing servers", &list).await?;
        if servers.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for key in &servers {
            // What servers of ours say beyond that stands in a key that ends alike.
            let end = key.get(keys::SERVERS.len() + 1..).unwrap_or_default();
            look.cmd("GET").arg(key).cmd("GET").arg([keys::SERVER_ENTRY.as_bytes(), end].concat());
        }
        let found: Vec<Option<Vec<u8>>> = connection.pipeline("reading servers", &look).await?;
        let read = |found: &[Option<Vec<u8>>]| {
            let info = ServerInfo::from_bytes(found[0].as_deref()?).ok()?;
            Some((info, found[1].as_deref().and_then(ServerEntry::parse)))
        };
        Ok(found.chunks_exact(2).filter_map(read).collect())
    }

    /// What time it is for Redis, in Unix nanoseconds.
    pub(crate) async fn redis_time(connection: &mut Connection) -> Result<i64, Error> {
        let mut ask = redis::pipe();
        ask.cmd("TIME");
        let ((secs, micros),): ((i64, i64),) = connection.pipeline("TIME", &ask).await?;
        Ok(secs.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000)))
    }

    /// Takes a server off the list.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; the entry then expires by itself after 10 s.
    pub async fn clear_server_state(&self, connection: &mut Connection, server: &ServerInfo) -> Result<(), Error> {
        let (info, hash) = state_keys(server);
        let mut index = redis::pipe();
        index.cmd("ZREM").arg(keys::SERVERS).arg(&info).ignore();
        index.cmd("ZREM").arg(keys::WORKERS).arg(&hash).ignore();
        connection.pipeline::<()>("unlisting the server", &index).await?;
        let mut call = CLEAR_SERVER_STATE.call(2);
        call.arg(info).arg(hash);
        connection.run(&CLEAR_SERVER_STATE, &call).await.map(drop)
    }
}

fn state_keys(server: &ServerInfo) -> (String, String) {
    let pid = u32::try_from(server.pid).unwrap_or(0);
    (
        keys::server_info(&server.host, pid, &server.server_id),
        keys::server_workers(&server.host, pid, &server.server_id),
    )
}
