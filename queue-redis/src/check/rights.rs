//! Which commands each role calls, and how each is tried without an effect.

use super::Role;

/// A key that nobody uses, and that every user of queues has to reach.
pub(super) const KEY: &str = "asynq:{}:probe";

/// A call that has no effect on a key that is not there.
struct Probe {
    command: &'static str,
    words: &'static [&'static str],
    /// Only safe where writes are refused: no arguments make it harmless by itself.
    guarded: bool,
}

const fn harmless(command: &'static str, words: &'static [&'static str]) -> Probe {
    Probe { command, words, guarded: false }
}

const fn guarded(command: &'static str, words: &'static [&'static str]) -> Probe {
    Probe { command, words, guarded: true }
}

/// How each command is tried. `x` stands where a number should, so that the call fails after the rights were
/// looked at.
const PROBES: &[Probe] = &[
    harmless("del", &["KEY"]),
    harmless("exists", &["KEY"]),
    harmless("expire", &["KEY", "1"]),
    harmless("expireat", &["KEY", "1"]),
    harmless("get", &["KEY"]),
    harmless("hdel", &["KEY", "f"]),
    harmless("hget", &["KEY", "f"]),
    harmless("hgetall", &["KEY"]),
    harmless("hincrby", &["KEY", "f", "x"]),
    harmless("hmget", &["KEY", "f"]),
    harmless("hset", &["KEY", "f", "v", "g"]),
    guarded("hsetnx", &["KEY", "f", "v"]),
    harmless("hstrlen", &["KEY", "f"]),
    harmless("hvals", &["KEY"]),
    harmless("incrby", &["KEY", "x"]),
    harmless("llen", &["KEY"]),
    harmless("lpop", &["KEY"]),
    harmless("lpos", &["KEY", "v"]),
    guarded("lpush", &["KEY", "v"]),
    harmless("lrange", &["KEY", "0", "0"]),
    harmless("lrem", &["KEY", "1", "v"]),
    harmless("lset", &["KEY", "0", "v"]),
    harmless("ltrim", &["KEY", "0", "0"]),
    harmless("mget", &["KEY"]),
    harmless("persist", &["KEY"]),
    harmless("pttl", &["KEY"]),
    harmless("rename", &["KEY", "KEY"]),
    harmless("rpoplpush", &["KEY", "KEY"]),
    guarded("rpush", &["KEY", "v"]),
    guarded("sadd", &["KEY", "v"]),
    harmless("scan", &["0", "MATCH", "KEY", "COUNT", "1"]),
    harmless("set", &["KEY", "v", "x"]),
    guarded("setnx", &["KEY", "v"]),
    harmless("sismember", &["KEY", "v"]),
    harmless("smembers", &["KEY"]),
    harmless("srem", &["KEY", "v"]),
    harmless("sscan", &["KEY", "0", "COUNT", "1"]),
    harmless("time", &[]),
    harmless("type", &["KEY"]),
    harmless("unlink", &["KEY"]),
    harmless("xadd", &["KEY", "x", "f", "v"]),
    harmless("xrange", &["KEY", "-", "+"]),
    harmless("xrevrange", &["KEY", "+", "-"]),
    harmless("zadd", &["KEY", "x", "v"]),
    harmless("zcard", &["KEY"]),
    harmless("zcount", &["KEY", "0", "0"]),
    harmless("zmscore", &["KEY", "v"]),
    harmless("zrange", &["KEY", "0", "0"]),
    harmless("zrangebyscore", &["KEY", "0", "0"]),
    harmless("zrank", &["KEY", "v"]),
    harmless("zrem", &["KEY", "v"]),
    harmless("zremrangebyrank", &["KEY", "0", "0"]),
    harmless("zremrangebyscore", &["KEY", "0", "0"]),
    harmless("zrevrange", &["KEY", "0", "0"]),
    harmless("zscan", &["KEY", "0", "COUNT", "1"]),
    harmless("zscore", &["KEY", "v"]),
];

/// The commands on data that a role calls, by itself or in scripts. A test holds them against
/// `docs/deployment.md`, and the document against what the roles do.
pub(super) fn commands(role: Role) -> &'static str {
    match role {
        Role::Producer => "exists get hget hset lpush sadd set zadd",
        Role::Worker => {
            "del exists expire expireat get hdel hget hgetall hmget hset incrby llen lpop lpos lpush lrange lrem lset ltrim \
             rename rpoplpush rpush sadd set srem sscan time zadd zcard zcount zmscore zrange zrangebyscore zrem \
             zremrangebyrank zremrangebyscore zscore"
        }
        Role::Scheduler => {
            "del exists expire get hdel hget hmget hset lpush ltrim sadd set time zadd zrem zremrangebyrank \
             zremrangebyscore"
        }
        Role::Inspector => {
            "del exists expire expireat get hdel hget hgetall hincrby hmget hset hsetnx hstrlen hvals incrby llen \
             lpos lpush lrange lrem lset ltrim mget persist pttl rename rpush sadd scan set setnx sismember smembers srem \
             sscan time type unlink xadd xrange xrevrange zadd zcard zcount zrange zrangebyscore zrank zrem zremrangebyrank \
             zrevrange zscan zscore"
        }
    }
}

/// Whether a role sends transactions (`MULTI`, `EXEC`).
pub(super) fn wants_transactions(role: Role) -> bool {
    matches!(role, Role::Scheduler | Role::Inspector)
}

/// The arguments of the probing script for a role; `guarded` when Redis refuses all writes in it.
pub(super) fn arguments(role: Role, guarded: bool) -> Vec<String> {
    let wanted: Vec<&str> = commands(role).split(' ').collect();
    let probes = PROBES.iter().filter(|probe| wanted.contains(&probe.command) && (guarded || !probe.guarded));
    probes
        .flat_map(|probe| {
            let count = probe.words.len().to_string();
            [probe.command.to_owned(), count].into_iter().chain(probe.words.iter().map(|word| (*word).to_owned()))
        })
        .collect()
}

/// The command's name as it stands in [`PROBES`].
pub(super) fn known(command: &str) -> Option<&'static str> {
    PROBES.iter().find(|probe| probe.command.eq_ignore_ascii_case(command)).map(|probe| probe.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection's own commands are not tried by the script, or not at all.
    #[test]
    fn the_document_lists_what_is_tried() {
        const OWN: [&str; 11] = [
            "evalsha",
            "script|load",
            "ping",
            "subscribe",
            "client|tracking",
            "cluster|slots",
            "info",
            "memory|usage",
            "publish",
            "multi",
            "exec",
        ];
        let document = include_str!("../../../docs/deployment.md");
        for (user, role) in [
            ("producer", Role::Producer),
            ("worker", Role::Worker),
            ("scheduler", Role::Scheduler),
            ("inspector", Role::Inspector),
        ] {
            let begin = format!("ACL SETUSER {user} ");
            let line = document.lines().find(|line| line.starts_with(&begin)).unwrap();
            let mut listed: Vec<&str> = line.split(' ').filter_map(|word| word.strip_prefix('+')).collect();
            assert_eq!(wants_transactions(role), listed.contains(&"multi"), "{user}");
            listed.retain(|command| !OWN.contains(command));
            listed.sort_unstable();
            assert_eq!(listed, commands(role).split(' ').collect::<Vec<_>>(), "{user}");
        }
    }

    /// Such a Redis would not refuse a write.
    #[test]
    fn before_redis_7_only_what_does_nothing_by_itself_is_tried() {
        for role in [Role::Producer, Role::Worker, Role::Scheduler, Role::Inspector] {
            let tried = |guarded: bool| {
                let words = arguments(role, guarded);
                let names = PROBES.iter().filter(|probe| words.iter().any(|word| word == probe.command));
                names.map(|probe| (probe.command, probe.guarded)).collect::<Vec<_>>()
            };
            assert!(tried(false).iter().all(|(_, guarded)| !guarded), "{role:?}");
            assert_eq!(tried(true).len(), commands(role).split(' ').count(), "{role:?}");
            assert!(tried(true).iter().any(|(_, guarded)| *guarded), "{role:?}");
        }
    }

    #[test]
    fn every_command_of_a_role_can_be_tried() {
        for role in [Role::Producer, Role::Worker, Role::Scheduler, Role::Inspector] {
            for command in commands(role).split(' ') {
                assert!(known(command).is_some(), "{role:?}: {command:?}");
            }
        }
    }
}
