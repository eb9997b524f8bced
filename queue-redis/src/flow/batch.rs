//! Batches as applications make them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, stream};
use queue_core::broadcast::AudienceError;
use queue_core::flow::{Event, FlowId, FlowIdError, MemberId, MemberOutcome, MemberState};
use queue_core::limits::CHANGE_BATCH;
use queue_core::{IntoTask, TaskState};

use super::builder::BatchBuilder;
use super::chunk::{Chunk, Tasks, erased};
use super::given::GivenOut;
use super::{BatchStatus, Member};
use crate::broker::Seen;
use crate::client::{Client, EnqueueError};
use crate::error::Error;
use crate::script::Word;

/// How often somebody who waits for a batch looks, at first and at the most.
const LOOK_AFTER: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why something could not be done with a batch.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// There is no batch of this id; it may have been over for so long that it was forgotten.
    #[error("there is no batch {id}; was it forgotten, or is it on another Redis?")]
    Unknown {
        /// The id.
        id: String,
    },
    /// The batch was committed, cancelled, or is over. After the commit, only its running members and callbacks may add
    /// to it.
    #[error("batch {id} is closed: after the commit only running members and callbacks of the batch can add to it")]
    Closed {
        /// The id.
        id: String,
    },
    /// A task cannot be a member, or a callback.
    #[error("task {position} cannot belong to a batch: {reason}")]
    Unsuitable {
        /// Which, from 0; of a callback its event.
        position: String,
        /// Why.
        reason: &'static str,
    },
    /// A callback cannot be enqueued; nothing was stored.
    #[error("the task of on_{event} was refused: {source}")]
    Callback {
        /// Its event.
        event: Event,
        /// Why.
        #[source]
        source: EnqueueError,
    },
    /// A task cannot be enqueued. The tasks before it may have been.
    #[error("task {position} of the batch was refused: {source}")]
    Refused {
        /// Which, from 0.
        position: u64,
        /// Why.
        source: EnqueueError,
    },
    /// There is no server to send a broadcast to, or there are not those that were asked for. Nothing was stored.
    #[error(transparent)]
    Audience(#[from] AudienceError),
    /// The batch of this id is no broadcast.
    #[error("batch {id} is no broadcast; `batch show` tells what it is")]
    NoBroadcast {
        /// The id.
        id: String,
    },
    /// A signal cannot be given: no node waits for it, it says too much, or the workflow has ended.
    #[error("the signal is refused: {reason}")]
    Signal {
        /// Why.
        reason: String,
    },
    /// A node cannot be run again yet: it, or something behind it, has not ended.
    #[error("node {node:?} cannot be run again before these have ended: {}", live.join(", "))]
    NotOver {
        /// Its name.
        node: String,
        /// Up to ten nodes and callbacks that have not ended.
        live: Vec<String>,
    },
    /// A node cannot be run again.
    #[error("node {node:?} cannot be run again: {reason}")]
    Rerun {
        /// Its name.
        node: String,
        /// Why.
        reason: String,
    },
    /// The nodes of a workflow do not fit together: they wait for each other in a circle, or for one that is not there.
    #[error("this cannot be a workflow: {reason}")]
    Graph {
        /// What does not fit.
        reason: String,
    },
    /// The task of a node cannot be enqueued. Nothing was stored.
    #[error("node {node:?} was refused: {source}")]
    Unplaced {
        /// Its name; within a batch with a slash and its position.
        node: String,
        /// Why.
        source: EnqueueError,
    },
    /// The id cannot be one.
    #[error(transparent)]
    Id(#[from] FlowIdError),
    /// The batch was not over in time.
    #[error("batch {id} was not over within {waited:?}; {live} members are live")]
    TimedOut {
        /// The id.
        id: String,
        /// How long was waited.
        waited: Duration,
        /// Members from which something is still to come.
        live: u64,
    },
    /// The task that runs is no member or callback of a batch.
    #[error("task {id:?} belongs to no batch")]
    NoMember {
        /// Task id.
        id: String,
    },
    /// Redis could not be asked, or refused.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(BatchError);

/// How many members were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Added {
    /// Members that are enqueued, now or by an earlier addition with the same key.
    pub members: u64,
    /// Tasks that were left out, because others hold their uniqueness locks.
    pub duplicates: u64,
}

/// A batch: tasks that belong together, and callbacks that are enqueued when they have ended. Cheap to clone.
///
/// In a handler of a member or a callback, it is had as an argument (`queue_worker`'s extractor), and may be added to while that
/// task runs.
#[derive(Clone)]
pub struct Batch {
    pub(super) client: Client,
    pub(super) id: FlowId,
    pub(super) born: Option<i64>,
    /// The task on whose behalf this is used.
    pub(super) behalf: Option<MemberId>,
    /// The key of the next additions.
    pub(super) key: Option<String>,
    /// How many additions were made with this key, to each flow of the tree: all handles of a run count together.
    pub(super) additions: Arc<Mutex<HashMap<u32, u32>>>,
    /// The numbers that additions were given: all handles of a run know them.
    pub(super) given_out: GivenOut,
    /// Whether it was there when it was to be made.
    pub(super) existed: bool,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("id", &self.id.to_string()).finish_non_exhaustive()
    }
}

