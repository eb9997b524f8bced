//! `queuectl audit`.

use clap::Args;
use queue_admin::AuditEntry;
use queue_admin::payload::shorten;

use super::now;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::when;

/// How much of it to show.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct AuditArgs {
    /// Show the last so many actions
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
}

crate::command::simple!(AuditArgs);

async fn run(args: AuditArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let entries = session.inspector().audit(None, args.size as usize).await?.entries;
    if out.json {
        return out.value(&entries);
    }
    if entries.is_empty() {
        return out.line("nothing was done yet with queuectl or its dashboards");
    }
    let mut rows = Rows::new(out, &["AT", "WHO", "ACTION", "WHERE", "OUTCOME"]);
    for entry in &entries {
        let at = when::ago(entry.at, now());
        let outcome = match (entry.outcome.as_str(), entry.changed) {
            (outcome, Some(changed)) => format!("{outcome}, {changed} changed"),
            (outcome, None) => outcome.to_owned(),
        };
        let is_done = entry.error.is_none();
        let who = format!("{} ({})", shorten(&entry.actor, 40), entry.via);
        rows.add_marked(!is_done, [at, who, entry.action.clone(), place(entry), outcome]);
    }
    out.text(&rows.render())
}

/// What it was done to.
fn place(entry: &AuditEntry) -> String {
    let ids = entry.ids.join(" ");
    let parts = [entry.queue.as_deref(), entry.entry.as_deref(), entry.filter.as_deref(), Some(ids.as_str())];
    shorten(&parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": "), 120)
}
