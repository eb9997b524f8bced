use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, stream};
use queue_core::attempt::{Attempt, FIELDS};
use queue_core::crash::{CRASHES, Crashes};
use queue_core::keys::QueueKeys;
use queue_core::progress::{PROGRESS, Progress};
use queue_core::task_log::TaskLog;
use queue_core::{Clock as _, RawTask, TaskInfo, TaskMessage, TaskState};

use super::Inspector;
use queue_redis::Connection;
use queue_redis::Error as RedisError;
use queue_redis::broker::next_batch;

use crate::error::Error;
use crate::lenient::sorted;

/// Queues that are searched at the same time: there may be thousands of them, on a Redis far away.
const AT_ONCE: usize = 32;

/// A part of a long list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Entries to leave out at the beginning.
    pub skip: usize,
    /// Most entries to return.
    pub size: usize,
}

impl Page {
    /// Its first place and its last, as Redis counts them: Redis knows no number beyond those of 64 bits with a sign. Not for
    /// an empty page.
    pub(super) fn places(self) -> (i64, i64) {
        let last = self.skip.saturating_add(self.size - 1);
        (as_index(self.skip), as_index(last))
    }
}

impl Default for Page {
    /// The first 30 entries, as in asynq.
    fn default() -> Self {
        Self { skip: 0, size: 30 }
    }
}

/// An id with the score it has in its set, if it comes from one.
pub(super) type Entry = (Vec<u8>, Option<f64>);

