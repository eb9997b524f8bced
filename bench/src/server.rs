//! The private Redis, and what it says about itself.

use std::collections::BTreeMap;
use std::net::TcpListener;

use queue_redis::embedded::RedisServer;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::Failure;

/// A line of the slow log: its number, when, microseconds, the command, by whom.
type Noted = (u64, u64, u64, Vec<Vec<u8>>, String, String);

/// A Redis on a loopback port, and a connection that looks at it.
pub(crate) struct Server {
    redis: Option<RedisServer>,
    directory: Option<std::path::PathBuf>,
    pub(crate) port: u16,
    connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start(durable: bool, settings: &[&str]) -> Result<Self, Failure> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let directory = durable.then(|| std::env::temp_dir().join(format!("queue-bench-{}", std::process::id())));
        let port_text = port.to_string();
        let mut all = vec!["--bind", "127.0.0.1", "--port", &port_text, "--latency-tracking", "no"];
        all.extend(settings);
        let redis = RedisServer::start_with(directory.as_deref(), &all).await?;
        // A slow log of many calls takes longer than the half second that is the default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(("127.0.0.1", port))?;
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        Ok(Self { redis: Some(redis), directory, port, connection })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The Unix socket on which it listens, too.
    pub(crate) fn socket(&self) -> Result<&std::path::Path, Failure> {
        Ok(self.redis.as_ref().ok_or("Redis has ended")?.socket())
    }

    /// Ends it and waits for that: what it used would otherwise count as used by the programs that run next.
    pub(crate) async fn stop(mut self) {
        if let Some(redis) = self.redis.take() {
            redis.stop().await;
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("FLUSHALL").query_async(&mut self.connection).await?)
    }

    /// Lets `count` tasks of the queue look as if workers far away had them for another hour.
    pub(crate) async fn make_active(&mut self, queue: &str, count: u64) -> Result<(), Failure> {
        let script = "local now = tonumber(redis.call('TIME')[1]) + 3600 \
                      for n = ARGV[1], ARGV[2] do \
                        local id = 'other-' .. n \
                        redis.call('HSET', KEYS[3] .. id, 'msg', 'x', 'state', 'active') \
                        redis.call('LPUSH', KEYS[1], id) redis.call('ZADD', KEYS[2], now, id) end";
        let key = |suffix: &str| format!("asynq:{{{queue}}}:{suffix}");
        for first in (1..=count).step_by(1_000) {
            let mut call = redis::cmd("EVAL");
            call.arg(script).arg(3).arg(key("active")).arg(key("lease")).arg(key("t:"));
            let () = call.arg(first).arg(count.min(first + 999)).query_async(&mut self.connection).await?;
        }
        Ok(())
    }

    /// Schedules so many tasks that are due in some months. Each takes as much memory as a real one.
    pub(crate) async fn schedule_far_off(&mut self, queue: &str, count: u64) -> Result<(), Failure> {
        let script = "local now, msg = tonumber(redis.call('TIME')[1]), string.rep('x', 290) \
                      for n = ARGV[1], ARGV[2] do \
                        local id = 'far-off-00000000-0000-0000-00' .. string.format('%08d', n) \
                        redis.call('HSET', KEYS[2] .. id, 'msg', msg, 'state', 'scheduled') \
                        redis.call('ZADD', KEYS[1], now + 8000000 + n, id) end";
        let key = |suffix: &str| format!("asynq:{{{queue}}}:{suffix}");
        for first in (1..=count).step_by(1_000) {
            let mut call = redis::cmd("EVAL");
            call.arg(script).arg(2).arg(key("scheduled")).arg(key("t:"));
            let () = call.arg(first).arg(count.min(first + 999)).query_async(&mut self.connection).await?;
        }
        Ok(())
    }

    /// Lets Redis finish growing its table of all keys and that of the scheduled set, which have `count` entries. It
    /// moves a little of a table that has grown whenever somebody looks into it.
    pub(crate) async fn settle(&mut self, queue: &str, count: u64) -> Result<(), Failure> {
        for first in (0..count).step_by(1_000) {
            let (mut keys, mut members) = (redis::cmd("EXISTS"), redis::cmd("ZMSCORE"));
            members.arg(format!("asynq:{{{queue}}}:scheduled"));
            for absent in first..first + 1_000 {
                keys.arg(format!("absent-{absent}"));
                members.arg(absent);
            }
            let _: u64 = keys.query_async(&mut self.connection).await?;
            let _: Vec<Option<f64>> = members.query_async(&mut self.connection).await?;
        }
        Ok(())
    }

