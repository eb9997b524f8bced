//! What operators can do: one table for the command line, the dashboards, the REST API and the audit.

use queue_core::TaskState;
use serde::Serialize;

use crate::Inspector;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::role::Permission;

queue_core::words! {
    /// What can be done to tasks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Verb with ALL {
        /// Make them pending.
        Run: "run",
        /// Put them into the archive.
        Archive: "archive",
        /// Delete them, and the locks they own.
        Delete: "delete",
        /// End those that run for good: they are not tried again.
        Cancel: "cancel",
        /// Ask their servers to stop this attempt, as asynq's tools do. It counts as failed, and they are retried.
        Interrupt: "interrupt",
    }
}

/// What can be done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueVerb {
    /// Hand its tasks to no worker.
    Pause,
    /// Hand them out again.
    Resume,
    /// Remove it with all that belongs to it.
    Remove,
}

/// What can be done to a periodic entry of ours; those of Go's schedulers can only be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronVerb {
    /// Let its ticks pass.
    Pause,
    /// Take it up again.
    Resume,
    /// Enqueue its task now.
    Run,
    /// Forget it and its history.
    Remove,
}

/// What can be done to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchVerb {
    /// Make one, with its tasks.
    Create,
    /// Cancel it and its children, for good.
    Cancel,
    /// Run its members again that are in the archive.
    Retry,
    /// Count its dead and removed members as succeeded.
    Resolve,
    /// Give or decline the signal that a node of it waits for.
    Signal,
    /// Run a node of it again, and all that is behind that.
    Rerun,
}

/// What can be ordered of a server of ours; Go's take no orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerVerb {
    /// Take no more tasks; go on with those in hand.
    Quiet,
    /// Take tasks again.
    Resume,
    /// End, as after TERM.
    Stop,
    /// Run so many tasks at once, and give queues these weights.
    Set,
    /// Go by its own configuration again.
    Reset,
}

/// What can be done to the limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitVerb {
    /// Set one.
    Set,
    /// Remove one, or all.
    Remove,
    /// Change what holds for one key of one.
    Key,
}

/// What can be done to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationVerb {
    /// Let it rest.
    Pause,
    /// Let it go on.
    Resume,
    /// End it.
    Cancel,
}

/// What can be done to what an operation has put into the bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinVerb {
    /// Bring it back.
    Restore,
    /// Delete it for good.
    Empty,
}

/// All that an operator can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// To one task.
    Task(Verb),
    /// To all tasks that fit.
    Tasks(Verb),
    /// Give a task another payload.
    Update,
    /// Put a task into another queue of its family.
    Move,
    /// Put tasks into a queue.
    Enqueue,
    /// To a queue.
    Queue(QueueVerb),
    /// To a periodic entry.
    Cron(CronVerb),
    /// To a batch.
    Batch(BatchVerb),
    /// To a server.
    Server(ServerVerb),
    /// To the limits of a queue.
    Limit(LimitVerb),
    /// To an operation.
    Operation(OperationVerb),
    /// To what is in the bin.
    Bin(BinVerb),
}

/// A line of the table: what is said of an action, and where it can be had.
#[derive(Debug)]
#[non_exhaustive]
pub struct ActionInfo {
    /// Which one.
    pub action: Action,
    /// Its name in the audit.
    pub name: &'static str,
    /// What a button says, and the question before it.
    pub word: &'static str,
    /// The same in the past: `3 tasks archived`.
    pub past: &'static str,
    /// What follows, to be read before it is done.
    pub consequence: &'static str,
    /// The key in `queuectl dash`, in upper case for all that fit. Some keys have one meaning for each thing.
    pub key: Option<char>,
    /// The command of `queuectl`.
    pub command: &'static str,
    /// Method and path below `/api/v1`; `None` where the REST API has none yet.
    pub route: Option<(&'static str, &'static str)>,
    /// What somebody needs to do it.
    pub permission: Permission,
    /// Whether it makes room in Redis, so that it is done although the audit cannot be written for want of room.
    pub frees_memory: bool,
}

