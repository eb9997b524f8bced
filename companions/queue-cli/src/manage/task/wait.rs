//! `queuectl task wait`.

use std::time::Duration;

use clap::Args;
use queue_admin::payload::{pretty, shorten};
use queue_admin::view;
use queue_admin::{Error, Inspector};
use queue_core::{TaskInfo, TaskState};
use queue_redis::Listener;
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::everywhere;
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
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

/// How often to look when Redis tells of changes by itself; it may lose a connection without a word.
const POLL_TOLD: Duration = Duration::from_secs(5);
/// How often to look otherwise.
const POLL: Duration = Duration::from_secs(1);

/// How the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Completed,
    Archived,
    Gone,
    Timeout,
}

/// What `--json` tells; the task as it was seen last.
#[derive(Debug, Serialize)]
struct Waited {
    outcome: Outcome,
    task: Option<view::Task>,
}

pub(crate) async fn run(args: WaitArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let (queue, seen) = find(&args, session).await?;
    let queue = queue.as_str();
    let (outcome, last) = wait(queue, seen, &args, session).await?;
    let id = &args.id;
    let verdict = match outcome {
        Outcome::Completed => Ok(()),
        Outcome::Archived => {
            let error = last.as_ref().and_then(|task| task.last_error.as_deref()).unwrap_or("no error was recorded");
            Err(CliError::Coded(exit::ARCHIVED, format!("task {id:?} was archived: {}", shorten(error, 500))))
        }
        Outcome::Gone => Err(CliError::Coded(
            exit::GONE,
            format!(
                "task {id:?} is gone from queue {queue:?}: it succeeded or was deleted; a task without a retention \
                 leaves no trace"
            ),
        )),
        Outcome::Timeout => {
            let state = last.as_ref().map_or("not to be seen", |task| task.state.as_str());
            Err(CliError::Coded(exit::TIMEOUT, format!("task {id:?} has not ended in time; it is {state}")))
        }
    };
    if out.json {
        out.value(&Waited { outcome, task: last.map(view::Task::from) })?;
    } else if let (Outcome::Completed, Some(result)) = (outcome, last.and_then(|task| task.result)) {
        print(&result, out)?;
    }
    verdict
}

/// A program gets the bytes as they are, a terminal what it can show.
fn print(result: &[u8], out: &Output) -> Result<(), CliError> {
    match out.terminal {
        Some(_) => out.line(pretty(result).trim_end()),
        None => out.bytes(result),
    }
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

/// `last` is the task as it was seen before, if it was.
async fn wait(
    queue: &str,
    mut last: Option<TaskInfo>,
    args: &WaitArgs,
    session: &Session,
) -> Result<(Outcome, Option<TaskInfo>), CliError> {
    let inspector = session.inspector();
    let id = &args.id;
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut listener = None;
    loop {
        if listener.is_none() {
            listener = Listener::connect(session.redis()).await.ok();
        }
        let told = arm(&mut listener, queue, id).await;
        match look(&inspector, queue, id).await {
            Ok(Some(task)) => {
                let outcome = match task.state {
                    TaskState::Completed => Some(Outcome::Completed),
                    TaskState::Archived => Some(Outcome::Archived),
                    _ => None,
                };
                last = Some(task);
                if let Some(outcome) = outcome {
                    return Ok((outcome, last));
                }
            }
            Ok(None) if last.is_some() => return Ok((Outcome::Gone, last)),
            Ok(None) => return Err(never_seen(queue, id)),
            Err(error) if error.is_transient() && last.is_some() => {
                tracing::warn!(%error, "cannot look at the task; trying again");
                listener = None;
            }
            Err(error) => return Err(error.into()),
        }
        let change = async {
            match &mut listener {
                Some(listener) if told => {
                    listener.signal().await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = change => {}
            () = sleep(if told { POLL_TOLD } else { POLL }) => {}
            () = over(end) => return Ok((Outcome::Timeout, last)),
        }
    }
}

/// Asks to be told of the next change of the task; whether that will happen.
async fn arm(listener: &mut Option<Listener>, queue: &str, id: &str) -> bool {
    let Some(mut watch) = listener.as_ref().and_then(Listener::watch) else { return false };
    let armed = watch.has_task(queue, id).await.is_ok();
    if !armed {
        *listener = None;
    }
    armed
}

async fn look(inspector: &Inspector, queue: &str, id: &str) -> Result<Option<TaskInfo>, Error> {
    match inspector.task(queue, id).await {
        Ok(task) => Ok(Some(task)),
        Err(Error::TaskNotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn never_seen(queue: &str, id: &str) -> CliError {
    let text = format!(
        "task {id:?} not found in queue {queue:?}; a task without a retention leaves no trace when it succeeds, so it may \
         have ended already"
    );
    CliError::Coded(exit::NOT_FOUND, text)
}

async fn over(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
