//! Making a batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, stream};
use queue_core::clock::{secs_ceil, unix_secs_ceil};
use queue_core::flow::{Event, FlowId, MemberId};
use queue_core::keys;
use queue_core::limits;
use queue_core::{EncodeError, IntoTask, RawTask};

use super::batch::{Batch, BatchError};
use super::chunk::{Chunk, Tasks, as_member, check, erased};
use super::status::{DESCRIPTION, METADATA, TAGS};
use super::{Flows, TREE};
use crate::broker::Opening;
use crate::broker::duties::{MEMBERS, score};
use crate::client::Client;
use crate::error::Error;
use crate::script::Word;

/// A batch that is about to be made; see [`Client::batch`].
#[derive(Debug, Clone)]
#[must_use = "a batch is made by `add_all` or `open`"]
pub struct BatchBuilder {
    pub(super) client: Client,
    /// The batch that it is to be a child of.
    parent: Option<Batch>,
    name: String,
    texts: Vec<(&'static str, Bytes)>,
    tags: BTreeSet<String>,
    metadata: BTreeMap<String, String>,
    callbacks: Vec<(Event, Result<RawTask, Arc<EncodeError>>)>,
    deadline: Option<SystemTime>,
    linger: Duration,
}

impl BatchBuilder {
    pub(crate) fn new(client: Client) -> Self {
        let (name, texts, tags, metadata, callbacks) = Default::default();
        Self { client, parent: None, name, texts, tags, metadata, callbacks, deadline: None, linger: Duration::ZERO }
    }

    /// A batch within this one.
    pub(super) fn within(parent: Batch) -> Self {
        Self { parent: Some(parent.clone()), ..Self::new(parent.client) }
    }

    /// A node of this workflow, which lives as long as that.
    pub(super) fn into_node_of(self, parent: Batch, name: &str) -> Self {
        Self { parent: Some(parent), name: name.to_owned(), deadline: None, linger: Duration::ZERO, ..self }
    }

    /// The id of the batch, or of a child its name within its parent: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`. Made a second
    /// time by this id, the batch is the one that is there, as long as it is kept: with the same tasks,
    /// [`add_all`](Self::add_all) goes on where it was, after an error or in a program that was started again. Defaults to 16
    /// random characters.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.name = id.into();
        self
    }

    /// What the batch is for; shown by tools.
    pub fn description(self, text: impl Into<String>) -> Self {
        self.text(DESCRIPTION, text.into())
    }

