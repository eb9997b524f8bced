//! What the examples share: a Redis to run on, and waiting for a task to end.

use queue::admin::Inspector;
use queue::embedded::RedisServer;
use queue::{Client, TaskInfo, TaskState};

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
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// README and guide, so that their examples are compiled with the tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/clients.md")]
    struct Clients;
    #[doc = include_str!("../docs/publish.md")]
    struct Publish;
    #[doc = include_str!("../docs/results.md")]
    struct Results;
    #[doc = include_str!("../docs/retries.md")]
    struct Retries;
    #[doc = include_str!("../docs/schedule.md")]
    struct Schedule;
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/tune.md")]
    struct Tune;
    #[doc = include_str!("../docs/workers.md")]
    struct Workers;
}
