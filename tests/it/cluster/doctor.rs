//! The doctor sees the queues of all masters, listed or not.

use std::collections::BTreeSet;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::keys::{QueueKeys, flow_prefix};
use queue_core::options::compose;
use queue_core::{RawTask, TaskOptions};
use queue_redis::{Batch, BatchState, Client, Fault};

use super::batches::ids_on;
use super::{Counts, connect, queues, serve};
use crate::doctor::{fix, problems};
use crate::support::{Cluster, eventually};

#[tokio::test]
async fn the_doctor_mends_queues_on_all_masters() {
    let cluster = Cluster::start().await;
    let redis = connect(&cluster, Duration::from_secs(5));
    let (client, inspector) = (Client::new(redis.clone()), Inspector::new(redis.clone()));
    let mut expected = Vec::new();
    for queue in queues() {
        client.enqueue(RawTask::new("job").queue(queue.as_str()).task_id(format!("lost-{queue}"))).await.unwrap();
        client.enqueue(RawTask::new("job").queue(queue.as_str()).task_id("grouped").group("g")).await.unwrap();
        let keys = QueueKeys::new(&queue);
        let home = &cluster.nodes[cluster.master_of(&keys.pending()).await];
        home.cmd::<i64>(&["DEL", &keys.pending()]).await;
        home.cmd::<i64>(&["ZADD", &keys.retry(), "5", &format!("ghost-{queue}")]).await;
        home.cmd::<i64>(&["SREM", &keys.groups(), "g"]).await;
        let listed = &cluster.nodes[cluster.master_of("asynq:queues").await];
        listed.cmd::<i64>(&["SREM", "asynq:queues", &queue]).await;
        expected.extend([format!("no-place lost-{queue}"), format!("no-task ghost-{queue}")]);
        expected.extend(["unlisted-group g".to_owned(), format!("unlisted-queue {queue}")]);
    }
    let mut found = problems(&inspector).await;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    fix(&inspector).await;
    assert_eq!(problems(&inspector).await, [""; 0]);
    for queue in queues() {
        let told = inspector.explain(&queue, &format!("lost-{queue}")).await.unwrap();
        assert_eq!(told.state, Some(queue_core::TaskState::Pending));
    }
}

/// The place up to which the keys of a node were read says nothing to another one.
#[tokio::test]
async fn an_examination_misses_nothing_when_a_replica_takes_over_meanwhile() {
    const LOST: usize = 3_000;
    let cluster = Cluster::start().await;
    let redis = connect(&cluster, Duration::from_secs(5));
    let inspector = Inspector::new(redis.clone());
    let [queue, ..] = queues();
    let keys = QueueKeys::new(&queue);
    let task = RawTask::new("job").queue(queue.as_str());
    for n in 0..LOST {
        let message = compose(task.clone().task_id(n.to_string()), TaskOptions::new(), 0).unwrap().message.to_bytes();
        let mut set = redis::cmd("HSET");
        set.arg(keys.task(&n.to_string())).arg("state").arg("pending").arg("msg").arg(&message[..]);
        redis.query::<()>("HSET", &set).await.unwrap();
    }
    assert_eq!(cluster.nodes[0].cmd::<i64>(&["WAIT", "1", "10000"]).await, 1);
    let mut examination = inspector.doctor().examine();
    let (mut found, mut has_moved) = (BTreeSet::new(), false);
    while let Some(findings) = examination.next().await.unwrap() {
        found.extend(findings.into_iter().filter(|found| found.fault == Fault::NoPlace).map(|found| found.subject));
        if !found.is_empty() && !has_moved {
            cluster.nodes[3].cmd::<()>(&["CLUSTER", "FAILOVER"]).await;
            eventually("its replica has taken over", async || cluster.master_of(&keys.pending()).await == 3).await;
            cluster.all_name(&keys.pending(), 3).await;
            has_moved = true;
        }
    }
    assert!(has_moved && found.len() == LOST, "{} of {LOST}", found.len());
}

/// A command for the master that has a key.
async fn at<T: redis::FromRedisValue>(cluster: &Cluster, key: &str, words: &[&str]) -> T {
    cluster.nodes[cluster.master_of(key).await].cmd(words).await
}

