//! A Redis that comes back without its data.

use std::time::Duration;

use queue_core::RawTask;
use queue_redis::Client;
use queue_worker::{Job, Router, Server};

use super::trial::Trial;
use crate::support::{Events, Fixture, RedisProcess, eventually, job, with};

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

/// All of it went twice: Redis reads a call before it says that it does not have the script.
#[tokio::test]
async fn a_large_call_is_sent_once_to_a_redis_that_does_not_have_its_script() {
    const SIZE: usize = 1 << 20;
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.another_redis());
    let told = async |section: &str, name: &str| {
        let stats: String = fixture.cmd(&["INFO", section]).await;
        stats.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    // Redis 6.2 does not count the commands of SCRIPT apart.
    let loads = async || told("commandstats", "cmdstat_script").await.unwrap();
    let bytes = async || told("stats", "total_net_input_bytes:").await.unwrap().parse::<usize>().unwrap();
    let received = async |id: &str| {
        let before = bytes().await;
        client.enqueue(job(id).payload(vec![b'x'; SIZE]).process_in(Duration::from_secs(600))).await.unwrap();
        bytes().await - before
    };
    let once = SIZE..SIZE + SIZE / 2;
    let first = received("a").await;
    assert!(once.contains(&first), "{first}");
    let before = loads().await;
    let second = received("b").await;
    assert!(once.contains(&second), "{second}");
    assert_eq!(loads().await, before, "it was there");
    // What forgets on the way is told it again.
    fixture.run("SCRIPT FLUSH").await;
    let third = received("c").await;
    assert!((2 * SIZE..3 * SIZE).contains(&third), "{third}");
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
