//! Reads batches and workflows for the screen.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use queue_admin::Error;
use queue_core::flow::{FlowId, MemberState};
use queue_redis::BatchStatus;
use queue_redis::flow::{Flows, NodeStatus};

use super::screen::{BatchRow, Found, Opens, PartRow};
use crate::manage::workflow::{edges, work_of};

/// Batches that are read at the same time.
const AT_ONCE: usize = 4;
/// Children, and tasks in each state, that are shown of one.
const SHOWN: usize = 100;

/// A page of the batches that are children of none.
pub(super) async fn batches(flows: &Flows, skip: usize, size: usize) -> Result<Found, Error> {
    let roots = flows.roots(skip, size).await?;
    let reads = roots.iter().map(|root| flows.status(root));
    let batches: Vec<Option<BatchStatus>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    Ok(Found::Batches(batches.into_iter().flatten().map(row).collect()))
}

/// One of them: its nodes, its children, and those of its tasks that failed.
pub(super) async fn batch(flows: &Flows, id: &FlowId) -> Result<Found, Error> {
    let Some(status) = flows.status(id).await? else {
        return Ok(Found::Gone(format!("there is no batch {id}, or it is over and was forgotten")));
    };
    let nodes = flows.nodes(id).await?;
    let children = flows.children(id).await?.into_iter().map(|child| (child.to_string(), child));
    let beside = children.filter(|(name, _)| nodes.iter().all(|node| node.id != *name)).take(SHOWN);
    let reads = beside.map(async |(_, child)| flows.status(&child).await);
    let children: Vec<Option<BatchStatus>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let mut parts: Vec<PartRow> = nodes.iter().map(node).collect();
    parts.extend(children.into_iter().flatten().map(child));
    if nodes.is_empty() {
        for state in [MemberState::Dead, MemberState::Removed, MemberState::Failing] {
            let (members, _) = flows.members(id, Some(state), 0, SHOWN).await?;
            parts.extend(members.into_iter().map(|member| task(member.queue, member.id, state)));
        }
    }
    Ok(Found::Batch(row(status), parts))
}

fn row(status: BatchStatus) -> BatchRow {
    let callbacks = status.callbacks.iter().map(|callback| (callback.event, callback.state.as_str()));
    BatchRow {
        state: status.state.as_str(),
        total: status.total,
        live: status.live(),
        succeeded: status.succeeded,
        bad: status.dead + status.removed + status.doomed,
        created: status.created,
        callbacks: callbacks.collect(),
        description: status.description.unwrap_or_default(),
        id: status.id,
    }
}

fn node(node: &NodeStatus) -> PartRow {
    let is_there = !matches!(node.state, MemberState::Waiting | MemberState::Skipped);
    let opens = match (&node.queue, node.is_batch) {
        (_, true) => Opens::Batch(node.id.clone()),
        (Some(queue), _) if is_there => Opens::Task { queue: queue.clone(), id: node.id.clone() },
        _ => Opens::Nothing,
    };
    let (state, work, after) = (node.state.as_str(), work_of(node), edges(node, |_| true));
    PartRow { name: node.name.clone(), state, work, after, opens }
}

fn child(status: BatchStatus) -> PartRow {
    let work = format!("batch, {} of {} succeeded", status.succeeded, status.total);
    let (name, state) = (status.id.clone(), status.state.as_str());
    PartRow { name, state, work, after: String::new(), opens: Opens::Batch(status.id) }
}

fn task(queue: String, id: String, state: MemberState) -> PartRow {
    let work = format!("task in queue {queue}");
    PartRow { name: id.clone(), state: state.as_str(), work, after: String::new(), opens: Opens::Task { queue, id } }
}
