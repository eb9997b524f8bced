//! What the facts about a Redis mean for those who want to keep queues in it. A program asks when it starts, and the
//! doctor when somebody calls him.

use std::collections::BTreeMap;

use super::{Fault, Finding, Severity};

/// The oldest version that knows all that the scripts say: `ZADD GT` and `ZMSCORE` came with it.
const OLDEST: (u64, u64) = (6, 2);

/// What a program does with Redis; decides which rights it needs. `docs/deployment.md` has the line of an
/// ACL user for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Enqueues tasks.
    Producer,
    /// Works tasks.
    Worker,
    /// Enqueues tasks periodically.
    Scheduler,
    /// Looks at queues and changes what is in them.
    Inspector,
}

/// Something that Redis may not have told, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// It has told.
    Known(T),
    /// It has not; why.
    Unknown(String),
}

impl<T> Fact<T> {
    /// What is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// The same, read.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(change(value)),
            Self::Unknown(why) => Fact::Unknown(why),
        }
    }
}

/// What a server says about itself to everybody (`HELLO`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// `redis` or `valkey`.
    pub server: String,
    /// Such as `7.0.15`.
    pub version: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: String,
    /// `master` or `replica`.
    pub role: String,
}

/// What a server answers to `INFO`.
pub type Info = BTreeMap<String, String>;

/// The fields of an `INFO`.
pub fn read_info(text: &str) -> Info {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// All that is known of a server before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFacts {
    /// Whether the connections are those of a cluster.
    pub cluster_expected: bool,
    /// What it says to everybody.
    pub identity: Fact<Identity>,
    /// What it says to those who may ask.
    pub info: Fact<Info>,
    /// What the user may not do, of what the role needs.
    pub missing: Fact<Vec<&'static str>>,
}

impl RedisFacts {
    /// What the server calls itself, such as `redis 7.0.15`.
    pub fn server(&self) -> Option<String> {
        self.identity.known().map(|identity| format!("{} {}", identity.server, identity.version))
    }

    /// Whether it is still reading its data.
    pub fn is_loading(&self) -> bool {
        self.info.known().is_some_and(|info| field(info, "loading") == "1")
    }
}

/// Whether a program of this role can use a server, the worst first.
pub fn judge_start(facts: &RedisFacts, role: Role) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unasked = |what: &str, why: &str| found(Fault::Unasked, what, format!("{what} could not be checked: {why}"));
    match &facts.identity {
        Fact::Known(identity) => judge_identity(identity, facts, &mut findings),
        Fact::Unknown(why) => findings.push(unasked("version and role", why)),
    }
    match &facts.info {
        Fact::Known(info) => {
            findings.extend(judge_memory(info));
            if field(info, "maxmemory_policy").is_empty() {
                findings.push(unasked("maxmemory-policy", "INFO does not tell"));
            }
            if facts.is_loading() {
                let done = info.get("loading_loaded_perc").map_or("some", String::as_str);
                let left = info.get("loading_eta_seconds").map_or("?", String::as_str);
                findings.push(found(Fault::Loading, "loading", format!("{done}% read, about {left} s left")));
            }
        }
        Fact::Unknown(why) => findings.push(unasked("maxmemory-policy", why)),
    }
    match &facts.missing {
        Fact::Known(missing) if missing.is_empty() => {}
        Fact::Known(missing) => {
            findings.push(found(Fault::Rights, "acl", format!("{} lacks {}", name(role), missing.join(", "))));
        }
        Fact::Unknown(why) => findings.push(unasked("the rights of the user", why)),
    }
    // Who only looks may do so at a replica.
    for finding in findings.iter_mut().filter(|found| found.fault == Fault::Replica && role == Role::Inspector) {
        finding.severity = Severity::Warning;
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// What the answer of `INFO` tells of a server that is in use.
pub fn judge_info(info: &Info) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Valkey calls itself Redis 7.2 here.
    let version = field(info, "redis_version");
    if major_minor(version).is_some_and(|found| found < OLDEST) {
        findings.push(found(Fault::OldRedis, "redis_version", version.to_owned()));
    }
    if field(info, "role") == "slave" {
        findings.push(found(Fault::Replica, "role", master(info)));
    }
    findings.extend(judge_memory(info));
    if let Ok(clients @ 1..) = field(info, "evicted_clients").parse::<u64>() {
        findings.push(found(Fault::CutClients, "maxmemory-clients", format!("{clients} clients")));
    }
    for (name, what) in [
        ("rdb_last_bgsave_status", "a snapshot"),
        ("aof_last_write_status", "the append-only file"),
        ("aof_last_bgrewrite_status", "the append-only file, anew"),
    ] {
        if field(info, name) == "err" {
            findings.push(found(Fault::WriteFailing, name, format!("it could not write {what}")));
        }
    }
    if field(info, "aof_enabled") == "0" {
        findings.push(found(Fault::NotPersistent, "appendonly", String::new()));
    }
    findings
}

