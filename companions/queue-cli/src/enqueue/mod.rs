//! `queuectl enqueue`.

pub(crate) mod asynq;
pub(crate) mod batch;
mod publish;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Args;
use queue_core::limits::{HIGHEST_PRIORITY, MAX_TASK_BYTES};
use queue_core::queue_name::Family;
use queue_core::{OptionError, RawTask, RetryPolicy, TaskInfo, TaskOptions, UniqueUntil};
use serde::Serialize;

use crate::error::{CliError, exit};
use crate::given::Given as _;
use crate::output::Output;
use crate::session::Session;
use crate::waited;
use crate::when;

/// A task, or a file of tasks.
#[derive(Debug, Args)]
#[command(after_help = BATCH_HELP, override_usage = USAGE)]
#[group(skip)]
pub(crate) struct EnqueueArgs {
    /// Task type, like email:welcome
    #[arg(value_name = "TYPE", required_unless_present = "batch")]
    task_type: Option<String>,

    #[command(flatten)]
    payload: PayloadArgs,

    #[command(flatten)]
    options: OptionArgs,

    #[command(flatten)]
    publish: publish::PublishArgs,

    /// Wait until the task has ended, and print its result
    ///
    /// Exit codes as `task wait`. A task without --retention is kept for 60s after its success.
    #[arg(long, conflicts_with_all = ["batch", "publish"])]
    wait: bool,
    /// With --wait: wait no longer than this; the task goes on [default: for ever]
    #[arg(long, value_name = "D", value_parser = when::duration, requires = "wait")]
    wait_timeout: Option<Duration>,

    /// Enqueue the tasks of a file (`-`: standard input), one JSON object on each line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task_type", "source", "option", "publish"])]
    batch: Option<PathBuf>,
}

const USAGE: &str = "\
queuectl enqueue TYPE [--payload S | --payload-file F | -] [OPTIONS]
       queuectl enqueue --batch FILE";

