//! How the Redis below the queues is, and what to do about it.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::doctor::{Role, judge_info};
use serde::Serialize;
use tokio::time::Instant;

use crate::Inspector;
use crate::error::Error;
use crate::view::Finding;

/// Pings that are timed.
const PINGS: usize = 20;
/// Most queues whose place in a cluster is looked up.
const PLACES: usize = 100;

/// A Redis that was looked at. What it does not tell is `None`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RedisHealth {
    /// Its address.
    pub target: String,
    /// What it calls itself, such as `redis 7.0.15`.
    pub server: Option<String>,
    /// What the check at the start of programs finds, and what the doctor says of a Redis; the worst first.
    pub findings: Vec<Finding>,
    /// What is not wrong, and yet worth a look.
    pub advice: Vec<Advice>,
    /// How long an answer takes.
    pub round_trips: RoundTrips,
    /// The numbers behind it, by subject; in a cluster, those of one node. Empty where this user may not ask.
    pub facts: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    /// Where queues lie in a cluster, at most a hundred; none elsewhere.
    pub places: Vec<QueuePlace>,
}

/// Something worth a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// Which subject it is about.
    pub about: &'static str,
    /// What is seen.
    pub seen: String,
    /// What to do.
    pub advice: &'static str,
}

/// How long Redis took to answer, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RoundTrips {
    /// Half of the answers took no longer.
    pub median_us: u64,
    /// The longest.
    pub longest_us: u64,
    /// How many were timed.
    pub pings: usize,
}

/// Where a queue lies in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueuePlace {
    /// The queue.
    pub queue: String,
    /// The slot of its keys.
    pub slot: u16,
    /// The nodes that serve it, the master first.
    pub nodes: Vec<String>,
}

/// What is shown of `INFO`, by subject.
const FACTS: [(&str, &[&str]); 5] = [
    (
        "memory",
        &[
            "used_memory",
            "used_memory_peak",
            "used_memory_rss",
            "maxmemory",
            "maxmemory_policy",
            "mem_fragmentation_ratio",
            "total_system_memory",
            "evicted_keys",
        ],
    ),
    (
        "persistence",
        &[
            "aof_enabled",
            "aof_last_write_status",
            "aof_last_bgrewrite_status",
            "rdb_last_bgsave_status",
            "rdb_last_save_time",
            "rdb_changes_since_last_save",
            "latest_fork_usec",
            "loading",
        ],
    ),
    ("clients", &["connected_clients", "maxclients", "blocked_clients", "rejected_connections", "tracking_clients"]),
    (
        "replication",
        &[
            "role",
            "connected_slaves",
            "master_host",
            "master_link_status",
            "master_last_io_seconds_ago",
            "master_repl_offset",
        ],
    ),
    (
        "work",
        &[
            "redis_mode",
            "uptime_in_seconds",
            "instantaneous_ops_per_sec",
            "total_commands_processed",
            "io_threads_active",
        ],
    ),
];

impl Inspector {
    /// Looks at Redis itself: what the check of its programs finds, some numbers and what they mean, and how fast it answers. Takes some
    /// thirty round trips.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn redis_health(&self) -> Result<RedisHealth, Error> {
        let checked = self.redis.check(Role::Inspector).await?;
        let info = match self.redis_info().await {
            Ok(info) => info,
            Err(error) if error.is_transient() => return Err(error),
            // Why not is among the findings.
            Err(_) => BTreeMap::new(),
        };
        let mut found = checked.findings;
        if !info.is_empty() {
            let more: Vec<_> =
                judge_info(&info).into_iter().filter(|it| found.iter().all(|known| known.fault != it.fault)).collect();
            found.extend(more);
        }
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let round_trips = self.round_trips().await?;
        let facts = FACTS.iter().map(|(subject, names)| {
            let told = names.iter().filter_map(|name| Some((*name, info.get(*name)?.clone())));
            (*subject, told.collect::<BTreeMap<_, _>>())
        });
        Ok(RedisHealth {
            target: self.redis.target().to_owned(),
            server: checked.server,
            findings: found.iter().map(Finding::from).collect(),
            advice: advise(&info, round_trips),
            round_trips,
            facts: facts.filter(|(_, told)| !told.is_empty()).collect(),
            places: if info.get("cluster_enabled").is_some_and(|it| it == "1") {
                self.places_of_queues().await?
            } else {
                Vec::new()
            },
        })
    }

    /// The text that Redis answers to `INFO`.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn redis_info_text(&self) -> Result<String, Error> {
        Ok(self.redis.query("INFO", &redis::cmd("INFO")).await?)
    }

    /// Where queues lie in a cluster, at most a hundred of them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn places_of_queues(&self) -> Result<Vec<QueuePlace>, Error> {
        let mut places = Vec::new();
        for queue in self.queues().await?.into_iter().take(PLACES) {
            let placement = self.cluster_placement(&queue).await?;
            let nodes = placement.nodes.iter().map(|node| node.address.clone()).collect();
            places.push(QueuePlace { queue, slot: placement.slot, nodes });
        }
        Ok(places)
    }

    async fn round_trips(&self) -> Result<RoundTrips, Error> {
        let mut took = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let begun = Instant::now();
            self.redis.ping().await?;
            took.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        took.sort_unstable();
        Ok(RoundTrips { median_us: took[PINGS / 2], longest_us: took[PINGS - 1], pings: PINGS })
    }
}

