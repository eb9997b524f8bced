//! Changes by somebody: who is allowed to is checked, and what was done is written down.

use bytes::Bytes;
use queue_core::flow::FlowId;
use queue_core::limit::{LaneChange, Limit};
use queue_core::queue_name::Family;
use queue_core::{RawTask, TaskInfo};
use queue_redis::{Batch, BatchError, Client, EnqueueError, Rerun};
use serde_json::Value;
use uuid::Uuid;

use crate::audit::{Actor, Target};
use crate::error::Error;
use crate::flow::Flow;
use crate::verb::{Action, BatchVerb, CronVerb, LimitVerb, QueueVerb, Verb};
use crate::{Cancellation, Changed, Filter, Inspector, Progress};

/// The changes of an [`Inspector`], done by an [`Actor`]. Each is refused unless the role allows it. It is written down in the
/// audit before it is done, with its outcome afterwards; if the first cannot be written, it is refused
/// ([`Error::Unaudited`]), but for one case: what makes room in a Redis that is full is done, and only logged.
#[derive(Debug, Clone)]
pub struct Admin {
    inspector: Inspector,
    actor: Actor,
}

impl Admin {
    /// Changes by this actor.
    pub fn new(inspector: Inspector, actor: Actor) -> Self {
        Self { inspector, actor }
    }

    /// What looks at the same queues.
    pub fn inspector(&self) -> &Inspector {
        &self.inspector
    }

