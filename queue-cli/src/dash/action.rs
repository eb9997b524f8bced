//! What can be done from the keyboard.

use queue_core::State;

/// A change, of which the user is asked whether it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Of a queue.
    Queue(QueueVerb, String),
    /// Of a task.
    Task { verb: Verb, queue: String, id: String },
}

/// What can be done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueVerb {
    Pause,
    Resume,
}

/// What can be done to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Run,
    Archive,
    Delete,
    Cancel,
}

impl Verb {
    /// The key that asks for it.
    pub(super) fn of_key(key: char) -> Option<Self> {
        match key {
            'r' => Some(Self::Run),
            'a' => Some(Self::Archive),
            'd' => Some(Self::Delete),
            'c' => Some(Self::Cancel),
            _ => None,
        }
    }

    /// Whether it can be done to a task in this state; if not, why. Redis decides when it comes to it: the task
    /// may have moved since it was read.
    pub(super) fn allowed(self, state: State) -> Result<(), String> {
        let reason = match (self, state) {
            (Self::Cancel, State::Active) => return Ok(()),
            (Self::Cancel, _) => "only a task that is active can be cancelled",
            (_, State::Active) => "a task that is active can only be cancelled: c",
            (Self::Run, State::Pending) => "it is pending already: the next free worker runs it",
            (Self::Run, State::Completed) => "it is completed; it does not run again",
            (Self::Archive, State::Archived) => "it is archived already",
            (Self::Archive, State::Completed) => "it is completed; only tasks that may still run are archived",
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
                };
                [format!("{word} this queue?"), queue.clone(), consequence.to_owned()]
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
            Self::Task { verb: Verb::Run, id, .. } => format!("task {id} is pending"),
            Self::Task { verb: Verb::Archive, id, .. } => format!("task {id} is archived"),
            Self::Task { verb: Verb::Delete, id, .. } => format!("task {id} is deleted"),
            Self::Task { verb: Verb::Cancel, id, .. } => format!("asked the servers to stop task {id}"),
        }
    }
}
