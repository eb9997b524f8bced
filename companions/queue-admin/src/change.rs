//! Changes to one task that no worker has.

use bytes::Bytes;
use queue_core::flow::is_member;
use queue_core::keys::QueueKeys;
use queue_core::queue_name::{Family, QueueName, base_of};
use queue_core::{Clock as _, TaskMessage, TaskState};

use super::Inspector;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::verb::Verb;
use crate::{ServerInfo, WorkerInfo};
use queue_redis::broker::{Canceled, Change, MoveVerdict, PayloadChange, PayloadVerdict, Seen};

/// How often a change is begun anew because the task was changed meanwhile.
const ATTEMPTS: usize = 5;

impl Inspector {
    /// Makes a task pending, whatever it is waiting for, or ended as: a worker takes it after those that are
    /// pending already. A task of a group leaves the group, and joins it again should it be retried. Its
    /// message stays as it is, with the number of retries and the last error.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskActive`], [`Error::AlreadyPending`],
    /// [`Error::TaskMisplaced`]; or Redis cannot be asked or refuses.
    pub async fn run_task(&self, queue: &str, id: &str) -> Result<(), Error> {
        self.require_queue(queue).await?;
        let changes = self.broker().run_tasks(queue, Seen::Anywhere, &[id], self.clock.now_ns()).await?;
        let already = |queue, id| Error::AlreadyPending { queue, id };
        self.judge_and_tell((Verb::Run, None), queue, id, changes[0], already).await
    }

    /// Archives a task: it is kept, and nothing happens to it until somebody runs or deletes it, or 90 days
    /// have passed, or 9,999 younger ones are in the archive. Its uniqueness lock stays until its time is
    /// over. No failure is counted.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskActive`], [`Error::AlreadyArchived`],
    /// [`Error::TaskMisplaced`]; or Redis cannot be asked or refuses.
    pub async fn archive_task(&self, queue: &str, id: &str) -> Result<(), Error> {
        self.require_queue(queue).await?;
        self.look_at_the_clock().await?;
        let (changes, _) = self.broker().archive_tasks(queue, Seen::Anywhere, &[id], self.clock.now_secs()).await?;
        let already = |queue, id| Error::AlreadyArchived { queue, id };
        self.judge_and_tell((Verb::Archive, None), queue, id, changes[0], already).await
    }

    /// Deletes a task and the uniqueness lock it owns. What is left of a task that Go's Inspector trimmed
    /// from the archive, or that is called active although no worker has it, can be deleted too.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskActive`], [`Error::TaskMisplaced`]
    /// while it is being aggregated; or Redis cannot be asked or refuses.
    pub async fn delete_task(&self, queue: &str, id: &str) -> Result<(), Error> {
        self.require_queue(queue).await?;
        let from = if is_member(id.as_bytes()) { self.broker().state_of(queue, id).await? } else { None };
        let changes = self.broker().delete_tasks(queue, Seen::Anywhere, &[id]).await?;
        let already = |queue, id| Error::TaskNotFound { queue, id };
        self.judge_and_tell((Verb::Delete, from), queue, id, changes[0], already).await
    }