/// A round trip that is felt: what takes several of them, such as a take and its report, takes as many times as long.
const SLOW: Duration = Duration::from_millis(20);

/// What the numbers mean, where no fault does.
fn advise(info: &BTreeMap<String, String>, round_trips: RoundTrips) -> Vec<Advice> {
    let number = |name: &str| info.get(name).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    let text = |name: &str| info.get(name).map_or("", String::as_str);
    let mut advice = Vec::new();
    let mut say = |is_so: bool, about: &'static str, seen: String, what: &'static str| {
        if is_so {
            advice.push(Advice { about, seen, advice: what });
        }
    };
    say(
        info.contains_key("maxmemory") && number("maxmemory") == 0.0,
        "memory",
        "maxmemory is not set".to_owned(),
        "Set maxmemory below what the machine has, with the policy noeviction: then Redis refuses new tasks in time, and is not killed with all of them.",
    );
    let ratio = number("mem_fragmentation_ratio");
    // Of a small Redis, the program itself is the most.
    say(
        ratio > 1.5 && number("used_memory") > 256e6,
        "memory",
        format!("the process takes {ratio} times what its data do"),
        "Memory was freed and not given back: CONFIG SET activedefrag yes, or a restart at a quiet time.",
    );
    say(
        number("evicted_keys") > 0.0,
        "memory",
        format!("{} keys were evicted since it was started", number("evicted_keys")),
        "Parts of tasks may be gone: set the policy to noeviction, and have `queuectl doctor` look what is missing.",
    );
    say(
        number("maxclients") > 0.0 && number("connected_clients") > 0.8 * number("maxclients"),
        "clients",
        format!("{} of {} connections are taken", number("connected_clients"), number("maxclients")),
        "Raise maxclients and the limit of open files, or let programs share connections.",
    );
    say(
        number("rejected_connections") > 0.0,
        "clients",
        format!("{} connections were refused since it was started", number("rejected_connections")),
        "maxclients was reached: raise it, and look who opens so many.",
    );
    say(
        text("role") == "master" && info.contains_key("connected_slaves") && number("connected_slaves") == 0.0,
        "replication",
        "no replica follows it".to_owned(),
        "If this machine is lost, so are the tasks since the last copy of its files: a replica, with Sentinel or a cluster, takes over.",
    );
    say(
        text("master_link_status") == "down",
        "replication",
        "this replica has lost its master".to_owned(),
        "What is shown is as old as that: look at the network between them, and at the log of the replica.",
    );
    say(
        number("latest_fork_usec") > 100_000.0,
        "persistence",
        format!("the last fork stood still for {} ms", (number("latest_fork_usec") / 1_000.0).round()),
        "While Redis begins to write a file it answers nobody: less memory per Redis, or snapshots at a quiet time, or at a replica.",
    );
    say(
        u128::from(round_trips.median_us) > SLOW.as_micros(),
        "round trip",
        format!("half of the answers took longer than {} ms", round_trips.median_us / 1_000),
        "Every task needs some of them: bring programs and Redis closer together, or look with SLOWLOG GET what holds Redis up.",
    );
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(info: &[(&str, &str)], median_us: u64) -> Vec<&'static str> {
        let info = info.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let told = advise(&info, RoundTrips { median_us, longest_us: median_us, pings: PINGS });
        told.into_iter().map(|advice| advice.about).collect()
    }

    #[test]
    fn advice_follows_from_the_numbers_and_nothing_is_said_of_what_is_unknown() {
        assert_eq!(about(&[], 300), [""; 0]);
        let well = [
            ("maxmemory", "1000"),
            ("role", "master"),
            ("connected_slaves", "1"),
            ("maxclients", "100"),
            ("connected_clients", "80"),
            ("used_memory", "1000"),
            ("mem_fragmentation_ratio", "9.1"),
        ];
        assert_eq!(about(&well, 300), [""; 0]);
        for (info, subject) in [
            (&[("maxmemory", "0")][..], "memory"),
            (&[("used_memory", "300000000"), ("mem_fragmentation_ratio", "1.6")], "memory"),
            (&[("evicted_keys", "1")], "memory"),
            (&[("maxclients", "100"), ("connected_clients", "81")], "clients"),
            (&[("rejected_connections", "2")], "clients"),
            (&[("role", "master"), ("connected_slaves", "0")], "replication"),
            (&[("role", "slave"), ("master_link_status", "down")], "replication"),
            (&[("latest_fork_usec", "250000")], "persistence"),
        ] {
            assert_eq!(about(info, 300), [subject], "{info:?}");
        }
        assert_eq!(about(&[], 25_000), ["round trip"]);
    }
}
