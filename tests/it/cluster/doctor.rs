//! The doctor sees the queues of all masters, listed or not.

use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_core::keys::QueueKeys;
use queue_redis::Client;

use super::{connect, queues};
use crate::doctor::{fix, problems};
use crate::support::Cluster;

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