impl Batch {
    /// The batch of a task that runs, by its id: what is added to it is added on behalf of this task, and once, however often the task
    /// is tried. To be called once in a run: what comes of it counts the additions, with its clones, parents, nodes and children.
    ///
    /// # Errors
    /// When the task belongs to no batch.
    pub fn of_task(client: Client, task_id: &str) -> Result<Self, BatchError> {
        let member = MemberId::of(task_id).ok_or_else(|| BatchError::NoMember { id: task_id.to_owned() })?;
        let (id, born, key) = (member.flow.clone(), member.born, Some(task_id.to_owned()));
        let (additions, given_out) = Default::default();
        Ok(Self { client, id, born, behalf: Some(member), key, additions, given_out, existed: true })
    }

    pub(crate) async fn named(client: Client, id: &str) -> Result<Self, BatchError> {
        let id: FlowId = id.parse()?;
        let flows = client.flows();
        if flows.status(&id).await?.is_none() {
            return Err(BatchError::Unknown { id: id.to_string() });
        }
        let born = flows.born(id.root()).await?;
        let (additions, given_out) = Default::default();
        Ok(Self { client, id, born, behalf: None, key: None, additions, given_out, existed: true })
    }

    /// Its id.
    pub fn id(&self) -> &FlowId {
        &self.id
    }

    /// Whether it was there before the call that returned this: what a call with the same id makes a second time is what is there, and
    /// callbacks, description, nodes and members that the second call names otherwise count for nothing. A batch that was looked
    /// up existed.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// The same batch, whose next addition has this key: made again with the same key, by a program that was started again, say, it
    /// adds what is missing and nothing twice. Additions from a handler of a member have keys by themselves.
    #[must_use]
    pub fn keyed(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self.additions = Arc::default();
        self
    }