    /// Asks every server to cancel the task with this id, in whichever queue; returns how many servers heard
    /// it. Nothing is stored: where nobody listens, nothing happens.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cancel(&self, id: &str) -> Result<u64, Error> {
        Ok(self.broker().cancel(id).await?)
    }

    /// Ends a task for good, in whatever state it is: it goes to the archive, and is not tried again. What nobody works on is
    /// archived at once. Who works on it is told; a handler that succeeds all the same has succeeded. Until then the
    /// request is recorded, so that it counts also where nobody has heard of it, or a Go server lets the task be
    /// retried: such a task may start once more if a Go server takes it before the leader has seen it.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskMisplaced`] while it is being aggregated; or Redis
    /// cannot be asked or refuses.
    pub async fn cancel_for_good(&self, queue: &str, id: &str, by: &str) -> Result<Cancellation, Error> {
        let state = self.task(queue, id).await?.state;
        if matches!(state, TaskState::Archived | TaskState::Completed) {
            return Ok(Cancellation::Ended(state));
        }
        // Of a run that ends soon, nothing is left to be seen afterwards.
        let run: Option<String> = self.redis.command("HGET", (QueueKeys::new(queue).task(id), "owner")).await?;
        self.look_at_the_clock().await?;
        let heard = match self.broker().cancel_for_good(queue, id, by, self.clock.now_ns()).await? {
            Canceled::Archived(Change::AlreadyThere) => return Ok(Cancellation::Ended(TaskState::Archived)),
            Canceled::Archived(Change::MovedOn) => return Ok(Cancellation::Ended(TaskState::Completed)),
            Canceled::Archived(change) => {
                let already = |queue, id| Error::TaskNotFound { queue, id };
                let judged = self.judge_and_tell((Verb::Archive, None), queue, id, change, already).await;
                return judged.map(|()| Cancellation::Done);
            }
            Canceled::Asked(heard) => heard,
        };
        let has = |worker: &WorkerInfo| worker.task_id == id && worker.queue == queue;
        let servers = self.servers().await?;
        let mut holder = servers.iter().find(|server| server.workers.iter().any(has));
        if holder.is_none() {
            // What a server works on, it lists a while later.
            let has = |server: &&ServerInfo| {
                let (ServerInfo { host, pid, id, .. }, run) = (server, run.as_deref().unwrap_or_default());
                run.starts_with(&format!("{host}:{pid}:{id}:"))
            };
            holder = servers.iter().find(has);
        }
        Ok(match holder {
            Some(server) if heard > 0 => Cancellation::Told { server: format!("{}:{}", server.host, server.pid) },
            _ => Cancellation::Recorded,
        })
    }

    /// What the caller is told of a change, as [`judge`](Self::judge) says; what was done to a member, and from which state if that is known, its batch is told.
    async fn judge_and_tell(
        &self,
        (verb, from): (Verb, Option<TaskState>),
        queue: &str,
        id: &str,
        change: Change,
        already: impl FnOnce(String, String) -> Error,
    ) -> Result<(), Error> {
        self.judge(queue, id, change, already).await?;
        self.tell_batches(verb, from, [id.as_bytes()]).await;
        Ok(())
    }

    /// What the caller is told of a change.
    async fn judge(
        &self,
        queue: &str,
        id: &str,
        change: Change,
        already: impl FnOnce(String, String) -> Error,
    ) -> Result<(), Error> {
        let (queue, id) = (queue.to_owned(), id.to_owned());
        match change {
            Change::Applied | Change::Dropped => Ok(()),
            Change::Gone => Err(Error::TaskNotFound { queue, id }),
            Change::Active => Err(Error::TaskActive { queue, id }),
            Change::AlreadyThere => Err(already(queue, id)),
            Change::Misplaced | Change::MovedOn | Change::Elsewhere => {
                let state = self.task(&queue, &id).await?.state;
                Err(Error::TaskMisplaced { queue, id, state })
            }
        }
    }

    /// Gives a task another payload, in any state but active and completed. A uniqueness lock that was made
    /// from the old payload becomes that of the new one, with the time it has left.
    ///
    /// It is written only over the very message that was read, so that two who do this at once do not
    /// undo each other's work.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskActive`], [`Error::TaskCompleted`],
    /// [`Error::PayloadLocked`], [`Error::TaskChanged`], [`Error::Unreadable`]; or Redis cannot be asked or
    /// refuses.
    pub async fn update_payload(&self, queue: &str, id: &str, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.replace_payload(queue, id, payload.into(), None).await
    }

    /// What tells a task apart from what it was and will be: a hash of its message and state.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`]; or Redis cannot be asked or refuses.
    pub async fn task_version(&self, queue: &str, id: &str) -> Result<String, Error> {
        self.require_queue(queue).await?;
        let (message, state) = self.raw(queue, id).await?;
        Ok(version_of(&message, state))
    }

    /// As [`update_payload`](Self::update_payload); with a version, only if the task is still the same.
    ///
    /// # Errors
    /// The same, and [`Error::VersionChanged`].
    pub async fn replace_payload(
        &self,
        queue: &str,
        id: &str,
        payload: Bytes,
        version: Option<&str>,
    ) -> Result<(), Error> {
        self.require_queue(queue).await?;
        let (name, task) = (queue.to_owned(), id.to_owned());
        for _ in 0..ATTEMPTS {
            let (old, state) = self.raw(queue, id).await?;
            if version.is_some_and(|version| version != version_of(&old, state)) {
                return Err(Error::VersionChanged { queue: name, id: task });
            }
            let mut message = TaskMessage::from_bytes(old.clone()).map_err(|source| Error::Unreadable {
                queue: name.clone(),
                id: task.clone(),
                source,
            })?;
            let old_lock = message.unique_key.clone();
            let locks = follow_payload(&mut message, queue, payload.clone());
            let new = message.to_bytes();
            let locks = locks.then_some((&*old_lock, &*message.unique_key));
            let change = PayloadChange { id, old: &old, new: &new, locks };
            return match self.broker().update_payload(queue, &change).await? {
                PayloadVerdict::Applied => Ok(()),
                PayloadVerdict::Gone => Err(Error::TaskNotFound { queue: name, id: task }),
                PayloadVerdict::Locked(holder) => Err(Error::PayloadLocked { queue: name, holder }),
                PayloadVerdict::Over if state == Some(TaskState::Completed) => {
                    Err(Error::TaskCompleted { queue: name, id: task })
                }
                PayloadVerdict::Over => Err(Error::TaskActive { queue: name, id: task }),
                PayloadVerdict::Changed => continue,
                PayloadVerdict::Misplaced => {
                    Err(Error::TaskMisplaced { queue: name, id: task, state: state.unwrap_or(TaskState::Aggregating) })
                }
            };
        }
        Err(Error::TaskChanged { queue: name, id: task })
    }

    /// Puts a task that waits for a worker or for its time into another queue of its family: of another priority, for certain
    /// servers, or with `None` into the plain one. Returns the name of that queue. The task keeps its id, its time and its
    /// lock; a pending one is behind those that are there.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TaskNotFound`], [`Error::TaskActive`], [`Error::StateRefused`] in any other state,
    /// [`Error::AlreadyInQueue`], [`Error::IdTaken`], [`Error::MemberStays`], [`Error::CancelAsked`], [`Error::TaskMisplaced`],
    /// [`Error::TaskChanged`], [`Error::Unreadable`], [`Error::NoFamily`]; or Redis cannot be asked or refuses.
    pub async fn move_task(&self, queue: &str, id: &str, to: Option<Family>) -> Result<String, Error> {
        self.require_queue(queue).await?;
        let (name, task) = (queue.to_owned(), id.to_owned());
        if is_member(id.as_bytes()) {
            return Err(Error::MemberStays { queue: name, id: task });
        }
        to.as_ref().map_or(Ok(()), Family::check)?;
        let base = base_of(queue);
        let to = to.map_or_else(|| base.to_owned(), |family| QueueName::new(base, family).to_string());
        if to == queue {
            return Err(Error::AlreadyInQueue { queue: name, id: task });
        }
        if self.broker().cancel_request(queue, id).await?.is_some() {
            return Err(Error::CancelAsked { queue: name, id: task });
        }
        for _ in 0..ATTEMPTS {
            let (old, state) = self.raw(queue, id).await?;
            match state {
                Some(TaskState::Pending | TaskState::Scheduled | TaskState::Retry) => {}
                Some(TaskState::Active) => return Err(Error::TaskActive { queue: name, id: task }),
                Some(state) => return Err(Error::StateRefused { verb: "moved", state, hint: "" }),
                None => return Err(Error::TaskNotFound { queue: name, id: task }),
            }
            let message = TaskMessage::from_bytes(old.clone()).map_err(|source| Error::Unreadable {
                queue: name.clone(),
                id: task.clone(),
                source,
            })?;
            self.broker().publish_queue(&to).await?;
            match self.broker().move_task((queue, &to), &old, message, self.clock.now_ns()).await? {
                MoveVerdict::Moved => return Ok(to),
                MoveVerdict::Gone => return Err(Error::TaskNotFound { queue: name, id: task }),
                MoveVerdict::IdTaken => return Err(Error::IdTaken { queue: to, id: task }),
                MoveVerdict::Misplaced => {
                    return Err(Error::TaskMisplaced {
                        queue: name,
                        id: task,
                        state: state.unwrap_or(TaskState::Pending),
                    });
                }
                MoveVerdict::NotWaiting | MoveVerdict::Changed => {}
            }
        }
        Err(Error::TaskChanged { queue: name, id: task })
    }

    async fn raw(&self, queue: &str, id: &str) -> Result<(Bytes, Option<TaskState>), Error> {
        let (message, state): (Option<Vec<u8>>, Option<String>) =
            self.redis.command("HMGET", (QueueKeys::new(queue).task(id), "msg", "state")).await?;
        let missing = || Error::TaskNotFound { queue: queue.to_owned(), id: id.to_owned() };
        Ok((message.ok_or_else(missing)?.into(), state.and_then(|state| state.parse().ok())))
    }
}

