//! Enqueueing again what may have been enqueued.

use std::time::Duration;

use queue_core::{PublishOutcome, RawTask, TaskState};
use queue_redis::embedded::RedisServer;
use queue_redis::{Client, Error, Redis, RedisOptions};

use crate::support::{Fixture, Proxy, QUEUE, RedisProcess, eventually, job, plain_connection, report};

const HOUR: Duration = Duration::from_secs(3_600);

/// A client whose answers are lost from now on, until it connects anew; it waits for two of them.
async fn unanswered(fixture: &Fixture) -> (Proxy, Client) {
    let proxy = Proxy::start(fixture.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_secs(2), ..RedisOptions::default() };
    let client = Client::new(Redis::lazy(&proxy.url(), options).unwrap());
    client.enqueue(RawTask::new("warm").queue(QUEUE)).await.unwrap();
    fixture.run("DEL asynq:{q}:pending").await;
    proxy.lose_answers();
    (proxy, client)
}

/// The same; the tasks that are there stay.
async fn unanswered_beside(fixture: &Fixture) -> (Proxy, Client) {
    fixture.run("RENAME asynq:{q}:pending saved").await;
    let unanswered = unanswered(fixture).await;
    fixture.run("RENAME saved asynq:{q}:pending").await;
    unanswered
}

/// Enqueues a task without an id; before the call is sent again, the task has run and failed.
async fn enqueue_what_fails_meanwhile(task: RawTask) {
    let fixture = Fixture::start().await;
    let (_proxy, client) = unanswered(&fixture).await;
    let enqueued = tokio::spawn(async move { client.enqueue(task).await });
    eventually("it is stored", async || fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await == 1).await;
    let delivery = fixture.take().await;
    let mut failed = delivery.message.clone();
    failed.retried += 1;
    failed.error_msg = "boom".to_owned();
    fixture.broker.retry(&report(&delivery), &failed.to_bytes(), 4_100_000_000, true, 4_000_000_000).await.unwrap();
    let info = enqueued.await.unwrap().unwrap();
    assert_eq!(info.id, delivery.message.id, "the task is the caller's");
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 0, "and is not stored twice");
}

#[tokio::test]
async fn a_task_that_failed_before_its_call_was_sent_again_is_the_callers() {
    enqueue_what_fails_meanwhile(RawTask::new("job").queue(QUEUE)).await;
}

/// Its own lock was in the way.
#[tokio::test]
async fn a_unique_task_that_failed_before_its_call_was_sent_again_is_no_duplicate() {
    enqueue_what_fails_meanwhile(RawTask::new("job").queue(QUEUE).unique(HOUR)).await;
}

#[tokio::test]
async fn a_unique_task_whose_call_was_sent_again_is_a_duplicate_of_anothers() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").unique(HOUR)]).await;
    let (_proxy, client) = unanswered(&fixture).await;
    let refused = client.enqueue(RawTask::new("job").queue(QUEUE).unique(HOUR)).await.unwrap_err();
    assert!(matches!(refused, queue_redis::EnqueueError::DuplicateTask { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_publish_that_is_sent_again_is_told_what_it_has_done_although_a_worker_has_the_task_by_now() {
    let fixture = Fixture::start().await;
    // Redis has the script: the first answer that is lost is the one to the call.
    Client::new(fixture.redis()).publish(job("first").queue("warm")).await.unwrap();
    fixture.put_in(TaskState::Pending, job("a").payload("old")).await;
    let (_proxy, client) = unanswered_beside(&fixture).await;
    let published = tokio::spawn(async move { client.publish(job("a").payload("new")).replace().await });
    let payload = async || fixture.inspector().task(QUEUE, "a").await.unwrap().payload;
    eventually("it is replaced", async || payload().await == "new").await;
    fixture.take().await;
    let published = published.await.unwrap().unwrap();
    assert_eq!(published.outcome, PublishOutcome::Replaced);
    assert_eq!(published.holder.unwrap().state, TaskState::Active);
}

/// Somebody who was just made a master, or not yet, is asked again a little later.
#[tokio::test]
async fn an_enqueue_that_a_replica_refuses_is_tried_three_times_more() {
    let redis = RedisServer::start().await.unwrap();
    let mut raw = plain_connection(redis.url()).await;
    let client = Client::new(redis.redis());
    client.enqueue(job("a")).await.unwrap();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec_async(&mut raw).await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut raw).await.unwrap();
    let refused = client.enqueue(job("b")).await.unwrap_err();
    let queue_redis::EnqueueError::Redis(Error::Refused { code, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(code, "READONLY");
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw).await.unwrap();
    // The others are to list the queue first, on a connection of their own.
    let listing = stats.lines().find(|line| line.starts_with("cmdstat_sadd:")).unwrap_or_default();
    assert!(stats.contains("cmdstat_evalsha:calls=1,") && listing.contains("rejected_calls=3,"), "{stats}");
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut raw).await.unwrap();
    client.enqueue(job("b")).await.unwrap();
}

/// They queued up, each to find out for itself, so that the last one waited for all time limits in turn.
#[tokio::test]
async fn callers_that_wait_for_a_connection_share_the_failure_of_the_one_who_tries() {
    let redis = RedisServer::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await;
    proxy.swallow_everything();
    let options = RedisOptions { connect_timeout: Duration::from_secs(1), ..RedisOptions::default() };
    let handle = Redis::lazy(&proxy.url(), options).unwrap();
    let calls = (0..50).map(|_| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.ping().await })
    });
    for call in calls.collect::<Vec<_>>() {
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    }
    assert!(proxy.accepted() <= 2, "{} connections were tried", proxy.accepted());
}

/// The last error said that Redis could not be reached, as if the task were not there. `queue-chaos` counts tasks
/// that run although their enqueueing was refused.
#[tokio::test]
async fn a_redis_that_dies_after_it_has_stored_a_task_leaves_the_caller_unsure() {
    let mut redis = RedisProcess::start(&[]).await;
    let proxy = Proxy::start(&redis.socket()).await;
    let options = RedisOptions { response_timeout: Duration::from_secs(20), ..RedisOptions::default() };
    let client = Client::new(Redis::lazy(&proxy.url(), options).unwrap());
    client.enqueue(RawTask::new("warm").queue(QUEUE)).await.unwrap();
    proxy.lose_answers();
    let enqueued = tokio::spawn(async move { client.enqueue(job("a")).await });
    let raw = plain_connection(redis.url()).await;
    eventually("it is stored", async || {
        let mut look = redis::cmd("EXISTS");
        look.arg("asynq:{q}:t:a").query_async::<usize>(&mut raw.clone()).await.unwrap() == 1
    })
    .await;
    redis.kill();
    let error = enqueued.await.unwrap().unwrap_err();
    let queue_redis::EnqueueError::Redis(error) = error else { panic!("{error:?}") };
    assert!(error.is_ambiguous(), "{error:?}");
}