macro_rules! actions {
    ($($action:expr, $name:literal, $word:literal, $past:literal, $key:expr, $command:literal, $route:expr, $permission:ident, $frees:literal,
        $consequence:literal;)*) => {
        &[$(ActionInfo {
            action: $action, name: $name, word: $word, past: $past, consequence: $consequence, key: $key,
            command: $command, route: $route, permission: Permission::$permission, frees_memory: $frees,
        },)*]
    };
}

use Action::{Batch, Bin, Cron, Enqueue, Limit, Move, Operation, Queue, Server, Task, Tasks, Update};

static ACTIONS: &[ActionInfo] = actions! {
    Task(Verb::Run), "task.run", "Run", "made pending", Some('r'), "task run",
        Some(("POST", "/queues/{queue}/tasks/{id}/run")), Run, false,
        "It becomes pending now, whatever it was waiting for.";
    Task(Verb::Archive), "task.archive", "Archive", "archived", Some('a'), "task archive",
        Some(("POST", "/queues/{queue}/tasks/{id}/archive")), Archive, false,
        "It does not run until somebody runs it; archived tasks are kept 90 days.";
    Task(Verb::Delete), "task.delete", "Delete", "deleted", Some('d'), "task delete",
        Some(("DELETE", "/queues/{queue}/tasks/{id}")), Delete, true,
        "It cannot be brought back.";
    Task(Verb::Cancel), "task.cancel", "Cancel", "told to end", Some('c'), "task cancel",
        Some(("POST", "/queues/{queue}/tasks/{id}/cancel")), Cancel, false,
        "It is stopped and goes to the archive, unless its handler succeeds all the same; it is not retried.";
    Task(Verb::Interrupt), "task.interrupt", "Interrupt", "asked to stop", Some('i'), "task cancel --attempt",
        Some(("POST", "/queues/{queue}/tasks/{id}/interrupt")), Cancel, false,
        "Its server is asked to stop this attempt; it counts as failed and is retried.";
    Tasks(Verb::Run), "tasks.run", "Run", "made pending", Some('R'), "task run",
        Some(("POST", "/queues/{queue}/bulk")), Run, false,
        "They become pending now, whatever they were waiting for.";
    Tasks(Verb::Archive), "tasks.archive", "Archive", "archived", Some('A'), "task archive",
        Some(("POST", "/queues/{queue}/bulk")), Archive, false,
        "They do not run until somebody runs them; archived tasks are kept 90 days.";
    Tasks(Verb::Delete), "tasks.delete", "Delete", "deleted", Some('D'), "task delete",
        Some(("POST", "/queues/{queue}/bulk")), Delete, true,
        "They cannot be brought back.";
    Tasks(Verb::Cancel), "tasks.cancel", "Cancel", "told to end", Some('C'), "task cancel",
        Some(("POST", "/queues/{queue}/bulk")), Cancel, false,
        "They are stopped and go to the archive, unless their handlers succeed all the same; they are not retried.";
    Tasks(Verb::Interrupt), "tasks.interrupt", "Interrupt", "asked to stop", Some('I'), "task cancel --attempt",
        Some(("POST", "/queues/{queue}/bulk")), Cancel, false,
        "Their servers are asked to stop these attempts; they count as failed and are retried.";
    Update, "task.update", "Change the payload of", "changed", None, "task update",
        Some(("PUT", "/queues/{queue}/tasks/{id}/payload")), Update, false,
        "Its attempts from now on get the new payload; the old one is gone.";
    Move, "task.move", "Move", "moved", None, "task move",
        None, Run, false,
        "It waits behind the tasks of its new priority, or for other servers.";
    Enqueue, "task.enqueue", "Enqueue", "enqueued", None, "enqueue",
        Some(("POST", "/queues/{queue}/tasks")), Enqueue, false,
        "A worker takes it when its turn comes.";
    Queue(QueueVerb::Pause), "queue.pause", "Pause", "paused", Some('s'), "queue pause",
        Some(("PUT", "/queues/{queue}/pause")), Pause, false,
        "Its tasks are handed to no worker; those that are active go on.";
    Queue(QueueVerb::Resume), "queue.resume", "Resume", "resumed", Some('s'), "queue resume",
        Some(("DELETE", "/queues/{queue}/pause")), Pause, false,
        "Its tasks are handed to workers again.";
    Queue(QueueVerb::Remove), "queue.remove", "Delete", "deleted", Some('d'), "queue remove",
        Some(("DELETE", "/queues/{queue}")), Remove, true,
        "A queue that still has tasks is not deleted.";
    Cron(CronVerb::Pause), "cron.pause", "Pause", "paused", Some('s'), "cron pause",
        Some(("PUT", "/cron/{entry}/pause")), Cron, false,
        "Its ticks enqueue nothing, and do not count as missed.";
    Cron(CronVerb::Resume), "cron.resume", "Resume", "resumed", Some('s'), "cron resume",
        Some(("DELETE", "/cron/{entry}/pause")), Cron, false,
        "Its ticks enqueue its task again, from the next one on.";
    Cron(CronVerb::Run), "cron.run", "Run", "run", Some('r'), "cron run",
        Some(("POST", "/cron/{entry}/run")), Cron, false,
        "Its task is enqueued now; that counts as a run.";
    Cron(CronVerb::Remove), "cron.remove", "Forget", "forgotten", None, "cron remove",
        Some(("DELETE", "/cron/{entry}")), Remove, true,
        "Its state and history are deleted. One that a scheduler still carries comes back.";
    Batch(BatchVerb::Create), "batch.create", "Create", "created", None, "workflow create",
        Some(("POST", "/batches")), Enqueue, false,
        "Workers take its tasks when their turn comes; its callbacks follow.";
    Batch(BatchVerb::Cancel), "batch.cancel", "Cancel", "cancelled", None, "batch cancel",
        Some(("POST", "/batches/{batch}/cancel")), Delete, false,
        "Its tasks that wait are deleted, and servers are asked to stop those that run; it never succeeds.";
    Batch(BatchVerb::Retry), "batch.retry", "Retry", "run again", None, "batch retry",
        Some(("POST", "/batches/{batch}/retry")), Run, false,
        "Its members in the archive become pending now; if they succeed, so can the batch.";
    Batch(BatchVerb::Resolve), "batch.resolve", "Resolve", "resolved", None, "batch resolve",
        Some(("POST", "/batches/{batch}/resolve")), Run, false,
        "Its members that died or were removed count as succeeded, for good; their tasks stay in the archive.";
    Batch(BatchVerb::Signal), "batch.signal", "Give the signal of", "given", None, "workflow signal",
        Some(("POST", "/batches/{batch}/signals/{node}")), Run, false,
        "The node that waits for it succeeds, or is skipped if it is declined; that is final once it has succeeded.";
    Batch(BatchVerb::Rerun), "batch.rerun", "Run again from", "run again", None, "workflow rerun",
        Some(("POST", "/batches/{batch}/nodes/{node}/rerun")), Run, false,
        "The node and all that is behind it run once more, and the callbacks come again; what is before it keeps its results.";
    Server(ServerVerb::Quiet), "server.quiet", "Quiet", "quiet", None, "server quiet",
        None, Steer, false,
        "It takes no more tasks; those in hand go on. By name, this outlives restarts.";
    Server(ServerVerb::Resume), "server.resume", "Resume", "taking tasks", None, "server resume",
        None, Steer, false,
        "It takes tasks again.";
    Server(ServerVerb::Stop), "server.stop", "Stop", "told to end", None, "server stop",
        None, Stop, false,
        "It ends as after TERM; what does not end in time is requeued. Whoever supervises it may start it again.";
    Server(ServerVerb::Set), "server.set", "Set", "set", None, "server set",
        None, Steer, false,
        "It runs more or fewer tasks at once from now on; those that run go on. By name, this outlives restarts.";
    Server(ServerVerb::Reset), "server.reset", "Reset", "reset", None, "server reset",
        None, Steer, false,
        "It goes by its own configuration again.";
    Limit(LimitVerb::Set), "limit.set", "Limit", "limited", None, "limit set",
        Some(("PUT", "/queues/{queue}/limits/{limit}")), Pause, false,
        "Tasks without room wait, for asynq's tools as scheduled ones; those that are active go on.";
    Limit(LimitVerb::Remove), "limit.remove", "Remove the limit of", "removed", None, "limit rm",
        Some(("DELETE", "/queues/{queue}/limits/{limit}")), Pause, false,
        "What waits for room is taken as servers are free.";
    Limit(LimitVerb::Key), "limit.key", "Change a key of the limit of", "changed", None, "limit key",
        Some(("PUT", "/queues/{queue}/limits/{limit}/keys/{key}")), Pause, false,
        "It holds for tasks that are taken from now on.";
    Operation(OperationVerb::Pause), "operation.pause", "Pause", "paused", None, "operation pause",
        Some(("PATCH", "/operations/{operation}")), Run, false,
        "What it has changed stays so; it goes on when somebody lets it.";
    Operation(OperationVerb::Resume), "operation.resume", "Resume", "resumed", None, "operation resume",
        Some(("PATCH", "/operations/{operation}")), Run, false,
        "It goes on where it was.";
    Operation(OperationVerb::Cancel), "operation.cancel", "Cancel", "cancelled", None, "operation cancel",
        Some(("PATCH", "/operations/{operation}")), Run, false,
        "What it has changed stays so; the rest is left alone.";
    Bin(BinVerb::Restore), "bin.restore", "Restore", "restored", None, "bin restore",
        Some(("POST", "/operations")), Delete, false,
        "They are again what they were; those whose id or lock another task has by now, and those for which a full archive has no room, stay in the bin.";
    Bin(BinVerb::Empty), "bin.empty", "Delete for good", "deleted for good", None, "bin empty",
        Some(("DELETE", "/bin/{operation}")), Delete, true,
        "They cannot be brought back.";
};

