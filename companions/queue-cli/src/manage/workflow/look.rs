//! `queuectl workflow show`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use queue_core::flow::{FlowId, MemberState, When};
use queue_redis::flow::{NodeStatus, SignalStatus};
use queue_redis::{BatchError, BatchStatus};
use serde::Serialize;

use crate::error::CliError;
use crate::manage::batch::summary;
use crate::manage::now;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{self, WatchArgs};
use crate::when;

/// Which workflow to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Workflow id; of a batch or workflow in it with a colon and its number
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Each node below those it waits for
    #[arg(long)]
    tree: bool,
    /// As a graph for Graphviz
    #[arg(long, conflicts_with = "tree")]
    dot: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

/// What `--json` tells of a workflow.
#[derive(Debug, Serialize)]
struct View {
    #[serde(flatten)]
    status: BatchStatus,
    nodes: Vec<NodeStatus>,
}

pub(crate) async fn show(args: ShowArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let flows = session.client().flows();
    watch::show(&args.watch, out, async |out| {
        let status = flows.status(&args.id).await?;
        let status = status.ok_or_else(|| BatchError::Unknown { id: args.id.to_string() })?;
        let nodes = flows.nodes(&args.id).await?;
        if args.dot {
            return Ok(dot(&status, &nodes));
        }
        if out.json {
            return out.json(&View { status, nodes });
        }
        let head = format!("workflow {:?} is {}\n", status.id, summary(&status));
        Ok(head + &if args.tree { tree(&nodes) } else { table(&nodes, out) })
    })
    .await
}

/// What a node waits for, or has waited for: `build, test (failed)`.
pub(crate) fn edges(node: &NodeStatus, is_shown: impl Fn(&queue_redis::flow::Edge) -> bool) -> String {
    let edge = |edge: &queue_redis::flow::Edge| match edge.when {
        When::Succeeded => edge.node.clone(),
        when => format!("{} ({})", edge.node, when.as_str()),
    };
    node.after.iter().filter(|it| is_shown(it)).map(edge).collect::<Vec<_>>().join(", ")
}

/// What a node does: `build in queue default, may fail`.
pub(crate) fn work_of(node: &NodeStatus) -> String {
    let work = match (&node.r#type, &node.queue, &node.signal) {
        (Some(task), Some(queue), _) => format!("{task} in queue {queue}"),
        (_, _, Some(signal)) => signal_of(signal),
        _ => format!("batch {}", node.id),
    };
    if node.may_fail { work + ", may fail" } else { work }
}

/// What a signal is, or waits for: `signal (skip after 24h0m0s, in 5m)`.
pub(crate) fn signal_of(signal: &SignalStatus) -> String {
    let mut text = "signal".to_owned();
    if let Some(otherwise) = signal.otherwise {
        let within = queue_core::duration::format(Duration::from_secs(signal.within.unsigned_abs()));
        let until = signal.until.map(|until| format!(", {}", when::distance(until, now())));
        let _ = write!(text, " ({} after {within}{})", otherwise.as_str(), until.unwrap_or_default());
    }
    if let Some(said) = &signal.said {
        let _ = write!(text, ": {said}");
    }
    text
}

fn table(nodes: &[NodeStatus], out: &Output) -> String {
    let mut rows = Rows::new(out, &["NODE", "STATE", "WORK", "AFTER"]);
    for node in nodes {
        let is_bad = matches!(node.state, MemberState::Dead | MemberState::Removed | MemberState::Doomed);
        let state = node.state.as_str().to_owned();
        rows.add_marked(is_bad, [node.name.clone(), state, work_of(node), edges(node, |_| true)]);
    }
    rows.render()
}

/// How many nodes stand above each, on the longest way.
fn depths(nodes: &[NodeStatus]) -> HashMap<&str, usize> {
    let mut depths: HashMap<&str, usize> = HashMap::new();
    let mut rest: Vec<&NodeStatus> = nodes.iter().collect();
    // There is no circle, so that each round finds some.
    while !rest.is_empty() {
        let before = rest.len();
        rest.retain(|node| {
            let above: Option<Vec<usize>> =
                node.after.iter().map(|edge| depths.get(edge.node.as_str()).copied()).collect();
            let Some(above) = above else { return true };
            depths.insert(&node.name, above.into_iter().max().map_or(0, |depth| depth + 1));
            false
        });
        if rest.len() == before {
            break;
        }
    }
    depths
}

fn tree(nodes: &[NodeStatus]) -> String {
    let depths = depths(nodes);
    let depth = |node: &&NodeStatus| depths.get(node.name.as_str()).copied().unwrap_or(0);
    let mut sorted: Vec<&NodeStatus> = nodes.iter().collect();
    sorted.sort_by_key(|node| depth(node));
    let mut text = String::new();
    for node in sorted {
        let waits = edges(node, |edge| node.state == MemberState::Waiting && edge.is_open());
        let waits = if waits.is_empty() { waits } else { format!(" for {waits}") };
        let indent = "  ".repeat(depth(&node));
        let _ = writeln!(text, "{indent}{}  {}{waits}  {}", node.name, node.state.as_str(), work_of(node));
    }
    text
}

fn dot(status: &BatchStatus, nodes: &[NodeStatus]) -> String {
    let mut text = format!("digraph {:?} {{\n  node [shape=box, style=filled];\n", status.id);
    for node in nodes {
        let color = match node.state {
            MemberState::Succeeded => "palegreen",
            MemberState::Dead | MemberState::Removed | MemberState::Doomed | MemberState::DoomedAttempted => "salmon",
            MemberState::Sent | MemberState::Failing => "lightblue",
            MemberState::Skipped | MemberState::Cancelled => "lightgray",
            _ => "white",
        };
        let label = format!("{}\n{}", node.name, node.state.as_str());
        let _ = writeln!(text, "  {:?} [label={label:?}, fillcolor={color}];", node.name);
    }
    for node in nodes {
        for edge in &node.after {
            let label = if edge.when == When::Succeeded { "" } else { edge.when.as_str() };
            let _ = writeln!(text, "  {:?} -> {:?} [label={label:?}];", edge.node, node.name);
        }
    }
    text + "}\n"
}
