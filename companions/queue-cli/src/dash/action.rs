//! What can be done from the keyboard.

use queue_admin::ActionInfo;
pub(super) use queue_admin::{BatchVerb, CronVerb, QueueVerb, Verb};
use queue_core::TaskState;
use queue_core::flow::FlowId;

/// A change, of which the user is asked whether it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Of a queue.
    Queue(QueueVerb, String),
    /// Of a task.
    Task { verb: Verb, queue: String, id: String },
    /// Of all tasks of a queue in one state, or in one of its groups; so many they were when it was asked for.
    All { verb: Verb, queue: String, state: TaskState, group: Option<String>, count: u64 },
    /// Of a periodic entry.
    Cron(CronVerb, String),
    /// Of a batch: cancelled, or its dead members run again.
    Batch(BatchVerb, FlowId),
}

/// What is said of a verb, and the key that asks for it.
pub(super) trait Asked: Sized {
    /// The verb of a key.
    fn of_key(key: char) -> Option<Self>;
    /// Whether it can be done to a task in this state; if not, why. Redis decides when it comes to it: the task
    /// may have moved since it was read.
    fn allowed(self, state: TaskState) -> Result<(), String>;
}

impl Asked for Verb {
    fn of_key(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| queue_admin::Action::Task(*verb).info().key == Some(key))
    }

    fn allowed(self, state: TaskState) -> Result<(), String> {
        let reason = match (self, state) {
            (Self::Cancel | Self::Interrupt, TaskState::Active) => return Ok(()),
            (Self::Cancel, _) => "only a task that is active can be cancelled; others can be archived or deleted",
            (Self::Interrupt, _) => "only a task that is active can be interrupted",
            (_, TaskState::Active) => "a task that is active can only be cancelled, c, or interrupted, i",
            (Self::Run, TaskState::Pending) => "it is pending already: the next free worker runs it",
            (Self::Run, TaskState::Completed) => "it is completed; it does not run again",
            (Self::Archive, TaskState::Archived) => "it is archived already",
            (Self::Archive, TaskState::Completed) => "it is completed; only tasks that may still run are archived",
            _ => return Ok(()),
        };
        Err(reason.to_owned())
    }
}

impl Action {
    /// Its line in the table of all that operators can do.
    pub(super) fn info(&self) -> &'static ActionInfo {
        match self {
            Self::Queue(verb, _) => queue_admin::Action::Queue(*verb),
            Self::Task { verb, .. } => queue_admin::Action::Task(*verb),
            Self::All { verb, .. } => queue_admin::Action::Tasks(*verb),
            Self::Cron(verb, _) => queue_admin::Action::Cron(*verb),
            Self::Batch(verb, _) => queue_admin::Action::Batch(*verb),
        }
        .info()
    }

    /// What the user is asked: what it is, on what, and what follows.
    pub(super) fn question(&self) -> [String; 3] {
        let info = self.info();
        let (what, name) = match self {
            Self::Queue(_, queue) => ("this queue?".to_owned(), queue.clone()),
            Self::Cron(_, entry) => ("this periodic entry?".to_owned(), entry.clone()),
            Self::Batch(BatchVerb::Retry, id) => ("the dead members of this batch?".to_owned(), id.to_string()),
            Self::Batch(_, id) => ("this batch?".to_owned(), id.to_string()),
            Self::Task { queue, id, .. } => (format!("this task of {queue}?"), id.clone()),
            Self::All { queue, state, group, count, .. } => {
                let group = group.as_ref().map_or_else(String::new, |group| format!(" in the group {group}"));
                let tasks = if *count == 1 { "task" } else { "tasks" };
                (format!("ALL {state} tasks of {queue}{group}?"), format!("{count} {tasks}"))
            }
        };
        [format!("{} {what}", info.word), name, info.consequence.to_owned()]
    }

    /// What was done, said afterwards.
    pub(super) fn done(&self) -> String {
        match self {
            Self::Queue(QueueVerb::Pause, queue) => format!("queue {queue} is paused"),
            Self::Queue(QueueVerb::Resume, queue) => format!("queue {queue} is running"),
            Self::Queue(QueueVerb::Remove, queue) => format!("queue {queue} is deleted"),
            Self::Cron(CronVerb::Pause, entry) => format!("{entry} is paused"),
            Self::Cron(CronVerb::Resume, entry) => format!("{entry} goes on"),
            Self::Cron(CronVerb::Run, entry) => format!("the task of {entry} is enqueued"),
            Self::Cron(CronVerb::Remove, entry) => format!("{entry} is forgotten"),
            Self::Batch(_, id) => format!("batch {id} is {}", self.info().past),
            Self::All { count, .. } => format!("{count} tasks {}", self.info().past),
            Self::Task { verb: Verb::Run, id, .. } => format!("task {id} is pending"),
            Self::Task { verb: Verb::Archive, id, .. } => format!("task {id} is archived"),
            Self::Task { verb: Verb::Delete, id, .. } => format!("task {id} is deleted"),
            Self::Task { verb: Verb::Cancel, id, .. } => format!("task {id} is told to end; it is not retried"),
            Self::Task { verb: Verb::Interrupt, id, .. } => format!("asked the servers to stop task {id}"),
        }
    }
}
