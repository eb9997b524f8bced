//! Waiting for the end of a task.

use std::time::Duration;

use queue_core::{TaskInfo, TaskState};
use queue_redis::{Client, Finished, WaitError};
use serde::Serialize;

use super::Inspector;
use crate::error::Error;

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
    /// was. Redis tells of changes by a connection of this call's own, so that nothing is polled. Without a
    /// timeout it waits for ever, also while Redis cannot be reached.
    ///
    /// # Errors
    /// [`Error::TaskNotFound`] if there is no such task to begin with; or Redis cannot be asked or refuses.
    pub async fn wait(
        &self,
        queue: &str,
        id: &str,
        last: Option<TaskInfo>,
        timeout: Option<Duration>,
    ) -> Result<(Waited, Option<TaskInfo>), Error> {
        let last = match last {
            Some(last) => last,
            None => self.task(queue, id).await?,
        };
        let handle = Client::new(self.redis.clone()).handle(queue, id);
        Ok(match handle.wait(timeout.unwrap_or(Duration::MAX)).await {
            Ok(Finished::Completed(task)) => (Waited::Completed, Some(task)),
            Ok(Finished::Archived(task)) => (Waited::Archived, Some(task)),
            Ok(Finished::Gone) => (Waited::Gone, Some(last)),
            Err(WaitError::Redis(error)) => return Err(error.into()),
            // The time is over, and with a short one, nobody may have looked yet.
            Err(_) => {
                let last = self.task(queue, id).await.unwrap_or(last);
                let outcome = match last.state {
                    TaskState::Completed => Waited::Completed,
                    TaskState::Archived => Waited::Archived,
                    _ => Waited::Timeout,
                };
                (outcome, Some(last))
            }
        })
    }
}
