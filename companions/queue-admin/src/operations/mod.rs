//! Changes of many tasks that outlive the process which has begun them.
//!
//! An operation stands in Redis: what is to be done, how far it has come, and who has it. Whoever carries it out renews a lease with
//! each step; when that ends, another process goes on. So a task may be looked at twice, and is changed once, since a change leaves it
//! in another state.

mod bin;
mod order;
mod rate;
mod run;

pub use bin::BinInfo;
pub use rate::{Rate, RateError};
pub use run::Pace;

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, stream};
use queue_core::TaskState;
use queue_core::keys::{self, OPERATIONS, QueueKeys};
use queue_core::limits::OPERATION_IDS;
use queue_redis::broker::Wish;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::verb::{Action, BinVerb, Verb};
use crate::{Changed, Filter, Inspector, Progress};

/// Operations that are read at the same time.
const AT_ONCE: usize = 16;
/// Most that are told at once: they are kept for a week.
const MOST: usize = 500;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Make tasks pending.
    Run,
    /// Put them into the archive.
    Archive,
    /// Delete them; into the bin, unless that is not wanted.
    Delete,
    /// End those that run for good.
    Cancel,
    /// Ask their servers to stop this attempt.
    Interrupt,
    /// Bring back what another operation has put into the bin.
    Restore,
}

impl Work {
    /// Its name: `run` and so on.
    pub fn as_str(self) -> &'static str {
        self.verb().map_or("restore", Verb::as_str)
    }

    /// The same for tasks; `None` for what is done to a bin.
    pub fn verb(self) -> Option<Verb> {
        match self {
            Self::Run => Some(Verb::Run),
            Self::Archive => Some(Verb::Archive),
            Self::Delete => Some(Verb::Delete),
            Self::Cancel => Some(Verb::Cancel),
            Self::Interrupt => Some(Verb::Interrupt),
            Self::Restore => None,
        }
    }

    /// Its line in the table of all that can be done.
    pub fn action(self) -> Action {
        self.verb().map_or(Action::Bin(BinVerb::Restore), Action::Tasks)
    }
}

fn yes() -> bool {
    true
}

/// What is to be done to which tasks: all of some queues to which a filter applies, or those of one queue with these ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationSpec {
    /// What.
    pub action: Work,
    /// In which queues; when restoring without ids, those of the other operation.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Which tasks, as [`Filter`] reads it. It names their states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Ids of tasks, 1,000 at the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Whether what is deleted goes into the bin.
    #[serde(default = "yes")]
    pub bin: bool,
    /// When restoring: the operation that has deleted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// It stops when so many were changed, and there is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
    /// It changes no more than so many in a time, whoever carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Why, in the words of whoever wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl OperationSpec {
    /// An operation on the tasks of a queue to which a filter applies.
    pub fn new(action: Work, queue: &str, filter: &Filter) -> Self {
        Self { filter: Some(filter.to_string()), ..Self::on(action, queue) }
    }

    /// An operation on some tasks of a queue.
    pub fn of_ids(action: Work, queue: &str, ids: Vec<String>) -> Self {
        Self { ids, ..Self::on(action, queue) }
    }

    /// What brings back what an operation has put into the bin.
    pub fn restore(operation: &str) -> Self {
        Self { queues: Vec::new(), operation: Some(operation.to_owned()), ..Self::on(Work::Restore, "") }
    }

    /// The same for some tasks, of one of its queues.
    pub fn restore_ids(operation: &str, queue: &str, ids: Vec<String>) -> Self {
        Self { operation: Some(operation.to_owned()), ..Self::of_ids(Work::Restore, queue, ids) }
    }

    fn on(action: Work, queue: &str) -> Self {
        Self {
            action,
            queues: vec![queue.to_owned()],
            filter: None,
            ids: Vec::new(),
            bin: true,
            operation: None,
            at_most: None,
            rate: None,
            reason: None,
        }
    }

    /// Which tasks, and their states.
    fn selection(&self, verb: Verb) -> Result<(Filter, Vec<TaskState>), Error> {
        let invalid = |text: String| Error::OperationInvalid(text);
        let filter =
            Filter::from_str(self.filter.as_deref().unwrap_or_default()).map_err(|error| invalid(error.to_string()))?;
        let states = filter.states_of(verb.usual_states());
        states.iter().try_for_each(|state| verb.check(*state))?;
        Ok((filter, states))
    }

    fn check(&self) -> Result<(), Error> {
        let told = match self.action.verb() {
            None if self.operation.is_none() => "name the operation whose tasks are to be restored",
            None if self.ids.len() > OPERATION_IDS => "too many ids; restore all of them",
            None if self.rate.is_some() => "tasks are restored as fast as Redis has time for it; leave out the rate",
            None if self.filter.is_some() || self.at_most.is_some() => {
                "all of them are restored, or those that are named by their ids; leave out the filter and at_most"
            }
            None if self.ids.is_empty() && !self.queues.is_empty() => {
                "all of them are restored, in all queues; leave out the queues, or name ids"
            }
            None => return Ok(()),
            Some(_) if self.queues.is_empty() || self.queues.iter().any(String::is_empty) => "name the queues",
            Some(_) if self.queues.len() > MOST_QUEUES => "too many queues; these are several operations",
            Some(_) if self.queues.iter().collect::<HashSet<_>>().len() < self.queues.len() => "name each queue once",
            Some(_) if self.filter.is_some() != self.ids.is_empty() => "say which tasks: by a filter, or by their ids",
            Some(_) if !self.ids.is_empty() && self.queues.len() > 1 => "ids are those of one queue",
            Some(_) if self.ids.len() > OPERATION_IDS => "too many ids; choose the tasks by a filter",
            Some(verb) => {
                let (filter, _) = self.selection(verb)?;
                if self.ids.is_empty() && !filter.has_states() {
                    "name the states of the tasks in the filter, such as state:archived"
                } else {
                    return Ok(());
                }
            }
        };
        Err(Error::OperationInvalid(told.to_owned()))
    }
}

