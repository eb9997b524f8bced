//! Storing chains and graphs.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::flow::{INPUT_HEADER, MAY_FAIL, MemberId, Part, SIGNAL_TYPE, When};
use queue_core::limits::{MAX_BATCH_BYTES, SHORT_BATCH};
use serde_json::{Value, json};

use super::batch::{Batch, BatchError};
use super::status::{BatchState, flow_key};
use super::workflow::{Ready, ReadyNode, ReadyWork};
use crate::broker::{Described, Opening};
use crate::script::Word;

impl Ready {
    /// Opens a workflow: gives it an id and its nodes numbers. Also whether there was none of this id before.
    pub(super) async fn open(self) -> Result<(Batch, Vec<ReadyNode>, bool), BatchError> {
        let Self { head, nodes } = self;
        let mut queues = Vec::new();
        list_queues(&nodes, &mut queues);
        let opening = Opening { count: nodes.len() as u32, has_nodes: true, ..Opening::default() };
        let (batch, fresh) = head.make(opening, queues).await?;
        Ok((batch, nodes, fresh.is_some()))
    }

    /// Stores a workflow and starts it.
    pub(super) async fn store(self) -> Result<Batch, BatchError> {
        let count = self.nodes.len();
        let (batch, nodes, is_new) = self.open().await?;
        if !is_new {
            // It was made before; if its maker has died half-way, this completes it.
            let status = batch.status().await?;
            if status.state != BatchState::Open {
                return Ok(batch);
            }
            if status.total != count as u64 {
                let text = format!("a workflow of this id with {} nodes, not {count}, is being made", status.total);
                return Err(BatchError::Graph { reason: text });
            }
        }
        start(batch, nodes).await
    }
}

/// Stores the nodes of a workflow that was opened, and starts it.
pub(super) async fn start(batch: Batch, nodes: Vec<ReadyNode>) -> Result<Batch, BatchError> {
    describe(&batch, nodes, BTreeMap::new()).await?;
    batch.commit().await?;
    Ok(batch)
}

fn list_queues(nodes: &[ReadyNode], queues: &mut Vec<String>) {
    for node in nodes {
        match &node.work {
            ReadyWork::Task(message) => {
                if !message.queue.is_empty() && !queues.contains(&message.queue) {
                    queues.push(message.queue.clone());
                }
            }
            ReadyWork::Flow(ready) => list_queues(&ready.nodes, queues),
        }
    }
}

/// Where the results of nodes are found, by their names.
type Input = BTreeMap<String, Value>;

/// Describes the nodes of a workflow that was opened, those that are batches first, with all that is in them.
fn describe(batch: &Batch, mut nodes: Vec<ReadyNode>, inherited: Input) -> BoxFuture<'_, Result<(), BatchError>> {
    async move {
        let (mut places, mut within) = (Vec::with_capacity(nodes.len()), Vec::new());
        for (number, node) in (0..).zip(&mut nodes) {
            let place = match &mut node.work {
                ReadyWork::Task(message) if message.r#type == SIGNAL_TYPE => {
                    let key = [&flow_key(&batch.id), "signals"].concat();
                    json!({ "key": key, "field": number.to_string() })
                }
                ReadyWork::Task(message) => {
                    let id = MemberId { flow: batch.id.clone(), born: batch.born, part: Part::Member(number, 1) };
                    message.id = id.to_string();
                    json!({ "queue": message.queue, "id": message.id })
                }
                ReadyWork::Flow(ready) => {
                    let nodes = std::mem::take(&mut ready.nodes);
                    let opening =
                        Opening { count: nodes.len() as u32, has_nodes: true, at: Some(number), ..Opening::default() };
                    let head = ready.head.clone().into_node_of(batch.clone(), &node.name);
                    let (child, _) = head.make(opening, Vec::new()).await?;
                    let place = json!({ "batch": child.id.to_string() });
                    within.push((number, child, nodes));
                    place
                }
            };
            places.push((node.name.clone(), place));
        }
        for (number, child, below) in within {
            // What is in a batch reads what the batch has waited for.
            let input = input(&nodes[number as usize].before, &places, &inherited);
            describe(&child, below, input).await?;
        }
        let mut chunk = Chunk::default();
        for (number, node) in (0..).zip(nodes) {
            let edges = node.before.iter().map(|(parent, when)| format!("{parent}{}", when.sign()));
            let edges: Vec<String> = node.may_fail.then(|| MAY_FAIL.to_owned()).into_iter().chain(edges).collect();
            let (queue, message) = match node.work {
                ReadyWork::Task(mut message) => {
                    let input = input(&node.before, &places, &inherited);
                    if !input.is_empty() {
                        message.headers.insert(INPUT_HEADER.to_owned(), json!(input).to_string());
                    }
                    (message.queue.clone(), message.to_bytes())
                }
                ReadyWork::Flow(_) => Default::default(),
            };
            let after: Vec<String> = node.after.iter().map(u32::to_string).collect();
            let described =
                Described { number, name: node.name, message, before: edges.join(" "), after: after.join(" ") };
            if chunk.is_full() || chunk.queue != queue {
                chunk.send(batch).await?;
            }
            chunk.queue = queue;
            chunk.bytes += described.message.len();
            chunk.nodes.push(described);
        }
        chunk.send(batch).await
    }
    .boxed()
}

/// What a node is told about those it has waited for, and those that the batch has waited for that it is in.
fn input(before: &[(u32, When)], places: &[(String, Value)], inherited: &Input) -> Input {
    let known = before.iter().filter_map(|(parent, _)| places.get(*parent as usize));
    inherited.clone().into_iter().chain(known.cloned()).collect()
}

/// Nodes of one queue that travel in one call.
#[derive(Debug, Default)]
struct Chunk {
    queue: String,
    bytes: usize,
    nodes: Vec<Described>,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.nodes.len() >= SHORT_BATCH || self.bytes >= MAX_BATCH_BYTES
    }

    async fn send(&mut self, batch: &Batch) -> Result<(), BatchError> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let place = (batch.id.root(), batch.id.number());
        let word = batch.client.flows().broker.flow_nodes(place, &self.queue, &self.nodes).await?;
        self.nodes.clear();
        self.bytes = 0;
        match word {
            // Somebody else, who makes the same, was faster.
            Word::Applied | Word::Same => Ok(()),
            Word::Closed => Err(BatchError::Closed { id: batch.id.to_string() }),
            _ => Err(BatchError::Unknown { id: batch.id.to_string() }),
        }
    }
}
