//! `queuectl task wait`.

use std::time::Duration;

use clap::Args;
use queue_admin::Error;
use queue_core::TaskInfo;

use super::everywhere;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
use crate::waited::tell;
use crate::when;

/// Which task to wait for.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct WaitArgs {
    /// Task id
    #[arg(value_name = "ID")]
    id: String,
    /// Queue name; without it, all queues that are listed are searched
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    /// Wait no longer than this [default: for ever]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
}

const WAIT_HELP: &str = "\
Exit codes: 0 the task completed, and its result was printed; 5 it was archived;
6 it is gone: it succeeded without a retention, or was deleted, and left no
trace to tell which; 3 there was no such task to begin with; 124 the time is
over. Enqueue with --retention to have a result that can be waited for.";

pub(crate) async fn run(args: WaitArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let (queue, seen) = find(&args, session).await?;
    let queue = queue.as_str();
    let id = &args.id;
    let (outcome, last) = match session.inspector().wait(queue, id, seen, args.timeout).await {
        Err(Error::TaskNotFound { .. }) => return Err(never_seen(queue, id)),
        waited => waited?,
    };
    tell(queue, id, outcome, last, out)
}

/// The queue to look at, and the task if it was seen already.
async fn find(args: &WaitArgs, session: &Session) -> Result<(String, Option<TaskInfo>), CliError> {
    if let Some(queue) = &args.queue {
        return Ok((queue.clone(), None));
    }
    let mut tasks = everywhere(&session.inspector(), &args.id).await?;
    if tasks.len() > 1 {
        let queues: Vec<String> = tasks.iter().map(|task| format!("{:?}", task.queue)).collect();
        let (id, queues) = (&args.id, queues.join(" and "));
        return Err(CliError::Usage(format!(
            "there are tasks {id:?} in the queues {queues}; name one of them by --queue"
        )));
    }
    let task = tasks.remove(0);
    Ok((task.queue.clone(), Some(task)))
}

fn never_seen(queue: &str, id: &str) -> CliError {
    let text = format!(
        "task {id:?} not found in queue {queue:?}; a task without a retention leaves no trace when it succeeds, so it may \
         have ended already"
    );
    CliError::Coded(exit::NOT_FOUND, text)
}
