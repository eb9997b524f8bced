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

use crate::error::CliError;

fn now() -> DateTime<Utc> {
    SystemClock.now()
}

/// Queues that somebody has spoilt, and why they cannot be read.
#[derive(Debug, Default)]
struct Unread(Vec<String>);

impl Unread {
    /// What to show without them.
    fn with(self, shown: String) -> Result<String, CliError> {
        let missing = format!("not all queues could be read: {}", self.0.join("; "));
        if self.0.is_empty() { Ok(shown) } else { Err(CliError::Partly { shown, missing }) }
    }
}

/// All queues with their sizes.
async fn queues(inspector: &Inspector) -> Result<(Vec<QueueInfo>, Unread), Error> {
    let (mut queues, mut unread) = (Vec::new(), Unread::default());
    for name in inspector.queues().await? {
        match inspector.queue(&name).await {
            Ok(queue) => queues.push(queue),
            // Removed since we asked for the names.
            Err(Error::QueueNotFound(_)) => {}
            Err(Error::Redis(error)) if error.is_wrong_type() => unread.0.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok((queues, unread))
}
