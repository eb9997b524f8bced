//! What people do to tasks with the inspector.

use proptest::prelude::*;
use queue_core::TaskState;
use queue_core::queue_name::Family;
use queue_redis::broker::{Bin, Seen};

use super::world::{World, told};
use crate::support::QUEUE;

/// Where tasks go that are deleted and may come back.
const BIN: Bin<'_> = Bin { operation: "op", piece: 0, keep_secs: 600 };

/// An operation on tasks that no worker has.
#[derive(Debug, Clone)]
pub(crate) enum ManageOperation {
    Run {
        seen: Where,
        ids: Vec<u8>,
    },
    Archive {
        seen: Where,
        ids: Vec<u8>,
    },
    Delete {
        seen: Where,
        ids: Vec<u8>,
    },
    /// Into the bin, and back.
    Bin {
        seen: Where,
        ids: Vec<u8>,
    },
    Undelete(Vec<u8>),
    /// One at a time, by name.
    RunOne(u8),
    ArchiveOne(u8),
    DeleteOne(u8),
    UpdatePayload {
        id: u8,
        payload: u8,
    },
    /// To another priority, or back.
    Move {
        id: u8,
        back: bool,
    },
}

/// Where tasks were seen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Where {
    Anywhere,
    In(TaskState),
    InGroup(u8),
    PendingAt(u8),
}

impl Where {
    fn any() -> impl Strategy<Value = Self> {
        let state = prop::sample::select(vec![
            TaskState::Scheduled,
            TaskState::Retry,
            TaskState::Archived,
            TaskState::Completed,
        ]);
        prop_oneof![
            2 => Just(Self::Anywhere),
            2 => state.prop_map(Self::In),
            1 => (0..2_u8).prop_map(Self::InGroup),
            1 => (0..3_u8).prop_map(Self::PendingAt),
        ]
    }

    fn seen<'a>(self, groups: &[&'a str]) -> Seen<'a> {
        match self {
            Self::Anywhere => Seen::Anywhere,
            Self::In(state) => Seen::In(state),
            Self::InGroup(group) => Seen::InGroup(groups[usize::from(group)]),
            Self::PendingAt(place) => Seen::PendingAt(usize::from(place)),
        }
    }
}

impl ManageOperation {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let ids = || prop::collection::vec(0..11_u8, 1..5);
        let id = || 0..11_u8;
        prop_oneof![
            2 => (Where::any(), ids()).prop_map(|(seen, ids)| Self::Run { seen, ids }),
            2 => (Where::any(), ids()).prop_map(|(seen, ids)| Self::Archive { seen, ids }),
            2 => (Where::any(), ids()).prop_map(|(seen, ids)| Self::Delete { seen, ids }),
            2 => (Where::any(), ids()).prop_map(|(seen, ids)| Self::Bin { seen, ids }),
            4 => Just(Self::Undelete((0..12).collect())),
            1 => id().prop_map(Self::RunOne),
            1 => id().prop_map(Self::ArchiveOne),
            1 => id().prop_map(Self::DeleteOne),
            2 => (id(), 0..3_u8).prop_map(|(id, payload)| Self::UpdatePayload { id, payload }),
            2 => (id(), any::<bool>()).prop_map(|(id, back)| Self::Move { id, back }),
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Run { .. } | Self::RunOne(_) => "run tasks",
            Self::Archive { .. } | Self::ArchiveOne(_) => "archive tasks",
            Self::Delete { .. } | Self::DeleteOne(_) => "delete tasks",
            Self::Bin { .. } => "bin tasks",
            Self::Undelete(_) => "undelete tasks",
            Self::UpdatePayload { .. } => "update payload",
            Self::Move { .. } => "move task",
        }
    }
}

impl World<'_> {
    pub(super) async fn manage(&self, operation: &ManageOperation) -> String {
        let (broker, inspector) = (self.broker(), self.inspector());
        let groups = ["g0", "g1"];
        let names = |ids: &[u8]| ids.iter().map(u8::to_string).collect::<Vec<String>>();
        match operation {
            ManageOperation::Run { seen, ids } => {
                told(broker.run_tasks(QUEUE, seen.seen(&groups), &names(ids), self.now_ns()).await)
            }
            ManageOperation::Archive { seen, ids } => {
                told(broker.archive_tasks(QUEUE, seen.seen(&groups), &names(ids), self.now()).await)
            }
            ManageOperation::Delete { seen, ids } => {
                told(broker.delete_tasks(QUEUE, seen.seen(&groups), &names(ids)).await)
            }
            ManageOperation::Bin { seen, ids } => {
                let seen = seen.seen(&groups);
                told(broker.bin_tasks(QUEUE, seen, &names(ids), BIN, self.now() * 1_000).await)
            }
            ManageOperation::Undelete(ids) => {
                told(broker.undelete_tasks(QUEUE, &names(ids), BIN, self.now() * 1_000).await)
            }
            ManageOperation::RunOne(id) => told(inspector.run_task(QUEUE, &id.to_string()).await),
            ManageOperation::ArchiveOne(id) => told(inspector.archive_task(QUEUE, &id.to_string()).await),
            ManageOperation::DeleteOne(id) => told(inspector.delete_task(QUEUE, &id.to_string()).await),
            ManageOperation::Move { id, back } => {
                let (from, to) = if *back { ("q}p9", None) } else { (QUEUE, Some(Family::Level(9))) };
                told(inspector.move_task(from, &id.to_string(), to).await)
            }
            ManageOperation::UpdatePayload { id, payload } => {
                told(inspector.update_payload(QUEUE, &id.to_string(), payload.to_string()).await)
            }
        }
    }
}