fn version_of(message: &[u8], state: Option<TaskState>) -> String {
    let state = state.map_or("", TaskState::as_str);
    format!("{:x}", md5::compute([state.as_bytes(), b" ", message].concat()))
}

/// Puts the payload into the message, and the lock that belongs to it. A lock whose name was not made from
/// the payload stays. Returns whether the lock is another one now.
fn follow_payload(message: &mut TaskMessage, queue: &str, payload: Bytes) -> bool {
    let keys = QueueKeys::new(queue);
    let old = &message.payload;
    // An empty payload may have been none, which locks differently.
    let follows = !message.unique_key.is_empty()
        && (message.unique_key == keys.unique(&message.r#type, Some(old))
            || old.is_empty() && message.unique_key == keys.unique(&message.r#type, None));
    message.payload = payload;
    if !follows {
        return false;
    }
    let new = keys.unique(&message.r#type, Some(&message.payload));
    new != std::mem::replace(&mut message.unique_key, new.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &'static str, unique_key: &str) -> TaskMessage {
        TaskMessage {
            r#type: "t".into(),
            payload: payload.into(),
            unique_key: unique_key.into(),
            ..TaskMessage::default()
        }
    }

    #[test]
    fn only_a_lock_made_from_the_payload_follows_it() {
        let keys = QueueKeys::new("q");
        let new = keys.unique("t", Some(b"new"));
        for (payload, lock) in [("old", Some("old")), ("", Some("")), ("", None)] {
            let mut task = message(payload, &keys.unique("t", lock.map(str::as_bytes)));
            assert!(follow_payload(&mut task, "q", "new".into()), "{payload:?}");
            assert_eq!((&task.unique_key, &task.payload[..]), (&new, &b"new"[..]));
        }
        let mut same = message("old", &keys.unique("t", Some(b"old")));
        assert!(!follow_payload(&mut same, "q", "old".into()));
        for lock in ["", "asynq:{q}:unique:of-my-own"] {
            let mut task = message("old", lock);
            assert!(!follow_payload(&mut task, "q", "new".into()));
            assert_eq!(task.unique_key, lock);
        }
    }
}
