//! `queuectl batch ls` and `show`.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use queue_admin::Inspector;
use queue_admin::payload::{one_line, shorten};
use queue_core::flow::{FlowId, MemberState};
use queue_redis::{BatchState, BatchStatus};

use super::{PageArgs, others};
use crate::error::{CliError, complain};
use crate::manage::now;
use crate::output::Output;
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::watch::{self, WatchArgs};
use crate::when;

/// Most children that are named one by one.
const CHILDREN: usize = 10;

/// Which batches to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those in this state; a thousand are looked at
    #[arg(long, value_name = "STATE", value_parser = batch_state())]
    state: Option<BatchState>,
    /// Only those with this tag; a thousand are looked at
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Which batch to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Batch id; of a child with a colon and its number
    #[arg(value_name = "ID")]
    id: FlowId,
    /// Show the tasks of the members in this state instead
    #[arg(long, value_name = "STATE", value_parser = member_state())]
    members: Option<MemberState>,
    /// Show it with all batches below it, a line each
    #[arg(long, conflicts_with = "members")]
    tree: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Reads the state of a batch, for clap.
fn batch_state() -> impl clap::builder::TypedValueParser<Value = BatchState> {
    PossibleValuesParser::new(BatchState::ALL.map(BatchState::as_str))
        .try_map(|name| BatchState::from_name(&name).ok_or("not a state of a batch"))
}

/// Reads the state of a member, for clap.
fn member_state() -> impl clap::builder::TypedValueParser<Value = MemberState> {
    // A member that is void is none, and one that is doomed is a child, which has no task.
    let states = MemberState::ALL.into_iter().filter(|state| !matches!(state.as_str(), "void" | "doomed"));
    let named = |name: &String| MemberState::ALL.into_iter().find(|state| state.as_str() == name);
    PossibleValuesParser::new(states.map(MemberState::as_str))
        .try_map(move |name| named(&name).ok_or("not a state of a member"))
}

pub(crate) async fn list(args: ListArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    watch::show(&args.watch, out, async |out| ls(&args, &inspector, out).await).await
}

async fn ls(args: &ListArgs, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let page = args.page;
    let (batches, next) = inspector.batches(args.state, args.tag.as_deref(), page.skip(), page.most()).await?;
    let is_search = args.state.is_some() || args.tag.is_some();
    if let Some(next) = next.filter(|_| is_search && batches.len() < page.most()) {
        complain(&format!("note: {next} batches were looked at; there are more, older ones"));
    }
    if out.json {
        return out.json(&batches);
    }
    if batches.is_empty() {
        return Ok(if is_search {
            "no such batches\n".to_owned()
        } else if page.page == 1 {
            "no batches\n".to_owned()
        } else {
            format!("no batches on page {}\n", page.page)
        });
    }
    let columns =
        ["BATCH", "STATE", "#MEMBERS", "#LIVE", "#SUCCEEDED", "#DEAD", "#REMOVED", "CREATED", "DESCRIPTION", "TAGS"];
    let mut rows = Rows::new(out, &columns);
    for batch in &batches {
        rows.add_marked(
            matches!(batch.state, BatchState::Doomed | BatchState::Dead | BatchState::Abandoned),
            [
                batch.id.clone(),
                batch.state.as_str().to_owned(),
                batch.total.to_string(),
                batch.live().to_string(),
                batch.succeeded.to_string(),
                batch.dead.to_string(),
                batch.removed.to_string(),
                when::ago(batch.created, now()),
                shorten(batch.description.as_deref().unwrap_or("-"), 80),
                shorten(&words(&batch.tags), 40),
            ],
        );
    }
    Ok(rows.render())
}

pub(crate) async fn show(args: ShowArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    watch::show(&args.watch, out, async |out| {
        if args.tree {
            return super::tree::show(&args.id, &inspector, out).await;
        }
        let batch = inspector.batch(&args.id).await?;
        if let Some(state) = args.members {
            return members(&args, state, &inspector, out).await;
        }
        if out.json { out.json(&batch) } else { Ok(describe(&batch.status, &batch.children)) }
    })
    .await
}

async fn members(args: &ShowArgs, state: MemberState, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let (skip, most) = (args.page.skip(), args.page.most());
    let (members, _) = inspector.flows().members(&args.id, Some(state), 0, skip.saturating_add(most)).await?;
    let members = members.get(skip..).unwrap_or_default();
    if out.json {
        return out.json(&members);
    }
    if members.is_empty() {
        let page = if args.page.page == 1 { String::new() } else { format!(" on page {}", args.page.page) };
        return Ok(format!("no members of batch {:?} are {}{page}\n", args.id.to_string(), state.as_str()));
    }
    let mut rows = Rows::new(out, &["QUEUE", "TASK"]);
    for member in members {
        rows.add([member.queue.clone(), member.id.clone()]);
    }
    Ok(rows.render())
}

/// Tags in one text; a dash for none.
fn words(tags: &BTreeSet<String>) -> String {
    if tags.is_empty() { "-".to_owned() } else { tags.iter().map(String::as_str).collect::<Vec<_>>().join(", ") }
}

fn describe(status: &BatchStatus, children: &[String]) -> String {
    let now = now();
    let mut lines = vec![("ID", status.id.clone())];
    lines.extend(status.parent.clone().map(|parent| ("Parent", parent)));
    if !children.is_empty() {
        let mut text = children.iter().take(CHILDREN).cloned().collect::<Vec<_>>().join(" ");
        if let Some(more @ 1..) = children.len().checked_sub(CHILDREN) {
            text.push_str(&format!(" and {more} more"));
        }
        lines.push(("Children", text));
    }
    lines.push(("State", status.state.as_str().to_owned()));
    lines.extend(status.description.as_deref().map(|text| ("Description", one_line(text))));
    if !status.tags.is_empty() {
        lines.push(("Tags", one_line(&words(&status.tags))));
    }
    if !status.metadata.is_empty() {
        let pairs: Vec<String> = status.metadata.iter().map(|(name, text)| format!("{name}={text}")).collect();
        lines.push(("Metadata", one_line(&pairs.join(", "))));
    }
    let mut counts = vec![status.total.to_string(), format!("{} succeeded", status.succeeded)];
    counts.extend(
        others(status).into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")),
    );
    lines.push(("Members", counts.join(", ")));
    if let (Some(quorum), Some(verdict)) = (status.quorum, status.verdict()) {
        lines.push(("Quorum", format!("{quorum}, {}", verdict.as_str())));
    }
    let dates = [
        ("Created", status.created),
        ("Committed", status.committed),
        ("Last change", status.touched),
        ("Over", status.over),
        ("Deadline", status.deadline),
    ];
    let date = |at: DateTime<Utc>| when::date(at, now);
    lines.extend(dates.into_iter().filter_map(|(name, at)| Some((name, date(at?)))));
    if status.generation > 1 {
        lines.push(("Generation", status.generation.to_string()));
    }
    for callback in &status.callbacks {
        let fired = status.fired.get(callback.event).map_or_else(String::new, |at| format!(", since {}", date(*at)));
        let (task, queue) = (one_line(&callback.r#type), one_line(&callback.queue));
        let text = format!("{task} in queue {queue}: {}{fired}", callback.state.as_str());
        lines.push((callback.event, text));
    }
    facts(&lines)
}
