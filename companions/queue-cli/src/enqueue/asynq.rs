//! `queuectl task enqueue`: the same with the flags of asynq's CLI.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use queue_core::{RawTask, TaskOptions};

use super::describe;
use crate::error::CliError;
use crate::given::Given as _;
use crate::output::Output;
use crate::session::Session;
use crate::when;

/// A task, as asynq's CLI wants it described.
#[derive(Debug, Args)]
pub(crate) struct AsynqEnqueueArgs {
    /// Task type
    #[arg(short = 't', long = "type_name", alias = "type", value_name = "TYPE")]
    task_type: String,
    /// Payload, as it is
    #[arg(short = 'l', long, value_name = "S", allow_hyphen_values = true)]
    payload: Option<OsString>,
    /// Queue [default: default]
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    /// Retries after failures [default: 25]
    #[arg(long, value_name = "N")]
    retry: Option<u32>,
    /// Task id [default: a random UUID]
    #[arg(short, long, value_name = "ID")]
    id: Option<String>,
    /// Time one attempt may take
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// When it is too late to work the task
    #[arg(long, value_name = "T", value_parser = when::instant)]
    deadline: Option<SystemTime>,
    /// Refuse another task of the same type, payload and queue for this long
    #[arg(long, value_name = "D", value_parser = when::duration)]
    unique: Option<Duration>,
    /// Start at this instant
    #[arg(long = "process_at", value_name = "T", value_parser = when::instant, conflicts_with = "process_in")]
    process_at: Option<SystemTime>,
    /// Start after this long
    #[arg(long = "process_in", value_name = "D", value_parser = when::duration)]
    process_in: Option<Duration>,
    /// Keep the task and its result this long after success
    #[arg(long, value_name = "D", value_parser = when::duration)]
    retention: Option<Duration>,
    /// Collect the task in this group
    #[arg(short, long, value_name = "G")]
    group: Option<String>,
}

pub(crate) async fn run(args: AsynqEnqueueArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let options = TaskOptions {
        queue: args.queue,
        max_retry: args.retry,
        timeout: args.timeout,
        deadline: args.deadline,
        task_id: args.id,
        unique: args.unique,
        retention: args.retention,
        group: args.group,
        ..TaskOptions::new()
    };
    let options =
        options.given(args.process_in, TaskOptions::process_in).given(args.process_at, TaskOptions::process_at);
    let payload = args.payload.map(OsString::into_vec);
    let task = RawTask::new(args.task_type).given(payload, RawTask::payload);
    let info = session.client().enqueue(task.with(options)).await?;
    out.text(&describe(&info, None, out))
}