    /// One number from INFO.
    pub(crate) async fn info(&mut self, section: &str, field: &str) -> Result<f64, Failure> {
        let text: String = redis::cmd("INFO").arg(section).query_async(&mut self.connection).await?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.ok_or_else(|| format!("INFO {section} has no {field}"))?.trim().parse()?)
    }

    /// How many keys there are.
    pub(crate) async fn keys(&mut self) -> Result<f64, Failure> {
        Ok(redis::cmd("DBSIZE").query_async(&mut self.connection).await?)
    }

    /// Seconds of CPU that Redis has used so far.
    pub(crate) async fn cpu(&mut self) -> Result<f64, Failure> {
        Ok(self.info("cpu", "used_cpu_user").await? + self.info("cpu", "used_cpu_sys").await?)
    }

    /// Begins to note calls that take longer than this; returns nothing yet.
    pub(crate) async fn watch_slow_calls(&mut self, micros: u64) -> Result<(), Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(micros).ignore();
        pipe.cmd("CONFIG").arg("SET").arg("slowlog-max-len").arg(100_000).ignore();
        pipe.cmd("SLOWLOG").arg("RESET").ignore();
        Ok(pipe.query_async(&mut self.connection).await?)
    }

    /// Forgets the calls that were noted.
    pub(crate) async fn forget_slow_calls(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("SLOWLOG").arg("RESET").query_async(&mut self.connection).await?)
    }

    /// All calls that were noted, but those that look, with their microseconds; the youngest first.
    pub(crate) async fn all_calls(&mut self) -> Result<Vec<(String, u64)>, Failure> {
        let entries = self.noted().await?;
        let named = entries.into_iter().map(|entry| {
            let name = entry.3.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase());
            (name.unwrap_or_default(), entry.2)
        });
        Ok(named.filter(|(name, _)| !["SLOWLOG", "INFO", "CONFIG"].contains(&name.as_str())).collect())
    }

    /// What is in each of the keys, whatever the order within; needs `--enable-debug-command`.
    pub(crate) async fn digests(&mut self, pattern: &str) -> Result<BTreeMap<Vec<u8>, String>, Failure> {
        let (mut cursor, mut digests) = (0_u64, BTreeMap::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            let keys: Vec<Vec<u8>>;
            (cursor, keys) = scan.query_async(&mut self.connection).await?;
            if !keys.is_empty() {
                let mut ask = redis::cmd("DEBUG");
                let found: Vec<String> = ask.arg("DIGEST-VALUE").arg(&keys).query_async(&mut self.connection).await?;
                digests.extend(keys.into_iter().zip(found));
            }
            if cursor == 0 {
                return Ok(digests);
            }
        }
    }

    /// Sends a command whose answer does not matter.
    pub(crate) async fn call(&mut self, command: &redis::Cmd) -> Result<(), Failure> {
        Ok(command.query_async(&mut self.connection).await?)
    }

    async fn noted(&mut self) -> Result<Vec<Noted>, Failure> {
        Ok(redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(&mut self.connection).await?)
    }

    /// Sets a hash and a member of a sorted set for each of so many tasks, without any script.
    pub(crate) async fn write_plainly(&mut self, queue: &str, count: usize) -> Result<(), Failure> {
        let message = "x".repeat(290);
        for first in (0..count).step_by(1_000) {
            let mut pipe = redis::pipe();
            for number in first..count.min(first + 1_000) {
                let id = format!("plain-00000000-0000-0000-00{number:010}");
                pipe.cmd("HSET").arg(format!("asynq:{{{queue}}}:t:{id}")).arg("msg").arg(&message).ignore();
                pipe.cmd("ZADD").arg(format!("asynq:{{{queue}}}:scheduled")).arg(8_000_000_000_u64).arg(id).ignore();
            }
            let () = pipe.query_async(&mut self.connection).await?;
        }
        Ok(())
    }

    /// How long the calls of a command took that were noted, in microseconds; the youngest first.
    pub(crate) async fn slow_calls(&mut self, command: &str) -> Result<Vec<u64>, Failure> {
        let entries = self.noted().await?;
        let is_it = |entry: &&Noted| entry.3.first().is_some_and(|name| name.eq_ignore_ascii_case(command.as_bytes()));
        Ok(entries.iter().filter(is_it).map(|entry| entry.2).collect())
    }

    pub(crate) async fn version(&mut self) -> Result<String, Failure> {
        let text: String = redis::cmd("INFO").arg("server").query_async(&mut self.connection).await?;
        let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("?").to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
