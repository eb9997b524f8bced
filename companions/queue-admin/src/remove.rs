//! Removing a queue with everything that belongs to it.

use std::collections::HashSet;

use queue_core::Clock as _;
use queue_core::TaskState;
use queue_core::keys::{CRON_ENTRIES, KeyRole, QUEUES, QueueKeys, queue_family};
use queue_core::limits::ENTRY_SHOWN_SECS;
use queue_core::queue_name::base_of;

use super::Inspector;
use super::bulk::{Filter, Told};
use super::verb::Verb;
use crate::error::Error;
use crate::lenient::total;
use queue_redis::Connection;
use queue_redis::broker::MAX_BATCH;

/// How often a queue is emptied anew because tasks have come in, before that is given up.
const ROUNDS: usize = 10;
/// Keys that Redis looks at in one call while we search for those of the queue.
const SCAN: usize = 500;

/// The family of the lists of bins.
const BIN_LIST: &str = "x:bin:<op>:<n>";

/// The states a removal has to deal with; active ones refuse it.
const REMOVED: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
    TaskState::Aggregating,
];

impl Inspector {
    /// Removes a queue: its tasks and their locks, its groups, its counters, its pause, and what this project
    /// keeps beside them, except for periodic entries that a scheduler still carries. Returns how many tasks were deleted.
    ///
    /// Without `force`, only a queue without any task is removed; unlike with Go, completed and aggregating
    /// tasks count, for their results would be lost. With it, only active tasks and those being aggregated
    /// stand against it; the queue is paused at once, so that no worker takes more.
    ///
    /// It is done in many short steps. If it is interrupted, the queue is still listed, paused, and has fewer
    /// tasks; the key `asynq:{<queue>}:x:removing` says since when. Call it again to go on, or
    /// [`unpause`](Self::unpause) to keep what is left. Clients should have stopped: a queue into which tasks
    /// are enqueued comes into being again.
    ///
    /// Searching for what belongs to the queue goes through all keys of the Redis, 500 in a step.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::QueueNotEmpty`] (also when tasks come in faster than they are
    /// deleted), [`Error::QueueActive`]; or Redis cannot be asked or refuses.
    pub async fn remove_queue(&self, queue: &str, force: bool) -> Result<u64, Error> {
        self.require_queue(queue).await?;
        let mut removed = 0;
        let mut is_empty = false;
        for _ in 0..ROUNDS {
            if force {
                removed += self.empty(queue).await?;
            } else {
                self.require_empty(queue).await?;
            }
            is_empty = self.sweep(queue, force).await? && self.broker().finish_removal(queue).await?;
            if is_empty {
                break;
            }
        }
        if !is_empty || self.unlist(queue).await? {
            let tasks = self.size(queue).await?;
            return Err(Error::QueueNotEmpty { queue: queue.to_owned(), tasks, forced: force });
        }
        Ok(removed)
    }

    async fn size(&self, queue: &str) -> Result<u64, Error> {
        let places = self.places(&QueueKeys::new(queue), &TaskState::ALL).await?;
        Ok(total(&self.sizes(&places).await?))
    }

    async fn require_empty(&self, queue: &str) -> Result<(), Error> {
        let staged = self.broker().aggregation_sets(queue).await?.len() as u64;
        match self.size(queue).await? + staged {
            0 => Ok(()),
            tasks => Err(Error::QueueNotEmpty { queue: queue.to_owned(), tasks, forced: false }),
        }
    }

    /// Deletes all tasks of a queue; returns how many there were.
    async fn empty(&self, queue: &str) -> Result<u64, Error> {
        self.look_at_the_clock().await?;
        let now = self.clock.now_secs();
        // A queue that cannot be counted is not stopped.
        self.size(queue).await?;
        match self.broker().begin_removal(queue, now).await? {
            0 => {}
            active => return Err(Error::QueueActive { queue: queue.to_owned(), active }),
        }
        // Sets whose server is gone: back with them into their groups.
        loop {
            let lost = self.broker().aggregation_sets(queue).await?;
            for set in lost.iter().filter(|set| set.deadline <= now) {
                self.broker().reclaim(queue, &set.group, &set.id, Some(now)).await?;
            }
            if lost.is_empty() || lost.iter().any(|set| set.deadline > now) {
                break;
            }
        }
        let all = Filter::new();
        Ok(self.change_in(queue, &all, &REMOVED, Verb::Delete, &mut Told("", &mut |_| {})).await?.changed)
    }