fn found(fault: Fault, subject: &str, detail: String) -> Finding {
    Finding::new(fault, None, subject.as_bytes()).detail(detail)
}

fn field<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Producer => "a producer",
        Role::Worker => "a worker",
        Role::Scheduler => "a scheduler",
        Role::Inspector => "an inspector",
    }
}

fn master(info: &Info) -> String {
    let host = field(info, "master_host");
    if host.is_empty() {
        return String::new();
    }
    format!("its master is {host}:{}", info.get("master_port").map_or("6379", String::as_str))
}

fn judge_identity(identity: &Identity, facts: &RedisFacts, findings: &mut Vec<Finding>) {
    let Identity { server, version, mode, role } = identity;
    if mode == "sentinel" {
        findings.push(found(Fault::Sentinel, "mode", String::new()));
        return;
    }
    // Valkey counts from 7.2 on, and knows all of it.
    if server == "redis" {
        match major_minor(version) {
            Some(version) if version >= OLDEST => {}
            Some(_) => findings.push(found(Fault::OldRedis, "redis_version", version.clone())),
            None => findings.push(found(Fault::Unasked, "redis_version", format!("it calls itself {version:?}"))),
        }
    }
    if role == "replica" || role == "slave" {
        let master = facts.info.known().map_or_else(String::new, master);
        findings.push(found(Fault::Replica, "role", master));
    }
    let topology = match (mode.as_str(), facts.cluster_expected) {
        ("cluster", false) => "this is a node of a Redis Cluster, and the address is that of a single Redis",
        ("standalone", true) => "this is a single Redis, and the address is that of a Redis Cluster",
        _ => return,
    };
    findings.push(found(Fault::Topology, "mode", topology.to_owned()));
}

fn judge_memory(info: &Info) -> impl Iterator<Item = Finding> {
    let bytes = |name: &str| field(info, name).parse::<u64>().unwrap_or(0);
    let (limit, policy) = (bytes("maxmemory"), field(info, "maxmemory_policy"));
    // What Redis counts towards the limit.
    let used = bytes("used_memory").saturating_sub(bytes("mem_not_counted_for_evict"));
    let eviction = match policy {
        "" | "noeviction" => None,
        _ if limit == 0 => Some(Fault::EvictionWithoutLimit),
        policy if policy.starts_with("volatile-") => Some(Fault::EvictionOfNotes),
        _ => Some(Fault::Eviction),
    };
    let memory = match limit {
        0 => None,
        limit if used > limit => Some(Fault::MemoryFull),
        limit if used >= limit - limit / 10 => Some(Fault::MemoryNear),
        _ => None,
    };
    let eviction = eviction.map(|fault| found(fault, "maxmemory_policy", format!("maxmemory-policy is {policy}")));
    eviction.into_iter().chain(memory.map(|fault| found(fault, "used_memory", format!("{used} of {limit} bytes"))))
}

fn major_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests;