impl Action {
    /// The whole table.
    pub fn all() -> &'static [ActionInfo] {
        ACTIONS
    }

    /// Its line in the table.
    ///
    /// # Panics
    /// Never: a test walks all actions.
    pub fn info(self) -> &'static ActionInfo {
        ACTIONS.iter().find(|info| info.action == self).expect("the table has every action")
    }
}

impl Verb {
    /// The states of tasks to which it can be done.
    pub fn possible(self) -> impl Iterator<Item = TaskState> {
        TaskState::ALL.into_iter().filter(move |state| self.check(*state).is_ok())
    }

    /// The states it goes through when none is named, which are those of which asynqmon offers it.
    pub fn usual_states(self) -> &'static [TaskState] {
        use TaskState::{Active, Aggregating, Archived, Completed, Pending, Retry, Scheduled};
        match self {
            Self::Run => &[Scheduled, Retry, Archived, Aggregating],
            Self::Archive => &[Pending, Scheduled, Retry, Aggregating],
            Self::Delete => &[Pending, Scheduled, Retry, Archived, Completed, Aggregating],
            Self::Cancel | Self::Interrupt => &[Active],
        }
    }

    pub(crate) fn check(self, state: TaskState) -> Result<(), Error> {
        let (verb, hint) = match (self, state) {
            (Self::Cancel | Self::Interrupt, TaskState::Active) => return Ok(()),
            (Self::Cancel, _) => ("cancelled", "; archive or delete them"),
            (Self::Interrupt, _) => ("interrupted", "; archive or delete them"),
            (Self::Run, TaskState::Active) => ("run", "; they are being worked on"),
            (Self::Run, TaskState::Pending) => ("run", "; a worker takes them when their turn comes"),
            (Self::Archive, TaskState::Active) => ("archived", "; cancel them, or wait until they are done"),
            (Self::Archive, TaskState::Archived) => ("archived", "; they are already"),
            (Self::Delete, TaskState::Active) => ("deleted", "; cancel them, or wait until they are done"),
            _ => return Ok(()),
        };
        Err(Error::StateRefused { verb, state, hint })
    }
}

