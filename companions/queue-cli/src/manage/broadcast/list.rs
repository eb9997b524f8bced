//! `queuectl broadcast ls`.

use clap::Args;
use queue_admin::Inspector;
use queue_admin::payload::shorten;
use queue_core::broadcast::Verdict;

use crate::error::CliError;
use crate::manage::now;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{self, WatchArgs};
use crate::when;

/// Which broadcasts to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Most broadcasts to show; looked for among the newest thousand batches
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    size: u32,
    #[command(flatten)]
    watch: WatchArgs,
}

pub(super) async fn list(args: ListArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    watch::show(&args.watch, out, async |out| ls(args.size as usize, &inspector, out).await).await
}

async fn ls(most: usize, inspector: &Inspector, out: &Output) -> Result<String, CliError> {
    let (broadcasts, next) = inspector.broadcasts(0, most).await?;
    if out.json {
        return out.json(&broadcasts);
    }
    let more = match next {
        Some(_) if broadcasts.len() == most => "and perhaps more; --size shows them\n",
        Some(_) => "older ones are not shown; `queuectl batch ls` has all batches\n",
        None => "",
    };
    if broadcasts.is_empty() {
        return Ok(format!("no broadcasts\n{more}"));
    }
    let columns = ["BROADCAST", "TYPE", "VERDICT", "STATE", "#QUORUM", "#SUCCEEDED", "#DEAD", "CREATED", "DESCRIPTION"];
    let mut rows = Rows::new(out, &columns);
    for broadcast in &broadcasts {
        let verdict = broadcast.verdict();
        rows.add_marked(
            verdict == Some(Verdict::Missed),
            [
                broadcast.id.clone(),
                shorten(broadcast.task_type.as_deref().unwrap_or("-"), 80),
                verdict.map_or("-", Verdict::as_str).to_owned(),
                broadcast.state.as_str().to_owned(),
                broadcast.quorum.map_or_else(String::new, |quorum| quorum.to_string()),
                broadcast.succeeded.to_string(),
                broadcast.dead.to_string(),
                when::ago(broadcast.created, now()),
                shorten(broadcast.description.as_deref().unwrap_or("-"), 80),
            ],
        );
    }
    Ok(rows.render() + more)
}
