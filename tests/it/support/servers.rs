//! Several Redis processes on the loopback interface that know each other: a cluster, or a master with replicas and
//! Sentinels.
//!
//! Ports are free ones, tried anew when somebody else was faster. They end with the fixture.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use queue_redis::RedisOptions;
use redis::{ClientTlsConfig, FromRedisValue, RedisResult, TlsCertificates};
use tempfile::TempDir;

use super::connection::patient;
use super::tls::ServerTls;
use super::wait_for;

/// How often a server is started on another port, because somebody else had the port by then.
const PORTS: usize = 20;

/// A process of the server program.
pub(crate) struct Process {
    pub(crate) port: u16,
    child: Option<Child>,
    directory: TempDir,
    settings: Vec<String>,
    password: String,
    tls: Option<ServerTls>,
}

impl Process {
    /// Starts a server with these lines of configuration on a free port. An empty password is none.
    async fn start(settings: &[String], sentinel: bool, password: &str, tls: Option<&ServerTls>) -> Self {
        for _ in 0..PORTS {
            let port = free_port();
            let directory = tempfile::Builder::new().prefix("queue-it-").tempdir().unwrap();
            let mut lines = vec!["bind 127.0.0.1".to_owned(), format!("dir {}", directory.path().display())];
            match tls {
                Some(tls) => lines.extend(tls_lines(tls, port, &directory)),
                None => lines.push(format!("port {port}")),
            }
            lines.extend_from_slice(settings);
            if !password.is_empty() {
                lines.push(format!("requirepass {password}"));
            }
            // Sentinel and the cluster write into their files.
            std::fs::write(directory.path().join("redis.conf"), lines.join("\n") + "\n").unwrap();
            let password = password.to_owned();
            let mut process = Self { port, child: None, directory, settings: Vec::new(), password, tls: tls.cloned() };
            if sentinel {
                process.settings.push("--sentinel".to_owned());
            }
            if process.start_again().await {
                return process;
            }
        }
        panic!("the server did not start on any of {PORTS} ports; can it do all that is asked of it, such as TLS?")
    }

    /// A cluster with all its slots on this one.
    pub(crate) async fn cluster_of_one() -> Self {
        let settings = ["save \"\"", "cluster-enabled yes"].map(str::to_owned);
        let node = Self::start(&settings, false, "", None).await;
        node.add_slots(0..=16_383).await;
        wait_for("the cluster is well", async || {
            node.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok").then_some(())
        })
        .await;
        node
    }

    /// One by one, for Redis 6.2 knows no ranges.
    async fn add_slots(&self, slots: std::ops::RangeInclusive<u16>) {
        let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
        let words: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
        self.cmd::<()>(&words).await;
    }

    /// Starts it with what it has written; whether it could.
    pub(crate) async fn start_again(&mut self) -> bool {
        let mut command = Command::new(queue_redis::embedded::find_program().unwrap());
        command.arg(self.directory.path().join("redis.conf")).args(&self.settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Not another one that was faster to take the port.
        let own = format!("process_id:{}\r", child.id());
        let up = wait_for(format!("the server on port {} answers", self.port), async || {
            self.try_cmd::<String>(&["INFO", "server"]).await.is_ok_and(|info| info.contains(&own)).then_some(())
        });
        let ended = async {
            while child.try_wait().unwrap().is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let is_up = tokio::select! { () = up => true, () = ended => false };
        self.child = Some(child);
        is_up
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends it as a power failure does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Whether it is a replica; a server that is changing its role cuts its connections.
    pub(crate) async fn is_replica(&self) -> bool {
        let info = self.try_cmd::<String>(&["INFO", "replication"]).await;
        info.is_ok_and(|info| info.contains("role:slave"))
    }

    async fn try_cmd<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let login = if self.password.is_empty() { String::new() } else { format!(":{}@", self.password) };
        let at = format!("{login}127.0.0.1:{}", self.port);
        let client = match &self.tls {
            None => redis::Client::open(format!("redis://{at}"))?,
            // The fixture speaks with servers whose certificates are wrong too.
            Some(tls) => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let client_tls = tls.client.client.clone();
                let client_tls =
                    client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
                let certificates = TlsCertificates { client_tls, root_cert: None };
                redis::Client::build_with_tls(format!("rediss://{at}/#insecure"), certificates)?
            }
        };
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient()).await?;
        let mut cmd = redis::Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut connection).await
    }

    pub(crate) async fn cmd<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_cmd(words).await.unwrap_or_else(|error| panic!("{words:?} on port {}: {error}", self.port))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// TLS on this port and nothing else, for the bus of a cluster and for replicas too.
