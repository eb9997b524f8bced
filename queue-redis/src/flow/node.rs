//! The nodes of a workflow as they stand, and what they hand on.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use queue_core::TaskMessage;
use queue_core::flow::{FlowId, INPUT_HEADER, MAY_FAIL, MemberId, MemberState, Otherwise, SIGNAL_TYPE, When};
use queue_core::keys::{QueueKeys, flow_prefix};
use queue_core::limits::MAX_BATCH;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::batch::{Batch, BatchError};
use super::status::flow_key;
use super::{Flows, signal};
use crate::client::Client;
use crate::connection::Redis;
use crate::error::Error;

/// What a node waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Edge {
    /// Name of the other node.
    pub node: String,
    /// `succeeded`, `failed` or `ended`: what is wanted of it.
    pub when: When,
    /// How the other node stands.
    pub state: MemberState,
}

impl Edge {
    /// Whether the other node has not ended.
    pub fn is_open(&self) -> bool {
        self.state.is_live()
    }
}

/// What a node waits for that is no task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SignalStatus {
    /// What becomes of it when its time is over; `None` if it waits for ever.
    pub otherwise: Option<Otherwise>,
    /// How long it waits from its turn on, in seconds; 0 for ever.
    pub within: i64,
    /// When its time is over, once its turn has come.
    pub until: Option<DateTime<Utc>>,
    /// What was said with the signal, or when it was declined.
    pub said: Option<serde_json::Value>,
}

/// A node of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name; of a task of a batch its number.
    pub name: String,
    /// How it stands.
    pub state: MemberState,
    /// Type of its task; of a batch `None`.
    pub r#type: Option<String>,
    /// Queue of its task; of a batch `None`.
    pub queue: Option<String>,
    /// Id of its task; of a batch that of the batch; of a signal the id that its task would have.
    pub id: String,
    /// Whether it is a batch.
    pub is_batch: bool,
    /// Whether it may die without harm to the workflow.
    pub may_fail: bool,
    /// Of a node that waits for a signal, what it waits for; else `None`.
    pub signal: Option<SignalStatus>,
    /// What it waits for, or has waited for.
    pub after: Vec<Edge>,
}

impl Flows {
    /// The nodes of a workflow, in the order of their numbers; none of a batch that has no nodes. Reads all of them: of a large workflow,
    /// that is some megabytes.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn nodes(&self, id: &FlowId) -> Result<Vec<NodeStatus>, Error> {
        let Some(ledger) = self.ledger(id).await? else { return Ok(Vec::new()) };
        let Some(count) = ledger.nodes() else { return Ok(Vec::new()) };
        let born = self.born(id.root()).await?;
        let prefix = flow_key(id);
        let mut look = redis::pipe();
        for key in ["names", "before", "messages", "signals"] {
            look.cmd("HGETALL").arg([&prefix, key].concat());
        }
        let todo = [&flow_prefix(id.root()), "todo"].concat();
        look.cmd("ZRANGE").arg(todo).arg(0).arg(-1).arg("WITHSCORES");
        type Read = (
            HashMap<String, u32>,
            HashMap<u32, String>,
            HashMap<u32, Vec<u8>>,
            HashMap<u32, Vec<u8>>,
            HashMap<String, f64>,
        );
        let (names, before, messages, said, todo): Read = self.broker.redis().pipeline("HGETALL", &look).await?;
        let names: HashMap<u32, String> = names.into_iter().map(|(name, number)| (number, name)).collect();
        let name = |number: u32| names.get(&number).cloned().unwrap_or_else(|| number.to_string());
        let nodes = (0..count).map(|number| {
            let edges = before.get(&number).map(String::as_str).unwrap_or_default();
            let after = edges.split_whitespace().filter_map(|edge| {
                let (number, when) = When::read(edge)?;
                Some(Edge { node: name(number), when, state: ledger.state(number) })
            });
            let message = messages.get(&number).and_then(|raw| TaskMessage::from_bytes(raw.clone().into()).ok());
            let kid = ledger.kids.get(&number).map(|kid| id.sibling(*kid).to_string());
            let task = MemberId { flow: id.clone(), born, part: ledger.part(number) };
            let is_signal = message.as_ref().is_some_and(|message| message.r#type == SIGNAL_TYPE);
            let (signals, message) = if is_signal { (message, None) } else { (None, message) };
            let signal = signals.map(|message| SignalStatus {
                otherwise: signal::otherwise(&message),
                within: message.timeout,
                until: todo
                    .get(&format!("late {} {number}", id.number()))
                    .and_then(|second| DateTime::from_timestamp(*second as i64, 0)),
                said: said.get(&number).and_then(|said| serde_json::from_slice(said).ok()),
            });
            NodeStatus {
                signal,
                may_fail: edges.starts_with(MAY_FAIL),
                name: name(number),
                state: ledger.state(number),
                is_batch: kid.is_some(),
                id: kid.unwrap_or_else(|| task.to_string()),
                after: after.collect(),
                queue: message.as_ref().map(|message| message.queue.clone()),
                r#type: message.map(|message| message.r#type),
            }
        });
        Ok(nodes.collect())
    }

