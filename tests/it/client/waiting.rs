//! Callers that wait for a Redis that is away, and those that do not.

use std::time::Duration;

use queue_redis::{Client, EnqueueError, Error};

use crate::support::{Fixture, RedisProcess, eventually, job, plain_connection};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_enqueue_waits_for_a_redis_that_comes_back_and_stores_its_task_once() {
    let mut redis = RedisProcess::start(&[]).await;
    let client = Client::connect(&redis.url()).await.unwrap();
    redis.kill();
    let refused = client.enqueue(job("fast")).await.unwrap_err();
    let away = matches!(refused, EnqueueError::Redis(Error::Unreachable { .. } | Error::Disconnected { .. }));
    assert!(away, "{refused}");
    let patient = client.clone().wait_for_redis(LONG);
    let calls = ["a", "b", "c"].map(|id| {
        let patient = patient.clone();
        tokio::spawn(async move { patient.enqueue(job(id)).await })
    });
    redis.start_again().await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let mut raw = plain_connection(redis.url()).await;
    let stored: usize = redis::cmd("LLEN").arg("asynq:{q}:pending").query_async(&mut raw).await.unwrap();
    assert_eq!(stored, 3);
}

#[tokio::test]
async fn an_enqueue_waits_for_memory_but_not_for_what_does_not_pass() {
    let fixture = Fixture::start().await;
    let client = fixture.client().wait_for_redis(LONG);
    client.enqueue(job("first")).await.unwrap();
    fixture.run("CONFIG SET maxmemory 1").await;
    fixture.run("CONFIG RESETSTAT").await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.enqueue(job("waits")).await }
    });
    eventually("it was tried more often than by a caller without patience", async || {
        let stats: String = fixture.cmd(&["INFO", "commandstats"]).await;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
        calls.is_some_and(|calls| calls.parse::<u32>().unwrap() > 4)
    })
    .await;
    fixture.run("CONFIG SET maxmemory 0").await;
    assert_eq!(waiting.await.unwrap().unwrap().id, "waits");
    fixture.run("SET asynq:{stray}:pending text").await;
    let refused = client.enqueue(job("refused").queue("stray")).await.unwrap_err();
    assert!(matches!(&refused, EnqueueError::Redis(Error::Refused { code, .. }) if code == "WRONGTYPE"), "{refused}");
}

/// Calls of one client travel together, and wait together.
#[tokio::test]
async fn a_patient_client_makes_no_other_wait() {
    let mut redis = RedisProcess::start(&[]).await;
    let client = Client::connect(&redis.url()).await.unwrap();
    client.enqueue(job("first")).await.unwrap();
    let patient = client.clone().wait_for_redis(LONG);
    redis.kill();
    let waiting = ["a", "b", "c"].map(|id| {
        let patient = patient.clone();
        tokio::spawn(async move { patient.enqueue(job(id)).await })
    });
    tokio::task::yield_now().await;
    client.enqueue(job("fast")).await.unwrap_err();
    assert!(waiting.iter().all(|call| !call.is_finished()));
    redis.start_again().await;
    for call in waiting {
        call.await.unwrap().unwrap();
    }
}
