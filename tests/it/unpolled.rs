//! A call that begins to connect, and that nobody polls then, holds up no other of the process: one of a stream, for
//! instance, whose user awaits something else before the next item.

use futures_util::FutureExt as _;
use queue_redis::{Client, Redis, RedisOptions};

use crate::support::{Cluster, Fixture, PATIENCE, Watched, job};

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