impl Inspector {
    /// Tasks of a queue in one state: pending and active ones oldest first, the others by their time.
    /// For aggregating tasks the groups follow each other by name.
    /// Tasks whose message cannot be read are left out.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn tasks(&self, queue: &str, state: TaskState, page: Page) -> Result<Vec<TaskInfo>, Error> {
        self.tasks_as(queue, state, page, |task| task).await
    }

    /// As [`tasks`](Self::tasks), with what `keep` makes of each task. It is given a task as soon as it is read: whoever keeps
    /// little of it never holds the payloads and results of a whole page, which may be gigabytes.
    ///
    /// # Errors
    /// As [`tasks`](Self::tasks).
    pub async fn tasks_as<T>(
        &self,
        queue: &str,
        state: TaskState,
        page: Page,
        keep: impl FnMut(TaskInfo) -> T,
    ) -> Result<Vec<T>, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        if page.size == 0 {
            return Ok(Vec::new());
        }
        let entries = match keys.container(state) {
            Some(list) if matches!(state, TaskState::Pending | TaskState::Active) => {
                let (first, last) = page.places();
                let ids: Vec<Vec<u8>> = connection.command("LRANGE", (list, -1 - last, -1 - first)).await?;
                ids.into_iter().rev().map(|id| (id, None)).collect()
            }
            Some(set) => range(&mut connection, &set, page).await?,
            None => self.aggregating(&mut connection, &keys, page).await?,
        };
        let read = self.read(&mut connection, &keys, state, entries, keep).await?;
        Ok(read.into_iter().flatten().collect())
    }

    async fn aggregating(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        page: Page,
    ) -> Result<Vec<Entry>, Error> {
        let groups = connection.command("SMEMBERS", keys.groups()).await.map(sorted)?;
        let (mut skip, mut entries) = (page.skip, Vec::new());
        for group in groups {
            let size = page.size - entries.len();
            if size == 0 {
                break;
            }
            let key = keys.group(&group);
            let length: usize = connection.command("ZCARD", &key).await?;
            if skip >= length {
                skip -= length;
                continue;
            }
            entries.extend(range(connection, &key, Page { skip, size }).await?);
            skip = 0;
        }
        Ok(entries)
    }

    /// What `keep` makes of each of these tasks; `None` where no message can be read. No more of them travel at once than
    /// [`next_batch`] lets: Redis holds an answer until all of it is sent.
    pub(super) async fn read<T>(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        state: TaskState,
        entries: Vec<Entry>,
        mut keep: impl FnMut(TaskInfo) -> T,
    ) -> Result<Vec<Option<T>>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.look_at_the_clock().await?;
        let sizes = measure(connection, keys, entries.iter().map(|(id, _)| &id[..])).await?;
        let mut sized = entries.into_iter().zip(sizes).peekable();
        let mut kept = Vec::with_capacity(sized.len());
        while sized.peek().is_some() {
            let batch = next_batch(&mut sized, usize::MAX, |(_, size)| *size);
            let entries = batch.into_iter().map(|(entry, _)| entry).collect();
            let tasks = self.read_batch(connection, keys, state, entries).await?;
            kept.extend(tasks.into_iter().map(|task| task.map(&mut keep)));
        }
        Ok(kept)
    }

    async fn read_batch(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        state: TaskState,
        entries: Vec<Entry>,
    ) -> Result<Vec<Option<TaskInfo>>, Error> {
        let now = self.clock.now();
        let mut fetch = redis::pipe();
        for (id, _) in &entries {
            fetch.cmd("HMGET").arg(key(keys, id)).arg("msg").arg("result").arg(PROGRESS).arg(CRASHES);
        }
        // Only attempts have leases.
        let is_active = state == TaskState::Active;
        for (id, _) in entries.iter().filter(|_| is_active) {
            fetch.cmd("ZSCORE").arg(keys.lease()).arg(id);
        }
        type Row = (Option<Vec<u8>>, Option<Vec<u8>>, Option<String>, Option<String>);
        let mut replies: Vec<redis::Value> = connection.pipeline("reading tasks", &fetch).await?;
        let leases: Vec<Option<f64>> = redis::from_redis_value(redis::Value::Array(replies.split_off(entries.len())))
            .map_err(|error| RedisError::unexpected("reading leases", &error))?;
        let mut tasks = Vec::with_capacity(entries.len());
        for (at, ((_, score), reply)) in entries.into_iter().zip(replies).enumerate() {
            let (message, result, progress, crashes): Row =
                redis::from_redis_value(reply).map_err(|error| RedisError::unexpected("reading tasks", &error))?;
            let message = message.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
            tasks.push(message.map(|message| {
                let mut task = TaskInfo::new(message, state).due_at(due(state, score, now));
                task.result = result.map(Bytes::from);
                task.progress = progress.as_deref().and_then(Progress::parse);
                task.crashes = crashes.as_deref().map_or(0, |field| Crashes::parse(field).count());
                let lease = leases.get(at).copied().flatten();
                task.is_orphaned = is_active && lease.is_none_or(|expiry| expiry as i64 <= now.timestamp());
                task
            }));
        }
        Ok(tasks)
    }

    /// How many attempts of a task failed at servers of ours, and the last five of them, oldest first. What Go's servers
    /// do is not among them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn attempts(&self, queue: &str, id: &str) -> Result<(u64, Vec<Attempt>), Error> {
        let fields: [Option<String>; FIELDS.len()] =
            self.redis.command("HMGET", (QueueKeys::new(queue).task(id), &FIELDS)).await?;
        Ok(Attempt::read(&fields))
    }

    /// What a task has written down so far: its last lines, of all attempts at servers of ours.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn log(&self, queue: &str, id: &str) -> Result<TaskLog, Error> {
        Ok(self.broker().log(queue, id).await?)
    }

    /// One task, in whatever state.
    ///
    /// # Errors
    /// When there is no such queue or task, its message cannot be read, or Redis cannot be asked or
    /// refuses.
    pub async fn task(&self, queue: &str, id: &str) -> Result<TaskInfo, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        type Fields = (Option<Vec<u8>>, Option<String>, Option<Vec<u8>>, Option<String>, Option<String>);
        let (message, state, result, progress, crashes): Fields =
            self.redis.command("HMGET", (keys.task(id), "msg", "state", "result", PROGRESS, CRASHES)).await?;
        let missing = || Error::TaskNotFound { queue: queue.to_owned(), id: id.to_owned() };
        let message = TaskMessage::from_bytes(message.ok_or_else(missing)?.into())
            .map_err(|source| Error::Unreadable { queue: queue.to_owned(), id: id.to_owned(), source })?;
        let state: TaskState =
            state.as_deref().unwrap_or_default().parse().map_err(|error| RedisError::unexpected("HMGET", &error))?;
        let score: Option<f64> = match (state, keys.container(state)) {
            (TaskState::Scheduled | TaskState::Retry, Some(set)) => self.redis.command("ZSCORE", (set, id)).await?,
            (TaskState::Active, _) => self.redis.command("ZSCORE", (keys.lease(), id)).await?,
            _ => None,
        };
        self.look_at_the_clock().await?;
        let now = self.clock.now();
        let mut task = TaskInfo::new(message, state).due_at(due(state, score, now));
        task.result = result.map(Bytes::from);
        task.progress = progress.as_deref().and_then(Progress::parse);
        task.crashes = crashes.as_deref().map_or(0, |field| Crashes::parse(field).count());
        task.is_orphaned = state == TaskState::Active && score.is_none_or(|expiry| expiry as i64 <= now.timestamp());
        Ok(task)
    }
}