    /// A word by which tools find the batch among others; may be given more than once.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.insert(tag.into());
        self
    }

    /// Something else to remember of the batch, under a name; of a name that is given twice the last text. Handlers and callbacks read it by
    /// [`Batch::status`]. With description and tags 16 KiB at the most.
    pub fn metadata(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), text.into());
        self
    }

    /// What is remembered of the batch; of a field that is given twice the last text.
    pub(super) fn text(mut self, field: &'static str, text: String) -> Self {
        self.texts.retain(|(known, _)| *known != field);
        self.texts.push((field, text.into()));
        self
    }

    fn json(self, field: &'static str, of: impl FnOnce(&Self) -> serde_json::Result<String>) -> Self {
        // Texts always can be written.
        let text = of(&self).unwrap_or_default();
        self.text(field, text)
    }

    /// What it is for, unless that was said.
    pub(super) fn described(self, text: impl FnOnce() -> String) -> Self {
        if self.texts.iter().any(|(field, _)| *field == DESCRIPTION) { self } else { self.description(text()) }
    }

    /// The id that was chosen for it; `None` where it gets a random one.
    pub(super) fn chosen_id(&self) -> Result<Option<FlowId>, BatchError> {
        Ok(if self.name.is_empty() { None } else { Some(FlowId::root_named(&self.name)?) })
    }

    fn callback(mut self, event: Event, task: impl IntoTask) -> Self {
        self.callbacks.retain(|(known, _)| *known != event);
        self.callbacks.push((event, task.into_task().map_err(Arc::new)));
        self
    }

    /// A task that is enqueued once, when every member and the callback of [`on_complete`](Self::on_complete) have succeeded.
    pub fn on_success(self, task: impl IntoTask) -> Self {
        self.callback(Event::Success, task)
    }

    /// A task that is enqueued once, when every member has been attempted: some may have failed, and be tried again.
    pub fn on_complete(self, task: impl IntoTask) -> Self {
        self.callback(Event::Complete, task)
    }

    /// A task that is enqueued when the first member dies or is removed; once more only if all was well in between.
    pub fn on_death(self, task: impl IntoTask) -> Self {
        self.callback(Event::Death, task)
    }

    /// A task that is enqueued when nothing is left to be done, however it ended; after all other callbacks.
    pub fn on_settled(self, task: impl IntoTask) -> Self {
        self.callback(Event::Settled, task)
    }

    /// Cancels the batch if it is not over by then; to the second. Defaults to never.
    pub fn deadline(mut self, at: impl Into<SystemTime>) -> Self {
        self.deadline = Some(at.into());
        self
    }

    /// How long the batch is kept when it is over; to the second. Defaults to an hour if all went well, else to 90 days. Children are
    /// kept as long as the root.
    pub fn linger(mut self, duration: Duration) -> Self {
        self.linger = duration;
        self
    }

    /// Makes the batch without members; they are [added](Batch::add_all), and then it has to be [committed](Batch::commit).
    ///
    /// # Errors
    /// See [`BatchError`]; then there is no batch, unless the error is of Redis.
    pub async fn open(self) -> Result<Batch, BatchError> {
        Ok(self.make(Opening::default(), Vec::new()).await?.0)
    }

    /// Makes the batch, adds these members, and commits it. Members run as soon as they are enqueued. However many there are,
    /// no more than ten thousand are in memory at once. A batch without members succeeds at once.
    ///
    /// If this process dies before the end, nobody commits the batch, unless it is made once more by its [`id`](Self::id): until then it
    /// settles as abandoned after half an hour, without success. A batch of one queue and at most ten thousand tasks that has no id of the
    /// caller's is committed at once, and shows those as removed that the process had no time to enqueue.
    ///
    /// # Errors
    /// See [`BatchError`]. What was enqueued until then stays in the batch, which is not committed. [`BatchError::Closed`] says that
    /// there is a batch of this id with fewer tasks.
    pub fn add_all<'a, I>(self, tasks: I) -> impl Future<Output = Result<Batch, BatchError>> + Send + 'a
    where
        I: IntoIterator<Item: IntoTask, IntoIter: Send + 'a>,
    {
        self.add_stream(stream::iter(tasks))
    }

    /// The same for tasks that come as a stream. They are enqueued as they come; of a batch with an [`id`](Self::id), when there are ten
    /// thousand of them, 8 MiB, or no more: only then it is completed in the same pieces when it is made once more.
    ///
    /// # Errors
    /// As [`add_all`](Self::add_all).
    pub fn add_stream<'a, S>(self, tasks: S) -> impl Future<Output = Result<Batch, BatchError>> + Send + 'a
    where
        S: Stream<Item: IntoTask> + Send + 'a,
    {
        self.add_tasks(erased(tasks))
    }

    /// Boxed for the same reason as `Batch::add_tasks`.
    fn add_tasks(self, mut tasks: Tasks<'_>) -> BoxFuture<'_, Result<Batch, BatchError>> {
        async move {
            let has_chosen_name = !self.name.is_empty();
            let first = Chunk::gather(&self.client, &mut tasks, 0, has_chosen_name).await?;
            // Nobody can make this batch a second time. Most are small: then one call makes it, gives out its numbers and commits it.
            if let Some(queue) = first.only_queue()
                && first.is_last
                && !has_chosen_name
            {
                let count = first.tasks.len() as u32;
                let queue = queue.to_owned();
                let opening = Opening { count, queue: queue.clone(), commit: true, ..Opening::default() };
                let (batch, fresh) = self.make(opening, vec![queue]).await?;
                if let Some(number) = fresh {
                    batch.enqueue_from(number, first.tasks).await?;
                }
                return Ok(batch);
            }
            let (batch, _) = self.make(Opening::default(), Vec::new()).await?;
            let adding = if has_chosen_name { batch.clone().keyed(MADE) } else { batch.clone() };
            adding.add_chunks(first, tasks).await?;
            batch.commit().await?;
            Ok(batch)
        }
        .boxed()
    }

    /// Makes the flow, whose members are in these queues; also the first number that was given out, if the flow is new.
    pub(super) async fn make(
        mut self,
        mut opening: Opening,
        mut queues: Vec<String>,
    ) -> Result<(Batch, Option<u32>), BatchError> {
        let now_ns = self.client.now_ns();
        if !self.tags.is_empty() {
            self = self.json(TAGS, |head| serde_json::to_string(&head.tags));
        }
        if !self.metadata.is_empty() {
            self = self.json(METADATA, |head| serde_json::to_string(&head.metadata));
        }
        let about = self.texts.iter().filter(|(field, _)| [DESCRIPTION, TAGS, METADATA].contains(field));
        if about.map(|(_, text)| text.len()).sum::<usize>() > limits::FLOW_MAX_ABOUT_BYTES {
            let reason = "description, tags and metadata take more than 16 KiB; store them elsewhere, and say where";
            return Err(BatchError::Unsuitable { position: "description".to_owned(), reason });
        }
        // What is further away than that, scripts cannot count.
        opening.deadline = self.deadline.map_or(0, unix_secs_ceil).min(limits::LAST_SECOND);
        opening.linger = secs_ceil(self.linger).min(limits::LAST_SECOND);
        opening.texts.extend(self.texts.into_iter().map(|(field, text)| (field.to_owned(), text)));
        for (event, task) in self.callbacks {
            let unsuitable = |reason| BatchError::Unsuitable { position: format!("on_{event}"), reason };
            let refused = |source| BatchError::Callback { event, source };
            let task = task.map_err(|_| unsuitable("its payload cannot be encoded"))?;
            check(&task, &unsuitable)?;
            if task.options.process.is_some() || task.options.unique.is_some() {
                return Err(unsuitable("a callback is enqueued at once; it has no delay and no uniqueness lock"));
            }
            let mut composed = as_member(task, now_ns).map_err(refused)?;
            self.client.prepare(&mut composed).map_err(refused)?;
            queues.push(composed.message.queue.clone());
            opening.texts.push((format!("message:{event}"), composed.message.to_bytes()));
        }
        let flows = self.client.flows();
        let (root, parent) = match &self.parent {
            Some(parent) => {
                opening.parent = Some(parent.id.number());
                opening.name = self.name;
                if !opening.name.is_empty() {
                    FlowId::root_named(&opening.name)?;
                }
                opening.behalf = parent.behalf.as_ref().map(MemberId::behalf).unwrap_or_default();
                (parent.id.sibling(0), Some(parent))
            }
            None if self.name.is_empty() => (FlowId::root_named(&random_name())?, None),
            None => {
                opening.has_chosen_name = true;
                (FlowId::root_named(&self.name)?, None)
            }
        };
        queues.retain(|queue| !queue.is_empty());
        queues.sort_unstable();
        queues.dedup();
        flows.list(&root, &queues, opening.deadline, now_ns).await?;
        let opened = flows.broker.flow_open(root.root(), &opening).await?;
        // One of the same name may have been forgotten meanwhile, and what was listed for this one with it.
        let is_named_anew = opening.has_chosen_name && opened.word == Word::Applied;
        // The looks that were asked for come too late, since the clock of this host is ahead. Or they may have come when there was no
        // tree yet, and have ended: this process stood still, or its clock is behind.
        let is_listed_amiss = (opened.now - now_ns.div_euclid(1_000_000_000)).abs() > STANDS_STILL_SECS / 2;
        if is_named_anew || is_listed_amiss {
            flows.list(&root, &queues, opening.deadline, opened.now * 1_000_000_000).await?;
        }
        if is_named_anew {
            // Whoever has just looked at the other one sees that somebody has asked again, and lets the duty stand.
            flows.broker.ask_for_duty(TREE, root.root(), opened.now * 1_000).await?;
        }
        let known = |parent: &Batch| parent.id.to_string();
        match opened.word {
            Word::Applied | Word::Same => {}
            Word::Closed => return Err(BatchError::Closed { id: parent.map(known).unwrap_or_default() }),
            _ => return Err(BatchError::Unknown { id: parent.map(known).unwrap_or_default() }),
        }
        let fresh = (opened.word == Word::Applied).then_some(opened.first);
        let born = parent.map_or(opened.born, |parent| parent.born);
        flows.carry_out(root.root(), born, opened.claimed).await?;
        let (behalf, additions) = self.parent.map(|parent| (parent.behalf, parent.additions)).unwrap_or_default();
        // Another attempt of the task finds the flow again by its name, and adds to it what the first has not.
        let key = behalf.as_ref().filter(|_| !opening.name.is_empty()).map(MemberId::to_string);
        let id = root.sibling(opened.number);
        let (given_out, existed) = (Default::default(), fresh.is_none());
        Ok((Batch { client: self.client, id, born, behalf, key, additions, given_out, existed }, fresh))
    }
}

