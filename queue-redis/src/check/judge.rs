//! What the facts about a Redis mean for those who want to keep queues in it.

use super::{Finding, Role, Severity, Subject};

/// The oldest version that knows all that the scripts say: `ZADD GT` and `ZMSCORE` came with it.
const OLDEST: (u64, u64) = (6, 2);

/// Something that Redis may not have told, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact<T> {
    Known(T),
    Unknown(String),
}

impl<T> Fact<T> {
    pub(super) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(change(value)),
            Self::Unknown(why) => Fact::Unknown(why),
        }
    }
}

/// What a server says about itself to everybody (`HELLO`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// `redis` or `valkey`.
    pub(super) server: String,
    pub(super) version: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub(super) mode: String,
    /// `master` or `replica`.
    pub(super) role: String,
}

/// Of `INFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// How far it is with reading its data, in words, while it does.
    pub(super) loading: Option<String>,
    /// Bytes; 0 for no limit.
    pub(super) maxmemory: u64,
    /// Bytes that count towards the limit.
    pub(super) used: u64,
    pub(super) policy: Option<String>,
    pub(super) master: Option<String>,
}

/// All that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether the connections are those of a cluster.
    pub(super) cluster_expected: bool,
    pub(super) identity: Fact<Identity>,
    pub(super) info: Fact<Info>,
    /// What the user may not do, of what the role needs.
    pub(super) missing: Fact<Vec<&'static str>>,
}

impl Facts {
    pub(super) fn server(&self) -> Option<String> {
        self.identity.known().map(|identity| format!("{} {}", identity.server, identity.version))
    }
}

/// What is to be said, the worst first.
pub(super) fn judge(facts: &Facts, role: Role) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |severity, subject, message: String| findings.push(Finding { severity, subject, message });
    match &facts.identity {
        Fact::Known(identity) => judge_identity(identity, facts, role, &mut find),
        Fact::Unknown(why) => {
            let message = format!("its version, and whether it is a master, could not be checked: {why}");
            find(Severity::Unknown, Subject::Version, message);
        }
    }
    match &facts.info {
        Fact::Known(info) => judge_info(info, &mut find),
        Fact::Unknown(why) => {
            let message = format!("what it does when its memory is used up could not be checked: {why}");
            find(Severity::Unknown, Subject::Eviction, message);
        }
    }
    match &facts.missing {
        Fact::Known(missing) if missing.is_empty() => {}
        Fact::Known(missing) => {
            let message = format!(
                "the ACL user lacks {}: give it the rights that docs/deployment.md lists for {}, for the keys asynq:*",
                missing.join(", "),
                name(role)
            );
            find(Severity::Problem, Subject::Rights, message);
        }
        Fact::Unknown(why) => {
            find(Severity::Unknown, Subject::Rights, format!("the rights of the user could not be checked: {why}"));
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Producer => "a producer",
        Role::Worker => "a worker",
        Role::Scheduler => "a scheduler",
        Role::Inspector => "an inspector",
    }
}

fn judge_identity(identity: &Identity, facts: &Facts, role: Role, find: &mut impl FnMut(Severity, Subject, String)) {
    let Identity { server, version, mode, role: server_role } = identity;
    if mode == "sentinel" {
        let message =
            "this is a Sentinel, which holds no data: give the address of the Redis that it watches".to_owned();
        find(Severity::Problem, Subject::Role, message);
        return;
    }
    // Valkey counts from 7.2 on, and knows all of it.
    if server == "redis" {
        match major_minor(version) {
            Some(found) if found < OLDEST => {
                let message = format!("this is Redis {version}; Redis 6.2 or newer, or Valkey, is needed");
                find(Severity::Problem, Subject::Version, message);
            }
            Some(_) => {}
            None => {
                let message = format!("its version could not be checked: it says {version:?}; at least 6.2 is needed");
                find(Severity::Unknown, Subject::Version, message);
            }
        }
    }
    if server_role == "replica" || server_role == "slave" {
        let master = facts.info.known().and_then(|info| info.master.as_deref());
        let master = master.map_or_else(String::new, |master| format!(", which is {master}"));
        let severity = if role == Role::Inspector { Severity::Warning } else { Severity::Problem };
        let message = format!("this is a replica, which takes no changes: connect to its master{master}");
        find(severity, Subject::Role, message);
    }
    match (mode.as_str(), facts.cluster_expected) {
        ("cluster", false) => {
            let message = "this is a node of a Redis Cluster, and the address is that of a single Redis: \
                           a queue whose slot lies on another node cannot be used; give the address of the cluster";
            find(Severity::Problem, Subject::Cluster, message.to_owned());
        }
        ("standalone", true) => {
            let message = "this is a single Redis, and the address is that of a Redis Cluster: \
                           write it as redis://host:port";
            find(Severity::Problem, Subject::Cluster, message.to_owned());
        }
        _ => {}
    }
}

