//! What operators look at and change: queues, tasks, periodic entries, groups, servers.

pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod bin;
pub(crate) mod broadcast;
pub(crate) mod cron;
pub(crate) mod failures;
mod forecast;
pub(crate) mod group;
mod history;
pub(crate) mod limit;
pub(crate) mod operation;
mod order;
pub(crate) mod queue;
pub(crate) mod server;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod workflow;

use chrono::{DateTime, Utc};
use queue_admin::{Error, Inspector, QueueInfo};
use queue_core::{Clock as _, SystemClock};

fn now() -> DateTime<Utc> {
    SystemClock.now()
}

/// All queues with their sizes.
async fn queues(inspector: &Inspector) -> Result<Vec<QueueInfo>, Error> {
    let mut queues = Vec::new();
    for name in inspector.queues().await? {
        match inspector.queue(&name).await {
            Ok(queue) => queues.push(queue),
            // Removed since we asked for the names.
            Err(Error::QueueNotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(queues)
}
