//! `queuectl enqueue` with a key: what is done where a task has it already.

use std::time::Duration;

use clap::{Args, ValueEnum};
use queue_core::{PublishOutcome, RawTask};
use queue_redis::{Client, Publish, Published};
use serde::Serialize;

use crate::error::{CliError, exit};
use crate::given::Given as _;
use crate::output::Output;
use crate::when;

/// What may be done to a task that has the id already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Nothing
    Keep,
    /// One that waits gets this payload
    Replace,
    /// One that is scheduled gets this time
    Reschedule,
    /// One that has ended begins anew
    Restart,
}

#[derive(Debug, Args)]
#[group(id = "publish", multiple = true)]
pub(super) struct PublishArgs {
    /// What may be done where a task has the id already, instead of refusing this one; several with commas between
    #[arg(long = "publish", value_name = "P,…", value_delimiter = ',', requires = "task_id")]
    policies: Vec<Policy>,
    /// Where a worker has the task, let this one follow it; one that waits gets this payload, one that has ended begins anew
    #[arg(long, requires = "task_id")]
    coalesce: bool,
    /// Run when so long has gone by without another one of this id, with the last payload
    #[arg(long, value_name = "D", value_parser = when::duration, requires = "task_id", conflicts_with_all = ["delay", "at"])]
    debounce: Option<Duration>,
    /// With --debounce or `--publish reschedule`: at the latest so long after the first [default: never]
    #[arg(long, value_name = "D", value_parser = when::duration, requires = "task_id")]
    max_wait: Option<Duration>,
    /// Publish at most one of this id in so long
    #[arg(long, value_name = "D", value_parser = when::duration, requires = "task_id")]
    throttle: Option<Duration>,
}

impl PublishArgs {
    /// Whether the task is published, and not only enqueued.
    pub(super) fn are_given(&self) -> bool {
        !self.policies.is_empty()
            || self.coalesce
            || [self.debounce, self.max_wait, self.throttle].iter().any(Option::is_some)
    }

    fn publish(&self, client: &Client, task: RawTask) -> Publish {
        let mut publish = client.publish(task);
        for policy in &self.policies {
            publish = match policy {
                Policy::Keep => publish,
                Policy::Replace => publish.replace(),
                Policy::Reschedule => publish.reschedule(),
                Policy::Restart => publish.restart(),
            };
        }
        if self.coalesce {
            publish = publish.coalesce();
        }
        publish
            .given(self.debounce, Publish::debounce)
            .given(self.max_wait, Publish::max_wait)
            .given(self.throttle, Publish::throttle)
    }

    /// Whether the caller wanted what is there to change, and it did not.
    fn is_refusal(&self, outcome: PublishOutcome) -> bool {
        let wants_change =
            self.coalesce || self.debounce.is_some() || self.policies.iter().any(|policy| *policy != Policy::Keep);
        wants_change && outcome == PublishOutcome::Kept
    }
}

/// What `--json` tells about a published task.
#[derive(Debug, Serialize)]
struct Told<'a> {
    outcome: &'static str,
    id: &'a str,
    queue: Option<&'a str>,
    r#type: Option<&'a str>,
    state: Option<queue_core::TaskState>,
    next_process_at: Option<chrono::DateTime<chrono::Utc>>,
    window_ms: Option<u128>,
}

pub(super) async fn run(args: &PublishArgs, client: &Client, task: RawTask, out: &Output) -> Result<(), CliError> {
    if args.max_wait.is_some() && args.debounce.is_none() && !args.policies.contains(&Policy::Reschedule) {
        return Err(CliError::Usage("--max-wait needs --debounce or --publish reschedule".to_owned()));
    }
    let published = args.publish(client, task).await?;
    let Published { outcome, id, holder, window, .. } = &published;
    let holder = holder.as_ref();
    if out.json {
        let told = Told {
            outcome: outcome.as_str(),
            id,
            queue: holder.map(|task| task.queue.as_str()),
            r#type: holder.map(|task| task.task_type.as_str()),
            state: holder.map(|task| task.state),
            next_process_at: holder.and_then(|task| task.next_process_at),
            window_ms: window.map(|window| window.as_millis()),
        };
        out.text(&serde_json::to_string(&told).map_or_else(|_| String::new(), |json| json + "\n"))?;
    } else {
        out.text(&format!("{id} {outcome}\n"))?;
    }
    if args.is_refusal(*outcome) {
        let state = holder.map_or("gone", |task| task.state.as_str());
        return Err(CliError::Coded(exit::REFUSED, format!("task {id:?} stays as it is: it is {state}")));
    }
    Ok(())
}
