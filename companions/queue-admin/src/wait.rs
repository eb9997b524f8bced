//! Waiting for the end of a task.

use std::time::Duration;

use queue_core::{TaskInfo, TaskState};
use queue_redis::Listener;
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::Inspector;
use crate::error::Error;

/// How often to look when Redis tells of changes by itself; it may lose a connection without a word.
const POLL_TOLD: Duration = Duration::from_secs(5);
/// How often to look otherwise.
const POLL: Duration = Duration::from_secs(1);

/// How the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waited {
    /// It succeeded, and its result is kept.
    Completed,
    /// It was given up.
    Archived,
    /// It is gone: it succeeded without a retention, or was deleted.
    Gone,
    /// The time is over, and it goes on.
    Timeout,
}

impl Inspector {
    /// Waits until a task has ended, and returns how, with the task as it was seen last; `last` is how it was seen before, if it
    /// was. Redis tells of changes by a connection of this call's own, so that nothing is polled but once in 5 s. Without a
    /// timeout it waits for ever, also while Redis cannot be reached.
    ///
    /// # Errors
    /// [`Error::TaskNotFound`] if there is no such task to begin with; or Redis cannot be asked or refuses.
    pub async fn wait(
        &self,
        queue: &str,
        id: &str,
        mut last: Option<TaskInfo>,
        timeout: Option<Duration>,
    ) -> Result<(Waited, Option<TaskInfo>), Error> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut listener = None;
        loop {
            if listener.is_none() {
                listener = Listener::connect(&self.redis).await.ok();
            }
            let told = arm(&mut listener, queue, id).await;
            match self.task(queue, id).await {
                Ok(task) => {
                    let outcome = match task.state {
                        TaskState::Completed => Some(Waited::Completed),
                        TaskState::Archived => Some(Waited::Archived),
                        _ => None,
                    };
                    last = Some(task);
                    if let Some(outcome) = outcome {
                        return Ok((outcome, last));
                    }
                }
                Err(Error::TaskNotFound { .. }) if last.is_some() => return Ok((Waited::Gone, last)),
                Err(error) if error.is_transient() && last.is_some() => {
                    tracing::warn!(%error, "cannot look at the task; trying again");
                    listener = None;
                }
                Err(error) => return Err(error),
            }
            let change = async {
                match &mut listener {
                    Some(listener) if told => {
                        listener.signal().await;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = change => {}
                () = sleep(if told { POLL_TOLD } else { POLL }) => {}
                () = over(end) => return Ok((Waited::Timeout, last)),
            }
        }
    }
}

/// Asks to be told of the next change of the task; whether that will happen.
async fn arm(listener: &mut Option<Listener>, queue: &str, id: &str) -> bool {
    let Some(mut watch) = listener.as_ref().and_then(Listener::watch) else { return false };
    let armed = watch.has_task(queue, id).await.is_ok();
    if !armed {
        *listener = None;
    }
    armed
}

async fn over(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
