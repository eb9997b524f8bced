//! What can be done from the keyboard.

pub(super) use queue_admin::Verb;
use queue_core::TaskState;

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
}

/// What can be done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueVerb {
    Pause,
    Resume,
    Remove,
}

/// What can be done to a periodic entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CronVerb {
    Pause,
    Resume,
    Run,
}

/// What is said of a verb, and the key that asks for it.
pub(super) trait Asked: Sized {
    /// The verb of a key.
    fn of_key(key: char) -> Option<Self>;
    /// Whether it can be done to a task in this state; if not, why. Redis decides when it comes to it: the task
    /// may have moved since it was read.
    fn allowed(self, state: TaskState) -> Result<(), String>;
    fn word(self) -> &'static str;
    /// The same in the past.
    fn past(self) -> &'static str;
    fn consequence_for_many(self) -> &'static str;
    fn consequence(self) -> &'static str;
}

impl Asked for Verb {
    fn of_key(key: char) -> Option<Self> {
        match key {
            'r' => Some(Self::Run),
            'a' => Some(Self::Archive),
            'd' => Some(Self::Delete),
            'c' => Some(Self::Cancel),
            _ => None,
        }
    }

    fn allowed(self, state: TaskState) -> Result<(), String> {
        let reason = match (self, state) {
            (Self::Cancel, TaskState::Active) => return Ok(()),
            (Self::Cancel, _) => "only a task that is active can be cancelled",
            (_, TaskState::Active) => "a task that is active can only be cancelled: c",
            (Self::Run, TaskState::Pending) => "it is pending already: the next free worker runs it",
            (Self::Run, TaskState::Completed) => "it is completed; it does not run again",
            (Self::Archive, TaskState::Archived) => "it is archived already",
            (Self::Archive, TaskState::Completed) => "it is completed; only tasks that may still run are archived",
            _ => return Ok(()),
        };
        Err(reason.to_owned())
    }

    fn word(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Archive => "Archive",
            Self::Delete => "Delete",
            Self::Cancel => "Cancel",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Self::Run => "made pending",
            Self::Archive => "archived",
            Self::Delete => "deleted",
            Self::Cancel => "asked to stop",
        }
    }

    fn consequence_for_many(self) -> &'static str {
        match self {
            Self::Run => "They become pending now, whatever they were waiting for.",
            Self::Archive => "They do not run until somebody runs them; archived tasks are kept 90 days.",
            Self::Delete => "They cannot be brought back.",
            Self::Cancel => "Their servers are asked to stop them; they count as failed and are retried.",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Run => "It becomes pending now, whatever it was waiting for.",
            Self::Archive => "It does not run until somebody runs it; archived tasks are kept 90 days.",
            Self::Delete => "It cannot be brought back.",
            Self::Cancel => "Its server is asked to stop it; it counts as failed and is retried.",
        }
    }
}

impl Action {
    /// What the user is asked: what it is, on what, and what follows.
    pub(super) fn question(&self) -> [String; 3] {
        match self {
            Self::Queue(verb, queue) => {
                let (word, consequence) = match verb {
                    QueueVerb::Pause => ("Pause", "Its tasks are handed to no worker; those that are active go on."),
                    QueueVerb::Resume => ("Resume", "Its tasks are handed to workers again."),
                    QueueVerb::Remove => ("Delete", "A queue that still has tasks is not deleted."),
                };
                [format!("{word} this queue?"), queue.clone(), consequence.to_owned()]
            }
            Self::All { verb, queue, state, group, count } => {
                let group = group.as_ref().map_or_else(String::new, |group| format!(" in the group {group}"));
                let tasks = if *count == 1 { "task" } else { "tasks" };
                [
                    format!("{} ALL {state} tasks of {queue}{group}?", verb.word()),
                    format!("{count} {tasks}"),
                    verb.consequence_for_many().to_owned(),
                ]
            }
            Self::Cron(verb, entry) => {
                let (word, consequence) = match verb {
                    CronVerb::Pause => ("Pause", "Its ticks enqueue nothing, and do not count as missed."),
                    CronVerb::Resume => ("Resume", "Its ticks enqueue its task again, from the next one on."),
                    CronVerb::Run => ("Run", "Its task is enqueued now; that counts as a run."),
                };
                [format!("{word} this periodic entry?"), entry.clone(), consequence.to_owned()]
            }
            Self::Task { verb, queue, id } => {
                [format!("{} this task of {queue}?", verb.word()), id.clone(), verb.consequence().to_owned()]
            }
        }
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
            Self::All { verb, count, .. } => format!("{count} tasks {}", verb.past()),
            Self::Task { verb: Verb::Run, id, .. } => format!("task {id} is pending"),
            Self::Task { verb: Verb::Archive, id, .. } => format!("task {id} is archived"),
            Self::Task { verb: Verb::Delete, id, .. } => format!("task {id} is deleted"),
            Self::Task { verb: Verb::Cancel, id, .. } => format!("asked the servers to stop task {id}"),
        }
    }
}