/// The ledgers are on each of the masters in turn; members, lists and duties on others.
#[tokio::test]
async fn the_doctor_mends_batches_on_all_masters() {
    queue_redis::log_to_stderr(false);
    let cluster = Cluster::start().await;
    let redis = connect(&cluster, Duration::from_secs(5));
    let (client, inspector) = (Client::new(redis.clone()), Inspector::new(redis.clone()));
    let job = |n: usize| RawTask::new("job").queue(queues()[n % 3].as_str());
    let (mut expected, mut over): (Vec<String>, Vec<(Batch, u64, u64)>) = Default::default();
    let mut damage: Vec<(String, Vec<String>)> = Vec::new();
    for master in 0..3 {
        let mut ids = ids_on(master);
        let mut make = async || {
            let members = (1..4).map(|n| job(master + n));
            client.batch().id(ids.next().unwrap()).on_success(job(master + 2)).add_all(members).await.unwrap()
        };
        let mut harm = |key: &str, words: &[&str]| {
            damage.push((key.to_owned(), words.iter().map(|word| (*word).to_owned()).collect()));
        };
        let ledger = |batch: &Batch, key: &str| format!("{}0:{key}", flow_prefix(batch.id().root()));

        let unlisted = make().await;
        harm("asynq:x:flows", &["ZREM", "asynq:x:flows", unlisted.id().root()]);
        harm("asynq:x:duties", &["ZREM", "asynq:x:duties", &format!("flow {}", unlisted.id())]);
        expected.push(format!("unlisted-batch {}", unlisted.id()));

        let miscounted = make().await;
        let key = ledger(&miscounted, "flow");
        harm(&key, &["HSET", &key, "c2", "1", "c4", "2"]);
        expected.push(format!("batch-count {}", miscounted.id()));

        let missing = make().await;
        let key = ledger(&missing, "flow");
        harm(&key, &["HSET", &key, "adding", "0"]);
        // Its first member is in the queue of another master.
        let keys = QueueKeys::new(&queues()[(master + 1) % 3]);
        let pending: Vec<String> = at(&cluster, &keys.pending(), &["LRANGE", &keys.pending(), "0", "-1"]).await;
        let of_it = format!("flow:{}~", missing.id());
        let first = pending.into_iter().find(|id| id.starts_with(&of_it)).unwrap();
        harm(&keys.pending(), &["DEL", &keys.task(&first)]);
        harm(&keys.pending(), &["LREM", &keys.pending(), "1", &first]);
        expected.push(format!("missing-member {}", missing.id()));

        let mistyped = make().await;
        let todo = format!("{}todo", flow_prefix(mistyped.id().root()));
        harm(&todo, &["SADD", &todo, "x"]);
        expected.push(format!("wrong-type {todo}"));
        over.extend([(unlisted, 3, 0), (miscounted, 3, 0), (missing, 2, 1), (mistyped, 3, 0)]);

        let lost = make().await;
        let key = ledger(&lost, "flow");
        harm(&key, &["DEL", &key]);
        let of_old = "1700000000";
        harm("asynq:x:flows", &["ZADD", "asynq:x:flows", of_old, lost.id().root()]);
        expected.push(format!("lost-batch {}", lost.id()));
        expected.extend(["about", "states", "keys"].map(|key| format!("stray-ledger {}", ledger(&lost, key))));
    }
    assert_eq!(problems(&inspector).await, [""; 0], "before any damage");
    for (key, words) in damage {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _: redis::Value = at(&cluster, &key, &words).await;
    }
    let mut found = problems(&inspector).await;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    fix(&inspector).await;
    assert_eq!(problems(&inspector).await, [""; 0]);

    let counts = Counts::default();
    let server = serve(redis, &counts, &queues()).await;
    for (batch, succeeded, removed) in over {
        let status = batch.wait(Duration::from_secs(60)).await.unwrap();
        let state = if removed == 0 { BatchState::Succeeded } else { BatchState::Dead };
        assert_eq!((status.state, status.succeeded, status.removed), (state, succeeded, removed), "{status:?}");
    }
    server.shutdown().await;
}
