//! What can go wrong when somebody looks at queues or changes what is in them.

use queue_redis::Error as RedisError;

use crate::role::Permission;

/// A text that is no cursor, or not one of this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no cursor of this list; begin anew without one")]
pub struct BadCursor;

/// What is wrong with the limits of a queue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyUnreadable {
    /// Somebody has written a text that is none of ours.
    Text(String),
    /// Something of another type stands in their place.
    OtherType,
}

/// With what to do about it.
impl std::fmt::Display for WhyUnreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(reason) => write!(f, "{reason}; `queuectl limit off` removes them"),
            Self::OtherType => f.write_str(
                "the key has another type, so something else has written there; `queuectl doctor --fix --dump FILE` removes it",
            ),
        }
    }
}

/// Why something cannot be looked at or changed. An error of Redis, or of the way there, is [`Redis`](Self::Redis).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Redis could not be asked, or has refused.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// A list cannot go on there.
    #[error(transparent)]
    BadCursor(#[from] BadCursor),
    /// The role does not include it.
    #[error("the role does not allow it; it needs the permission {}", permission.as_str())]
    Forbidden {
        /// What is needed.
        permission: Permission,
    },
    /// It cannot be written down who does this, so it was not done.
    #[error("nothing was done, because the audit ({key}) cannot be written: {0}", key = queue_core::keys::AUDIT)]
    Unaudited(#[source] RedisError),
    /// There is no such queue.
    #[error("queue {0:?} not found")]
    QueueNotFound(String),
    /// It cannot be the name of a queue.
    #[error(transparent)]
    BadName(#[from] queue_core::OptionError),
    /// It is no limit.
    #[error(transparent)]
    Limit(#[from] queue_core::limit::LimitError),
    /// The limits of a queue cannot be read, so that no server of ours takes tasks from it.
    #[error("the limits of queue {queue:?} cannot be read, so that nothing is taken from it: {why}")]
    LimitsUnreadable {
        /// Queue name.
        queue: String,
        /// What is wrong with them.
        why: WhyUnreadable,
    },
    /// The queue has no such limit.
    #[error("queue {queue:?} has no limit {limit:?}")]
    LimitNotFound {
        /// Queue name.
        queue: String,
        /// Name of the limit.
        limit: String,
    },
    /// Others change the limits at the same time.
    #[error("the limits of queue {0:?} are changed by others again and again; nothing was done")]
    LimitsContended(String),
    /// There is no such periodic entry.
    #[error("periodic entry {0:?} not found")]
    EntryNotFound(String),
    /// There is no such batch.
    #[error("there is no batch {0}; was it forgotten, or is it on another Redis?")]
    BatchNotFound(String),
    /// A signal cannot be given: no node waits for it, it says too much, or the workflow is over.
    #[error("{0}")]
    SignalRefused(String),
    /// A batch cannot be made: a task of it is refused, say, or its nodes do not fit together.
    #[error("{0}")]
    FlowRefused(String),
    /// A batch of this id is there, and nothing can be added to it.
    #[error("there is a batch {0:?} already, and it is closed; take another id")]
    BatchClosed(String),
    /// A node cannot be run again: it, or something behind it, has not ended, say.
    #[error("{0}")]
    RerunRefused(String),
    /// There is no such operation.
    #[error("there is no operation {0:?}; they are kept for 7 days after their end")]
    OperationNotFound(String),
    /// It has ended.
    #[error("operation {id:?} is over: {state}")]
    OperationOver {
        /// Its id.
        id: String,
        /// How it ended.
        state: &'static str,
    },
    /// It still puts tasks into the bin.
    #[error("operation {0:?} has not ended; wait for it, or cancel it first")]
    OperationLive(String),
    /// An operation does not make sense.
    #[error("{0}")]
    OperationInvalid(String),
    /// As many tasks were changed as were meant.
    #[error(
        "limit-reached: at most {at_most} tasks were meant, and so many were changed; the others are where they were"
    )]
    LimitReached {
        /// How many were meant.
        at_most: u64,
    },
    /// The bin of an operation has nothing in it.
    #[error(
        "operation {0:?} has nothing in the bin: it has put nothing there, or all of it was restored, deleted, or kept for its day"
    )]
    BinNotFound(String),
    /// Something else was asked for with the same key.
    #[error("this key was used before, for another request")]
    KeyReused,
    /// There is no such server.
    #[error(
        "no server that is alive has the name or the id {0:?}; `queuectl server ls` shows names, with --json ids too"
    )]
    ServerNotFound(String),
    /// A server cannot be steered from here.
    #[error(
        "the server {host}:{pid} does not take orders: it is one of Go's, or an older one; send its process a signal (TSTP: take no more tasks, TERM: end)"
    )]
    TakesNoOrders {
        /// Host name.
        host: String,
        /// Process id.
        pid: i32,
    },
    /// A periodic entry was not run when somebody wanted it.
    #[error("periodic entry {entry:?} was not run: {reason}")]
    RunRefused {
        /// Name of the entry.
        entry: String,
        /// Why not.
        reason: String,
        /// The same, for programs.
        verdict: queue_redis::broker::TickVerdict,
    },
    /// There is no such task.
    #[error("task {id:?} not found in queue {queue:?}")]
    TaskNotFound {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The queue still has tasks, and nobody said that they may go, or they came in while the others went.
    #[error("queue {queue:?} holds {tasks} tasks; {}", if *forced {
        "they came in while it was removed by force; see that nothing comes in any more, and remove it again"
    } else {
        "delete them first, or remove it by force"
    })]
    QueueNotEmpty {
        /// Queue name.
        queue: String,
        /// How many tasks it has, completed and aggregating ones too.
        tasks: u64,
        /// Whether it was to be removed by force.
        forced: bool,
    },
    /// Workers still have tasks of the queue.
    #[error("{active} tasks of queue {queue:?} are being worked on; stop its servers, or wait until they are done")]
    QueueActive {
        /// Queue name.
        queue: String,
        /// How many tasks are active, or being aggregated.
        active: u64,
    },
    /// A worker has the task.
    #[error("task {id:?} in queue {queue:?} is being worked on; cancel it, or wait until it is done")]
    TaskActive {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The task was to be run, and is waiting for a worker already.
    #[error("task {id:?} in queue {queue:?} is pending already; a worker takes it when its turn comes")]
    AlreadyPending {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The task was to be archived, and is.
    #[error("task {id:?} in queue {queue:?} is archived already")]
    AlreadyArchived {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The task is in no list, or not in the one that its state names.
    #[error(
        "task {id:?} in queue {queue:?} is called {state} and is not there: a server is aggregating it, or something left it behind; if it stays like this, delete it"
    )]
    TaskMisplaced {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
        /// What its hash calls it.
        state: queue_core::TaskState,
    },
    /// The payload of a completed task cannot be replaced.
    #[error("task {id:?} in queue {queue:?} is completed; run it again first, or enqueue another task")]
    TaskCompleted {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// Another task holds the uniqueness lock of the new payload.
    #[error(
        "task {holder:?} in queue {queue:?} holds the lock of this payload; delete that one, or wait until it has succeeded"
    )]
    PayloadLocked {
        /// Queue name.
        queue: String,
        /// Id of the task that has the lock.
        holder: String,
    },
    /// It is in that queue already.
    #[error("task {id:?} is in queue {queue:?} already")]
    AlreadyInQueue {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The queue that the task was to be moved to has one of the same id.
    #[error("queue {queue:?} has a task {id:?} of its own; nothing was moved")]
    IdTaken {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// A member of a batch, for which its batch looks where it was put.
    #[error("task {id:?} in queue {queue:?} belongs to a batch, which looks for it there; it cannot be moved")]
    MemberStays {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// A task that is to be canceled for good, as soon as somebody looks at it where it is.
    #[error("task {id:?} in queue {queue:?} is to be canceled for good; it is not moved")]
    CancelAsked {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// There is no such priority, server name or label.
    #[error(transparent)]
    NoFamily(#[from] queue_core::queue_name::FamilyError),
    /// Somebody else changed the task again and again while it was to be changed.
    #[error("task {id:?} in queue {queue:?} was changed by somebody else at the same time; try again")]
    TaskChanged {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// The task is no longer what it was when it was looked at.
    #[error("task {id:?} in queue {queue:?} has changed since it was looked at; look again")]
    VersionChanged {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
    },
    /// Tasks in this state cannot be dealt with like this.
    #[error("tasks that are {state} cannot be {verb}{hint}")]
    StateRefused {
        /// What was to happen to them: `run`, `archived`, `deleted`, `cancelled`.
        verb: &'static str,
        /// Their state.
        state: queue_core::TaskState,
        /// What can be done instead; empty or beginning with `"; "`.
        hint: &'static str,
    },
    /// The archive has as many tasks as it keeps; each more would delete another one.
    #[error(
        "the archive of queue {queue:?} keeps {archived} tasks, and has so many; the others are where they were: delete them, or deal with the archived ones first"
    )]
    ArchiveFull {
        /// Queue name.
        queue: String,
        /// How many are archived.
        archived: u64,
    },
    /// The message stored with a task cannot be decoded.
    #[error("task {id:?} in queue {queue:?} is unreadable: {source}")]
    Unreadable {
        /// Queue name.
        queue: String,
        /// Task id.
        id: String,
        /// Why.
        source: queue_core::wire::WireError,
    },
}

queue_core::debug_as_text!(Error);

impl Error {
    /// Whether trying again later can help without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Redis(error) | Self::Unaudited(error) if error.is_transient())
    }
}
