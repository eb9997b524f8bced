//! What Redis refuses inside a script: it must not be taken for a task that is not there, whose id would be
//! dropped, or for a key of another type.

use queue_admin::Inspector;
use queue_core::TaskState;
use queue_redis::{Error, Redis, broker::Seen};

use crate::support::{Fixture, NOW, NOW_NS, QUEUE, RedisProcess, job, of_redis, plain_connection};

/// Does something without the right to read fields, and sees that it is refused and changes nothing.
async fn is_refused<T: std::fmt::Debug>(fixture: &Fixture, act: impl AsyncFnOnce() -> Result<T, Error>) {
    let before = fixture.keyspace().await;
    fixture.run("ACL SETUSER default -hget -hmget").await;
    let done = act().await;
    fixture.run("ACL SETUSER default +hget +hmget").await;
    assert!(matches!(&done, Err(Error::Refused { code, .. }) if code == "NOPERM"), "{done:?}");
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn dequeue_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.put(["a", "b", "c"].map(job)).await;
    for count in [1, 2] {
        is_refused(&fixture, async || fixture.broker.dequeue(&QUEUE.into(), count, &"run".into(), NOW + 30).await)
            .await;
    }
}

#[tokio::test]
async fn forward_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.put([job("a").process_in(std::time::Duration::from_secs(1))]).await;
    is_refused(&fixture, async || fixture.broker.forward(QUEUE, TaskState::Scheduled, NOW_NS + 1_000_000_000, 0).await)
        .await;
}

#[tokio::test]
async fn list_expired_drops_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    is_refused(&fixture, async || fixture.broker.list_expired(QUEUE, NOW + 30, 0).await).await;
}

#[tokio::test]
async fn requeue_run_says_that_it_may_not_look() {
    let fixture = Fixture::start().await;
    fixture.active(job("a")).await;
    is_refused(&fixture, async || fixture.broker.requeue_run(QUEUE, "run-1", NOW + 30, NOW_NS).await).await;
}

async fn memory(fixture: &Fixture) -> Option<u64> {
    Inspector::new(fixture.redis()).queue_memory(QUEUE).await.unwrap()
}

#[tokio::test]
async fn the_memory_of_a_queue_grows_with_its_tasks_in_every_state_and_is_unknown_where_redis_does_not_tell() {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    assert_eq!(memory(&fixture).await, Some(0));
    let mut last = 0;
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Pending).chain([TaskState::Pending]) {
        for n in 0..30 {
            fixture.put_in(state, job(&format!("{state}-{n}")).payload("x".repeat(1_000))).await;
        }
        let bytes = memory(&fixture).await.unwrap();
        assert!(bytes > last + 30_000 && bytes < last + 120_000, "{state}: from {last} to {bytes}");
        last = bytes;
    }
    fixture.run("ZADD asynq:{q}:retry 1 ghost").await;
    assert!(memory(&fixture).await.unwrap() >= last);
    fixture.run("ACL SETUSER default -memory").await;
    assert_eq!(memory(&fixture).await, None);
    fixture.run("ACL SETUSER default +memory").await;
}

#[tokio::test]
async fn inspector_changes_nothing_that_it_may_not_read() {
    let fixture = Fixture::start().await;
    fixture.put_in(TaskState::Scheduled, job("a")).await;
    fixture.run("ZADD asynq:{q}:scheduled 1 ghost").await;
    let seen = Seen::In(TaskState::Scheduled);
    for id in ["a", "ghost"] {
        is_refused(&fixture, async || fixture.broker.run_tasks(QUEUE, seen, &[id], NOW_NS).await).await;
        is_refused(&fixture, async || fixture.broker.archive_tasks(QUEUE, seen, &[id], NOW).await).await;
        is_refused(&fixture, async || fixture.broker.delete_tasks(QUEUE, seen, &[id]).await).await;
    }
}

#[tokio::test]
async fn a_redis_that_is_no_cluster_has_slots_and_no_nodes_and_tells_about_itself() {
    let fixture = Fixture::start().await;
    let inspector = Inspector::new(fixture.redis());
    let placement = inspector.cluster_placement("default").await.unwrap();
    assert_eq!((placement.slot, placement.nodes.len()), (5718, 0));
    let info = inspector.redis_info().await.unwrap();
    assert!(info["redis_version"].starts_with(char::is_numeric), "{info:?}");
    assert!(info["used_memory"].parse::<u64>().unwrap() > 0);
    fixture.run("ACL SETUSER default -info -cluster").await;
    assert!(matches!(inspector.redis_info().await.map_err(of_redis), Err(Error::Refused { .. })));
    assert!(matches!(inspector.cluster_placement("default").await.map_err(of_redis), Err(Error::Refused { .. })));
    fixture.run("ACL SETUSER default +info +cluster").await;
}

#[tokio::test]
async fn a_node_of_a_cluster_says_which_of_them_has_a_queue() {
    let cluster = RedisProcess::start(&["--cluster-enabled", "yes"]).await;
    let redis = Redis::connect(&cluster.url()).await.unwrap();
    let inspector = Inspector::new(redis);
    assert!(inspector.cluster_placement("default").await.unwrap().nodes.is_empty(), "no slot is served yet");
    let mut connection = plain_connection(cluster.url()).await;
    let mut serve = redis::cmd("CLUSTER");
    serve.arg("ADDSLOTS").arg((0..=5718).collect::<Vec<u16>>());
    serve.query_async::<()>(&mut connection).await.unwrap();
    let id: String = redis::cmd("CLUSTER").arg("MYID").query_async(&mut connection).await.unwrap();
    let placement = inspector.cluster_placement("default").await.unwrap();
    assert_eq!((placement.slot, &placement.nodes[0].id), (5718, &id));
    assert!(inspector.cluster_placement("").await.unwrap().nodes.is_empty(), "its slot is 15341");
}
