//! How a task stands, for those who wait for it.

use queue_core::crash::{CRASHES, Crashes};
use queue_core::keys::QueueKeys;
use queue_core::progress::{PROGRESS, Progress};
use queue_core::wire::TaskMessage;
use queue_core::{TaskInfo, TaskState};
use redis::Cmd;

use super::Broker;
use super::manage::{Change, Seen};
use crate::error::Error;

/// What somebody who waits for a task has to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLook {
    /// Its state; `None` if it says something that is none.
    pub state: Option<TaskState>,
    /// How far it is, or was in its last attempt that said so.
    pub progress: Option<Progress>,
}

/// The fields of a task's hash that a look needs.
type Fields = (Option<String>, Option<String>);

impl TaskLook {
    pub(crate) fn command(queue: &str, id: &str) -> Cmd {
        let mut look = redis::cmd("HMGET");
        look.arg(QueueKeys::new(queue).task(id)).arg("state").arg(PROGRESS);
        look
    }

    /// What the fields say; `None` if there is no such task.
    pub(crate) fn read((state, progress): Fields) -> Option<Self> {
        let progress = progress.as_deref().and_then(Progress::parse);
        state.map(|state| Self { state: state.parse().ok(), progress })
    }
}

/// What came of canceling a task for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canceled {
    /// A server works on it: that is recorded, and so many servers heard of it.
    Asked(u64),
    /// Nobody works on it; what archiving it came to: [`Change::Applied`], or [`Change::AlreadyThere`],
    /// [`Change::Gone`], and [`Change::MovedOn`] where it has succeeded.
    Archived(Change),
}

impl Broker {
    /// How a task stands; `None` if there is no such task.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn look_at(&self, queue: &str, id: &str) -> Result<Option<TaskLook>, Error> {
        Ok(TaskLook::read(self.redis.query("HMGET", &TaskLook::command(queue, id)).await?))
    }

    /// A task with its result; `None` if there is no such task. When it is due is left out.
    ///
    /// # Errors
    /// When its message or state cannot be read, or Redis cannot be asked or refuses.
    pub(crate) async fn task_info(&self, queue: &str, id: &str) -> Result<Option<TaskInfo>, Error> {
        type Whole = (Option<Vec<u8>>, Option<String>, Option<Vec<u8>>, Option<String>, Option<String>);
        let fields = (QueueKeys::new(queue).task(id), "msg", "state", "result", PROGRESS, CRASHES);
        let (Some(message), state, result, progress, crashes): Whole = self.redis.command("HMGET", fields).await?
        else {
            return Ok(None);
        };
        let message = TaskMessage::from_bytes(message.into()).map_err(|error| Error::unexpected("HMGET", &error))?;
        let state = state.unwrap_or_default().parse().map_err(|error| Error::unexpected("HMGET", &error))?;
        let mut task = TaskInfo::new(message, state);
        task.result = result.map(Into::into);
        task.progress = progress.as_deref().and_then(Progress::parse);
        task.crashes = crashes.as_deref().map_or(0, |field| Crashes::parse(field).count());
        Ok(Some(task))
    }

    /// Ends a task for good, in whatever state it is: what nobody works on is archived. Where a server works on it, the
    /// request is [recorded](Self::request_cancel), and the servers are told.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. It may have been done all the same.
    pub async fn cancel_for_good(&self, queue: &str, id: &str, by: &str, now_ns: i64) -> Result<Canceled, Error> {
        let (changes, _) =
            self.archive_tasks(queue, Seen::Uncompleted, &[id], now_ns.div_euclid(1_000_000_000)).await?;
        if changes[0] != Change::Active {
            return Ok(Canceled::Archived(changes[0]));
        }
        self.request_cancel(queue, id, by, now_ns.div_euclid(1_000_000)).await?;
        Ok(Canceled::Asked(self.cancel(id).await?))
    }
}
