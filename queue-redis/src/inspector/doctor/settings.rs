//! What Redis says about itself, judged.

use std::collections::BTreeMap;

use super::finding::{Fault, Finding};

/// Looks at the answer of `INFO`.
pub(super) fn judge(info: &BTreeMap<String, String>) -> Vec<Finding> {
    let get = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
    let number = |name: &str| get(name).parse::<u64>().unwrap_or(0);
    let found = |fault, subject: &str, detail: String| Finding::new(fault, None, subject.as_bytes()).detail(detail);
    let mut findings = Vec::new();
    // Valkey calls itself Redis 7.2 here.
    let version = get("redis_version");
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if !version.is_empty() && (major, minor) < (6, 2) {
        findings.push(found(Fault::OldRedis, "redis_version", version.to_owned()));
    }
    if get("role") == "slave" {
        let master = format!("its master is {}:{}", get("master_host"), get("master_port"));
        findings.push(found(Fault::Replica, "role", master));
    }
    let (limit, used, policy) = (number("maxmemory"), number("used_memory"), get("maxmemory_policy"));
    if !policy.is_empty() && policy != "noeviction" {
        let fault = if limit > 0 { Fault::Eviction } else { Fault::EvictionWithoutLimit };
        findings.push(found(fault, "maxmemory_policy", policy.to_owned()));
    }
    if limit > 0 && used >= limit - limit / 10 {
        findings.push(found(Fault::MemoryNear, "used_memory", format!("{used} of {limit} bytes")));
    }
    for (name, what) in [
        ("rdb_last_bgsave_status", "a snapshot"),
        ("aof_last_write_status", "the append-only file"),
        ("aof_last_bgrewrite_status", "the append-only file, anew"),
    ] {
        if get(name) == "err" {
            findings.push(found(Fault::WriteFailing, name, format!("it could not write {what}")));
        }
    }
    if get("aof_enabled") == "0" {
        findings.push(found(Fault::NotPersistent, "appendonly", String::new()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(lines: &str) -> Vec<Fault> {
        let info = lines.split(' ').filter_map(|line| line.split_once(':'));
        let info = info.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        judge(&info).into_iter().map(|found| found.fault).collect()
    }

    #[test]
    fn each_setting_has_its_finding() {
        let sound = "redis_version:7.0.15 role:master maxmemory:0 used_memory:9 maxmemory_policy:noeviction \
                     aof_enabled:1 rdb_last_bgsave_status:ok aof_last_write_status:ok";
        assert_eq!(faults(sound), []);
        for (was, is, fault) in [
            ("7.0.15", "6.0.16", Fault::OldRedis),
            ("role:master", "role:slave", Fault::Replica),
            ("noeviction", "allkeys-lru", Fault::EvictionWithoutLimit),
            ("maxmemory:0 used_memory:9", "maxmemory:100 used_memory:90", Fault::MemoryNear),
            ("aof_enabled:1", "aof_enabled:0", Fault::NotPersistent),
            ("rdb_last_bgsave_status:ok", "rdb_last_bgsave_status:err", Fault::WriteFailing),
            ("aof_last_write_status:ok", "aof_last_write_status:err", Fault::WriteFailing),
        ] {
            assert_eq!(faults(&sound.replace(was, is)), [fault], "{is}");
        }
        let limited = sound.replace("maxmemory:0", "maxmemory:100").replace("noeviction", "volatile-ttl");
        assert_eq!(faults(&limited), [Fault::Eviction]);
        assert_eq!(faults(&sound.replace("7.0.15", "6.2.0")), []);
        assert_eq!(faults("something:else"), []);
    }
}
