//! The Redis of a run: with an append-only file that is written before each answer, so that what was
//! acknowledged is there after a crash.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::Failure;

/// Far longer than a start or a failover takes, with all that is to be loaded.
const PATIENCE: Duration = Duration::from_secs(60);

/// A name that bgsave cannot write to, because a directory has it.
const NO_FILE: &str = "in-the-way";

struct Node {
    directory: TempDir,
    port: u16,
    /// The server, and a shell that ends it should this process end first.
    running: Option<(Child, Child)>,
}

/// The Redis that everybody talks to, whichever process that is at the time.
pub(crate) struct Redis {
    node: Node,
    /// Where the proxies lead to.
    pub(crate) upstream: Arc<AtomicU16>,
}

impl Node {
    async fn start(replica_of: Option<u16>) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("queue-chaos-redis-").tempdir()?;
        std::fs::create_dir(directory.path().join(NO_FILE))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut node = Self { directory, port, running: None };
        node.start_again(replica_of).await?;
        Ok(node)
    }

    async fn start_again(&mut self, replica_of: Option<u16>) -> Result<(), Failure> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--loglevel", "warning"]);
        command.arg("--dir").arg(self.directory.path()).args(["--save", "", "--enable-protected-configs", "yes"]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]);
        if let Some(port) = replica_of {
            command.args(["--replicaof", "127.0.0.1", &port.to_string()]);
        }
        let log = std::fs::File::create(self.directory.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        let server = command.spawn()?;
        let pid = server.id().ok_or("redis-server ended at once")?;
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", &format!("read -r word; kill -9 {pid}")]).stdin(Stdio::piped()).kill_on_drop(true);
        let watchdog = watchdog.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        self.running = Some((server, watchdog));
        let begun = Instant::now();
        while self.ask::<String>(&["PING"]).await.is_err() {
            if begun.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                return Err(format!("redis-server does not answer: {log}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn kill(&mut self) -> Result<(), Failure> {
        if let Some((mut server, mut watchdog)) = self.running.take() {
            // First the one that would kill a number which is somebody else's by then.
            watchdog.kill().await?;
            server.kill().await?;
        }
        Ok(())
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Failure> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, Failure> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        Ok(command.query_async(&mut self.connection().await?).await?)
    }

    /// Waits until a replica has everything, and writes what it is told to its own file before it answers.
    async fn is_up_to_date(&self) -> Result<(), Failure> {
        self.until("replication", &["master_link_status:up"]).await?;
        let on_disk = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
        self.until("persistence", &on_disk).await
    }

    /// Waits until INFO says all of these.
    async fn until(&self, section: &str, facts: &[&str]) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let info: String = self.ask(&["INFO", section]).await.unwrap_or_default();
            if facts.iter().all(|fact| info.lines().any(|line| line.starts_with(fact))) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("INFO {section} does not say {facts:?}: {info}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Redis {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let node = Node::start(None).await?;
        let upstream = Arc::new(AtomicU16::new(node.port));
        Ok(Self { node, upstream })
    }

    /// A connection that no fault meets.
    pub(crate) async fn connection(&self) -> Result<MultiplexedConnection, Failure> {
        self.node.connection().await
    }

    /// A handle as users have it, that no fault meets.
    pub(crate) async fn handle(&self) -> Result<queue_redis::Redis, Failure> {
        Ok(queue_redis::Redis::connect(&format!("redis://127.0.0.1:{}", self.node.port)).await?)
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, Failure> {
        self.node.ask(words).await
    }

    pub(crate) async fn version(&self) -> Result<String, Failure> {
        let info: String = self.ask(&["INFO", "server"]).await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("?").to_owned())
    }

    /// kill -9, and the same again with what is on disk.
    pub(crate) async fn crash(&mut self, down: Duration) -> Result<(), Failure> {
        self.node.kill().await?;
        tokio::time::sleep(down).await;
        self.node.start_again(None).await
    }

    /// A replica takes over when it has everything, and the old master is killed. Returns whether there was a
    /// replica: Redis may not get one ready in time.
    pub(crate) async fn fail_over(&mut self) -> Result<bool, Failure> {
        let mut replica = Node::start(Some(self.node.port)).await?;
        // A replica knows that it has everything before its master knows that.
        let online = format!("slave0:ip=127.0.0.1,port={},state=online", replica.port);
        let ready = async {
            replica.is_up_to_date().await?;
            self.node.until("replication", &[&online]).await
        };
        if let Err(error) = ready.await {
            eprintln!("no failover: {error}");
            replica.kill().await?;
            return Ok(false);
        }
        let () = self.ask(&["FAILOVER", "TO", "127.0.0.1", &replica.port.to_string()]).await?;
        replica.until("replication", &["role:master"]).await?;
        self.upstream.store(replica.port, Ordering::SeqCst);
        let mut old = std::mem::replace(&mut self.node, replica);
        // For a second it answers as a replica, as a master does that somebody has demoted.
        tokio::time::sleep(Duration::from_secs(1)).await;
        old.kill().await?;
        Ok(true)
    }

    /// Redis refuses what needs memory.
    pub(crate) async fn out_of_memory(&self, lasts: Duration) -> Result<(), Failure> {
        let () = self.ask(&["CONFIG", "SET", "maxmemory", "1"]).await?;
        tokio::time::sleep(lasts).await;
        self.ask(&["CONFIG", "SET", "maxmemory", "0"]).await
    }

    /// Redis cannot write a snapshot, and refuses all changes.
    pub(crate) async fn disk_full(&self, lasts: Duration) -> Result<(), Failure> {
        let () = self.ask(&["CONFIG", "SET", "dbfilename", NO_FILE, "save", "3600 1000000"]).await?;
        // It may be writing its append-only file anew.
        let _: String = self.ask(&["BGSAVE", "SCHEDULE"]).await?;
        self.node.until("persistence", &["rdb_last_bgsave_status:err"]).await?;
        tokio::time::sleep(lasts).await;
        self.ask(&["CONFIG", "SET", "dbfilename", "dump.rdb", "save", ""]).await
    }

    /// Redis misses replicas that it is told to have, and refuses all changes.
    pub(crate) async fn no_replicas(&self, lasts: Duration) -> Result<(), Failure> {
        let () = self.ask(&["CONFIG", "SET", "min-replicas-to-write", "2"]).await?;
        tokio::time::sleep(lasts).await;
        self.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await
    }

    /// Somebody demotes Redis: it refuses all changes as a replica does, or, with its data hidden, nearly all
    /// else too. Its master does not exist, so nothing it has is replaced.
    pub(crate) async fn demote(&self, lasts: Duration, hidden: bool) -> Result<(), Failure> {
        let stale = if hidden { "no" } else { "yes" };
        let () = self.ask(&["CONFIG", "SET", "replica-serve-stale-data", stale]).await?;
        let () = self.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        tokio::time::sleep(lasts).await;
        let () = self.ask(&["REPLICAOF", "NO", "ONE"]).await?;
        self.ask(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]).await
    }

    /// Somebody's script does not end; it is killed.
    pub(crate) async fn busy(&self, lasts: Duration) -> Result<(), Failure> {
        let () = self.ask(&["CONFIG", "SET", "lua-time-limit", "20"]).await?;
        let mut other = self.connection().await?;
        let mut connection = self.connection().await?;
        let endless = tokio::spawn(async move {
            let script = redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<()>(&mut other).await;
            script.is_err()
        });
        tokio::time::sleep(lasts).await;
        while !endless.is_finished() {
            // It is refused while the script has not run for long enough, and when it has ended.
            let _ = redis::cmd("SCRIPT").arg("KILL").query_async::<()>(&mut connection).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !endless.await? {
            return Err("a script without an end has ended".into());
        }
        self.ask(&["CONFIG", "SET", "lua-time-limit", "5000"]).await
    }

    /// All connections are closed, and new ones are turned away, for this setting has that value.
    async fn turn_away(&self, lasts: Duration, setting: &str, value: &str, usual: &str) -> Result<(), Failure> {
        let mut connection = self.connection().await?;
        let mut set = async |value: &str| {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg(setting).arg(value).query_async::<()>(&mut connection).await?;
            let mut close = redis::cmd("CLIENT");
            close.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).query_async::<u64>(&mut connection).await
        };
        set(value).await?;
        tokio::time::sleep(lasts).await;
        set(usual).await?;
        Ok(())
    }

    /// Redis has a password that nobody knows.
    pub(crate) async fn change_password(&self, lasts: Duration) -> Result<(), Failure> {
        self.turn_away(lasts, "requirepass", "nobody knows it", "").await
    }

    /// Redis has as many clients as it may have.
    pub(crate) async fn crowd_out(&self, lasts: Duration) -> Result<(), Failure> {
        self.turn_away(lasts, "maxclients", "1", "10000").await
    }

    pub(crate) async fn stop(mut self) -> Result<PathBuf, Failure> {
        self.node.kill().await?;
        Ok(self.node.directory.path().to_owned())
    }
}