queue_core::words! {
    /// How far an operation is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum OperationState {
        /// Nobody has begun it, or gone on with it, yet.
        Queued: "queued",
        /// A process carries it out, or has until a moment ago.
        Running: "running",
        /// It waits for somebody to let it go on.
        Paused: "paused",
        /// All was done.
        Done: "done",
        /// It has come to a bound: as many tasks as were meant were changed, or the archive is full.
        Stopped: "stopped",
        /// It has met an error; what was done is done.
        Failed: "failed",
        /// Somebody has ended it; what was done is done.
        Cancelled: "cancelled",
    }
}

impl OperationState {
    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running | Self::Paused)
    }
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What it does.
    #[serde(flatten)]
    pub spec: OperationSpec,
    /// Who wants it.
    pub actor: String,
    /// By which tool.
    pub via: String,
    /// How far it is.
    pub state: OperationState,
    /// Tasks it has looked at.
    pub looked_at: u64,
    /// Tasks there were to look at when it began.
    pub of: u64,
    /// Tasks that fit.
    pub matched: u64,
    /// Tasks it has changed.
    pub changed: u64,
    /// Tasks it has not changed: they had moved on. When restoring: their ids or locks were taken, or the archive was full.
    pub skipped: u64,
    /// Older tasks that went from the archive for it.
    pub trimmed: u64,
    /// Why it has failed or stopped.
    pub error: Option<String>,
    /// When it was asked for.
    pub created_at: Option<DateTime<Utc>>,
    /// When it was begun.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Queues that are done.
    #[serde(skip)]
    queues_done: usize,
    /// What had been looked at, of how many, and what was skipped, when the present queue was begun.
    #[serde(skip)]
    before: [u64; 3],
    /// The state that somebody wants it to be in.
    #[serde(skip)]
    wished: Option<OperationState>,
    /// The entry in the audit.
    #[serde(skip)]
    audit: Option<String>,
    /// The last list of its bin in each queue.
    #[serde(skip)]
    pieces: BTreeMap<String, u64>,
    /// The Unix millisecond at which its rate lets it change another task.
    #[serde(skip)]
    next_ms: i64,
}

/// What the names of the fields begin with that say how many lists the bin of a queue has.
const PIECE: &str = "piece:";

/// Most queues of one operation: each is looked for by itself.
const MOST_QUEUES: usize = 1_000;

/// What is kept beside the specification.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    spec: OperationSpec,
    actor: String,
    via: String,
    #[serde(default)]
    audit: Option<String>,
}

impl Operation {
    fn read(id: &str, fields: &BTreeMap<String, String>) -> Option<Self> {
        let Kept { spec, actor, via, audit } = serde_json::from_str(fields.get("what")?).ok()?;
        let text = |name: &str| fields.get(name);
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let time = |name: &str| DateTime::from_timestamp_millis(text(name)?.parse().ok()?);
        let mut before =
            text("before").into_iter().flat_map(|text| text.split(' ')).map(|text| text.parse().unwrap_or(0));
        let wished = match text("wish").map(String::as_str) {
            Some("pause") => Some(OperationState::Paused),
            Some("cancel") => Some(OperationState::Cancelled),
            _ => None,
        };
        let pieces = fields
            .iter()
            .filter_map(|(name, piece)| Some((name.strip_prefix(PIECE)?.to_owned(), piece.parse::<u64>().ok()?)));
        Some(Self {
            id: id.to_owned(),
            spec,
            actor,
            via,
            state: OperationState::from_name(text("state")?)?,
            looked_at: number("looked_at"),
            of: number("of"),
            matched: number("matched"),
            changed: number("changed"),
            skipped: number("skipped"),
            trimmed: number("trimmed"),
            error: text("error").cloned(),
            created_at: time("created_ms"),
            started_at: time("started_ms"),
            ended_at: time("ended_ms"),
            queues_done: usize::try_from(number("queues_done")).unwrap_or(0),
            before: std::array::from_fn(|_| before.next().unwrap_or(0)),
            wished,
            audit,
            pieces: pieces.collect(),
            next_ms: i64::try_from(number("next_ms")).unwrap_or(i64::MAX),
        })
    }