fn judge_info(info: &Info, find: &mut impl FnMut(Severity, Subject, String)) {
    if let Some(progress) = &info.loading {
        let message = format!("it is still reading its data from the disk ({progress}): start again when it is done");
        find(Severity::Problem, Subject::Loading, message);
    }
    if info.maxmemory > 0 && info.used > info.maxmemory {
        let message = format!(
            "it is out of memory ({} of {} bytes): tasks are worked and finished, but no new ones are taken in; raise \
             maxmemory, or delete tasks",
            info.used, info.maxmemory
        );
        find(Severity::Warning, Subject::Memory, message);
    }
    let remedy = "set maxmemory-policy to noeviction";
    match info.policy.as_deref() {
        None => {
            let message = "what it does when its memory is used up could not be checked: INFO does not tell; \
                           maxmemory-policy has to be noeviction";
            find(Severity::Unknown, Subject::Eviction, message.to_owned());
        }
        Some("noeviction") => {}
        Some(policy) if info.maxmemory == 0 => {
            let message = format!(
                "maxmemory-policy is {policy}: as soon as maxmemory is set too, Redis would delete keys of queues; {remedy}"
            );
            find(Severity::Warning, Subject::Eviction, message);
        }
        Some(policy) if policy.starts_with("volatile-") => {
            let message = format!(
                "maxmemory-policy is {policy}: when memory runs out, Redis deletes the locks of unique tasks, the counters \
                 and the heartbeats of servers; {remedy}"
            );
            find(Severity::Warning, Subject::Eviction, message);
        }
        Some(policy) => {
            let message = format!(
                "maxmemory-policy is {policy}: when memory runs out, Redis deletes tasks and whole queues; {remedy}"
            );
            find(Severity::Problem, Subject::Eviction, message);
        }
    }
}

