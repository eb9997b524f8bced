//! One task on several servers: a workflow without edges, whose nodes are the tasks in the servers' mailboxes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use queue_core::broadcast::{Candidate, Chosen, LeftOut, Plan, To, Verdict, choose};
use queue_core::flow::FlowId;
use queue_core::keys::DEFAULT_QUEUE;
use queue_core::queue_name::Family;
use queue_core::{EncodeError, IntoTask, RawTask};

use super::batch::{Batch, BatchError};
use super::builder::BatchBuilder;
use super::cast::CAST;
use super::report::BroadcastStatus;
use super::status::BatchState;
use super::store::start;
use super::workflow::{Ready, WorkflowBuilder};
use crate::client::Client;

/// A task that is about to be sent to several servers; see [`Client::broadcast`].
#[derive(Debug, Clone)]
#[must_use = "a broadcast is made by `send`"]
pub struct BroadcastBuilder {
    head: BatchBuilder,
    task: Result<RawTask, Arc<EncodeError>>,
    to: To,
    queue: Option<String>,
    quorum: Option<u32>,
    until: Option<SystemTime>,
    replace_after: Option<Duration>,
}

impl BroadcastBuilder {
    fn new(client: Client, task: impl IntoTask) -> Self {
        let (task, head) = (task.into_task().map_err(Arc::new), BatchBuilder::new(client));
        Self { head, task, to: To::Live, queue: None, quorum: None, until: None, replace_after: None }
    }

    fn with(mut self, change: impl FnOnce(BatchBuilder) -> BatchBuilder) -> Self {
        self.head = change(self.head);
        self
    }

    /// Whom it is for. Defaults to all live servers of the queue.
    pub fn to(mut self, to: To) -> Self {
        self.to = to;
        self
    }

