//! `interop-peer worker`: a server that prints what its handlers see.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use queue_admin::Inspector;
use queue_core::{Clock as _, RawTask, SystemClock};
use queue_redis::Redis;
use queue_worker::{Failure, Group, Job, RetryPolicy, Router, Server};
use serde_json::json;
use tokio::sync::watch;

use crate::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[arg(long)]
    redis: String,
    /// A queue and its weight, as NAME=WEIGHT; repeated for each queue.
    #[arg(long = "queue", required = true, value_parser = queue)]
    queues: Vec<(String, u32)>,
    #[arg(long)]
    strict: bool,
    #[arg(long)]
    concurrency: usize,
    /// Delay before every retry; without it, asynq's formula.
    #[arg(long)]
    retry_delay_secs: Option<u64>,
    #[arg(long)]
    shutdown_timeout_secs: Option<u64>,
    #[arg(long)]
    lease_secs: Option<u64>,
    /// Aggregates groups, after this grace period.
    #[arg(long)]
    group_grace_secs: Option<u64>,
    #[arg(long, default_value_t = 0)]
    group_max_size: usize,
    /// Makes aggregates due so much later.
    #[arg(long)]
    aggregate_in_secs: Option<u64>,
}

fn queue(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text.rsplit_once('=').ok_or("write it as NAME=WEIGHT")?;
    Ok((name.to_owned(), weight.parse().map_err(|error| format!("weight: {error}"))?))
}

/// Lets the handlers begin once `ready` is printed: it has to be the first line.
#[derive(Debug, Clone)]
struct Gate(watch::Receiver<bool>);

impl Gate {
    async fn pass(mut self) {
        // An error means that the sender is gone, and with it the whole program.
        let _ = self.0.wait_for(|open| *open).await;
    }
}

pub(crate) async fn run(settings: Settings) -> Outcome {
    let redis = Redis::connect(&settings.redis).await?;
    let (open, gate) = watch::channel(false);
    let mut router = router(&Gate(gate.clone()));
    if settings.group_grace_secs.is_some() {
        router = aggregator(router, Gate(gate), settings.aggregate_in_secs);
    }
    let mut server = Server::new(redis.clone(), router)
        .queues(settings.queues)
        .strict_priority(settings.strict)
        .concurrency(settings.concurrency);
    if let Some(secs) = settings.retry_delay_secs {
        server = server.retry_policy(RetryPolicy::Fixed(Duration::from_secs(secs)));
    }
    if let Some(secs) = settings.shutdown_timeout_secs {
        server = server.shutdown_timeout(Duration::from_secs(secs));
    }
    if let Some(secs) = settings.lease_secs {
        server = server.lease(Duration::from_secs(secs));
    }
    if let Some(secs) = settings.group_grace_secs {
        server = server.group_grace_period(Duration::from_secs(secs)).group_max_size(settings.group_max_size);
    }
    let mut running = tokio::spawn(server.run());
    tokio::select! {
        ended = &mut running => return Ok(ended??),
        listed = wait_until_listed(redis) => listed?,
    }
    print(&json!({"event": "ready"}));
    open.send_replace(true);
    Ok(running.await??)
}

/// A server listens for signals before it is on the list.
async fn wait_until_listed(redis: Redis) -> Outcome {
    let inspector = Inspector::new(redis);
    let pid = i32::try_from(std::process::id())?;
    while !inspector.servers().await?.iter().any(|server| server.pid == pid) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn router(gate: &Gate) -> Router {
    let mut router = Router::new(());
    for task_type in ["ok", "fail", "skip", "revoke", "panic", "putback", "sleep", "hang"] {
        let gate = gate.clone();
        router = router.route(task_type, move |job: Job| told(gate.clone(), job, async |job| work(job).await));
    }
    let gate = gate.clone();
    router.route("result", move |job: Job| told(gate.clone(), job, async |job| job.payload().clone()))
}

/// Joins the payloads of a group into those of a task `ok`; of a group `hang`, never.
fn aggregator(router: Router, gate: Gate, in_secs: Option<u64>) -> Router {
    router.aggregate(move |Group(group): Group, tasks: Vec<RawTask>| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            let payloads: Vec<String> = tasks
                .iter()
                .map(|task| String::from_utf8_lossy(task.payload.as_deref().unwrap_or_default()).into_owned())
                .collect();
            print(&json!({"event": "aggregate", "group": group, "payloads": payloads}));
            if group == "hang" {
                std::future::pending::<()>().await;
            }
            let aggregate = RawTask::new("ok").payload(payloads.join(","));
            match in_secs {
                Some(secs) => aggregate.process_in(Duration::from_secs(secs)),
                None => aggregate,
            }
        }
    })
}

/// Works a task and tells about it.
async fn told<T>(gate: Gate, job: Job, work: impl AsyncFnOnce(&Job) -> T) -> T {
    gate.pass().await;
    tell("start", &job);
    let answer = work(&job).await;
    tell("end", &job);
    answer
}

/// What a task asks for by its type, with its payload as an argument.
async fn work(job: &Job) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(job.payload()).into_owned();
    match job.task_type() {
        "ok" => {}
        "fail" => return Err(text.into()),
        "skip" => return Err(Failure::archive(text)),
        "revoke" => return Err(Failure::revoke(text)),
        "panic" => panic!("{text}"),
        "putback" => return Err(Failure::Snooze(None, text.into())),
        "sleep" => tokio::time::sleep(Duration::from_millis(text.parse()?)).await,
        "hang" => {
            job.cancellation().cancelled().await;
            return Err(format!("told to stop: {:?}", job.cancel_reason()).into());
        }
        other => return Err(format!("no handler has the type {other:?}").into()),
    }
    Ok(())
}

fn tell(event: &str, job: &Job) {
    print(&json!({
        "event": event,
        "id": job.id(),
        "type": job.task_type(),
        "queue": job.queue(),
        "payload_b64": BASE64_STANDARD.encode(job.payload()),
        "retried": job.retried(),
        "max_retry": job.max_retry(),
        "headers": job.headers(),
        "deadline_unix": job.deadline().timestamp(),
        "time_ns": SystemClock.now_ns(),
    }));
}

fn print(event: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: the test is over.
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}
