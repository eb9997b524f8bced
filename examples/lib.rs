//! What the examples and the code of the guide share: a Redis to run on, servers, and waiting for tasks to end.

use std::time::Duration;

use queue::admin::Inspector;
use queue::embedded::RedisServer;
use queue::testing::TestQueue;
use queue::{Client, Handle, Job, Output, Redis, Router, Server, TaskInfo, TaskState};

/// The error type of all examples.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A client of the Redis in `REDIS_URL`, or of a private one that lives as long as the second value.
///
/// # Errors
/// When neither can be had.
pub async fn client() -> Result<(Client, Option<RedisServer>), Error> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok((Client::connect(&url).await?, None));
    }
    let server = RedisServer::start().await?;
    Ok((Client::new(server.redis()), Some(server)))
}

/// What should happen within a minute.
async fn within(awaited: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::time::timeout(Duration::from_secs(60), awaited).await?
}

/// Runs a program, which need not end by itself, on a private Redis, until so many tasks have been worked there.
///
/// # Errors
/// Those of the program, and when Redis cannot be started or asked.
pub async fn until_worked(
    tasks: u64,
    program: impl AsyncFnOnce(Client, Redis) -> Result<(), Error>,
) -> Result<(), Error> {
    let server = RedisServer::start().await?;
    let inspector = Inspector::new(server.redis());
    let worked = async {
        loop {
            let mut worked = 0;
            for queue in inspector.queues().await? {
                worked += inspector.queue(&queue).await?.processed_total;
            }
            if worked >= tasks {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        ended = program(Client::new(server.redis()), server.redis()) => ended,
        worked = within(worked) => worked,
    }
}

/// A client, and servers of these names with the label `eu` on the queue `cache`, which answer to every task with a number.
///
/// # Errors
/// When a server does not start.
pub async fn serve_by<const N: usize>(names: [&str; N]) -> Result<(Client, Vec<Handle>), Error> {
    let queue = TestQueue::new();
    let mut servers = Vec::new();
    for name in names {
        let router = Router::new(()).route("cache:", async |_: Job| Output(1_u64));
        servers.push(queue.server(router).queues([("cache", 1)]).name(name).label("eu").start().await?);
    }
    let inspector = queue.inspector();
    within(async {
        while inspector.servers().await?.len() < N {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
    .await?;
    Ok((queue.client().clone(), servers))
}

/// A client of a private Redis, and a server that works there by this router, in the queue `default`.
///
/// # Errors
/// When Redis or the server does not start.
pub async fn serve(router: Router) -> Result<(Client, (Handle, RedisServer)), Error> {
    let redis = RedisServer::start().await?;
    let server = Server::new(redis.redis(), router).start().await?;
    Ok((Client::new(redis.redis()), (server, redis)))
}

/// Waits until a task is in this state.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn wait_for(client: &Client, task: &TaskInfo, state: TaskState) -> Result<TaskInfo, Error> {
    let inspector = Inspector::new(client.redis().clone());
    loop {
        let now = inspector.task(&task.queue, &task.id).await?;
        if now.state == state {
            return Ok(now);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// README and guide, so that their examples are compiled with the tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/broadcast.md")]
    struct Broadcasts;
    #[doc = include_str!("../docs/clients.md")]
    struct Clients;
    #[doc = include_str!("../docs/events.md")]
    struct Events;
    #[doc = include_str!("../docs/flows.md")]
    struct Flows;
    #[doc = include_str!("../docs/observability.md")]
    struct Observability;
    #[doc = include_str!("../docs/outbox.md")]
    struct Outbox;
    #[doc = include_str!("../docs/priorities.md")]
    struct Priorities;
    #[doc = include_str!("../docs/publish.md")]
    struct Publish;
    #[doc = include_str!("../docs/rates.md")]
    struct Rates;
    #[doc = include_str!("../docs/results.md")]
    struct Results;
    #[doc = include_str!("../docs/retries.md")]
    struct Retries;
    #[doc = include_str!("../docs/schedule.md")]
    struct Schedule;
    #[doc = include_str!("../docs/targets.md")]
    struct Targets;
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/tune.md")]
    struct Tune;
    #[doc = include_str!("../docs/workers.md")]
    struct Workers;
}
