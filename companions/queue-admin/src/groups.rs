use queue_core::keys::QueueKeys;
use queue_core::{TaskInfo, TaskState};

use super::Inspector;
use super::tasks::{Page, range};
use crate::error::Error;
use crate::lenient::sorted;

/// A group of tasks that wait to be aggregated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInfo {
    /// Group name.
    pub name: String,
    /// How many tasks wait in it. Those that a server is aggregating just now are not counted.
    pub size: u64,
}

impl Inspector {
    /// The groups of a queue, by name.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn groups(&self, queue: &str) -> Result<Vec<GroupInfo>, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let names = connection.command("SMEMBERS", keys.groups()).await.map(sorted)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut count = redis::pipe();
        for name in &names {
            count.cmd("ZCARD").arg(keys.group(name));
        }
        let sizes: Vec<u64> = connection.pipeline("counting groups", &count).await?;
        Ok(names.into_iter().zip(sizes).map(|(name, size)| GroupInfo { name, size }).collect())
    }

    /// The tasks that wait in a group, those that joined it first first. A group that does not exist has
    /// none. Tasks whose message cannot be read are left out.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn group_tasks(&self, queue: &str, group: &str, page: Page) -> Result<Vec<TaskInfo>, Error> {
        self.group_tasks_as(queue, group, page, |task| task).await
    }

    /// As [`group_tasks`](Self::group_tasks), with what `keep` makes of each task as soon as it is read: see
    /// [`tasks_as`](Self::tasks_as).
    ///
    /// # Errors
    /// As [`group_tasks`](Self::group_tasks).
    pub async fn group_tasks_as<T>(
        &self,
        queue: &str,
        group: &str,
        page: Page,
        keep: impl FnMut(TaskInfo) -> T,
    ) -> Result<Vec<T>, Error> {
        self.require_queue(queue).await?;
        if page.size == 0 {
            return Ok(Vec::new());
        }
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let entries = range(&mut connection, &keys.group(group), page).await?;
        let read = self.read(&mut connection, &keys, TaskState::Aggregating, entries, keep).await?;
        Ok(read.into_iter().flatten().collect())
    }
}
