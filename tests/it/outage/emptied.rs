//! A Redis that comes back without its data.

use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Job, Router, Server};

use super::trial::Trial;
use crate::support::{Events, Fixture, RedisProcess, eventually, with};

#[tokio::test]
async fn a_redis_that_comes_back_empty_is_served_as_a_new_one() {
    let mut redis = RedisProcess::start(&["--appendonly", "no"]).await;
    let mut trial = Trial::start(&redis.url()).await;
    trial.expect();
    redis.kill();
    trial.during("").await;
    redis.start_again().await;
    trial.works_again_empty().await;
    let said = trial.has_said(3).await;
    let over = said.iter().filter(|line| line.contains("does what it is asked again")).count();
    let gone = said.iter().filter(|line| line.contains("task was deleted while it was being worked on")).count();
    assert!((said.len(), over, gone) == (3, 1, 1), "{said:#?}");
    trial.end(&["held", "patient", "after"]).await;
}

#[tokio::test]
async fn a_server_whose_redis_is_flushed_is_listed_again_and_goes_on() {
    let fixture = Fixture::start().await;
    let trial = Trial::start(fixture.url()).await;
    fixture.run("FLUSHALL").await;
    fixture.run("SCRIPT FLUSH").await;
    eventually("it says again what it is", async || {
        !fixture.cmd::<Vec<String>>(&["KEYS", "asynq:x:servers:*"]).await.is_empty()
    })
    .await;
    eventually("the server is on the list", async || fixture.cmd::<usize>(&["ZCARD", "asynq:servers"]).await == 1)
        .await;
    trial.serves_after_loss().await;
}

/// The client had listed it less than a minute before.
#[tokio::test]
async fn a_queue_that_redis_has_lost_is_found_when_its_client_goes_on() {
    let mut redis = RedisProcess::start(&["--appendonly", "no"]).await;
    let client = Client::connect(&redis.url()).await.unwrap();
    let task = |id: &str| RawTask::new("job").queue("tenant:a").task_id(id);
    client.enqueue(task("lost")).await.unwrap();
    redis.kill();
    redis.start_again().await;
    client.enqueue(task("after")).await.unwrap();
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let router = Router::new(()).route("job", tell);
    let server = Server::new(client.redis().clone(), router).queue_pattern("tenant:*", 1).start().await.unwrap();
    assert_eq!(events.wait(1).await, ["after"]);
    server.shutdown().await;
}
