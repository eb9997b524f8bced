//! A call that nobody polls holds up no other of the process: one of a stream, for instance, whose user awaits something else
//! before the next item.

use futures_util::FutureExt as _;
use queue_redis::{Client, Redis, RedisOptions};
use queue_worker::{Job, Router, Server};

use crate::support::{Cluster, Events, Fixture, PATIENCE, QUEUE, Watched, eventually, job, with};

/// A call that begins to connect.
async fn unpolled_calls_hold_up_no_other(url: &str, options: RedisOptions) {
    let client = Client::new(Redis::lazy(url, options).unwrap());
    let mut left = std::pin::pin!(client.enqueue(job("left")));
    assert!(left.as_mut().now_or_never().is_none());
    let next = tokio::time::timeout(PATIENCE, client.enqueue(job("next"))).await;
    next.expect("it waits for the call that nobody polls").unwrap();
    left.await.unwrap();
}

#[tokio::test]
async fn on_a_server() {
    let fixture = Fixture::start().await;
    unpolled_calls_hold_up_no_other(fixture.url(), RedisOptions::default()).await;
}

#[tokio::test]
async fn on_a_master_that_sentinel_names() {
    let watched = Watched::start().await;
    unpolled_calls_hold_up_no_other(&watched.url(), RedisOptions::default()).await;
}

#[tokio::test]
async fn on_a_cluster() {
    let cluster = Cluster::start().await;
    unpolled_calls_hold_up_no_other(&cluster.url(), cluster.options.clone()).await;
}

/// Others would take the tasks.
#[tokio::test]
async fn leases_are_renewed_while_others_have_all_connections_of_the_pool() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let options = RedisOptions { pool_size: 1, ..RedisOptions::default() };
    let redis = Redis::lazy(fixture.url(), options).unwrap();
    let hang = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        std::future::pending::<()>().await;
    });
    let server = Server::new(redis.clone(), Router::new(()).route("job", hang)).queues([(QUEUE, 1)]);
    let server = server.start().await.unwrap();
    Client::new(fixture.redis()).enqueue(job("a")).await.unwrap();
    events.wait(1).await;
    let _lent = redis.pooled().await.unwrap();
    let lease = async || fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    let first = lease().await;
    eventually("it is renewed", async || lease().await > first).await;
    assert_eq!(events.all(), ["a"], "and not taken again after its lease had ended");
    server.abort().await;
}
