//! `queuectl batch show --tree`.

use queue_admin::Inspector;
use queue_admin::payload::shorten;
use queue_core::flow::FlowId;

use super::summary;
use crate::error::CliError;
use crate::output::Output;

/// Most batches that are shown of a tree.
const MOST: usize = 1_000;

/// A batch and all below it, each above its children.
pub(super) async fn show(root: &FlowId, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let (branches, has_more) = inspector.batch_tree(root, MOST).await?;
    if out.json {
        return out.json(&branches);
    }
    let mut text = String::new();
    for branch in &branches {
        text.push_str(&"  ".repeat(branch.depth));
        text.push_str(&format!("{}  {}", branch.id, summary(&branch.status)));
        if let Some(description) = &branch.description {
            text.push_str(&format!("  {}", shorten(description, 60)));
        }
        text.push('\n');
    }
    if has_more {
        text.push_str("and more; show a part by its id\n");
    }
    Ok(text)
}