impl Inspector {
    /// The task of this id, if it has this type and payload: whoever enqueues again finds what is there already.
    ///
    /// # Errors
    /// As [`task`](Self::task), but that there is none is an answer.
    pub async fn same_task(&self, queue: &str, id: &str, as_this: &RawTask) -> Result<Option<TaskInfo>, Error> {
        match self.task(queue, id).await {
            Ok(task) => {
                let payload = as_this.payload.as_deref().unwrap_or_default();
                Ok(Some(task).filter(|task| task.task_type == as_this.task_type && task.payload == payload))
            }
            Err(Error::TaskNotFound { .. } | Error::QueueNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The tasks of this id, in all listed queues that `sees` lets through; empty where there is none.
    ///
    /// # Errors
    /// When there are only such whose messages cannot be read, or Redis cannot be asked or refuses.
    pub async fn task_everywhere(&self, id: &str, sees: impl Fn(&str) -> bool) -> Result<Vec<TaskInfo>, Error> {
        let queues = self.queues().await?.into_iter().filter(|queue| sees(queue));
        let mut looks = stream::iter(queues).map(|queue| async move { self.task(&queue, id).await }).buffered(AT_ONCE);
        let (mut found, mut unreadable) = (Vec::new(), None);
        while let Some(seen) = looks.next().await {
            match seen {
                Ok(task) => found.push(task),
                // The queue may be removed while we look.
                Err(Error::TaskNotFound { .. } | Error::QueueNotFound(_)) => {}
                Err(error @ Error::Unreadable { .. }) => unreadable = unreadable.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match unreadable {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }
}

/// How many bytes the messages and results of these tasks have.
pub(super) async fn measure<'a>(
    connection: &mut Connection,
    keys: &QueueKeys,
    ids: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<usize>, Error> {
    let mut look = redis::pipe();
    for id in ids {
        let key = key(keys, id);
        look.cmd("HSTRLEN").arg(&key).arg("msg").cmd("HSTRLEN").arg(&key).arg("result");
    }
    let sizes: Vec<usize> = connection.pipeline("measuring tasks", &look).await?;
    Ok(sizes.chunks_exact(2).map(|pair| pair[0].saturating_add(pair[1])).collect())
}

/// The key of a task whose id may be no text.
pub(super) fn key(keys: &QueueKeys, id: &[u8]) -> Vec<u8> {
    [keys.task_prefix().as_bytes(), id].concat()
}

fn due(state: TaskState, score: Option<f64>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    match state {
        TaskState::Pending => Some(now),
        TaskState::Scheduled | TaskState::Retry => DateTime::from_timestamp(score? as i64, 0),
        _ => None,
    }
}

pub(super) async fn range(connection: &mut Connection, set: &str, page: Page) -> Result<Vec<Entry>, Error> {
    let members: Vec<(Vec<u8>, f64)> = connection.command("ZRANGE", (set, page.places(), "WITHSCORES")).await?;
    Ok(members.into_iter().map(|(id, score)| (id, Some(score))).collect())
}

fn as_index(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
