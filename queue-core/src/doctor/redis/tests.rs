//! What is said of which Redis.

use super::*;

const GOOD: &str = "redis_version:7.0.15 role:master maxmemory:0 used_memory:9 maxmemory_policy:noeviction \
                    aof_enabled:1 rdb_last_bgsave_status:ok aof_last_write_status:ok";
const ROLES: [Role; 4] = [Role::Producer, Role::Worker, Role::Scheduler, Role::Inspector];

fn info(words: &str) -> Info {
    read_info(&words.replace(' ', "\r\n"))
}

fn good() -> RedisFacts {
    let [server, version, mode, role] = ["redis", "7.0.15", "standalone", "master"].map(str::to_owned);
    RedisFacts {
        cluster_expected: false,
        identity: Fact::Known(Identity { server, version, mode, role }),
        info: Fact::Known(info(GOOD)),
        missing: Fact::Known(Vec::new()),
    }
}

fn start(role: Role, change: impl FnOnce(&mut Identity, &mut Info)) -> Vec<(Severity, Fault)> {
    let mut facts = good();
    if let (Fact::Known(identity), Fact::Known(info)) = (&mut facts.identity, &mut facts.info) {
        change(identity, info);
    }
    faults(&judge_start(&facts, role))
}

fn faults(findings: &[Finding]) -> Vec<(Severity, Fault)> {
    findings.iter().map(|found| (found.severity, found.fault)).collect()
}

#[test]
fn a_good_redis_has_no_findings() {
    for role in ROLES {
        assert_eq!(start(role, |_, _| {}), []);
    }
    assert_eq!(judge_info(&info(GOOD)), []);
    assert_eq!(judge_info(&info("something:else")), []);
}

#[test]
fn versions_before_6_2_are_refused_and_strange_ones_are_not_judged() {
    for (server, version, expected) in [
        ("redis", "6.0.20", Some(Fault::OldRedis)),
        ("redis", "5.0", Some(Fault::OldRedis)),
        ("redis", "6.2.0", None),
        ("redis", "6.10.1", None),
        ("redis", "8.0.0-rc1", None),
        ("redis", "255.255.255", None),
        ("valkey", "1.0.0", None),
        ("redis", "unstable", Some(Fault::Unasked)),
        ("redis", "", Some(Fault::Unasked)),
    ] {
        let found = start(Role::Worker, |identity, _| {
            (identity.server, identity.version) = (server.to_owned(), version.to_owned());
        });
        let expected: Vec<_> = expected.map(|fault| (fault.severity(), fault)).into_iter().collect();
        assert_eq!(found, expected, "{server} {version}");
    }
}

#[test]
fn a_replica_is_for_those_who_only_look() {
    for role in ROLES {
        let severity = if role == Role::Inspector { Severity::Warning } else { Severity::Error };
        for word in ["replica", "slave"] {
            let found = start(role, |identity, _| identity.role = word.to_owned());
            assert_eq!(found, [(severity, Fault::Replica)]);
        }
    }
    let mut facts = good();
    facts.info = Fact::Known(info(&format!("{GOOD} role:slave master_host:db1")));
    let Fact::Known(identity) = &mut facts.identity else { unreachable!("made above") };
    identity.role = "replica".to_owned();
    assert!(judge_start(&facts, Role::Worker)[0].to_string().contains("its master is db1:6379"));
}

#[test]
fn a_sentinel_and_the_wrong_kind_of_redis_are_refused() {
    let mode = |mode: &str, cluster_expected: bool| {
        let mut facts = RedisFacts { cluster_expected, ..good() };
        let Fact::Known(identity) = &mut facts.identity else { unreachable!("made above") };
        identity.mode = mode.to_owned();
        faults(&judge_start(&facts, Role::Producer))
    };
    assert_eq!(mode("cluster", true), []);
    assert_eq!(mode("cluster", false), [(Severity::Error, Fault::Topology)]);
    assert_eq!(mode("standalone", true), [(Severity::Error, Fault::Topology)]);
    assert_eq!(mode("sentinel", false), [(Severity::Error, Fault::Sentinel)]);
}

#[test]
fn the_start_and_the_doctor_judge_memory_alike() {
    for (policy, limit, used, expected) in [
        ("allkeys-lru", 100, 1, vec![Fault::Eviction]),
        ("allkeys-random", 100, 1, vec![Fault::Eviction]),
        ("volatile-lru", 100, 1, vec![Fault::EvictionOfNotes]),
        ("volatile-ttl", 100, 1, vec![Fault::EvictionOfNotes]),
        ("allkeys-lru", 0, 1, vec![Fault::EvictionWithoutLimit]),
        ("noeviction", 100, 89, vec![]),
        ("noeviction", 100, 90, vec![Fault::MemoryNear]),
        ("noeviction", 100, 100, vec![Fault::MemoryNear]),
        ("noeviction", 100, 101, vec![Fault::MemoryFull]),
        ("volatile-ttl", 100, 101, vec![Fault::EvictionOfNotes, Fault::MemoryFull]),
    ] {
        let words = format!("{GOOD} maxmemory_policy:{policy} maxmemory:{limit} used_memory:{used}");
        let expected: Vec<_> = expected.into_iter().map(|fault| (fault.severity(), fault)).collect();
        assert_eq!(faults(&judge_info(&info(&words))), expected, "{words}");
        assert_eq!(start(Role::Worker, |_, facts| *facts = info(&words)), expected, "{words}");
    }
    let uncounted = info(&format!("{GOOD} maxmemory:100 used_memory:101 mem_not_counted_for_evict:50"));
    assert_eq!(judge_info(&uncounted), []);
    let unknown = start(Role::Worker, |_, info| drop(info.remove("maxmemory_policy")));
    assert_eq!(unknown, [(Severity::Note, Fault::Unasked)]);
}

#[test]
fn each_setting_has_its_finding() {
    for (word, fault) in [
        ("redis_version:6.0.16", Fault::OldRedis),
        ("role:slave", Fault::Replica),
        ("aof_enabled:0", Fault::NotPersistent),
        ("evicted_clients:3", Fault::CutClients),
        ("rdb_last_bgsave_status:err", Fault::WriteFailing),
        ("aof_last_write_status:err", Fault::WriteFailing),
    ] {
        assert_eq!(faults(&judge_info(&info(&format!("{GOOD} {word}")))), [(fault.severity(), fault)], "{word}");
    }
}

#[test]
fn missing_rights_are_named_and_what_is_unknown_is_a_note() {
    let mut facts = good();
    facts.missing = Fact::Known(vec!["hget", "zadd"]);
    let found = judge_start(&facts, Role::Worker);
    assert_eq!(faults(&found), [(Severity::Error, Fault::Rights)]);
    assert_eq!(found[0].detail, "a worker lacks hget, zadd");
    let facts = RedisFacts {
        cluster_expected: false,
        identity: Fact::Unknown("no".to_owned()),
        info: Fact::Unknown("no".to_owned()),
        missing: Fact::Unknown("no".to_owned()),
    };
    assert_eq!(faults(&judge_start(&facts, Role::Worker)), [(Severity::Note, Fault::Unasked); 3]);
}

#[test]
fn loading_is_named_and_the_worst_comes_first() {
    let loading = "loading:1 loading_loaded_perc:12 loading_eta_seconds:3 maxmemory:100 maxmemory_policy:volatile-lru";
    let found = start(Role::Worker, |_, facts| *facts = info(&format!("{GOOD} {loading}")));
    assert_eq!(found, [(Severity::Error, Fault::Loading), (Severity::Warning, Fault::EvictionOfNotes)]);
}