fn tls_lines(tls: &ServerTls, port: u16, directory: &TempDir) -> Vec<String> {
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    vec![
        "port 0".to_owned(),
        format!("tls-port {port}"),
        format!("tls-ca-cert-file {}", file("ca.pem", &tls.trusted)),
        format!("tls-cert-file {}", file("certificate.pem", &tls.shown.certificate)),
        format!("tls-key-file {}", file("key.pem", &tls.shown.key)),
        "tls-auth-clients yes".to_owned(),
        "tls-cluster yes".to_owned(),
        "tls-replication yes".to_owned(),
    ]
}

/// The bus of a cluster has a port of its own, 10000 above.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

/// A cluster of three masters with a replica each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Process>,
    /// How to connect to it.
    pub(crate) options: RedisOptions,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// With a password, unless it is empty.
    pub(crate) async fn start_with(password: &str) -> Self {
        Self::launch(password, [const { None }; 3]).await
    }

    /// With TLS: so the masters, and each replica as its master.
    pub(crate) async fn start_with_tls(masters: [ServerTls; 3]) -> Self {
        Self::launch("", masters.map(Some)).await
    }

    async fn launch(password: &str, tls: [Option<ServerTls>; 3]) -> Self {
        let settings = ["save \"\"", "cluster-enabled yes", "cluster-node-timeout 2000", "repl-diskless-sync-delay 0"];
        let mut settings = settings.map(str::to_owned).to_vec();
        if !password.is_empty() {
            settings.push(format!("masterauth {password}"));
        }
        let nodes = (0..6).map(|node| Process::start(&settings, false, password, tls[node % 3].as_ref()));
        let nodes = futures_util::future::join_all(nodes).await;
        let tls = tls[0].as_ref().map(|tls| tls.client.clone()).unwrap_or_default();
        let cluster = Self { nodes, options: RedisOptions { tls, ..RedisOptions::default() } };
        for (master, range) in [(0, 0..=5461), (1, 5462..=10922), (2, 10923..=16383)] {
            cluster.nodes[master].add_slots(range).await;
        }
        for (epoch, node) in cluster.nodes.iter().enumerate() {
            node.cmd::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()]).await;
        }
        let first = cluster.nodes[0].port.to_string();
        for node in &cluster.nodes[1..] {
            node.cmd::<()>(&["CLUSTER", "MEET", "127.0.0.1", &first]).await;
        }
        for replica in 3..6 {
            let master: String = cluster.nodes[replica - 3].cmd(&["CLUSTER", "MYID"]).await;
            wait_for("the replica knows its master", async || {
                cluster.nodes[replica].try_cmd::<()>(&["CLUSTER", "REPLICATE", &master]).await.ok()
            })
            .await;
        }
        cluster.all_agree().await;
        cluster
    }

    /// Waits until every node that runs sees all slots served and its replicas in step.
    pub(crate) async fn all_agree(&self) {
        for node in self.nodes.iter().filter(|node| node.child.is_some()) {
            wait_for("the cluster is well", async || {
                let info: String = node.try_cmd(&["CLUSTER", "INFO"]).await.ok()?;
                let slots: redis::Value = node.try_cmd(&["CLUSTER", "SLOTS"]).await.ok()?;
                let replication: String = node.try_cmd(&["INFO", "replication"]).await.ok()?;
                let redis::Value::Array(ranges) = slots else { return None };
                let with_replica =
                    ranges.iter().filter(|range| matches!(range, redis::Value::Array(parts) if parts.len() > 3));
                let well = info.contains("cluster_state:ok")
                    && (with_replica.count() >= 3 || self.nodes.iter().any(|node| node.child.is_none()))
                    && !replication.contains("master_link_status:down");
                well.then_some(())
            })
            .await;
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_with("")
    }

    /// With this before the hosts.
    pub(crate) fn url_with(&self, login: &str) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let scheme = if self.nodes[0].tls.is_some() { "rediss+cluster" } else { "redis+cluster" };
        format!("{scheme}://{login}{}", nodes.join(","))
    }

    /// The node that serves the slot of a key now.
    pub(crate) async fn master_of(&self, key: &str) -> usize {
        wait_for("somebody serves the slot", async || {
            for node in self.nodes.iter().filter(|node| node.child.is_some()) {
                if let Some(master) = self.named_by(node, key).await {
                    return Some(master);
                }
            }
            None
        })
        .await
    }

    /// Waits until all nodes that run know that this one serves the slot of a key.
    pub(crate) async fn all_name(&self, key: &str, master: usize) {
        for node in self.nodes.iter().filter(|node| node.child.is_some()) {
            let is_named = async || (self.named_by(node, key).await == Some(master)).then_some(());
            wait_for("the node knows the master", is_named).await;
        }
    }

    async fn named_by(&self, node: &Process, key: &str) -> Option<usize> {
        let slot = i64::from(queue_core::keys::slot_of(key.as_bytes()));
        let ranges = node.try_cmd::<Vec<Vec<redis::Value>>>(&["CLUSTER", "SLOTS"]).await.ok()?;
        let has_slot = |range: &&Vec<redis::Value>| {
            let [first, last] = [0, 1].map(|end| i64::from_redis_value_ref(&range[end]).unwrap());
            (first..=last).contains(&slot)
        };
        let range = ranges.iter().find(has_slot)?;
        let redis::Value::Array(master) = &range[2] else { return None };
        let port = u16::from_redis_value_ref(&master[1]).unwrap();
        self.nodes.iter().position(|node| node.port == port)
    }

    /// All keys of all masters.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for node in self.nodes.iter().filter(|node| node.child.is_some()) {
            let role: Vec<redis::Value> = node.cmd(&["ROLE"]).await;
            if String::from_redis_value_ref(&role[0]).unwrap() == "master" {
                all.extend(node.cmd::<Vec<String>>(&["KEYS", "*"]).await);
            }
        }
        all.sort();
        all
    }

    /// Moves slots between masters as an operator does; returns the process of `redis-cli`.
    pub(crate) async fn reshard(&self, from: usize, to: usize, slots: u32) -> tokio::process::Child {
        let (from_id, to_id): (String, String) =
            (self.nodes[from].cmd(&["CLUSTER", "MYID"]).await, self.nodes[to].cmd(&["CLUSTER", "MYID"]).await);
        let mut command = tokio::process::Command::new("redis-cli");
        command.args(["--cluster", "reshard", &format!("127.0.0.1:{}", self.nodes[from].port)]);
        command.args(["--cluster-from", &from_id, "--cluster-to", &to_id, "--cluster-slots", &slots.to_string()]);
        command.args(["--cluster-yes", "--cluster-pipeline", "10"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}

/// A master with two replicas, and three Sentinels that watch it under the name `mymaster`.
pub(crate) struct Watched {
    pub(crate) servers: Vec<Process>,
    pub(crate) sentinels: Vec<Process>,
}

impl Watched {
    pub(crate) async fn start() -> Self {
        Self::start_with("", "").await
    }

    /// With passwords for the servers and for the Sentinels, unless they are empty.
    pub(crate) async fn start_with(password: &str, sentinel_password: &str) -> Self {
        let mut settings = vec!["save \"\"".to_owned(), "repl-diskless-sync-delay 0".to_owned()];
        if !password.is_empty() {
            settings.push(format!("masterauth {password}"));
        }
        let master = Process::start(&settings, false, password, None).await;
        let mut servers = vec![master];
        for _ in 0..2 {
            let replica = [settings.to_vec(), vec![format!("replicaof 127.0.0.1 {}", servers[0].port)]].concat();
            servers.push(Process::start(&replica, false, password, None).await);
        }
        let mut settings = vec![
            format!("sentinel monitor mymaster 127.0.0.1 {} 2", servers[0].port),
            "sentinel down-after-milliseconds mymaster 1000".to_owned(),
            "sentinel failover-timeout mymaster 6000".to_owned(),
        ];
        if !password.is_empty() {
            settings.push(format!("sentinel auth-pass mymaster {password}"));
        }
        if !sentinel_password.is_empty() {
            settings.push(format!("sentinel sentinel-pass {sentinel_password}"));
        }
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Process::start(&settings, true, sentinel_password, None).await);
        }
        for sentinel in &sentinels {
            wait_for("each Sentinel knows the others and the replicas", async || {
                let master: std::collections::HashMap<String, String> =
                    sentinel.cmd(&["SENTINEL", "MASTER", "mymaster"]).await;
                (master["num-other-sentinels"] == "2" && master["num-slaves"] == "2").then_some(())
            })
            .await;
        }
        for replica in &servers[1..] {
            wait_for("the replica is in step", async || {
                replica.cmd::<String>(&["INFO", "replication"]).await.contains("master_link_status:up").then_some(())
            })
            .await;
        }
        Self { servers, sentinels }
    }

    pub(crate) fn url(&self) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-sentinel://{}/0?master=mymaster", sentinels.join(","))
    }

    /// The server that most Sentinels call the master.
    pub(crate) async fn master(&self) -> usize {
        let mut votes = vec![0; self.servers.len()];
        for sentinel in &self.sentinels {
            let (_, port): (String, u16) = sentinel.cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]).await;
            if let Some(server) = self.servers.iter().position(|server| server.port == port) {
                votes[server] += 1;
            }
        }
        votes.iter().position(|votes| *votes >= 2).unwrap_or(usize::MAX)
    }
}
