//! Aggregations that were lost: `reclaim.lua`, `list_groups_again.lua`.

use queue_core::keys::QueueKeys;

use super::group::numbers;
use super::{Broker, MAX_BATCH};
use crate::error::Error;
use crate::script::{LIST_GROUPS_AGAIN, RECLAIM};

/// A set that somebody has taken out of its group, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedSet {
    /// Group name.
    pub group: String,
    /// The id of the set.
    pub id: String,
    /// The Unix second at which its aggregation counts as lost.
    pub deadline: i64,
}

impl Broker {
    /// The sets of a queue that are being aggregated, or were lost, by Go's servers and ours; at most
    /// [`MAX_BATCH`], those whose deadlines come first.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn aggregation_sets(&self, queue: &str) -> Result<Vec<ListedSet>, Error> {
        let keys = QueueKeys::new(queue);
        let listed: Vec<(Vec<u8>, f64)> =
            self.redis.command("ZRANGE", (keys.aggregation_sets(), 0, MAX_BATCH - 1, "WITHSCORES")).await?;
        let prefix = keys.group_prefix();
        let sets = listed.into_iter().filter_map(|(key, deadline)| {
            // The group's name may have colons, the id has none (R12).
            let key = String::from_utf8(key).ok()?;
            let (group, id) = key.strip_prefix(&prefix)?.rsplit_once(':')?;
            Some(ListedSet { group: group.to_owned(), id: id.to_owned(), deadline: deadline as i64 })
        });
        Ok(sets.collect())
    }

    /// Puts the tasks of a set back into their group, and lists the group; returns how many. With a
    /// `cutoff` (Unix seconds), only if the deadline of the set is not later.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. A part of the tasks may be back then; the set stays listed
    /// with the others.
    pub async fn reclaim(&self, queue: &str, group: &str, id: &str, cutoff: Option<i64>) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = RECLAIM.call(4);
        call.arg(keys.aggregation_set(group, id)).arg(keys.aggregation_sets());
        call.arg(keys.group(group)).arg(keys.groups());
        call.arg(group).arg(cutoff.map_or_else(|| "+inf".to_owned(), |cutoff| cutoff.to_string()));
        call.arg(keys.task_prefix());
        let mut total = 0_u64;
        loop {
            let [back, left] = numbers(&RECLAIM, &self.redis.run(&RECLAIM, &call).await?)?;
            total = total.saturating_add(u64::try_from(back).unwrap_or(0));
            if left <= 0 {
                return Ok(total);
            }
        }
    }

    /// Lists groups that have tasks and are not listed, and takes those off the list that have none, 1 to
    /// [`MAX_BATCH`]; returns how many of both there were.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_groups_again(&self, queue: &str, groups: &[String]) -> Result<[u64; 2], Error> {
        let keys = QueueKeys::new(queue);
        let mut call = LIST_GROUPS_AGAIN.call(1);
        call.arg(keys.groups()).arg(keys.group_prefix()).arg(groups);
        let counts = numbers(&LIST_GROUPS_AGAIN, &self.redis.run(&LIST_GROUPS_AGAIN, &call).await?)?;
        Ok(counts.map(|count| u64::try_from(count).unwrap_or(0)))
    }
}
