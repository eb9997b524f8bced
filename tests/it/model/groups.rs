//! What aggregates groups.

use proptest::prelude::*;
use queue_redis::broker::{GroupRules, StagedSet, StagedTask};

use super::operation::{NewTask, Nth};
use super::world::{World, told};
use crate::support::QUEUE;

/// An operation on groups and the sets that were taken out of them.
#[derive(Debug, Clone)]
pub(crate) enum GroupOperation {
    ListReady {
        rules: Rules,
    },
    Stage {
        group: u8,
        rules: Rules,
    },
    Aggregate {
        set: Nth,
        into: Option<NewTask>,
    },
    ArchiveStaged {
        set: Nth,
        as_it_is: bool,
    },
    Extend {
        set: Nth,
    },
    /// As lost, or by whoever has it.
    Reclaim {
        set: Nth,
        lost: bool,
    },
    ListAgain,
    DeleteAggregated,
}

/// Rules with which groups are ready now and then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    grace: u8,
    delay: u8,
    size: u8,
}

impl Rules {
    fn any() -> impl Strategy<Value = Self> {
        (0..60_u8, 0..200_u8, 0..4_u8).prop_map(|(grace, delay, size)| Self { grace, delay, size })
    }

    fn rules(self) -> GroupRules {
        GroupRules { grace_secs: self.grace.into(), max_delay_secs: self.delay.into(), max_size: self.size.into() }
    }
}

impl GroupOperation {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let set = Nth::any;
        prop_oneof![
            1 => Rules::any().prop_map(|rules| Self::ListReady { rules }),
            6 => (0..2_u8, Rules::any()).prop_map(|(group, rules)| Self::Stage { group, rules }),
            5 => (set(), prop::option::of(NewTask::any())).prop_map(|(set, into)| Self::Aggregate { set, into }),
            1 => (set(), any::<bool>()).prop_map(|(set, as_it_is)| Self::ArchiveStaged { set, as_it_is }),
            1 => set().prop_map(|set| Self::Extend { set }),
            2 => (set(), any::<bool>()).prop_map(|(set, lost)| Self::Reclaim { set, lost }),
            1 => Just(Self::ListAgain),
            1 => Just(Self::DeleteAggregated),
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ListReady { .. } => "list ready",
            Self::Stage { .. } => "stage",
            Self::Aggregate { .. } => "aggregate",
            Self::ArchiveStaged { .. } => "archive staged",
            Self::Extend { .. } => "extend set",
            Self::Reclaim { .. } => "reclaim",
            Self::ListAgain => "list again",
            Self::DeleteAggregated => "delete aggregated",
        }
    }
}

impl World<'_> {
    pub(super) async fn apply_to_groups(&mut self, operation: &GroupOperation) -> String {
        let now = self.now();
        match operation {
            GroupOperation::ListReady { rules } => {
                let mut ready = self.broker().list_ready_groups(QUEUE, rules.rules(), now).await;
                if let Ok(found) = &mut ready {
                    // A set has no order.
                    found.ready.sort();
                }
                told(ready)
            }
            GroupOperation::Stage { group, rules } => {
                let id = format!("set-{}", self.sets.len());
                let group = format!("g{group}");
                let queue = QUEUE.into();
                let staged = self.broker().stage(&queue, &group, &id, rules.rules(), now, now + 60).await;
                let told = told(staged.clone());
                if let Ok(Some(mut set)) = staged {
                    let read = self.broker().read_set(&mut set).await;
                    let told = format!("{told} {}", super::world::told(read.clone()));
                    self.sets.push((set, read.ok().flatten().unwrap_or_default()));
                    return told;
                }
                told
            }
            GroupOperation::ListAgain => {
                told(self.broker().list_groups_again(QUEUE, &["g0".into(), "g1".into()]).await)
            }
            GroupOperation::DeleteAggregated => told(self.broker().delete_aggregated(QUEUE).await),
            GroupOperation::Aggregate { set, into } => {
                let Some((set, tasks)) = self.set(*set) else { return String::new() };
                let task = into.as_ref().map(|task| self.compose(task));
                told(self.broker().aggregate(&set, &tasks, task.as_ref(), self.now_ns()).await)
            }
            GroupOperation::ArchiveStaged { set, as_it_is } => {
                let Some((mut set, tasks)) = self.set(*set) else { return String::new() };
                let archived: Vec<_> =
                    tasks.iter().take(2).map(|task| (task, task.message.as_ref().filter(|_| !as_it_is))).collect();
                if archived.is_empty() {
                    return String::new();
                }
                told(self.broker().archive_staged(&mut set, &archived, now).await)
            }
            GroupOperation::Extend { set } => {
                let Some((set, _)) = self.set(*set) else { return String::new() };
                told(self.broker().extend_set(&set, now + 90).await)
            }
            GroupOperation::Reclaim { set, lost } => {
                let Some((set, _)) = self.set(*set) else { return String::new() };
                told(self.broker().reclaim(QUEUE, &set.group, &set.id, lost.then_some(now)).await)
            }
        }
    }

    fn set(&self, nth: Nth) -> Option<(StagedSet, Vec<StagedTask>)> {
        nth.of(&self.sets).cloned()
    }
}
