//! A Redis that is not there.

use std::sync::Arc;
use std::time::Duration;

use queue_admin::Inspector;
use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Group, Job, Router, Server, State};
use tokio::sync::Notify;

use super::trial::Trial;
use crate::support::{Events, RedisProcess, eventually};

#[tokio::test]
async fn servers_and_clients_outlast_a_restart_of_redis() {
    let mut redis = RedisProcess::start(&[]).await;
    let mut trial = Trial::start(&redis.url()).await;
    trial.expect();
    redis.kill();
    trial.during("").await;
    redis.start_again().await;
    trial.after().await;
}

/// Its queue is listed again on the new connection. While that could not be done the aggregate was given up, and its aggregator ran once more.
#[tokio::test]
async fn an_aggregate_that_is_made_while_redis_is_away_is_stored_when_it_is_back() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let mut redis = RedisProcess::start(&[]).await;
    let client = Client::connect(&redis.url()).await.unwrap();
    let (began, go_on) = <(Events, Arc<Notify>)>::default();
    let join = async |Group(group): Group, _: Vec<RawTask>, State((began, go_on)): State<(Events, Arc<Notify>)>| {
        began.tell(&*group);
        if group == "second" {
            go_on.notified().await;
        }
        RawTask::new("digest").task_id(group).process_in(HOUR)
    };
    let router = Router::new((began.clone(), go_on.clone())).aggregate(join).fallback(async |_: Job| {});
    let server = Server::new(client.redis().clone(), router).queues([("q", 1)]);
    let server = server.group_grace_period(Duration::from_secs(1)).start().await.unwrap();
    for group in ["first", "second"] {
        client.enqueue(RawTask::new("job").queue("q").group(group)).await.unwrap();
        eventually("the group is aggregated", async || began.all().contains(&group.to_owned())).await;
    }
    redis.kill();
    eventually("that is noticed", async || client.redis().ping().await.is_err()).await;
    go_on.notify_one();
    // It tries to store it meanwhile, and cannot.
    tokio::time::sleep(Duration::from_millis(300)).await;
    redis.start_again().await;
    let inspector = Inspector::new(client.redis().clone());
    eventually("it is stored", async || inspector.task("q", "second").await.is_ok()).await;
    assert_eq!(began.all(), ["first", "second"]);
    server.shutdown().await;
}