    /// The queue whose servers are meant. Defaults to that of the task.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = Some(name.into());
        self
    }

    /// How many servers have to succeed; then [`wait`](Broadcast::wait) ends, and the others go on. Defaults to all that are chosen.
    pub fn quorum(mut self, servers: u32) -> Self {
        self.quorum = Some(servers);
        self
    }

    /// Servers that start until then have a part in it, too, to the second; without a quorum, they have to succeed as well. The broadcast is
    /// not over before. For all live servers, or those with a label. Defaults to none.
    pub fn late_joiners(mut self, until: impl Into<SystemTime>) -> Self {
        self.until = Some(until.into());
        self
    }

    /// If no server of a chosen name has been alive for so long, another server does its part, and the task in the mailbox of the lost one
    /// is deleted. Between 10 s and a day; a server counts as alive for 10 s after its last heartbeat. For a count of servers. Defaults to
    /// never: then the part waits for its server.
    pub fn replace_lost(mut self, after: Duration) -> Self {
        self.replace_after = Some(after);
        self
    }

    /// The id of the broadcast: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`. Sent a second time by this id, the broadcast is the one that
    /// is there, with the servers that were chosen then; if its maker died half-way, it is completed. Defaults to 16 random characters.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|head| head.id(id))
    }

    /// What it is for; shown by tools. Defaults to the type of the task and whom it is for.
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with(|head| head.description(text))
    }

    /// Cancels what is not over by then, to the second. Defaults to never.
    pub fn deadline(self, at: impl Into<SystemTime>) -> Self {
        self.with(|head| head.deadline(at))
    }

    /// How long it is kept when it is over, with the results; to the second. Defaults to an hour if every server has succeeded, else to
    /// 90 days.
    pub fn linger(self, duration: Duration) -> Self {
        self.with(|head| head.linger(duration))
    }

    /// A task that is enqueued once, when every chosen server has succeeded, whatever the quorum.
    pub fn on_success(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_success(task))
    }

    /// A task that is enqueued when the first of the tasks dies or is removed.
    pub fn on_death(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_death(task))
    }

    /// A task that is enqueued when nothing is left to be done, however it ended.
    pub fn on_settled(self, task: impl IntoTask) -> Self {
        self.with(|head| head.on_settled(task))
    }

    /// Chooses the servers and puts the task into the mailbox of each. Either all of them get it or nobody does: if this process dies on
    /// the way, the broadcast is abandoned after half an hour, and nobody has run it; sent once more by the same id, it is completed.
    ///
    /// # Errors
    /// [`BatchError::Audience`] when there is nobody, or not those that were asked for; [`BatchError::Unsuitable`] when the task has an id,
    /// a group, a delay or a uniqueness lock. Then nothing was stored. [`BatchError::NoBroadcast`] when another batch has this id.
    pub async fn send(self) -> Result<Broadcast, BatchError> {
        let client = self.head.client.clone();
        if self.until.is_some() && !matches!(self.to, To::Live | To::Labelled(_)) {
            return Err(unsuitable(
                "servers that start later have a part only if it is for all live ones, or for a label",
            ));
        }
        if let Some(after) = self.replace_after {
            if !matches!(self.to, To::Count(_)) {
                return Err(unsuitable("a lost server is replaced only if it is for a count of servers"));
            }
            if !(Duration::from_secs(10)..=Duration::from_secs(86_400)).contains(&after) {
                return Err(unsuitable(
                    "a lost server is replaced after 10 s at the earliest, and a day at the latest",
                ));
            }
        }
        let known = match self.head.chosen_id()? {
            Some(id) => client.flows().ledger(&id).await?.and_then(|ledger| ledger.plan()),
            None => None,
        };
        let (mut plan, left_out) = match known {
            Some(plan) => (plan, Vec::new()),
            None => {
                let (plan, chosen) = self.plan().await?;
                (plan, chosen.left_out)
            }
        };
        loop {
            let (batch, nodes, is_new) = self.ready(&plan)?.open().await?;
            if plan.to.is_some() {
                // First, so that whoever dies in between leaves nothing that nobody looks after.
                client.broker().ask_for_duty(CAST, batch.id.root(), client.now_ns() / 1_000_000).await?;
            }
            if is_new {
                return Ok(Broadcast { batch: start(batch, nodes).await?, plan, left_out });
            }
            let ledger = client.flows().ledger(&batch.id).await?;
            let no_broadcast = || BatchError::NoBroadcast { id: batch.id.to_string() };
            let stored = ledger.and_then(|ledger| ledger.plan()).ok_or_else(no_broadcast)?;
            if batch.status().await?.state != BatchState::Open {
                return Ok(Broadcast { batch, plan: stored, left_out: Vec::new() });
            }
            if stored == plan {
                return Ok(Broadcast { batch: start(batch, nodes).await?, plan, left_out });
            }
            // Somebody else was faster, and has chosen others.
            plan = stored;
        }
    }

    /// Chooses the servers.
    async fn plan(&self) -> Result<(Plan, Chosen), BatchError> {
        let task = self.task.as_ref().map_err(|_| unencoded())?;
        let queue = self.queue.as_deref().or(task.options.queue.as_deref()).unwrap_or(DEFAULT_QUEUE);
        let live = self.head.client.broker().live_servers().await?;
        let of = |(info, entry): &(_, Option<_>)| Candidate::new(info, entry.as_ref(), queue, &task.task_type);
        let mut candidates: Vec<Candidate> = live.iter().map(of).collect();
        // Of servers with as many free slots, not always the same.
        fastrand::shuffle(&mut candidates);
        // More may come than there are now.
        let quorum = self.quorum.filter(|quorum| self.until.is_none() || *quorum == 0);
        let chosen = choose(&self.to, queue, quorum, candidates)?;
        let mut plan = Plan::new(&task.task_type, queue, chosen.servers.clone(), self.quorum);
        plan.until = self.until.map(queue_core::clock::unix_secs_ceil);
        plan.replace_after = self.replace_after.map(|after| after.as_secs());
        if plan.until.is_some() || plan.replace_after.is_some() {
            (plan.all, plan.to) = (self.quorum.is_none(), Some(self.to.to_string()));
        }
        Ok((plan, chosen))
    }

    fn ready(&self, plan: &Plan) -> Result<Ready, BatchError> {
        let head = self.head.clone().text(Plan::FIELD, plan.to_json());
        let head = head.described(|| format!("broadcast of {} to {}", plan.r#type, self.to));
        let mut flow = WorkflowBuilder::from(head);
        let task = self.task.as_ref().map_err(|_| unencoded())?.clone().queue(&plan.queue);
        if let Some(until) = plan.until {
            let left = until.saturating_sub(self.head.client.now_ns().div_euclid(1_000_000_000));
            flow = flow.timer(Plan::JOINS, Duration::from_secs(u64::try_from(left).unwrap_or(0)));
        }
        for server in &plan.servers {
            let mut task = task.clone();
            task.options.family = Some(Family::Mailbox(server.clone()));
            flow = flow.task(node_name(server), task);
        }
        flow.ready("", true)
    }
}

/// The name of the node of a server; empty where it can have none.
pub(super) fn node_name(server: &str) -> &str {
    // It is no longer than 64 letters.
    if server != Plan::JOINS && FlowId::root_named(server).is_ok() { server } else { "" }
}

fn unsuitable(reason: &'static str) -> BatchError {
    BatchError::Unsuitable { position: "to send".to_owned(), reason }
}

fn unencoded() -> BatchError {
    unsuitable("its payload cannot be encoded")
}

/// A task that was sent to several servers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Broadcast {
    batch: Batch,
    plan: Plan,
    left_out: Vec<LeftOut>,
}

