//! What can be done.

use proptest::prelude::*;

use super::disturbance::Disturbance;
use super::groups::GroupOperation;
use super::manage::ManageOperation;

/// A task that somebody enqueues.
#[derive(Debug, Clone)]
pub(crate) struct NewTask {
    /// One of a few, so that ids collide.
    pub(super) id: u8,
    pub(super) task_type: u8,
    pub(super) payload: u8,
    pub(super) unique: bool,
    pub(super) group: Option<u8>,
    /// Seconds until it is due.
    pub(super) delay: Option<u16>,
    /// Seconds that it is kept.
    pub(super) retention: Option<u16>,
    pub(super) max_retry: u8,
    /// Where it has neither a time nor a group.
    pub(super) front: bool,
}

impl NewTask {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let time = || prop::option::weighted(0.3, 1..400_u16);
        let group = prop::option::weighted(0.3, 0..2_u8);
        let front = prop::bool::weighted(0.2);
        (0..10_u8, 0..3_u8, 0..3_u8, prop::bool::weighted(0.3), group, time(), time(), 0..3_u8, front).prop_map(
            |(id, task_type, payload, unique, group, delay, retention, max_retry, front)| Self {
                id,
                task_type,
                payload,
                unique,
                group,
                delay,
                retention,
                max_retry,
                front,
            },
        )
    }
}

/// One of the things there ever were, counted from the youngest; mostly one of the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nth(u8);

impl Nth {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![6 => 0..5_u8, 1 => any::<u8>()].prop_map(Self)
    }

    pub(super) fn of<T>(self, all: &[T]) -> Option<&T> {
        let back = usize::from(self.0).checked_rem(all.len())?;
        all.get(all.len() - 1 - back)
    }
}

/// One step of a sequence. Runs and takes are named by their place among all there were, so that most reports
/// are made by their owners, and some by those who have lost their tasks.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Store(Vec<NewTask>),
    Publish {
        task: NewTask,
        replace: bool,
        reschedule: bool,
        restart: bool,
        follow: bool,
        throttle: bool,
        /// One of a few, so that some calls are sent again.
        call: u8,
    },
    Take {
        count: u8,
    },
    TakeMatching {
        count: u8,
        types: Vec<u8>,
        from: u8,
        window: u8,
        are_young: bool,
    },
    Done {
        runs: Vec<Nth>,
        resent: bool,
    },
    Complete {
        runs: Vec<Nth>,
        resent: bool,
        result: bool,
    },
    Retry {
        run: Nth,
        delay: u16,
        counts: bool,
    },
    Archive {
        run: Nth,
    },
    Requeue {
        run: Nth,
    },
    WriteResult {
        run: Nth,
    },
    Renew {
        runs: Vec<Nth>,
    },
    Forward {
        retry: bool,
        skip: bool,
    },
    Recover {
        archive: bool,
        skip: bool,
    },
    FindLost {
        take: Nth,
    },
    CleanUp,
    Pause,
    Unpause,
    /// Clocks differ: time can also go back a little.
    Wait {
        secs: i16,
    },
    Look,
    Group(GroupOperation),
    Manage(ManageOperation),
    Disturb(Disturbance),
}

fn runs() -> impl Strategy<Value = Vec<Nth>> {
    prop::collection::vec(Nth::any(), 1..7)
}

impl Operation {
    /// The names of those that have to change something now and then.
    pub(super) const CHANGING: [&'static str; 27] = [
        "store",
        "publish",
        "take",
        "take matching",
        "done",
        "complete",
        "retry",
        "archive",
        "requeue",
        "write result",
        "renew",
        "forward",
        "recover",
        "find lost",
        "clean up",
        "pause",
        "unpause",
        "stage",
        "aggregate",
        "reclaim",
        "run tasks",
        "archive tasks",
        "delete tasks",
        "bin tasks",
        "undelete tasks",
        "update payload",
        "move task",
    ];

    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            16 => prop::collection::vec(NewTask::any(), 1..6).prop_map(Self::Store),
            12 => (NewTask::any(), any::<[bool; 4]>(), prop::bool::weighted(0.2), 1..30_u8).prop_map(
                |(task, [replace, reschedule, restart, follow], throttle, call)| {
                    let task = NewTask { unique: false, group: None, front: false, ..task };
                    Self::Publish { task, replace, reschedule, restart, follow, throttle, call }
                }
            ),
            16 => (1..6_u8).prop_map(|count| Self::Take { count }),
            6 => (1..4_u8, prop::collection::vec(0..3_u8, 0..3), 0..3_u8, 1..8_u8, any::<bool>()).prop_map(
                |(count, types, from, window, are_young)| Self::TakeMatching { count, types, from, window, are_young }
            ),
            8 => (runs(), prop::bool::weighted(0.2)).prop_map(|(runs, resent)| Self::Done { runs, resent }),
            8 => (runs(), prop::bool::weighted(0.2), any::<bool>())
                .prop_map(|(runs, resent, result)| Self::Complete { runs, resent, result }),
            6 => (Nth::any(), 0..200_u16, any::<bool>())
                .prop_map(|(run, delay, counts)| Self::Retry { run, delay, counts }),
            6 => Nth::any().prop_map(|run| Self::Archive { run }),
            4 => Nth::any().prop_map(|run| Self::Requeue { run }),
            4 => Nth::any().prop_map(|run| Self::WriteResult { run }),
            4 => runs().prop_map(|runs| Self::Renew { runs }),
            8 => (any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(retry, skip)| Self::Forward { retry, skip }),
            6 => (any::<bool>(), prop::bool::weighted(0.1))
                .prop_map(|(archive, skip)| Self::Recover { archive, skip }),
            4 => Nth::any().prop_map(|take| Self::FindLost { take }),
            4 => Just(Self::CleanUp),
            1 => Just(Self::Pause),
            6 => Just(Self::Unpause),
            8 => (-20..300_i16).prop_map(|secs| Self::Wait { secs }),
            2 => Just(Self::Look),
            16 => GroupOperation::any().prop_map(Self::Group),
            12 => ManageOperation::any().prop_map(Self::Manage),
            4 => Disturbance::any().prop_map(Self::Disturb),
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Store(_) => "store",
            Self::Publish { .. } => "publish",
            Self::Take { .. } => "take",
            Self::TakeMatching { .. } => "take matching",
            Self::Done { .. } => "done",
            Self::Complete { .. } => "complete",
            Self::Retry { .. } => "retry",
            Self::Archive { .. } => "archive",
            Self::Requeue { .. } => "requeue",
            Self::WriteResult { .. } => "write result",
            Self::Renew { .. } => "renew",
            Self::Forward { .. } => "forward",
            Self::Recover { .. } => "recover",
            Self::FindLost { .. } => "find lost",
            Self::CleanUp => "clean up",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Wait { .. } => "wait",
            Self::Look => "look",
            Self::Group(operation) => operation.name(),
            Self::Manage(operation) => operation.name(),
            Self::Disturb(_) => "disturb",
        }
    }
}
