//! `queuectl task run`, `archive` and `delete`.

use clap::Args;
use queue_redis::{Error, Inspector};
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::payload::harmless;
use crate::session::Session;

/// Which tasks to change.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// Task id; may be given many times
    #[arg(short, long = "id", value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// What to do with the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Run,
    Archive,
    Delete,
}

impl Action {
    /// What has become of a task.
    fn done(self) -> &'static str {
        match self {
            Self::Run => "pending now",
            Self::Archive => "archived",
            Self::Delete => "deleted",
        }
    }
}

/// What `--json` tells of one task.
#[derive(Debug, Serialize)]
struct One<'a> {
    action: Action,
    queue: &'a str,
    id: &'a str,
}

pub(crate) async fn run(action: Action, args: ChangeArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    for id in &args.ids {
        one(action, &inspector, &args.queue, id).await?;
        if out.json {
            out.value(&One { action, queue: &args.queue, id })?;
        } else {
            out.line(&format!("task {:?} is {}", harmless(id), action.done()))?;
        }
    }
    Ok(())
}

async fn one(action: Action, inspector: &Inspector, queue: &str, id: &str) -> Result<(), Error> {
    match action {
        Action::Run => inspector.run_task(queue, id).await,
        Action::Archive => inspector.archive_task(queue, id).await,
        Action::Delete => inspector.delete_task(queue, id).await,
    }
}