const STANDS_STILL_SECS: i64 = limits::FLOW_STANDS_STILL_AFTER.as_secs() as i64;

/// The key of the members with which a batch is made.
const MADE: &str = ".made";

/// 16 letters and digits.
fn random_name() -> String {
    let mut bits = uuid::Uuid::new_v4().as_u128();
    let letters = std::iter::repeat_with(|| {
        let letter = char::from_digit((bits % 36) as u32, 36).unwrap_or('0');
        bits /= 36;
        letter
    });
    letters.take(16).collect()
}

impl Flows {
    /// Lists a tree and its queues, so that somebody looks after them whatever becomes of this process. `deadline` is that of a flow of the
    /// tree, 0 for none.
    async fn list(&self, root: &FlowId, queues: &[String], deadline: i64, now_ns: i64) -> Result<(), Error> {
        let now_ms = now_ns.div_euclid(1_000_000);
        let mut listing = redis::pipe();
        listing.cmd("ZADD").arg(keys::FLOWS).arg("NX").arg(now_ms / 1_000).arg(root.root()).ignore();
        let duty = |listing: &mut redis::Pipeline, name: &str, subject: &str, at_ms: i64| {
            listing
                .cmd("ZADD")
                .arg(keys::DUTIES)
                .arg("LT")
                .arg(score(name, at_ms))
                .arg(format!("{name} {subject}"))
                .ignore();
        };
        let first_look = now_ms + STANDS_STILL_SECS * 1_000;
        let first_look = if deadline > 0 { first_look.min(deadline * 1_000) } else { first_look };
        duty(&mut listing, TREE, root.root(), first_look);
        for queue in queues {
            listing.cmd("SADD").arg(keys::QUEUES).arg(queue).ignore();
            duty(&mut listing, MEMBERS, queue, now_ms);
        }
        self.broker.redis().pipeline("ZADD", &listing).await
    }

    pub(super) async fn list_queue(&self, queue: &str, now_ns: i64) -> Result<(), Error> {
        self.broker.ask_for_duty(MEMBERS, queue, now_ns.div_euclid(1_000_000)).await
    }
}
