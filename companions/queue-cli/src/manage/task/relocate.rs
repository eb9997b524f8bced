//! `queuectl task move`.

use clap::Args;
use queue_admin::payload::harmless;
use queue_core::limits::HIGHEST_PRIORITY;
use queue_core::queue_name::Family;
use serde::Serialize;

use super::queue_of;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// Which task, and where to.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct MoveArgs {
    /// Task id
    #[arg(value_name = "ID")]
    id: String,
    /// Queue name [default: that of the listed queue that has the id]
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    #[command(flatten)]
    to: Destination,
}

/// Where to.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Destination {
    /// This priority: 0 to 9
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(HIGHEST_PRIORITY)))]
    priority: Option<u8>,
    /// Only workers of this --name
    #[arg(long, value_name = "SERVER", conflicts_with = "priority")]
    only: Option<String>,
    /// Only workers with this --label; given many times, those with all of them
    #[arg(long = "label", value_name = "L", conflicts_with_all = ["priority", "only"])]
    labels: Vec<String>,
    /// All workers of the queue, without a priority
    #[arg(long, conflicts_with_all = ["priority", "only", "labels"])]
    shared: bool,
}

#[derive(Debug, Serialize)]
struct Moved<'a> {
    id: &'a str,
    from: &'a str,
    queue: &'a str,
}

pub(crate) async fn run(args: MoveArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let Destination { priority, only, labels, shared: _ } = args.to;
    let to = Family::choose(priority, only, labels).map_err(queue_admin::Error::from)?;
    let admin = session.admin("cli");
    let id = &args.id;
    let from = match args.queue {
        Some(queue) => queue,
        None => queue_of(admin.inspector(), id).await?,
    };
    let queue = admin.move_task(&from, id, to).await?;
    out.told(
        &Moved { id, from: &from, queue: &queue },
        &format!("task {:?} is in queue {:?} now", harmless(id), harmless(&queue)),
    )
}