    /// Who does it.
    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Refuses what the role does not allow, and writes down what is about to be done; returns the entry in the audit.
    pub(crate) async fn about_to(&self, action: Action, target: &Target<'_>) -> Result<Option<String>, Error> {
        let info = action.info();
        if !self.actor.role.allows(info.permission) {
            return Err(Error::Forbidden { permission: info.permission });
        }
        let (actor, name) = (&self.actor.name, info.name);
        tracing::info!(target: "queue_audit", action = name, actor, via = self.actor.via, queue = target.queue, "about to act");
        match self.inspector.audit_intent(&self.actor, info, target).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is_out_of_memory() && info.frees_memory => {
                tracing::warn!(target: "queue_audit", %error, action = name, actor, "Redis is full; this makes room and is done without an entry in the audit");
                Ok(None)
            }
            Err(error) => Err(Error::Unaudited(error)),
        }
    }

    pub(crate) async fn audited<T>(
        &self,
        action: Action,
        target: Target<'_>,
        work: impl Future<Output = Result<T, Error>>,
        changed: impl FnOnce(&T) -> Option<u64>,
    ) -> Result<T, Error> {
        let entry = self.about_to(action, &target).await?;
        let done = work.await;
        let (changed, error) = match &done {
            Ok(value) => (changed(value), None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.inspector.has_acted(entry.as_deref(), changed, error.as_deref()).await;
        done
    }

    /// As [`Inspector::change_task`], in the name of the actor.
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn change_task(&self, verb: Verb, queue: &str, id: &str) -> Result<bool, Error> {
        let target = Target { queue: Some(queue), ids: &[id], ..Target::default() };
        let work = self.inspector.change_task(verb, queue, id, &self.actor.name);
        self.audited(Action::Task(verb), target, work, |changed| Some(u64::from(*changed))).await
    }

    /// As [`Inspector::cancel`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn cancel(&self, id: &str) -> Result<u64, Error> {
        let target = Target { ids: &[id], ..Target::default() };
        self.audited(Action::Task(Verb::Interrupt), target, self.inspector.cancel(id), |_| None).await
    }

    /// As [`Inspector::cancel_for_good`], in the name of the actor.
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn cancel_for_good(&self, queue: &str, id: &str) -> Result<Cancellation, Error> {
        let target = Target { queue: Some(queue), ids: &[id], ..Target::default() };
        let work = self.inspector.cancel_for_good(queue, id, &self.actor.name);
        let changed = |canceled: &Cancellation| Some(u64::from(!matches!(canceled, Cancellation::Ended(_))));
        self.audited(Action::Task(Verb::Cancel), target, work, changed).await
    }

    /// As [`Inspector::change_all`], in the name of the actor.
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn change_all(
        &self,
        verb: Verb,
        queue: &str,
        filter: &Filter,
        progress: impl FnMut(Progress) + Send,
    ) -> Result<Changed, Error> {
        let target = Target { queue: Some(queue), filter: Some(filter.to_string()), ..Target::default() };
        let work = self.inspector.change_all(verb, queue, filter, &self.actor.name, progress);
        self.audited(Action::Tasks(verb), target, work, |changed| Some(changed.changed)).await
    }

    /// As [`Inspector::update_payload`], or with a version as [`Inspector::replace_payload`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn update_payload(
        &self,
        queue: &str,
        id: &str,
        payload: impl Into<Bytes>,
        version: Option<&str>,
    ) -> Result<(), Error> {
        let target = Target { queue: Some(queue), ids: &[id], ..Target::default() };
        let work = self.inspector.replace_payload(queue, id, payload.into(), version);
        self.audited(Action::Update, target, work, |()| Some(1)).await
    }

    /// As [`Inspector::move_task`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn move_task(&self, queue: &str, id: &str, to: Option<Family>) -> Result<String, Error> {
        let target = Target { queue: Some(queue), ids: &[id], ..Target::default() };
        let work = self.inspector.move_task(queue, id, to);
        self.audited(Action::Move, target, work, |_| Some(1)).await
    }

    /// Puts tasks into queues: one answer for each, in order.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::Unaudited`]; then nothing was enqueued.
    pub async fn enqueue(
        &self,
        client: &Client,
        queue: &str,
        tasks: Vec<RawTask>,
    ) -> Result<Vec<Result<TaskInfo, EnqueueError>>, Error> {
        let ids: Vec<String> = tasks.iter().filter_map(|task| task.options.task_id.clone()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let target = Target { queue: Some(queue), ids: &ids, ..Target::default() };
        let work = async { Ok(client.enqueue_many(tasks).await) };
        self.audited(Action::Enqueue, target, work, |answers| {
            Some(answers.iter().filter(|answer| answer.is_ok()).count() as u64)
        })
        .await
    }

    /// Pauses or resumes a queue; whether that changed anything.
    ///
    /// # Errors
    /// As [`Inspector::pause`]; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn pause(&self, queue: &str, paused: bool) -> Result<bool, Error> {
        let target = Target { queue: Some(queue), ..Target::default() };
        let verb = if paused { QueueVerb::Pause } else { QueueVerb::Resume };
        let work =
            async { if paused { self.inspector.pause(queue).await } else { self.inspector.unpause(queue).await } };
        self.audited(Action::Queue(verb), target, work, |changed| Some(u64::from(*changed))).await
    }

    /// As [`Inspector::remove_queue`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn remove_queue(&self, queue: &str, force: bool) -> Result<u64, Error> {
        let target = Target { queue: Some(queue), ..Target::default() };
        let work = self.inspector.remove_queue(queue, force);
        self.audited(Action::Queue(QueueVerb::Remove), target, work, |tasks| Some(*tasks)).await
    }

    /// As [`Inspector::set_limit`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn set_limit(&self, queue: &str, limit: Limit) -> Result<(), Error> {
        let name = limit.name.clone();
        let target = Target { queue: Some(queue), entry: Some(&name), ..Target::default() };
        let work = self.inspector.set_limit(queue, limit);
        self.audited(Action::Limit(LimitVerb::Set), target, work, |()| None).await
    }

    /// As [`Inspector::remove_limit`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn remove_limit(&self, queue: &str, name: &str) -> Result<(), Error> {
        let target = Target { queue: Some(queue), entry: Some(name), ..Target::default() };
        let work = self.inspector.remove_limit(queue, name);
        self.audited(Action::Limit(LimitVerb::Remove), target, work, |()| None).await
    }

    /// As [`Inspector::remove_limits`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn remove_limits(&self, queue: &str) -> Result<u64, Error> {
        let target = Target { queue: Some(queue), ..Target::default() };
        let work = self.inspector.remove_limits(queue);
        self.audited(Action::Limit(LimitVerb::Remove), target, work, |tasks| Some(*tasks)).await
    }

    /// As [`Inspector::change_lane`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn change_lane(
        &self,
        queue: &str,
        name: &str,
        key: &str,
        change: Option<&LaneChange>,
    ) -> Result<(), Error> {
        let lane = format!("{name}:{key}");
        let target = Target { queue: Some(queue), entry: Some(&lane), ..Target::default() };
        let work = self.inspector.change_lane(queue, name, key, change);
        self.audited(Action::Limit(LimitVerb::Key), target, work, |()| None).await
    }

    /// Pauses or resumes a periodic entry; whether that changed anything.
    ///
    /// # Errors
    /// As [`Inspector::pause_cron`]; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn pause_cron(&self, entry: &str, paused: bool) -> Result<bool, Error> {
        let verb = if paused { CronVerb::Pause } else { CronVerb::Resume };
        let work = async {
            if paused { self.inspector.pause_cron(entry).await } else { self.inspector.resume_cron(entry).await }
        };
        self.audited(Action::Cron(verb), of_entry(entry), work, |changed| Some(u64::from(*changed))).await
    }

    /// As [`Inspector::run_cron`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn run_cron(&self, entry: &str, force: bool) -> Result<String, Error> {
        let work = self.inspector.run_cron(entry, force);
        self.audited(Action::Cron(CronVerb::Run), of_entry(entry), work, |_| Some(1)).await
    }

    /// As [`Inspector::remove_cron`].
    ///
    /// # Errors
    /// As there; [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn remove_cron(&self, entry: &str) -> Result<(), Error> {
        let work = self.inspector.remove_cron(entry);
        self.audited(Action::Cron(CronVerb::Remove), of_entry(entry), work, |()| None).await
    }

    /// Makes a batch or a workflow, see [`Flow::make`]; one without an id gets a random one.
    ///
    /// # Errors
    /// [`Error::FlowRefused`], [`Error::BatchClosed`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn create_batch(&self, client: &Client, mut flow: Flow) -> Result<Batch, Error> {
        let id = flow.id.get_or_insert_with(|| Uuid::new_v4().simple().to_string()).clone();
        let (members, work) = (flow.members() as u64, async {
            flow.make(client).await.map_err(|error| match error {
                BatchError::Redis(error) => error.into(),
                BatchError::Closed { id } => Error::BatchClosed(id),
                refused => Error::FlowRefused(refused.to_string()),
            })
        });
        let target = Target { ids: &[&id], ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Create), target, work, |_| Some(members)).await
    }

    /// Cancels a batch and its children, see [`Batch::cancel`]; returns `false` if it was over before.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn cancel_batch(&self, id: &FlowId) -> Result<bool, Error> {
        let id = id.to_string();
        let work = async { self.batch(&id).await?.cancel().await.map_err(of_batch(&id)) };
        let target = Target { ids: &[&id], ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Cancel), target, work, |changed| Some(u64::from(*changed))).await
    }

    /// Runs the members of a batch again that are in the archive; returns how many.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn retry_batch(&self, id: &FlowId) -> Result<u64, Error> {
        let id = id.to_string();
        let work = async { self.batch(&id).await?.retry_dead().await.map_err(of_batch(&id)) };
        let target = Target { ids: &[&id], ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Retry), target, work, |members| Some(*members)).await
    }

    /// Counts members of a batch that died or were removed as succeeded, those with these task ids or all, see [`Batch::resolve`];
    /// returns how many.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn resolve_batch(&self, id: &FlowId, only: Option<&[String]>) -> Result<u64, Error> {
        let id = id.to_string();
        let work = async { self.batch(&id).await?.resolve(only).await.map_err(of_batch(&id)) };
        let members = only.unwrap_or_default().iter().map(String::as_str);
        let ids: Vec<&str> = std::iter::once(&*id).chain(members).collect();
        let target = Target { ids: &ids, ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Resolve), target, work, |members| Some(*members)).await
    }

    /// Gives or declines the signal that a node of a workflow waits for, see [`Batch::signal`]; returns whether that counts.
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], [`Error::SignalRefused`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn signal_batch(&self, id: &FlowId, node: &str, said: &Value, declined: bool) -> Result<bool, Error> {
        let id = id.to_string();
        let work = async {
            let batch = self.batch(&id).await?;
            let told = if declined { batch.decline(node, said).await } else { batch.signal(node, said).await };
            told.map_err(|error| match error {
                BatchError::Redis(_) | BatchError::Unknown { .. } => of_batch(&id)(error),
                refused => Error::SignalRefused(refused.to_string()),
            })
        };
        let target = Target { ids: &[&id, node], ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Signal), target, work, |changed| Some(u64::from(*changed))).await
    }

    /// Runs a node of a workflow again, and all that is behind it, see [`Batch::rerun`].
    ///
    /// # Errors
    /// [`Error::BatchNotFound`], [`Error::RerunRefused`], [`Error::Forbidden`], [`Error::Unaudited`].
    pub async fn rerun_batch(&self, id: &FlowId, node: &str) -> Result<Rerun, Error> {
        let id = id.to_string();
        let work = async {
            self.batch(&id).await?.rerun(node).await.map_err(|error| match error {
                BatchError::Redis(_) | BatchError::Unknown { .. } => of_batch(&id)(error),
                refused => Error::RerunRefused(refused.to_string()),
            })
        };
        let target = Target { ids: &[&id, node], ..Target::default() };
        self.audited(Action::Batch(BatchVerb::Rerun), target, work, |done| Some(done.nodes)).await
    }

    async fn batch(&self, id: &str) -> Result<Batch, Error> {
        Client::new(self.inspector.redis.clone()).batch_of(id).await.map_err(of_batch(id))
    }
}

/// The other errors of batches are about making them.
fn of_batch(id: &str) -> impl Fn(BatchError) -> Error {
    move |error| match error {
        BatchError::Redis(error) => error.into(),
        _ => Error::BatchNotFound(id.to_owned()),
    }
}

fn of_entry(entry: &str) -> Target<'_> {
    Target { entry: Some(entry), ..Target::default() }
}