    /// What it has come to, as a change of many tasks tells it.
    pub fn progress(&self) -> Progress {
        let Self { looked_at, of, matched, changed, skipped, trimmed, .. } = *self;
        Progress { looked_at, of, so_far: Changed { matched, changed, skipped, trimmed } }
    }
}

impl Inspector {
    /// The operations of the last seven days, newest first, so many at the most, and no more than 500.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn operations(&self, most: usize) -> Result<Vec<Operation>, Error> {
        self.operations_to(most.clamp(1, MOST).cast_signed() - 1).await
    }

    /// Those from the newest to the one at this place; all with -1.
    async fn operations_to(&self, last: isize) -> Result<Vec<Operation>, Error> {
        let ids: Vec<String> = self.redis.command("ZREVRANGE", (OPERATIONS, 0, last)).await?;
        let mut reads = stream::iter(ids).map(|id| async move { (self.operation(&id).await, id) }).buffered(AT_ONCE);
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        while let Some((read, id)) = reads.next().await {
            match read {
                Ok(operation) => found.push(operation),
                Err(Error::OperationNotFound(_)) => gone.push(id),
                Err(error) => return Err(error),
            }
        }
        if !gone.is_empty() {
            // One that is just written is listed behind its hash.
            self.redis.command::<()>("ZREM", (OPERATIONS, gone)).await?;
        }
        Ok(found)
    }

    /// An operation.
    ///
    /// # Errors
    /// [`Error::OperationNotFound`]; or Redis cannot be asked or refuses.
    pub async fn operation(&self, id: &str) -> Result<Operation, Error> {
        let operation = self.read_operation(id).await?;
        if let Some(state) = operation.wished.filter(|state| *state != operation.state && !operation.state.is_over())
            // Nobody may have it, because whoever had it has died: then this is all. Who only looks may have no right to it.
            && let Ok(Wish::Run | Wish::Pause | Wish::Cancel) = self.put_down(&operation, "", state, None).await
        {
            return self.read_operation(id).await;
        }
        Ok(operation)
    }

    async fn read_operation(&self, id: &str) -> Result<Operation, Error> {
        let key = keys::operation(id);
        let fields: BTreeMap<String, String> = self.redis.command("HGETALL", key).await?;
        Operation::read(id, &fields).ok_or_else(|| Error::OperationNotFound(id.to_owned()))
    }

    /// How many tasks an operation would be about, by queue. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::OperationInvalid`], [`Error::StateRefused`], [`Error::QueueNotFound`], [`Error::OperationNotFound`]; or Redis cannot
    /// be asked or refuses.
    pub async fn dry_run(&self, spec: &OperationSpec) -> Result<BTreeMap<String, u64>, Error> {
        spec.check()?;
        let mut matched = BTreeMap::new();
        let Some(verb) = spec.action.verb() else {
            let of = self.operation(spec.operation.as_deref().unwrap_or_default()).await?;
            if let [queue] = &spec.queues[..]
                && !spec.ids.is_empty()
            {
                let there = self.count_keys(&QueueKeys::new(queue).bin_prefix(&of.id), &spec.ids).await?;
                return Ok(BTreeMap::from([(queue.clone(), there)]));
            }
            return self.bin_sizes(&of).await;
        };
        for queue in &spec.queues {
            let count = if spec.ids.is_empty() {
                let (filter, states) = spec.selection(verb)?;
                let filter = if filter.has_states() { filter } else { states.into_iter().fold(filter, Filter::state) };
                self.count(queue, &filter).await?
            } else {
                self.require_queue(queue).await?;
                self.count_keys(&QueueKeys::new(queue).task_prefix(), &spec.ids).await?
            };
            matched.insert(queue.clone(), count);
        }
        Ok(matched)
    }

    /// How many of these tasks are there, whose keys begin like this.
    async fn count_keys(&self, prefix: &str, ids: &[String]) -> Result<u64, Error> {
        let keys: HashSet<String> = ids.iter().map(|id| format!("{prefix}{id}")).collect();
        Ok(self.redis.command("EXISTS", keys.into_iter().collect::<Vec<_>>()).await?)
    }
}
