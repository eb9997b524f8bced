//! What other programs do to the keys.

use proptest::prelude::*;

use crate::support::{Fixture, QUEUE};

/// Something that no client of the queue does.
#[derive(Debug, Clone)]
pub(crate) enum Disturbance {
    /// The hash of a task is deleted.
    DeleteTask(u8),
    /// The message of a task is overwritten.
    SpoilMessage(u8),
    /// An id is listed once more, whether there is such a task or not: pending or active, at the head or at
    /// the tail.
    ListAgain { id: u8, active: bool, tail: bool },
    /// Every lock ends.
    EndLocks,
    /// A key has another type for the rest of the sequence.
    ReplaceKey(usize),
    /// The scripts are forgotten.
    FlushScripts,
    /// Two totals are about to overflow.
    FillCounters,
}

/// Keys of the queue that have to bear another type.
const KEYS: [&str; 11] = [
    "pending",
    "active",
    "lease",
    "scheduled",
    "retry",
    "archived",
    "completed",
    "processed",
    "g:g0",
    "groups",
    "aggregation_sets",
];

impl Disturbance {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            6 => (0..10_u8).prop_map(Self::DeleteTask),
            4 => (0..10_u8).prop_map(Self::SpoilMessage),
            8 => (0..12_u8, any::<bool>(), any::<bool>())
                .prop_map(|(id, active, tail)| Self::ListAgain { id, active, tail }),
            6 => Just(Self::EndLocks),
            1 => (0..KEYS.len()).prop_map(Self::ReplaceKey),
            2 => Just(Self::FlushScripts),
            2 => Just(Self::FillCounters),
        ]
    }

    pub(super) async fn apply(&self, fixture: &Fixture) {
        let key = |name: &str| format!("asynq:{{{QUEUE}}}:{name}");
        match self {
            Self::DeleteTask(id) => fixture.run(&format!("DEL {}", key(&format!("t:{id}")))).await,
            Self::SpoilMessage(id) => {
                let task = key(&format!("t:{id}"));
                if fixture.cmd::<String>(&["TYPE", &task]).await == "hash" {
                    fixture.run(&format!("HSET {task} msg spoiled")).await;
                }
            }
            Self::ListAgain { id, active, tail } => {
                let list = key(if *active { "active" } else { "pending" });
                if fixture.cmd::<String>(&["TYPE", &list]).await != "stream" {
                    let push = if *tail { "RPUSH" } else { "LPUSH" };
                    fixture.run(&format!("{push} {list} {id}")).await;
                }
            }
            Self::EndLocks => {
                let locks: Vec<String> = fixture.cmd(&["KEYS", &key("unique:*")]).await;
                for lock in locks {
                    fixture.run(&format!("DEL {lock}")).await;
                }
            }
            Self::ReplaceKey(at) => {
                let key = key(KEYS[*at]);
                fixture.run(&format!("DEL {key}")).await;
                fixture.run(&format!("XADD {key} 1-1 field stray")).await;
            }
            Self::FlushScripts => fixture.run("SCRIPT FLUSH").await,
            Self::FillCounters => {
                for counter in ["processed", "failed"] {
                    fixture.run(&format!("SET {} {}", key(counter), i64::MAX - 1)).await;
                }
            }
        }
    }
}