impl Broadcast {
    pub(crate) async fn named(client: Client, id: &str) -> Result<Self, BatchError> {
        let batch = Batch::named(client, id).await?;
        let ledger = batch.client.flows().ledger(&batch.id).await?;
        let no_broadcast = || BatchError::NoBroadcast { id: batch.id.to_string() };
        let plan = ledger.and_then(|ledger| ledger.plan()).ok_or_else(no_broadcast)?;
        Ok(Self { batch, plan, left_out: Vec::new() })
    }

    /// Its id.
    pub fn id(&self) -> &FlowId {
        &self.batch.id
    }

    /// The names of the servers that were chosen, sorted.
    pub fn servers(&self) -> &[String] {
        &self.plan.servers
    }

    /// The servers of the queue that were alive when it was sent, and could not take part. Empty for one that was sent before.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The batch that it is: to cancel it, to wait until every server has ended, or to run again what is dead.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// How it stands, server by server.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn status(&self) -> Result<BroadcastStatus, BatchError> {
        let status = self.batch.client.flows().broadcast(&self.batch.id).await?;
        status.ok_or_else(|| BatchError::Unknown { id: self.batch.id.to_string() })
    }

    /// Waits until enough servers have succeeded, or so many cannot any more, and tells how each stands then. The others go on;
    /// [`batch().wait`](Batch::wait) waits for them, too.
    ///
    /// # Errors
    /// [`BatchError::TimedOut`], or see [`BatchError`].
    pub async fn wait(&self, up_to: Duration) -> Result<BroadcastStatus, BatchError> {
        let is_decided = |status: &super::BatchStatus| status.is_over() || status.verdict() != Some(Verdict::Open);
        self.batch.wait_until(up_to, is_decided).await?;
        self.status().await
    }
}

impl Client {
    /// One task, for several servers: each of them runs it, once.
    ///
    /// The servers need names ([`Server::name`](https://docs.rs/queue-worker), `queuectl worker --name`). Those of Go have none, and take no
    /// part.
    ///
    /// ```no_run
    /// # async fn example(client: queue_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use queue_core::RawTask;
    /// use queue_redis::To;
    ///
    /// let flush = client.broadcast(RawTask::new("cache:flush")).to(To::live()).queue("mail").quorum(2).send().await?;
    /// let status = flush.wait(Duration::from_secs(60)).await?;
    /// for worker in &status.workers {
    ///     println!("{}: {}", worker.server, worker.state.as_str());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn broadcast(&self, task: impl IntoTask) -> BroadcastBuilder {
        BroadcastBuilder::new(self.clone(), task)
    }

    /// The broadcast of this id.
    ///
    /// # Errors
    /// When there is none, or Redis cannot be asked or refuses.
    pub async fn broadcast_of(&self, id: &str) -> Result<Broadcast, BatchError> {
        Broadcast::named(self.clone(), id).await
    }
}