fn major_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        let text = str::to_owned;
        Facts {
            cluster_expected: false,
            identity: Fact::Known(Identity {
                server: text("redis"),
                version: text("7.0.15"),
                mode: text("standalone"),
                role: text("master"),
            }),
            info: Fact::Known(Info { policy: Some(text("noeviction")), ..Info::default() }),
            missing: Fact::Known(Vec::new()),
        }
    }

    fn judged(role: Role, change: impl FnOnce(&mut Identity, &mut Info, &mut Facts)) -> Vec<(Severity, Subject)> {
        let mut facts = good();
        let (Fact::Known(mut identity), Fact::Known(mut info)) = (facts.identity.clone(), facts.info.clone()) else {
            unreachable!("made above")
        };
        change(&mut identity, &mut info, &mut facts);
        if facts.identity.known().is_some() {
            facts.identity = Fact::Known(identity);
        }
        if facts.info.known().is_some() {
            facts.info = Fact::Known(info);
        }
        judge(&facts, role).into_iter().map(|finding| (finding.severity, finding.subject)).collect()
    }

    const ROLES: [Role; 4] = [Role::Producer, Role::Worker, Role::Scheduler, Role::Inspector];

    #[test]
    fn a_good_redis_gives_nothing_to_say() {
        for role in ROLES {
            assert_eq!(judged(role, |_, _, _| {}), []);
        }
    }

    #[test]
    fn versions_before_6_2_are_refused_and_strange_ones_are_not_judged() {
        for (server, version, expected) in [
            ("redis", "6.0.20", Some(Severity::Problem)),
            ("redis", "5.0", Some(Severity::Problem)),
            ("redis", "6.2.0", None),
            ("redis", "6.10.1", None),
            ("redis", "8.0.0-rc1", None),
            ("redis", "255.255.255", None),
            ("valkey", "1.0.0", None),
            ("redis", "unstable", Some(Severity::Unknown)),
            ("redis", "", Some(Severity::Unknown)),
        ] {
            let found = judged(Role::Worker, |identity, _, _| {
                (identity.server, identity.version) = (server.to_owned(), version.to_owned());
            });
            let expected: Vec<_> = expected.map(|severity| (severity, Subject::Version)).into_iter().collect();
            assert_eq!(found, expected, "{server} {version}");
        }
    }

    #[test]
    fn a_replica_is_for_those_who_only_look() {
        for role in ROLES {
            let severity = if role == Role::Inspector { Severity::Warning } else { Severity::Problem };
            for word in ["replica", "slave"] {
                let found = judged(role, |identity, _, _| identity.role = word.to_owned());
                assert_eq!(found, [(severity, Subject::Role)]);
            }
        }
        let mut facts = good();
        let Fact::Known(identity) = &mut facts.identity else { unreachable!("made above") };
        identity.role = "replica".to_owned();
        facts.info = Fact::Known(Info {
            master: Some("db1:6379".to_owned()),
            policy: Some("noeviction".to_owned()),
            ..Info::default()
        });
        assert!(judge(&facts, Role::Worker)[0].message.ends_with("connect to its master, which is db1:6379"));
    }

    #[test]
    fn a_sentinel_and_the_wrong_kind_of_redis_are_refused() {
        let mode = |mode: &str, expected: bool| {
            judged(Role::Producer, |identity, _, facts| {
                identity.mode = mode.to_owned();
                facts.cluster_expected = expected;
            })
        };
        assert_eq!(mode("cluster", true), []);
        assert_eq!(mode("cluster", false), [(Severity::Problem, Subject::Cluster)]);
        assert_eq!(mode("standalone", true), [(Severity::Problem, Subject::Cluster)]);
        assert_eq!(mode("sentinel", false), [(Severity::Problem, Subject::Role)]);
    }

    #[test]
    fn what_is_evicted_decides_how_bad_it_is() {
        for (policy, maxmemory, expected) in [
            ("allkeys-lru", 1, Severity::Problem),
            ("allkeys-random", 1, Severity::Problem),
            ("volatile-lru", 1, Severity::Warning),
            ("volatile-ttl", 1, Severity::Warning),
            ("allkeys-lru", 0, Severity::Warning),
        ] {
            let found = judged(Role::Worker, |_, info, _| {
                (info.policy, info.maxmemory) = (Some(policy.to_owned()), maxmemory);
            });
            assert_eq!(found, [(expected, Subject::Eviction)], "{policy} {maxmemory}");
        }
        assert_eq!(judged(Role::Worker, |_, info, _| info.policy = None), [(Severity::Unknown, Subject::Eviction)]);
    }

    #[test]
    fn a_redis_without_memory_is_warned_about_and_served() {
        for (used, expected) in [(99, None), (100, None), (101, Some((Severity::Warning, Subject::Memory)))] {
            let found = judged(Role::Worker, |_, info, _| (info.maxmemory, info.used) = (100, used));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{used}");
        }
        assert_eq!(judged(Role::Worker, |_, info, _| info.used = 101), [], "it has no limit");
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_not_known_is_said() {
        let mut facts = good();
        facts.missing = Fact::Known(vec!["hget", "zadd"]);
        let found = judge(&facts, Role::Worker);
        assert_eq!(found[0].severity, Severity::Problem);
        assert!(found[0].message.contains("lacks hget, zadd") && found[0].message.contains("a worker"), "{found:?}");
        let nothing = Fact::Unknown("no".to_owned());
        let facts = Facts {
            identity: Fact::Unknown("no".to_owned()),
            info: Fact::Unknown("no".to_owned()),
            missing: Fact::Unknown("no".to_owned()),
            cluster_expected: false,
        };
        let found = judge(&facts, Role::Worker);
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|finding| finding.severity == Severity::Unknown), "{found:?}");
        assert_eq!(facts.missing, nothing);
    }

    #[test]
    fn loading_is_named_and_the_worst_comes_first() {
        let found = judged(Role::Worker, |_, info, _| {
            info.loading = Some("12%".to_owned());
            info.policy = Some("volatile-lru".to_owned());
        });
        assert_eq!(found, [(Severity::Problem, Subject::Loading), (Severity::Warning, Subject::Eviction)]);
    }
}
