use std::time::Duration;

use queue_core::RawTask;
use queue_redis::broker::{Aggregated, StagedTask};

use crate::support::{Fixture, NOW_NS, QUEUE, READY, RULES, is_wrong_type, job};

/// A set too large to be deleted in one step, and aggregated.
async fn aggregated(fixture: &Fixture, tasks: usize) -> Vec<StagedTask> {
    fixture
        .put((0..tasks).map(|n| {
            let id = format!("{n:03}");
            job(&id).payload(id.clone()).group("g").unique(Duration::from_secs(600))
        }))
        .await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let sum = fixture.compose(RawTask::new("digest").queue(QUEUE).task_id("sum"));
    let done = fixture.broker.aggregate(&set, &tasks, Some(&sum), NOW_NS).await.unwrap();
    assert_eq!(done, Aggregated::Done);
    tasks
}

#[tokio::test]
async fn a_large_set_is_aggregated_in_one_step_and_deleted_afterwards() {
    let fixture = Fixture::start().await;
    aggregated(&fixture, 250).await;
    let between = fixture.keyspace().await;
    assert_eq!(between.get("{q}:x:aggregated asynq:{q}:x:aggregated:s1"), Some("member"));
    assert_eq!(between.get("{q}:x:aggregated:s1 249"), Some("score 4000000000"));
    assert_eq!(between.get("{q}:pending"), Some("[sum]"));
    assert_eq!(between.get("{q}:aggregation_sets asynq:{q}:g:g:s1"), None);
    assert_eq!(fixture.broker.reclaim(QUEUE, "g", "s1", None).await.unwrap(), 0, "nobody can put it back");

    assert_eq!(fixture.broker.delete_aggregated(QUEUE).await.unwrap(), 250);
    assert_eq!(
        fixture.keyspace().await.to_string(),
        "{q}:pending: [sum]
{q}:t:sum msg: type=digest id=sum queue=q retry=25 timeout=1800
{q}:t:sum pending_since: 4000000000000000000
{q}:t:sum state: pending\n"
    );
    assert_eq!(fixture.broker.delete_aggregated(QUEUE).await.unwrap(), 0);
}

#[tokio::test]
async fn a_set_whose_deletion_was_interrupted_is_deleted_later() {
    let fixture = Fixture::start().await;
    aggregated(&fixture, 120).await;
    fixture.run("ZREM asynq:{q}:x:aggregated:s1 000").await;
    fixture.run("DEL asynq:{q}:t:000 asynq:{q}:unique:job:c6f057b86584942e415435ffb1fa93d4").await;
    fixture.run("HDEL asynq:{q}:t:001 msg").await;
    // A name that was written before its set, whose step then failed.
    fixture.run("SADD asynq:{q}:x:aggregated asynq:{q}:x:aggregated:s2").await;
    assert_eq!(fixture.broker.delete_aggregated(QUEUE).await.unwrap(), 118);
    let left = fixture.keyspace().await;
    assert_eq!(left.get("{q}:pending"), Some("[sum]"));
    assert!(!left.to_string().contains("aggregated"), "{left}");
    let tasks: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:t:*"]).await;
    assert_eq!(tasks, ["asynq:{q}:t:sum"]);
}

#[tokio::test]
async fn a_large_set_is_not_aggregated_where_the_list_of_such_sets_has_another_type() {
    let fixture = Fixture::start().await;
    fixture.put_many(0..101).await;
    let mut set = fixture.stage("g", "s1", RULES, READY).await.unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    let sum = fixture.compose(RawTask::new("digest").queue(QUEUE));
    let before = fixture.keyspace().await;
    let aggregate = async || fixture.broker.aggregate(&set, &tasks, Some(&sum), NOW_NS).await;
    let failed = fixture.with_stray("asynq:{q}:x:aggregated", aggregate).await;
    assert!(is_wrong_type(&failed.unwrap_err()));
    fixture.keyspace().await.assert_unchanged_since(&before);
}
