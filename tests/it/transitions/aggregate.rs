use std::time::Duration;

use queue_core::RawTask;
use queue_redis::broker::Aggregated::{self, Done, Duplicate, IdTaken, Lost};
use queue_redis::{
    Error,
    broker::{StagedSet, StagedTask},
};

use crate::support::{DEADLINE, Fixture, NOW_NS, QUEUE, READY, RULES, is_wrong_type, job};

const LOCK: Duration = Duration::from_secs(600);

fn member(id: &str) -> RawTask {
    job(id).group("g")
}

fn digest() -> RawTask {
    RawTask::new("digest").queue(QUEUE).task_id("sum").payload("a,b")
}

async fn aggregate(
    fixture: &Fixture,
    (set, tasks): &(StagedSet, Vec<StagedTask>),
    task: Option<RawTask>,
) -> Result<Aggregated, Error> {
    let task = task.map(|task| fixture.compose(task));
    fixture.broker.aggregate(set, tasks, task.as_ref(), NOW_NS).await
}

#[tokio::test]
async fn aggregate_stores_the_new_task_and_deletes_the_old_ones() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a"), member("b").unique(LOCK)]).await;
    let before = fixture.keyspace().await;
    assert_eq!(aggregate(&fixture, &staged, Some(digest())).await.unwrap(), Done);
    fixture.keyspace().await.assert_changes_since(
        &before,
        "- {q}:aggregation_sets asynq:{q}:g:g:s1: score 4000000180
         - {q}:g:g:s1 a: score 4000000000
         - {q}:g:g:s1 b: score 4000000000
         + {q}:pending: [sum]
         - {q}:t:a group: g
         - {q}:t:a msg: type=job id=a queue=q retry=25 timeout=1800 group_key=g
         - {q}:t:a state: aggregating
         - {q}:t:b group: g
         - {q}:t:b msg: type=job id=b queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:job: group_key=g
         - {q}:t:b state: aggregating
         - {q}:t:b unique_key: asynq:{q}:unique:job:
         + {q}:t:sum msg: type=digest payload=a,b id=sum queue=q retry=25 timeout=1800
         + {q}:t:sum pending_since: 4000000000000000000
         + {q}:t:sum state: pending
         - {q}:unique:job:: b
         - {q}:unique:job: expires: in about 600 s",
    );
}

/// What is left when the only task of a group has become this one.
async fn left_by(task: RawTask) -> String {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a")]).await;
    assert_eq!(aggregate(&fixture, &staged, Some(task)).await.unwrap(), Done);
    fixture.keyspace().await.to_string()
}

#[tokio::test]
async fn the_new_task_may_wait_for_its_time_and_keeps_its_group() {
    assert_eq!(
        left_by(digest().process_in(Duration::from_secs(60)).group("h")).await,
        "{q}:scheduled sum: score 4000000060
{q}:t:sum msg: type=digest payload=a,b id=sum queue=q retry=25 timeout=1800 group_key=h
{q}:t:sum state: scheduled
{q}:t:sum x_group: h
"
    );
}

#[tokio::test]
async fn the_new_task_may_wait_in_a_group_with_a_lock() {
    assert_eq!(
        left_by(RawTask::new("digest").queue(QUEUE).task_id("sum").group("g").unique(LOCK)).await,
        "{q}:g:g sum: score 4000000000
{q}:groups g: member
{q}:t:sum group: g
{q}:t:sum msg: type=digest id=sum queue=q retry=25 timeout=1800 unique_key=asynq:{q}:unique:digest: group_key=g
{q}:t:sum state: aggregating
{q}:t:sum unique_key: asynq:{q}:unique:digest:
{q}:unique:digest:: sum
{q}:unique:digest: expires: in about 600 s
"
    );
}