    /// The batch that this one is a child of, to which the same task may add; `None` of a root.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn parent(&self) -> Result<Option<Self>, BatchError> {
        let status = self.status().await?;
        let Some(parent) = status.parent else { return Ok(None) };
        Ok(Some(Self { id: parent.parse()?, ..self.clone() }))
    }

    /// A batch within this one, which waits for it and its callbacks.
    pub fn child(&self) -> BatchBuilder {
        BatchBuilder::within(self.clone())
    }

    /// Adds members, in constant memory; they run as soon as they are enqueued.
    ///
    /// # Errors
    /// See [`BatchError`]. What was enqueued until then stays in the batch.
    pub fn add_all<'a, I>(&'a self, tasks: I) -> impl Future<Output = Result<Added, BatchError>> + Send + 'a
    where
        I: IntoIterator<Item: IntoTask, IntoIter: Send + 'a>,
    {
        self.add_stream(stream::iter(tasks))
    }

    /// The same for tasks that come as a stream. They are enqueued as they come; with a [key](Self::keyed), as in a handler, when there are ten
    /// thousand of them, 8 MiB, or no more: only then another attempt adds the same in the same pieces.
    ///
    /// # Errors
    /// As [`add_all`](Self::add_all).
    pub fn add_stream<'a, S>(&'a self, tasks: S) -> impl Future<Output = Result<Added, BatchError>> + Send + 'a
    where
        S: Stream<Item: IntoTask> + Send + 'a,
    {
        self.add_tasks(erased(tasks))
    }

    /// Boxed here, where no type of the caller's is left: otherwise it is judged `Send` once more for each caller's types, with all that it awaits.
    fn add_tasks<'a>(&'a self, mut tasks: Tasks<'a>) -> BoxFuture<'a, Result<Added, BatchError>> {
        async move {
            let first = Chunk::gather(&self.client, &mut tasks, 0, self.key.is_some()).await?;
            self.add_chunks(first, tasks).await
        }
        .boxed()
    }

    async fn mark(&self, what: &'static str) -> Result<Word, BatchError> {
        let flows = self.client.flows();
        let (word, claimed) = flows.broker.flow_mark((self.id.root(), self.id.number()), what, "").await?;
        flows.carry_out(self.id.root(), self.born, claimed).await?;
        Ok(word)
    }

    /// Says that all members are there. From now on the batch can end. A second time does nothing.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn commit(&self) -> Result<(), BatchError> {
        match self.mark("committed").await? {
            Word::Applied | Word::Same => Ok(()),
            Word::Closed => Err(BatchError::Closed { id: self.id.to_string() }),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }

    /// Cancels the batch and its children, for good: what waits is deleted, servers are asked to stop what runs, also when it is
    /// tried again later. What succeeds meanwhile counts as succeeded. Then `settled` happens, and never `success`.
    /// Returns `false` if it was over before.
    ///
    /// # Errors
    /// See [`BatchError`]. Once the call was answered, servers go on with it, whatever becomes of this process; so does another call, ten seconds
    /// later.
    pub async fn cancel(&self) -> Result<bool, BatchError> {
        match self.mark("cancelled").await? {
            Word::Applied | Word::Same => Ok(true),
            Word::Closed => Ok(false),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }

    /// Runs the members again that are in the archive; returns how many.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn retry_dead(&self) -> Result<u64, BatchError> {
        let flows = self.client.flows();
        let (dead, _) = flows.members(&self.id, Some(MemberState::Dead), 0, usize::MAX).await?;
        let mut by_queue: HashMap<String, Vec<String>> = HashMap::new();
        for Member { queue, id, .. } in dead {
            by_queue.entry(queue).or_default().push(id);
        }
        let mut again = 0;
        for (queue, ids) in by_queue {
            for ids in ids.chunks(CHANGE_BATCH) {
                // This comes before they run. A member that dies again at once would otherwise be recorded as dead first, and then as
                // one that runs.
                let members = ids.iter().filter_map(|id| Some((MemberId::of(id)?, MemberOutcome::Again)));
                flows.record(members.collect()).await?;
                let seen = Seen::In(TaskState::Archived);
                let changes = flows.broker.run_tasks(&queue, seen, ids, self.client.now_ns()).await?;
                again += changes.into_iter().filter(|change| change.is_done()).count() as u64;
            }
        }
        Ok(again)
    }

    /// Counts members that died or were removed as succeeded, because somebody has done their work by other means: those
    /// with these task ids, or all. Returns how many. What lies in the archive stays there; run again, it would run once more.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn resolve(&self, only: Option<&[String]>) -> Result<u64, BatchError> {
        let flows = self.client.flows();
        let mut resolved = Vec::new();
        for state in [MemberState::Dead, MemberState::Removed] {
            let (members, _) = flows.members(&self.id, Some(state), 0, usize::MAX).await?;
            let ids = members.into_iter().map(|member| member.id);
            let wanted = ids.filter(|id| only.is_none_or(|only| only.contains(id)));
            resolved.extend(wanted.filter_map(|id| Some((MemberId::of(&id)?, MemberOutcome::Ok))));
        }
        let count = resolved.len() as u64;
        flows.record(resolved).await?;
        Ok(count)
    }

    /// How it stands.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn status(&self) -> Result<BatchStatus, BatchError> {
        let status = self.client.flows().status(&self.id).await?;
        status.ok_or_else(|| BatchError::Unknown { id: self.id.to_string() })
    }

    /// Waits until it is over, callbacks included, and tells how it ended.
    ///
    /// # Errors
    /// [`BatchError::TimedOut`], or see [`BatchError`].
    pub async fn wait(&self, up_to: Duration) -> Result<BatchStatus, BatchError> {
        self.wait_until(up_to, BatchStatus::is_over).await
    }

    /// Waits until it is so.
    pub(super) async fn wait_until(
        &self,
        up_to: Duration,
        is_so: impl Fn(&BatchStatus) -> bool,
    ) -> Result<BatchStatus, BatchError> {
        let (began, mut pause) = (tokio::time::Instant::now(), LOOK_AFTER);
        loop {
            let looked = self.status().await;
            let waited = began.elapsed();
            match looked {
                Ok(status) if is_so(&status) => return Ok(status),
                Ok(status) if waited >= up_to => {
                    return Err(BatchError::TimedOut { id: self.id.to_string(), waited, live: status.live() });
                }
                // Redis comes back, and the batch goes on meanwhile or then.
                Err(BatchError::Redis(error)) if error.is_outage() && waited < up_to => {}
                looked => drop(looked?),
            }
            tokio::time::sleep(pause.min(up_to - waited)).await;
            pause = (pause * 2).min(LOOK_EVERY);
        }
    }
}
