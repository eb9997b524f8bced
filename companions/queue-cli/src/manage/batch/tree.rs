//! `queuectl batch show --tree`.

use queue_admin::payload::shorten;
use queue_core::flow::FlowId;
use queue_redis::BatchError;
use queue_redis::flow::Flows;
use serde::Serialize;

use super::summary;
use crate::error::CliError;
use crate::output::Output;

/// Most batches that are shown of a tree.
const MOST: usize = 1_000;

/// A line of the tree.
#[derive(Debug, Serialize)]
struct Branch {
    id: String,
    depth: usize,
    state: &'static str,
    total: u64,
    succeeded: u64,
    description: Option<String>,
    #[serde(skip)]
    text: String,
}

/// A batch and all below it, each above its children.
pub(super) async fn show(root: &FlowId, flows: &Flows, out: &Output) -> Result<String, CliError> {
    let (mut stack, mut branches) = (vec![(root.clone(), 0)], Vec::new());
    while let Some((id, depth)) = stack.pop() {
        let Some(status) = flows.status(&id).await? else {
            if depth == 0 {
                return Err(BatchError::Unknown { id: id.to_string() }.into());
            }
            continue;
        };
        let description = status.description.as_deref().map(|text| format!("  {}", shorten(text, 60)));
        let text = format!("{}  {}{}", status.id, summary(&status), description.unwrap_or_default());
        branches.push(Branch {
            id: status.id,
            depth,
            state: status.state.as_str(),
            total: status.total,
            succeeded: status.succeeded,
            description: status.description,
            text,
        });
        if branches.len() == MOST {
            break;
        }
        stack.extend(flows.children(&id).await?.into_iter().rev().map(|child| (child, depth + 1)));
    }
    if out.json {
        return out.json(&branches);
    }
    let mut text = String::new();
    for branch in &branches {
        text.push_str(&"  ".repeat(branch.depth));
        text.push_str(&branch.text);
        text.push('\n');
    }
    if !stack.is_empty() {
        text.push_str("and more; show a part by its id\n");
    }
    Ok(text)
}
