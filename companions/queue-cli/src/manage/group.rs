//! `queuectl group`.

use clap::{Args, Subcommand};
use queue_admin::payload::shorten;
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Show the groups of a queue
    #[command(visible_alias = "list")]
    Ls(ListArgs),
}

/// Which groups to show.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Debug, Serialize)]
struct Group {
    group: String,
    size: u64,
}

crate::command::simple!(GroupCommand);

async fn run(command: GroupCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let GroupCommand::Ls(list) = command;
    let inspector = session.inspector();
    show(&list.watch, out, async |out| {
        let groups = inspector.groups(&list.queue).await?;
        if out.json {
            let groups = groups.into_iter().map(|group| Group { group: group.name, size: group.size });
            return out.json(&groups.collect::<Vec<_>>());
        }
        if groups.is_empty() {
            return Ok(format!("no groups in queue {:?}\n", list.queue));
        }
        let mut rows = Rows::new(out, &["GROUP", "#TASKS"]);
        for group in groups {
            rows.add([shorten(&group.name, 80), group.size.to_string()]);
        }
        Ok(rows.render())
    })
    .await
}