/// Go does not write the lock's name into the hash of a grouped task, only into the message.
#[tokio::test]
async fn locks_that_go_has_written_are_released_and_those_of_others_are_not() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a").unique(LOCK), member("b").payload("b").unique(LOCK)]).await;
    fixture.run("HDEL asynq:{q}:t:a unique_key").await;
    let other = "asynq:{q}:unique:job:92eb5ffee6ae2fec3ad71c777531578f";
    fixture.run(&format!("SET {other} somebody")).await;
    assert_eq!(aggregate(&fixture, &staged, None).await.unwrap(), Done);
    assert_eq!(
        fixture.keyspace().await.to_string(),
        "{q}:unique:job:92eb5ffee6ae2fec3ad71c777531578f: somebody\n",
        "only the other lock is left"
    );
}

/// Queues of one family have the locks of their base.
#[tokio::test]
async fn a_lock_is_released_with_a_task_in_a_queue_of_a_priority() {
    let fixture = Fixture::start().await;
    fixture.put([member("a").unique(LOCK).priority(9)]).await;
    let queue = "q}p9".into();
    let mut set = fixture.broker.stage(&queue, "g", "s1", RULES, READY, DEADLINE).await.unwrap().unwrap();
    let tasks = fixture.broker.read_set(&mut set).await.unwrap().unwrap();
    assert_eq!(aggregate(&fixture, &(set, tasks), None).await.unwrap(), Done);
    assert_eq!(fixture.keyspace().await.to_string(), "");
}

#[tokio::test]
async fn aggregate_refuses_what_is_taken_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a").payload("x").unique(LOCK), member("b")]).await;
    fixture.put([digest(), digest().task_id("holder").payload("held").unique(LOCK)]).await;
    let before = fixture.keyspace().await;
    for (task, verdict) in [
        (digest(), IdTaken),
        (digest().payload("another"), IdTaken),
        (member("a"), IdTaken),
        (digest().task_id("new").payload("held").unique(LOCK), Duplicate),
    ] {
        assert_eq!(aggregate(&fixture, &staged, Some(task)).await.unwrap(), verdict);
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
    // A lock that this very step releases is free.
    let heir = job("heir").payload("x").unique(LOCK);
    assert_eq!(aggregate(&fixture, &staged, Some(heir)).await.unwrap(), Done);
    let after = fixture.keyspace().await;
    assert_eq!(after.get("{q}:unique:job:9dd4e461268c8034f5c8564e155c67a6"), Some("heir"));
}

#[tokio::test]
async fn aggregate_made_again_is_done_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a"), member("b")]).await;
    assert_eq!(aggregate(&fixture, &staged, Some(digest())).await.unwrap(), Done);
    let before = fixture.keyspace().await;
    assert_eq!(aggregate(&fixture, &staged, Some(digest())).await.unwrap(), Done);
    assert_eq!(aggregate(&fixture, &staged, Some(digest().task_id("other"))).await.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_set_that_was_reclaimed_cannot_be_aggregated() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a"), member("b")]).await;
    assert_eq!(fixture.broker.reclaim(QUEUE, "g", "s1", Some(DEADLINE)).await.unwrap(), 2);
    let before = fixture.keyspace().await;
    for task in [Some(digest()), None] {
        assert_eq!(aggregate(&fixture, &staged, task).await.unwrap(), Lost);
    }
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn a_set_of_which_a_part_was_reclaimed_cannot_be_aggregated() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged(["a", "b"].map(member)).await;
    fixture.run("ZREM asynq:{q}:g:g:s1 a").await;
    let before = fixture.keyspace().await;
    assert_eq!(aggregate(&fixture, &staged, Some(digest())).await.unwrap(), Lost);
    fixture.keyspace().await.assert_unchanged_since(&before);
}

#[tokio::test]
async fn aggregate_fails_where_a_key_has_another_type_and_changes_nothing() {
    let fixture = Fixture::start().await;
    let staged = fixture.staged([member("a")]).await;
    let before = fixture.keyspace().await;
    for key in ["asynq:{q}:aggregation_sets", "asynq:{q}:g:g:s1", "asynq:{q}:pending"] {
        let failed = fixture.with_stray(key, async || aggregate(&fixture, &staged, Some(digest())).await).await;
        assert!(is_wrong_type(&failed.unwrap_err()), "{key}");
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}