const BATCH_HELP: &str = "\
A line of a batch has `type` and any of `payload` (a string is taken as it is,
any other JSON as its text) or `payload_base64`, `queue`, `max_retry`,
`timeout`, `deadline`, `in`, `at`, `unique`, `unique_until`, `unique_key`,
`retention`, `task_id`, `group`, `priority` (or `only`, or `labels`, an array;
then `fallback`, too), `front`, `max_crashes`, `max_snoozes`, `give_up_after`,
`backoff`, `on_exhausted`, `on_exhausted_queue` and `headers` (an object):

  {\"type\":\"email:welcome\",\"payload\":{\"user\":7},\"queue\":\"mail\",\"in\":\"10m\"}

A refused line is reported by its number, the others are enqueued, and the exit
code is 1; or 4, where all that were refused have an id or a lock that another
task has.";

/// The options of a task.
#[derive(Debug, Args)]
#[group(id = "option", multiple = true)]
struct OptionArgs {
    /// Queue [default: default]
    #[arg(long, value_name = "Q")]
    queue: Option<String>,
    /// Retries after failures, before the task is archived [default: 25]
    #[arg(long, value_name = "N")]
    max_retry: Option<u32>,
    /// Time one attempt may take [default: 30m, or none with a deadline]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// When it is too late to work the task: 2030-01-31T18:00:00Z or Unix seconds
    #[arg(long, value_name = "T", value_parser = when::instant)]
    deadline: Option<SystemTime>,
    /// Start after this long
    #[arg(long = "in", value_name = "D", value_parser = when::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Start at this instant: 2030-01-31T18:00:00Z or Unix seconds
    #[arg(long, value_name = "T", value_parser = when::instant)]
    at: Option<SystemTime>,
    /// Refuse another task of the same type, payload and queue until this one succeeds, or for this long
    #[arg(long, value_name = "D", value_parser = when::duration)]
    unique: Option<Duration>,
    /// Until when the lock of --unique is held: success (asynq's way), start, finish, or window: for all of its time
    #[arg(long, value_name = "W", requires = "unique")]
    unique_until: Option<UniqueUntil>,
    /// What the lock of --unique is named after, instead of the payload
    #[arg(long, value_name = "S", requires = "unique")]
    unique_key: Option<String>,
    /// Keep the task and its result this long after success
    #[arg(long, value_name = "D", value_parser = when::duration)]
    retention: Option<Duration>,
    /// Id of the task; one that is taken in the queue is refused, unless --publish says otherwise [default: a random UUID]
    #[arg(long, visible_alias = "key", value_name = "ID")]
    task_id: Option<String>,
    /// Collect the task in this group, to be aggregated with others
    #[arg(long, value_name = "G")]
    group: Option<String>,
    /// How urgent the task is, for workers with --priorities: 0 to 9 [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(HIGHEST_PRIORITY)))]
    priority: Option<u8>,
    /// Only workers of this --name may run the task; refused (exit code 3) where none is alive that serves the queue
    #[arg(long, value_name = "SERVER", conflicts_with = "priority")]
    only: Option<String>,
    /// Only workers with this --label may run the task; given many times, those with all of them. Refused as with --only
    #[arg(long = "label", value_name = "L", conflicts_with_all = ["priority", "only"])]
    labels: Vec<String>,
    /// With --only or --label: when none of these workers was alive for so long, any of the queue may run it [default: never]
    #[arg(long, value_name = "D", value_parser = when::duration, conflicts_with = "priority")]
    fallback: Option<Duration>,
    /// Have the task taken next, before all that is pending; the last one that comes so is the first
    #[arg(long, conflicts_with_all = ["delay", "at", "group"])]
    front: bool,
    /// Enqueue with --only or --label without looking who is alive: the task waits
    #[arg(long)]
    force: bool,
    /// Workers that may go silent over the task, before it is archived [default: as the server says, 5]
    #[arg(long, value_name = "N")]
    max_crashes: Option<u32>,
    /// How often the task may be snoozed, before it is archived [default: no limit]
    #[arg(long, value_name = "N")]
    max_snoozes: Option<u32>,
    /// Archive the task when it fails this long after its first failure [default: only when its retries are used up]
    #[arg(long, value_name = "D", value_parser = when::duration)]
    give_up_after: Option<Duration>,
    /// Time between attempts: asynq, 30s, 10s..1h (doubles each time) or `linear 10s..1h` [default: as the server says]
    #[arg(long, value_name = "P")]
    backoff: Option<RetryPolicy>,
    /// Enqueue a task of this type when a worker archives this one; its payload says which task it was, and why
    #[arg(long, value_name = "TYPE")]
    on_exhausted: Option<String>,
    /// Queue of the task of --on-exhausted [default: the same]
    #[arg(long, value_name = "Q", requires = "on_exhausted")]
    on_exhausted_queue: Option<String>,
    /// Metadata that travels with the task; may be given many times
    #[arg(long = "header", value_name = "K=V", value_parser = header)]
    headers: Vec<(String, String)>,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a header is written KEY=VALUE".to_owned()),
    }
}

impl OptionArgs {
    fn apply(self, task: RawTask) -> Result<RawTask, OptionError> {
        let family = Family::choose(self.priority, self.only, self.labels)?;
        let options = TaskOptions {
            queue: self.queue,
            max_retry: self.max_retry,
            timeout: self.timeout,
            deadline: self.deadline,
            task_id: self.task_id,
            unique: self.unique,
            unique_until: self.unique_until,
            unique_key: self.unique_key,
            retention: self.retention,
            group: self.group,
            max_crashes: self.max_crashes,
            max_snoozes: self.max_snoozes,
            give_up_after: self.give_up_after,
            backoff: self.backoff,
            on_exhausted: self.on_exhausted,
            on_exhausted_queue: self.on_exhausted_queue,
            family,
            fallback: self.fallback,
            front: self.front,
            headers: self.headers.into_iter().collect(),
            ..TaskOptions::new()
        };
        Ok(task.with(options.given(self.delay, TaskOptions::process_in).given(self.at, TaskOptions::process_at)))
    }
}

/// What `--json` tells about an enqueued task.
#[derive(Debug, Serialize)]
struct Enqueued<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    id: &'a str,
    queue: &'a str,
    r#type: &'a str,
    state: queue_core::TaskState,
    next_process_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// One line about an enqueued task: its id, or JSON.
