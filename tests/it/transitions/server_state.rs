use std::collections::BTreeMap;

use queue_admin::Inspector;
use queue_core::wire::{ServerInfo, Timestamp, WorkerInfo};

use crate::support::Fixture;

/// The times of servers are judged by the clock of those who look.
fn now() -> i64 {
    use queue_core::Clock as _;
    queue_core::SystemClock.now_secs()
}

fn server() -> ServerInfo {
    ServerInfo {
        host: "host".into(),
        pid: 7,
        server_id: "uuid".into(),
        concurrency: 10,
        queues: BTreeMap::from([("q".into(), 1)]),
        strict_priority: false,
        status: "active".into(),
        start_time: Some(Timestamp { seconds: 1, nanos: 2 }),
        active_worker_count: 1,
    }
}

fn worker(task: &str) -> WorkerInfo {
    let time = Some(Timestamp { seconds: 3, nanos: 4 });
    WorkerInfo {
        host: "host".into(),
        pid: 7,
        server_id: "uuid".into(),
        task_id: task.into(),
        task_type: "job".into(),
        task_payload: "p".into(),
        queue: "q".into(),
        start_time: time,
        deadline: time,
    }
}

#[tokio::test]
async fn a_server_is_listed_with_what_it_works_on_until_it_leaves() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    let write = [worker("a"), worker("b")];
    fixture.broker.write_server_state(&mut connection, &server(), &write, now()).await.unwrap();
    fixture.broker.write_server_state(&mut connection, &server(), &write[1..], now()).await.unwrap();

    let written = fixture.keyspace().await;
    for key in ["servers:{host:7:uuid} expires", "workers:{host:7:uuid} expires"] {
        assert_eq!(written.get(key), Some("in about 10 s"));
    }
    assert_eq!(written.get("workers:{host:7:uuid} a"), None, "the task it no longer has");
    let servers = Inspector::new(fixture.redis()).servers().await.unwrap();
    let [server_seen] = &servers[..] else { panic!("{servers:?}") };
    assert_eq!((server_seen.id.as_str(), server_seen.pid, server_seen.status.as_str()), ("uuid", 7, "active"));
    let tasks: Vec<&str> = server_seen.workers.iter().map(|worker| worker.task_id.as_str()).collect();
    assert_eq!(tasks, ["b"]);
    assert_eq!(server_seen.workers[0].payload, "p");

    fixture.broker.clear_server_state(&mut connection, &server()).await.unwrap();
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn an_idle_server_has_no_workers() {
    let fixture = Fixture::start().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &server(), &[worker("a")], now()).await.unwrap();
    fixture.broker.write_server_state(&mut connection, &server(), &[], now()).await.unwrap();
    let servers = Inspector::new(fixture.redis()).servers().await.unwrap();
    assert_eq!(servers[0].workers, []);
}

#[tokio::test]
async fn an_idle_server_renews_its_entry_and_has_one_again_after_a_flush() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.broker.write_server_state(&mut connection, &server(), &[], now()).await.unwrap();
    let quiet = ServerInfo { status: "stopped".into(), ..server() };
    fixture.run("PEXPIRE asynq:servers:{host:7:uuid} 5000").await;
    fixture.run(&format!("ZADD asynq:servers {} asynq:servers:{{host:7:uuid}}", now() + 2)).await;
    fixture.broker.renew_server_state(&mut connection, &quiet, now()).await.unwrap();
    assert_eq!(fixture.keyspace().await.get("servers:{host:7:uuid} expires"), Some("in about 10 s"));
    let listed: i64 = fixture.cmd(&["ZSCORE", "asynq:servers", "asynq:servers:{host:7:uuid}"]).await;
    assert!(listed >= now() + 8, "{listed}");
    let servers = Inspector::new(fixture.redis()).servers().await.unwrap();
    assert_eq!((servers[0].status.as_str(), &servers[0].workers[..]), ("stopped", &[][..]));

    fixture.run("FLUSHALL").await;
    fixture.broker.renew_server_state(&mut connection, &server(), now()).await.unwrap();
    assert_eq!(Inspector::new(fixture.redis()).servers().await.unwrap().len(), 1);
    fixture.broker.clear_server_state(&mut connection, &server()).await.unwrap();
    fixture.keyspace().await.assert_unchanged_since(&before);
}

/// asynq forgets them only when somebody lists the servers (W46).
#[tokio::test]
async fn a_heartbeat_forgets_servers_that_are_gone() {
    let fixture = Fixture::start().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    fixture.run(&format!("ZADD asynq:servers {} gone", now() - 1)).await;
    fixture.run(&format!("ZADD asynq:workers {} gone", now() - 1)).await;
    fixture.run(&format!("ZADD asynq:servers {} alive", now() + 5)).await;
    fixture.broker.write_server_state(&mut connection, &server(), &[], now()).await.unwrap();
    let after = fixture.keyspace().await;
    assert_eq!(after.paths_with("gone"), Vec::<String>::new());
    assert_eq!(after.paths_with("alive"), ["servers alive"]);
}