    /// Deletes the keys that are left of a queue without tasks. Returns whether it was without tasks.
    async fn sweep(&self, queue: &str, force: bool) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let entries = keys.cron_entry("").into_bytes();
        let (mut cursor, mut has_family) = (0_u64, false);
        // The lists of bins. A task in a bin is found by them alone, and this may end half-way.
        let mut lists = Vec::new();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern(keys.prefix())).arg("COUNT").arg(SCAN);
            let (next, found): (u64, Vec<Vec<u8>>) = connection.query_near(&keys.pending(), "SCAN", &scan).await?;
            // Asked each time: the search may take minutes, and a scheduler may start meanwhile.
            let carried = match found.iter().any(|key| key.starts_with(&entries)) {
                true => self.carried_entries(&mut connection, &keys, queue).await?,
                false => HashSet::new(),
            };
            let family_of = |key: &Vec<u8>| key.strip_prefix(keys.prefix().as_bytes()).and_then(queue_family);
            // Tasks of the other queues of the family may have the locks. Asked behind SCAN, until there is one: a queue is listed before
            // its first task takes a lock.
            let has_locks = found.iter().filter_map(family_of).any(|family| family.role == KeyRole::Lock);
            has_family = has_family || has_locks && self.has_family(queue).await?;
            let is_kept = |key: &Vec<u8>| {
                family_of(key).is_some_and(|family| family.removed_last || has_family && family.role == KeyRole::Lock)
                    || carried.contains(key)
            };
            let is_bin_list = |key: &Vec<u8>| family_of(key).is_some_and(|family| family.name == BIN_LIST);
            let found = found.into_iter().filter(|key| !is_kept(key));
            let (mut more, found): (Vec<_>, Vec<_>) = found.partition(is_bin_list);
            lists.append(&mut more);
            if !force {
                self.require_no_lost_group(&mut connection, &keys, queue, &found).await?;
            }
            for batch in found.chunks(MAX_BATCH) {
                // Off the list first: were this cut off in between, the next removal would find no key that names the entry.
                forget_cron(&mut connection, &keys, queue, batch).await?;
                if !self.broker().sweep(queue, batch).await? {
                    return Ok(false);
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        for batch in lists.chunks(MAX_BATCH) {
            if !self.broker().sweep(queue, batch).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn has_family(&self, queue: &str) -> Result<bool, Error> {
        Ok(self.queues().await?.iter().any(|other| other != queue && base_of(other) == queue))
    }

    /// The keys of periodic entries that a scheduler carries. It would make them anew: not paused, and with all their runs to come.
    async fn carried_entries(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        queue: &str,
    ) -> Result<HashSet<Vec<u8>>, Error> {
        let entries: Vec<String> = connection
            .command("ZRANGEBYSCORE", (CRON_ENTRIES, self.clock.now_secs() - ENTRY_SHOWN_SECS, "+inf"))
            .await?;
        let of_queue = entries.iter().filter_map(|entry| entry.rsplit_once(' ')).filter(|(_, of)| *of == queue);
        Ok(of_queue.map(|(entry, _)| keys.cron_entry(entry).into_bytes()).collect())
    }

    /// A group that is not listed may have tasks nevertheless.
    async fn require_no_lost_group(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        queue: &str,
        found: &[Vec<u8>],
    ) -> Result<(), Error> {
        let mut tasks = 0_u64;
        for key in found.iter().filter(|key| key.starts_with(keys.group_prefix().as_bytes())) {
            let size = connection.command::<u64>("ZCARD", key).await?;
            tasks = tasks.saturating_add(size);
        }
        if tasks == 0 { Ok(()) } else { Err(Error::QueueNotEmpty { queue: queue.to_owned(), tasks, forced: false }) }
    }

    /// Takes a queue off the list of queues. Returns whether a task came in at the last moment: then it is
    /// back on it.
    async fn unlist(&self, queue: &str) -> Result<bool, Error> {
        self.redis.command::<()>("SREM", (QUEUES, queue)).await?;
        let is_back = self.size(queue).await? > 0;
        if is_back {
            self.broker().publish_queue(queue).await?;
        }
        Ok(is_back)
    }
}

/// Takes periodic entries off their list, which is one for all queues. No scheduler carries them.
async fn forget_cron(
    connection: &mut Connection,
    keys: &QueueKeys,
    queue: &str,
    found: &[Vec<u8>],
) -> Result<(), Error> {
    let prefix = keys.cron_entry("");
    for entry in found.iter().filter_map(|key| key.strip_prefix(prefix.as_bytes())) {
        let member = [entry, b" ", queue.as_bytes()].concat();
        connection.command::<()>("ZREM", (CRON_ENTRIES, member)).await?;
    }
    Ok(())
}

/// What SCAN is to match: the keys that begin like this.
pub(super) fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for char in prefix.chars() {
        if "*?[]^\\".contains(char) {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_queues_are_no_patterns() {
        assert_eq!(pattern("asynq:{a*[b]?\\^}:"), "asynq:{a\\*\\[b\\]\\?\\\\\\^}:*");
    }
}
