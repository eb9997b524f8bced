use queue_redis::check::{Finding, Severity};
use queue_redis::{Checked, Error, Fault, Redis, RedisOptions, Role};
use queue_worker::{Router, Server, ServerError};

use super::pretender::Pretender;
use crate::support::{Fixture, Proxy, RedisProcess};

const ROLES: [Role; 4] = [Role::Producer, Role::Worker, Role::Scheduler, Role::Inspector];

fn found(checked: &Checked) -> Vec<(Severity, Fault)> {
    checked.findings.iter().map(|finding| (finding.severity, finding.fault)).collect()
}

/// Why a server does not start.
async fn refusal(redis: Redis) -> Error {
    match Server::new(redis, Router::new(())).start().await {
        Err(ServerError::Redis(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn problems(error: Error) -> Vec<Finding> {
    match error {
        Error::Unusable { problems, .. } => problems,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_redis_as_it_should_be_gives_nothing_to_say_and_is_left_as_it_was() {
    let fixture = Fixture::start().await;
    fixture.run("CONFIG RESETSTAT").await;
    for role in ROLES {
        let checked = fixture.redis().check(role).await.unwrap();
        assert_eq!(found(&checked), [], "{role:?}: {checked:?}");
        assert!(checked.server.is_some_and(|server| server.contains('.')));
    }
    assert!(fixture.cmd::<Vec<String>>(&["KEYS", "*"]).await.is_empty());
    let info: String = fixture.cmd(&["INFO", "persistence"]).await;
    assert!(info.contains("rdb_changes_since_last_save:0\r"), "nothing was written: {info}");
}

#[tokio::test]
async fn a_redis_that_would_delete_tasks_is_refused_unless_one_wants_it() {
    let fixture = Fixture::start().await;
    fixture.run("CONFIG SET maxmemory-policy allkeys-lru").await;
    let checked = fixture.redis().check(Role::Worker).await.unwrap();
    assert_eq!(
        found(&checked),
        [(Severity::Warning, Fault::EvictionWithoutLimit)],
        "it deletes nothing without maxmemory"
    );
    fixture.run("CONFIG SET maxmemory 1gb").await;
    let error = refusal(fixture.redis()).await;
    let text = error.to_string();
    assert!(text.contains("allkeys-lru") && text.contains("set maxmemory-policy to noeviction"), "{text}");
    assert!(!error.is_transient());
    let server = Server::new(fixture.redis(), Router::new(())).start_check(false).start().await.unwrap();
    server.shutdown().await;
    fixture.run("CONFIG SET maxmemory-policy volatile-ttl").await;
    let server = Server::new(fixture.redis(), Router::new(())).start().await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn a_replica_is_refused_by_those_who_write_and_names_its_master() {
    let fixture = Fixture::start().await;
    fixture.run("REPLICAOF 127.0.0.1 1").await;
    for role in ROLES {
        let checked = fixture.redis().check(role).await.unwrap();
        let severity = if role == Role::Inspector { Severity::Warning } else { Severity::Error };
        assert_eq!(found(&checked), [(severity, Fault::Replica)], "{role:?}");
        assert!(checked.findings[0].detail.contains("127.0.0.1:1"), "{checked:?}");
    }
    assert_eq!(problems(refusal(fixture.redis()).await)[0].fault, Fault::Replica);
}

#[tokio::test]
async fn a_node_of_a_cluster_where_one_redis_was_expected_is_refused() {
    let cluster = RedisProcess::start(&["--cluster-enabled", "yes"]).await;
    let found = problems(refusal(Redis::lazy(&cluster.url(), RedisOptions::default()).unwrap()).await);
    assert_eq!(found[0].fault, Fault::Topology);
    assert!(found[0].to_string().contains("give the address of the cluster"), "{found:?}");
}

#[tokio::test]
async fn a_redis_that_is_too_old_is_refused_with_its_version() {
    for (version, refused) in [("6.0.20", true), ("5.0.14", true), ("6.2.0", false)] {
        let pretender = Pretender::start(version).await;
        let redis = Redis::lazy(&pretender.url(), RedisOptions::default()).unwrap();
        let checked = redis.check(Role::Worker).await.unwrap();
        assert_eq!(checked.server, Some(format!("redis {version}")));
        if refused {
            assert_eq!(found(&checked), [(Severity::Error, Fault::OldRedis)]);
            let text = refusal(redis).await.to_string();
            assert!(text.contains(&format!("older than 6.2, where tasks cannot be archived: {version}")), "{text}");
        } else {
            assert_eq!(found(&checked), []);
        }
    }
}

#[tokio::test]
async fn rights_that_a_role_lacks_are_named_at_the_start() {
    let fixture = Fixture::start().await;
    fixture.run("ACL SETUSER some on >secret ~asynq:* resetchannels &asynq:* +@all -zadd -hget -lrem").await;
    let url = format!("{}?user=some&pass=secret", fixture.url());
    let redis = Redis::lazy(&url, RedisOptions::default()).unwrap();
    for (role, expected) in [
        (Role::Producer, "lacks hget, zadd"),
        (Role::Worker, "lacks hget, lrem, zadd"),
        (Role::Scheduler, "lacks hget, zadd"),
        (Role::Inspector, "lacks hget, lrem, zadd"),
    ] {
        let checked = redis.check(role).await.unwrap();
        assert_eq!(found(&checked), [(Severity::Error, Fault::Rights)], "{role:?}");
        assert!(checked.findings[0].detail.ends_with(expected), "{role:?}: {checked:?}");
    }
    for right in ["multi", "exec"] {
        fixture.run(&format!("ACL SETUSER some resetkeys ~asynq:* +@all -{right}")).await;
        let lacking = Redis::lazy(&url, RedisOptions::default()).unwrap();
        for (role, needs_it) in [(Role::Worker, false), (Role::Scheduler, true), (Role::Inspector, true)] {
            let checked = lacking.check(role).await.unwrap();
            let told = checked.findings.first().is_some_and(|found| found.detail.ends_with(&format!("lacks {right}")));
            assert_eq!(told, needs_it, "{right}, {role:?}: {checked:?}");
        }
    }
    fixture.run("ACL SETUSER some +@all -zadd").await;
    let text = refusal(redis).await.to_string();
    assert!(
        text.contains("a worker lacks zadd") && text.contains("docs/deployment.md") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_or_reach_the_keys_is_told_so() {
    let fixture = Fixture::start().await;
    for (rule, expected) in [
        ("~asynq:* +@all -evalsha", "lacks evalsha"),
        ("~asynq:* +@all -script", "lacks script|load"),
        ("~other:* +@all", "lacks access to the keys asynq:*"),
    ] {
        fixture.run(&format!("ACL SETUSER some reset on >secret resetchannels &asynq:* {rule}")).await;
        let redis = Redis::lazy(&format!("{}?user=some&pass=secret", fixture.url()), RedisOptions::default()).unwrap();
        let checked = redis.check(Role::Producer).await.unwrap();
        assert!(checked.findings[0].detail.contains(expected), "{rule}: {checked:?}");
    }
}

#[tokio::test]
async fn check_says_what_the_user_may_not_ask_and_counts_it_as_no_problem() {
    let fixture = Fixture::start().await;
    fixture.run("ACL SETUSER some on >secret ~asynq:* resetchannels &asynq:* +@all -info").await;
    let redis = Redis::lazy(&format!("{}?user=some&pass=secret", fixture.url()), RedisOptions::default()).unwrap();
    let checked = redis.check(Role::Worker).await.unwrap();
    assert_eq!(found(&checked), [(Severity::Note, Fault::Unasked)], "{checked:?}");
    assert!(checked.findings[0].detail.contains("INFO was refused"), "{checked:?}");
    Server::new(redis.clone(), Router::new(())).start().await.unwrap().shutdown().await;
    // What is worse comes first.
    fixture.run("ACL SETUSER some -zadd").await;
    let checked = redis.check(Role::Worker).await.unwrap();
    let expected = [(Severity::Error, Fault::Rights), (Severity::Note, Fault::Unasked)];
    assert_eq!(found(&checked), expected, "{checked:?}");
}

#[tokio::test]
async fn a_redis_that_does_not_answer_is_named_within_the_time_limits() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::start(fixture.socket()).await;
    proxy.swallow_everything();
    let brief = std::time::Duration::from_millis(200);
    let options = RedisOptions { connect_timeout: brief, response_timeout: brief, ..RedisOptions::default() };
    let error = refusal(Redis::lazy(&proxy.url(), options).unwrap()).await;
    assert!(matches!(error, Error::Unreachable { .. } | Error::Timeout { .. }), "{error:?}");
    assert!(error.is_transient());
}