    /// The results of the members of a batch that have succeeded and are still there, by their numbers.
    async fn results(&self, id: &FlowId) -> Result<Vec<Bytes>, Error> {
        let Some(ledger) = self.ledger(id).await? else { return Ok(Vec::new()) };
        let born = self.born(id.root()).await?;
        let is_task = |number: &u32| ledger.is_task(*number);
        let numbers: Vec<u32> = ledger.numbers(|state| state == MemberState::Succeeded).filter(is_task).collect();
        let mut results = Vec::new();
        for numbers in numbers.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for number in numbers {
                let task = MemberId { flow: id.clone(), born, part: ledger.part(*number) };
                look.cmd("HGET").arg(QueueKeys::new(ledger.queue_of(*number)).task(&task.to_string())).arg("result");
            }
            let read: Vec<Option<Vec<u8>>> = self.broker.redis().pipeline("HGET", &look).await?;
            results.extend(read.into_iter().flatten().map(Bytes::from));
        }
        Ok(results)
    }
}

impl Batch {
    /// The batch that is a node of this workflow, by the name of the node: a handler before it adds members, which run as soon as they are
    /// enqueued. It is closed when its turn has come, except to its own running members.
    ///
    /// # Errors
    /// [`BatchError::Graph`] when there is no such node.
    pub async fn node(&self, name: &str) -> Result<Self, BatchError> {
        let key = [&flow_key(&self.id), "keys"].concat();
        let number: Option<u32> =
            self.client.flows().broker.redis().command("HGET", (key, format!("child:{name}"))).await?;
        let unknown =
            || BatchError::Graph { reason: format!("workflow {} has no node {name:?} that is a batch", self.id) };
        Ok(Self { id: self.id.sibling(number.ok_or_else(unknown)?), ..self.clone() })
    }
}

/// Where a result is found, as the header `x-flow-input` tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Place {
    Task {
        queue: String,
        id: String,
    },
    Batch {
        batch: String,
    },
    /// What was said with a signal: a field of a hash.
    Signal {
        key: String,
        field: String,
    },
}

/// Why the result of a parent cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParentError {
    /// The task waits for no node of this name.
    #[error("this task does not wait for a node {node:?}")]
    NoParent {
        /// The name asked for.
        node: String,
    },
    /// The parent has none.
    #[error("node {node:?} has left no result: it did not succeed, its handler gives none, or it was deleted")]
    NoResult {
        /// Name of the parent.
        node: String,
    },
    /// It is not what the handler expects.
    #[error("the result of node {node:?} cannot be read: {why}")]
    Unreadable {
        /// Name of the parent.
        node: String,
        /// Why.
        why: String,
    },
}

/// What the nodes have left that a task has waited for: the results of its parents in a workflow.
///
/// In a handler it is an argument. A task that waits for nobody has none.
#[derive(Debug, Clone, Default)]
pub struct Parents {
    results: BTreeMap<String, Vec<Bytes>>,
}

impl Parents {
    /// Reads them, by the headers of the task that runs.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn of_task(redis: &Redis, headers: &BTreeMap<String, String>) -> Result<Self, Error> {
        let flows = Client::new(redis.clone()).flows();
        let input = headers.get(INPUT_HEADER).map(String::as_str).unwrap_or("{}");
        let places: BTreeMap<String, Place> = serde_json::from_str(input).unwrap_or_default();
        let (mut results, mut look, mut asked) = (BTreeMap::new(), redis::pipe(), Vec::new());
        for (name, place) in places {
            match place {
                Place::Task { queue, id } => {
                    look.cmd("HGET").arg(QueueKeys::new(&queue).task(&id)).arg("result");
                    asked.push(name);
                }
                Place::Signal { key, field } => {
                    look.cmd("HGET").arg(key).arg(field);
                    asked.push(name);
                }
                Place::Batch { batch } => {
                    let found = match batch.parse() {
                        Ok(batch) => flows.results(&batch).await?,
                        Err(_) => Vec::new(),
                    };
                    results.insert(name, found);
                }
            }
        }
        if !asked.is_empty() {
            let read: Vec<Option<Vec<u8>>> = redis.pipeline("HGET", &look).await?;
            results
                .extend(asked.into_iter().zip(read.into_iter().map(|raw| raw.map(Bytes::from).into_iter().collect())));
        }
        Ok(Self { results })
    }

    /// The names of the nodes that the task has waited for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.results.keys().map(String::as_str)
    }

    /// The results of a parent as they were written: at most one of a task, those of its members of a batch.
    ///
    /// # Errors
    /// [`ParentError::NoParent`].
    pub fn raw(&self, node: &str) -> Result<&[Bytes], ParentError> {
        let results = self.results.get(node).ok_or_else(|| ParentError::NoParent { node: node.to_owned() })?;
        Ok(results)
    }

    /// The result of a parent that is a task; of one that waited for a signal, what was said.
    ///
    /// # Errors
    /// See [`ParentError`].
    pub fn get<T: DeserializeOwned>(&self, node: &str) -> Result<T, ParentError> {
        let first = self.raw(node)?.first();
        read(node, first.ok_or_else(|| ParentError::NoResult { node: node.to_owned() })?)
    }

    /// The results of the members of a parent that is a batch, in the order of its tasks by queue; those of members that have left none are
    /// left out.
    ///
    /// # Errors
    /// See [`ParentError`].
    pub fn all<T: DeserializeOwned>(&self, node: &str) -> Result<Vec<T>, ParentError> {
        self.raw(node)?.iter().map(|result| read(node, result)).collect()
    }
}

fn read<T: DeserializeOwned>(node: &str, result: &[u8]) -> Result<T, ParentError> {
    let why = |error: serde_json::Error| ParentError::Unreadable { node: node.to_owned(), why: error.to_string() };
    serde_json::from_slice(result).map_err(why)
}
