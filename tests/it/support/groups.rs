//! Tasks in groups, and taken out of them.

use queue_core::RawTask;
use queue_redis::broker::{GroupRules, StagedSet, StagedTask};

use super::{Fixture, NOW, QUEUE, job};

/// A group is ready a minute after its last task.
pub(crate) const RULES: GroupRules = GroupRules { grace_secs: 60, max_delay_secs: 0, max_size: 0 };
/// When what joined at [`NOW`] is ready.
pub(crate) const READY: i64 = NOW + 60;
/// The deadline of sets staged at [`READY`].
pub(crate) const DEADLINE: i64 = READY + 120;

impl Fixture {
    /// Stages a group with an id for the set.
    pub(crate) async fn stage(&self, group: &str, id: &str, rules: GroupRules, now: i64) -> Option<StagedSet> {
        self.broker.stage(&QUEUE.into(), group, id, rules, now, now + 120).await.unwrap()
    }

    /// Puts tasks into the group `g`, and stages it as the set `s1`.
    pub(crate) async fn staged(&self, tasks: impl IntoIterator<Item = RawTask>) -> (StagedSet, Vec<StagedTask>) {
        self.put(tasks).await;
        let mut set = self.stage("g", "s1", RULES, READY).await.expect("the group is ready");
        let tasks = self.broker.read_set(&mut set).await.unwrap().expect("the set is there");
        (set, tasks)
    }

    /// Puts tasks with these numbers as ids into the group `g`.
    pub(crate) async fn put_many(&self, ids: std::ops::Range<usize>) {
        let tasks: Vec<RawTask> = ids.map(|n| job(&format!("{n:05}")).group("g")).collect();
        self.put(tasks).await;
    }
}
