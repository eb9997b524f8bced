//! `queuectl broadcast show`.

use clap::Args;
use queue_admin::payload::{preview, shorten};
use queue_admin::view;
use queue_core::flow::FlowId;
use queue_redis::{BatchError, BroadcastStatus, WorkerState};
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{self, WatchArgs};
use crate::when;

/// Which broadcast to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id of the broadcast
    #[arg(value_name = "ID")]
    id: FlowId,
    #[command(flatten)]
    watch: WatchArgs,
}

/// What `--json` tells of a broadcast.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    id: &'a str,
    r#type: &'a str,
    queue: &'a str,
    quorum: u32,
    verdict: queue_core::broadcast::Verdict,
    state: queue_redis::BatchState,
    created: Option<chrono::DateTime<chrono::Utc>>,
    deadline: Option<chrono::DateTime<chrono::Utc>>,
    over: Option<chrono::DateTime<chrono::Utc>>,
    joins_until: Option<chrono::DateTime<chrono::Utc>>,
    workers: Vec<Worker<'a>>,
}

/// What it tells of one server.
#[derive(Debug, Serialize)]
struct Worker<'a> {
    server: &'a str,
    state: WorkerState,
    queue: &'a str,
    task: &'a str,
    error: Option<&'a str>,
    result: Option<view::Bytes>,
}

impl<'a> View<'a> {
    pub(super) fn new(status: &'a BroadcastStatus) -> Self {
        let worker = |worker: &'a queue_redis::WorkerReport| Worker {
            server: &worker.server,
            state: worker.state,
            queue: &worker.queue,
            task: &worker.task,
            error: worker.error.as_deref(),
            result: worker.result.as_deref().map(view::Bytes::new),
        };
        Self {
            id: &status.id,
            r#type: &status.task_type,
            queue: &status.queue,
            quorum: status.quorum,
            verdict: status.verdict,
            state: status.state,
            created: status.created,
            deadline: status.deadline,
            over: status.over,
            joins_until: status.joins_until,
            workers: status.workers.iter().map(worker).collect(),
        }
    }
}

pub(super) async fn show(args: ShowArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let flows = session.client().flows();
    watch::show(&args.watch, out, async |out| {
        let id = args.id.to_string();
        let Some(status) = flows.broadcast(&args.id).await? else {
            let is_batch = flows.status(&args.id).await?.is_some();
            return Err(if is_batch { BatchError::NoBroadcast { id } } else { BatchError::Unknown { id } }.into());
        };
        if out.json { out.json(&View::new(&status)) } else { Ok(describe(&status, out)) }
    })
    .await
}

/// `reached: 2 of 3 servers have succeeded, 2 have to`.
pub(super) fn summary(status: &BroadcastStatus) -> String {
    let (succeeded, all) = (status.succeeded(), status.servers());
    let have = if succeeded == 1 { "has" } else { "have" };
    let to = if status.quorum == 1 { "has" } else { "have" };
    format!("{}: {succeeded} of {all} servers {have} succeeded, {} {to} to", status.verdict.as_str(), status.quorum)
}

pub(super) fn describe(status: &BroadcastStatus, out: &Output) -> String {
    let mut rows = Rows::new(out, &["SERVER", "STATE", "RESULT"]);
    for worker in &status.workers {
        let is_bad = matches!(worker.state, WorkerState::Dead | WorkerState::Removed | WorkerState::Gone);
        let text = match (&worker.result, &worker.error) {
            (Some(result), _) => preview(result, 200),
            (None, Some(error)) => shorten(error, 200),
            (None, None) => "-".to_owned(),
        };
        rows.add_marked(is_bad, [worker.server.clone(), worker.state.as_str().to_owned(), text]);
    }
    let may_join = status.joins_until.filter(|until| status.over.is_none() && *until > crate::manage::now());
    let others = may_join
        .map(|until| format!("; servers that start until {} take part", when::date(until, crate::manage::now())));
    let is = format!("broadcast {:?} of {} is {}", status.id, shorten(&status.task_type, 80), summary(status));
    format!("{is}{}\n{}", others.unwrap_or_default(), rows.render())
}