fn describe(info: &TaskInfo, line: Option<u64>, out: &Output) -> String {
    if !out.json {
        return format!("{}\n", info.id);
    }
    let enqueued = Enqueued {
        line,
        id: &info.id,
        queue: &info.queue,
        r#type: &info.task_type,
        state: info.state,
        next_process_at: info.next_process_at,
    };
    // One line for each task, in a terminal too: it may be a batch.
    serde_json::to_string(&enqueued).map_or_else(|_| String::new(), |json| json + "\n")
}

crate::command::simple!(EnqueueArgs);

async fn run(args: EnqueueArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    if let Some(file) = args.batch {
        return batch::run(file, session, out).await;
    }
    let payload = args.payload.read().await?;
    let task = RawTask::new(args.task_type.unwrap_or_default()).given(payload, RawTask::payload);
    // With a fallback it does not wait for ever.
    let force = args.options.force || args.options.fallback.is_some();
    let (client, task) = (session.client(), args.options.apply(task)?);
    if let Some(target) = task.options.family.as_ref().filter(|family| family.is_target() && !force) {
        target.check().map_err(OptionError::from)?;
        if session.inspector().servers_for(&task.options).await?.is_empty() {
            let only = target.whom();
            let reason = format!("no server that is alive serves {:?}: only {only} may", task.options.queue_name());
            return Err(CliError::Coded(exit::NOT_FOUND, format!("{reason}; --force enqueues it nevertheless")));
        }
    }
    if args.publish.are_given() {
        return publish::run(&args.publish, &client, task, out).await;
    }
    if !args.wait {
        return out.text(&describe(&client.enqueue(task).await?, None, out));
    }
    let handle = client.enqueue_to_wait(task).await?;
    let (queue, id, stored) = (handle.queue(), handle.id(), handle.enqueued().cloned());
    let (outcome, last) = session.inspector().wait(queue, id, stored, args.wait_timeout).await?;
    waited::tell(queue, id, outcome, last, out)
}

/// Where the payload of a task comes from.
#[derive(Debug, Args)]
pub(crate) struct PayloadArgs {
    /// Read the payload from standard input
    #[arg(value_name = "-", value_parser = ["-"], hide_possible_values = true, group = "source")]
    stdin: Option<String>,

    /// Payload, as it is. `--payload=` is an empty payload, which is not the same as none
    #[arg(long, value_name = "S", group = "source", allow_hyphen_values = true)]
    payload: Option<OsString>,

    /// Read the payload from a file
    #[arg(long, value_name = "F", group = "source")]
    payload_file: Option<PathBuf>,
}

impl PayloadArgs {
    pub(crate) async fn read(self) -> Result<Option<Bytes>, CliError> {
        payload(self.stdin.is_some(), self.payload, self.payload_file).await
    }
}

/// The payload given on the command line, in a file or on standard input; `None` if none was given.
pub(crate) async fn payload(
    stdin: bool,
    text: Option<OsString>,
    file: Option<PathBuf>,
) -> Result<Option<Bytes>, CliError> {
    if let Some(text) = text {
        return Ok(Some(text.into_vec().into()));
    }
    let stdin = stdin || file.as_deref().is_some_and(is_stdin);
    if !stdin && file.is_none() {
        return Ok(None);
    }
    // On a thread of its own, so that a signal ends the wait for somebody to type something.
    let read = tokio::task::spawn_blocking(move || {
        let (from, input): (String, Box<dyn Read>) = match &file {
            Some(file) if !stdin => {
                let from = file.display().to_string();
                let file = std::fs::File::open(file).map_err(|error| format!("cannot read {from}: {error}"))?;
                (from, Box::new(file))
            }
            _ => ("the payload from standard input".to_owned(), Box::new(std::io::stdin().lock())),
        };
        let mut bytes = Vec::new();
        let read = input.take(MAX_TASK_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read {from}: {error}"))?;
        if bytes.len() > MAX_TASK_BYTES {
            return Err(format!(
                "the payload has more than {MAX_TASK_BYTES} bytes; store it elsewhere, and enqueue where it is"
            ));
        }
        Ok(bytes)
    });
    match read.await {
        Ok(read) => read.map(|bytes| Some(bytes.into())).map_err(CliError::Failed),
        Err(error) => Err(CliError::failed(format!("cannot read the payload: {error}"))),
    }
}

pub(crate) fn is_stdin(file: &std::path::Path) -> bool {
    file == std::path::Path::new("-")
}