impl Inspector {
    /// Does this to one task, in the name of somebody. Returns `false` where nothing came of it: the task that was to be
    /// cancelled had ended before, or no server was there to hear that it should be interrupted.
    ///
    /// # Errors
    /// As [`run_task`](Self::run_task), [`archive_task`](Self::archive_task), [`delete_task`](Self::delete_task),
    /// [`cancel_for_good`](Self::cancel_for_good) and [`cancel`](Self::cancel).
    pub async fn change_task(&self, verb: Verb, queue: &str, id: &str, by: &str) -> Result<bool, Error> {
        match verb {
            Verb::Run => self.run_task(queue, id).await?,
            Verb::Archive => self.archive_task(queue, id).await?,
            Verb::Delete => self.delete_task(queue, id).await?,
            Verb::Cancel => return Ok(!matches!(self.cancel_for_good(queue, id, by).await?, Cancellation::Ended(_))),
            Verb::Interrupt => return Ok(self.cancel(id).await? > 0),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::role::Role;

    #[test]
    fn a_verb_goes_through_no_state_to_which_it_cannot_be_done() {
        for verb in Verb::ALL {
            let possible: Vec<TaskState> = verb.possible().collect();
            assert!(verb.usual_states().iter().all(|state| possible.contains(state)), "{verb:?}");
        }
        for verb in [Verb::Cancel, Verb::Interrupt] {
            assert_eq!(verb.possible().collect::<Vec<_>>(), [TaskState::Active]);
        }
    }

    #[test]
    fn the_table_has_every_action_once_and_every_permission_is_somebodys() {
        for verb in Verb::ALL {
            assert_eq!(Action::Task(verb).info().command, Action::Tasks(verb).info().command);
        }
        for verb in [QueueVerb::Pause, QueueVerb::Resume, QueueVerb::Remove] {
            assert!(Action::Queue(verb).info().name.starts_with("queue."));
        }
        for verb in [CronVerb::Pause, CronVerb::Resume, CronVerb::Run, CronVerb::Remove] {
            assert!(Action::Cron(verb).info().name.starts_with("cron."));
        }
        for verb in [LimitVerb::Set, LimitVerb::Remove, LimitVerb::Key] {
            assert!(Action::Limit(verb).info().name.starts_with("limit."));
        }
        use BatchVerb::{Cancel, Create, Rerun, Resolve, Retry, Signal};
        for verb in [Create, Cancel, Retry, Resolve, Signal, Rerun] {
            assert!(Action::Batch(verb).info().name.starts_with("batch."));
        }
        for verb in [OperationVerb::Pause, OperationVerb::Resume, OperationVerb::Cancel] {
            assert!(Action::Operation(verb).info().name.starts_with("operation."));
        }
        for verb in [BinVerb::Restore, BinVerb::Empty] {
            assert!(Action::Bin(verb).info().name.starts_with("bin."));
        }
        use ServerVerb::{Quiet, Reset, Resume, Set, Stop};
        for verb in [Quiet, Resume, Stop, Set, Reset] {
            assert!(Action::Server(verb).info().name.starts_with("server."));
        }
        let (update, enqueue) = (Action::Update.info(), Action::Enqueue.info());
        assert_eq!((update.permission, enqueue.permission), (Permission::Update, Permission::Enqueue));
        assert_eq!(Action::Move.info().permission, Permission::Run);
        let names: BTreeSet<&str> = ACTIONS.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), ACTIONS.len());
        for permission in Permission::ALL {
            let allowed = Role::ALL.map(|role| role.allows(permission));
            assert!(allowed.is_sorted() && allowed[2], "{permission:?}: a higher role may no less");
        }
    }
}
