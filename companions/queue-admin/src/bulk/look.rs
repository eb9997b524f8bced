//! Counting and finding.

use queue_core::keys::QueueKeys;
use queue_core::{TaskInfo, TaskState};

use super::super::{Inspector, Page};
use super::{Filter, PAGE};
use crate::error::Error;
use crate::lenient::total;

impl Inspector {
    /// How many tasks of a queue a filter applies to, in all seven states unless it names some. Without
    /// conditions but states this is one look; with conditions every task in these states is read.
    ///
    /// A task that moves meanwhile may be missed or counted twice.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn count(&self, queue: &str, filter: &Filter) -> Result<u64, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let states = filter.states_of(&TaskState::ALL);
        let places = self.places(&keys, &states).await?;
        if !filter.needs_hash() && filter.ids.is_empty() {
            return Ok(total(&self.sizes(&places).await?));
        }
        let mut connection = self.redis.pooled().await?;
        let started = self.started(queue, filter, &states).await?;
        let mut count = 0;
        for place in places {
            let mut walk = place.walk(false);
            loop {
                let page = walk.next(&mut connection, PAGE).await?.entries;
                if page.is_empty() {
                    break;
                }
                count += self.select(&mut connection, &keys, &place, filter, &started, &page).await?.len() as u64;
                walk.go_on(&page, |_| false);
            }
        }
        Ok(count)
    }

    /// The tasks of a queue that a filter applies to, in all seven states unless it names some: one state
    /// after the other, each in the order of [`tasks`](Self::tasks). `page` counts those that match. Tasks
    /// whose message cannot be read are left out, so that a page may be shorter.
    ///
    /// A task that moves meanwhile may be missed or found twice.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn find(&self, queue: &str, filter: &Filter, page: Page) -> Result<Vec<TaskInfo>, Error> {
        self.find_as(queue, filter, page, |task| task).await
    }

    /// As [`find`](Self::find), with what `keep` makes of each task as soon as it is read: see [`tasks_as`](Self::tasks_as).
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub async fn find_as<T>(
        &self,
        queue: &str,
        filter: &Filter,
        page: Page,
        mut keep: impl FnMut(TaskInfo) -> T,
    ) -> Result<Vec<T>, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let states = filter.states_of(&TaskState::ALL);
        let started = self.started(queue, filter, &states).await?;
        let (mut skip, mut found) = (page.skip, Vec::new());
        for place in self.places(&keys, &states).await? {
            let mut walk = place.walk(false);
            while found.len() < page.size {
                let entries = walk.next(&mut connection, PAGE).await?.entries;
                if entries.is_empty() {
                    break;
                }
                let mut matching = self.select(&mut connection, &keys, &place, filter, &started, &entries).await?;
                walk.go_on(&entries, |_| false);
                let skipped = skip.min(matching.len());
                matching.drain(..skipped);
                skip -= skipped;
                matching.truncate(page.size - found.len());
                let read = self.read(&mut connection, &keys, place.state, matching, &mut keep).await?;
                found.extend(read.into_iter().flatten());
            }
        }
        Ok(found)
    }
}
