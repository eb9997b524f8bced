//! `queuectl failures`.

use clap::Args;
use queue_admin::payload::{harmless, shorten};
use queue_admin::{FailureGroup, FailureTotals, Failures};
use serde::Serialize;

use super::now;
use crate::error::CliError;
use crate::output::Output;
use crate::progress::{self, thousands};
use crate::session::Session;
use crate::table::Rows;
use crate::when;

/// Which failures to show.
#[derive(Debug, Args)]
#[group(skip)]
#[command(after_help = HELP)]
pub(crate) struct FailuresArgs {
    /// Only of this queue
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    /// Show the so many largest groups
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

const HELP: &str = "\
Tasks in retry and in the archive are grouped by their type and by what their errors have in common.
What stands in the last column chooses the tasks of a group:
  queuectl task run -q mail --state archived --filter fingerprint:v1-0b5c6a2f9d41";

crate::command::simple!(FailuresArgs);

#[derive(Debug, Serialize)]
struct Told<'a> {
    items: &'a [FailureGroup],
    groups: usize,
    #[serde(flatten)]
    totals: FailureTotals,
}

async fn run(args: FailuresArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut scan = session.inspector().failures(args.queue.as_deref()).await?;
    let mut failures = Failures::default();
    failures.expect(&scan);
    let bar = progress::bar("look at", failures.totals(|_| true).of, "tasks");
    while let Some(stretch) = scan.next().await? {
        failures.add(&stretch);
        bar.set_position(failures.totals(|_| true).looked_at);
    }
    bar.finish_and_clear();
    let (groups, totals) = (failures.groups(|_| true), failures.totals(|_| true));
    let items = &groups[..groups.len().min(args.size as usize)];
    let unread = scan.unread().iter().map(|it| format!("queue {:?}: {}", it.queue, harmless(&it.detail)));
    let unread = unread.collect::<Vec<_>>().join("; ");
    let outcome = || match unread.is_empty() {
        true => Ok(()),
        false => Err(CliError::failed(format!("not all could be read: {unread}"))),
    };
    if out.json {
        out.value(&Told { items, groups: groups.len(), totals })?;
        return outcome();
    }
    if groups.is_empty() {
        out.line("no task in retry or in the archive has failed")?;
        return outcome();
    }
    let mut rows = Rows::new(out, &["#TASKS", "#RETRY", "#ARCHIVED", "LAST", "QUEUES", "TYPE", "ERROR", "FINGERPRINT"]);
    for group in items {
        let queues: Vec<&str> = group.queues.iter().map(|it| it.queue.as_str()).collect();
        rows.add([
            thousands(group.tasks),
            thousands(group.retry),
            thousands(group.archived),
            when::ago(group.last_failed_at, now()),
            shorten(&queues.join(" "), 40),
            shorten(&group.r#type, 40),
            shorten(&group.pattern, 100),
            group.fingerprint.clone(),
        ]);
    }
    out.text(&rows.render())?;
    let more = [
        (groups.len().saturating_sub(items.len()) as u64, "groups more; --size shows them"),
        (totals.other, "tasks of further groups, which are not told apart"),
        (totals.without_error, "tasks without an error"),
    ];
    more.into_iter()
        .filter(|(count, _)| *count > 0)
        .try_for_each(|(count, what)| out.line(&format!("and {} {what}", thousands(count))))?;
    outcome()
}
