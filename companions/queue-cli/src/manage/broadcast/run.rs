//! `queuectl broadcast run`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use queue_core::broadcast::{LeftOut, To, Verdict};
use queue_core::{Clock, RawTask, SystemClock};
use queue_redis::{BatchError, Broadcast, BroadcastBuilder, BroadcastStatus, EnqueueError, Redis, RedisClock};
use serde::Serialize;

use super::look::{View, describe, summary};
use crate::enqueue;
use crate::error::{CliError, complain, exit};
use crate::given::Given as _;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// A task, and which servers are to run it.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// Task type, like cache:flush
    #[arg(value_name = "TYPE")]
    task_type: String,
    #[command(flatten)]
    payload: enqueue::PayloadArgs,
    /// Who is to run it: live (all servers of the queue), label:L, count:N or server:S,S,…
    #[arg(long, value_name = "WHOM")]
    to: To,
    /// Queue whose servers are meant [default: default]
    #[arg(long, value_name = "Q")]
    queue: Option<String>,
    /// How many servers have to succeed; the others go on [default: all]
    #[arg(long, value_name = "N|all", value_parser = quorum)]
    quorum: Option<Quorum>,
    /// Have servers that start within this long take part, too; they have to succeed unless there is a quorum [default: none]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    late_joiners: Option<Duration>,
    /// With count:N: have another server do the part of one that has been away for this long, 10s at least [default: never]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    replace_after: Option<Duration>,
    /// Cancel what is not over after this long [default: never]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    deadline: Option<Duration>,
    /// Retries on each server, before its task is archived [default: 25]
    #[arg(long, value_name = "N")]
    max_retry: Option<u32>,
    /// Time one attempt may take [default: 30m]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// What it is for
    #[arg(long, value_name = "T")]
    description: Option<String>,
    /// Id of the broadcast [default: 16 random letters and digits]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Wait until enough servers have succeeded, or cannot any more, and show how each stands
    #[arg(long)]
    wait: bool,
    /// With --wait: wait no longer than this [default: for ever]
    #[arg(long, value_name = "D", value_parser = when::duration, requires = "wait")]
    wait_timeout: Option<Duration>,
}

const RUN_HELP: &str = "\
Servers need names (`queuectl worker --name`); those without, Go's, and those that
are quiet or have no handler for the type are left out, and named on standard error.
Exit codes: 3 no server has a name that was given; 4 there is nobody, or there are
fewer servers than wanted, or two of one name; nothing was stored then. With --wait
also 0 enough servers have succeeded; 5 so many cannot any more; 124 the time is
over.";

/// How many servers have to succeed.
#[derive(Debug, Clone, Copy)]
enum Quorum {
    All,
    Of(u32),
}

fn quorum(text: &str) -> Result<Quorum, String> {
    match text {
        "all" => Ok(Quorum::All),
        number => number.parse().map(Quorum::Of).map_err(|_| "it is a number or all".to_owned()),
    }
}

/// What `--json` tells of a broadcast that was sent.
#[derive(Debug, Serialize)]
struct Sent<'a> {
    id: String,
    servers: &'a [String],
    left_out: &'a [LeftOut],
}

pub(super) async fn run(args: RunArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let mut task = RawTask::new(args.task_type).given(args.payload.read().await?, RawTask::payload);
    (task.options.max_retry, task.options.timeout) = (args.max_retry, args.timeout);
    let mut broadcast = session.client().broadcast(task).to(args.to);
    if let Some(Quorum::Of(servers)) = args.quorum {
        broadcast = broadcast.quorum(servers);
    }
    let now = redis_time(session.redis(), Arc::new(SystemClock)).await?;
    let at = |time| now.checked_add(time).ok_or_else(|| CliError::Usage("that is too far away".to_owned()));
    broadcast = broadcast
        .given(args.queue, BroadcastBuilder::queue)
        .given(args.deadline.map(at).transpose()?, BroadcastBuilder::deadline)
        .given(args.late_joiners.map(at).transpose()?, BroadcastBuilder::late_joiners)
        .given(args.replace_after, BroadcastBuilder::replace_lost)
        .given(args.description, BroadcastBuilder::description)
        .given(args.id, BroadcastBuilder::id);
    let sent = broadcast.send().await.map_err(refused)?;
    for left_out in sent.left_out() {
        complain(&format!("warning: left out: {left_out}"));
    }
    if !args.wait {
        let view = Sent { id: sent.id().to_string(), servers: sent.servers(), left_out: sent.left_out() };
        return out.told(&view, &view.id);
    }
    wait(&sent, args.wait_timeout, out).await
}

/// What time it is by the clock of Redis, by which broadcasts end: by one that is behind, a deadline may be over already.
async fn redis_time(redis: &Redis, machine: Arc<dyn Clock>) -> Result<SystemTime, CliError> {
    let clock = RedisClock::new(machine);
    clock.compare(redis).await?;
    Ok(clock.now().into())
}

/// All that a broadcast is made of stands on the command line, so that what it cannot be is wrong there.
fn refused(error: BatchError) -> CliError {
    match &error {
        BatchError::Unsuitable { reason, .. } => CliError::Usage(format!("this cannot be a broadcast: {reason}")),
        BatchError::Unplaced { source: EnqueueError::Option(source), .. } => CliError::Usage(source.to_string()),
        BatchError::Id(_) => CliError::Usage(error.to_string()),
        _ => error.into(),
    }
}

async fn wait(sent: &Broadcast, up_to: Option<Duration>, out: &Output) -> Result<(), CliError> {
    let status: BroadcastStatus = match sent.wait(up_to.unwrap_or(Duration::MAX)).await {
        Err(BatchError::TimedOut { .. }) => sent.status().await,
        waited => waited,
    }?;
    if out.json {
        out.value(&View::new(&status))?;
    } else {
        out.text(&describe(&status, out))?;
    }
    let id = sent.id().to_string();
    match status.verdict {
        Verdict::Reached => Ok(()),
        Verdict::Missed => {
            Err(CliError::Coded(exit::ARCHIVED, format!("broadcast {id:?} cannot succeed; {}", summary(&status))))
        }
        _ => {
            let text = format!("broadcast {id:?} is not decided in time; {}", summary(&status));
            Err(CliError::Coded(exit::TIMEOUT, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use queue_redis::embedded::RedisServer;

    use super::*;

    /// A machine whose clock is behind.
    #[derive(Debug)]
    struct Behind;

    impl Clock for Behind {
        fn now_ns(&self) -> i64 {
            SystemClock.now_ns() - 3_600_000_000_000
        }
    }

    #[tokio::test]
    async fn a_deadline_counts_from_the_time_of_redis() {
        let server = RedisServer::start().await.unwrap();
        let before = SystemTime::from(SystemClock.now());
        let time = redis_time(&server.redis(), Arc::new(Behind)).await.unwrap();
        assert!(time + Duration::from_secs(60) > before, "{time:?}");
        server.stop().await;
    }
}
