//! `queuectl stats`.

use std::collections::BTreeMap;

use clap::Args;
use queue_admin::QueueInfo;
use queue_admin::payload::shorten;
use queue_admin::view;
use queue_core::TaskState;
use serde::Serialize;

use super::queues;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::watch::{WatchArgs, show};

#[derive(Debug, Serialize)]
struct Stats {
    redis: String,
    servers: usize,
    busy_workers: usize,
    #[serde(flatten)]
    states: BTreeMap<&'static str, u64>,
    processed_today: u64,
    failed_today: u64,
    processed_total: u64,
    failed_total: u64,
    queues: Vec<view::Queue>,
    /// What Redis says about itself with `INFO`; `None` where it refuses to.
    redis_info: Option<BTreeMap<String, String>>,
}

/// How to show the statistics.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    watch: WatchArgs,
}

crate::command::simple!(StatsArgs);

async fn run(args: StatsArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    show(&args.watch, out, async |out| stats(session, out).await).await
}

async fn stats(session: &Session, out: &Output) -> Result<String, CliError> {
    let inspector = session.inspector();
    let ((queues, unread), servers) = (queues(&inspector).await?, inspector.servers().await?);
    let redis_info = match inspector.redis_info().await {
        Ok(info) => Some(info),
        Err(error) if error.is_transient() => return Err(error.into()),
        // Some hosted servers do not let everybody ask.
        Err(_) => None,
    };
    let sum = |count: &dyn Fn(&QueueInfo) -> u64| queues.iter().map(count).sum::<u64>();
    let stats = Stats {
        redis: session.redis().target().to_owned(),
        servers: servers.len(),
        busy_workers: servers.iter().map(|server| server.workers.len()).sum(),
        states: TaskState::ALL.map(|state| (state.as_str(), sum(&|queue| queue.count(state)))).into(),
        processed_today: sum(&|queue| queue.processed),
        failed_today: sum(&|queue| queue.failed),
        processed_total: sum(&|queue| queue.processed_total),
        failed_total: sum(&|queue| queue.failed_total),
        queues: queues.iter().map(view::Queue::from).collect(),
        redis_info,
    };
    if out.json {
        return unread.with(out.json(&stats)?);
    }
    let percent = |failed: u64, all: u64| match all {
        0 => String::new(),
        _ => format!(" ({:.1} % failed)", 100.0 * failed as f64 / all as f64),
    };
    let facts = facts(&[
        ("Processed today", format!("{}{}", stats.processed_today, percent(stats.failed_today, stats.processed_today))),
        ("Processed ever", format!("{}{}", stats.processed_total, percent(stats.failed_total, stats.processed_total))),
        (
            "Servers",
            match stats.servers {
                0 => "none is running".to_owned(),
                servers => format!("{servers}, tasks in hand: {}", stats.busy_workers),
            },
        ),
        ("Redis", format!("{}{}", stats.redis, about(stats.redis_info.as_ref()))),
    ]);
    unread.with(format!("{}\n{}\n{facts}", by_state(&stats, out), by_queue(&queues, out)))
}

/// What is shown of Redis: its version, how long it has been up, its clients and memory.
fn about(info: Option<&BTreeMap<String, String>>) -> String {
    let Some(info) = info else { return String::new() };
    let parts = [
        ("version", "redis_version", ""),
        ("up", "uptime_in_days", " days"),
        ("clients:", "connected_clients", ""),
        ("memory:", "used_memory_human", ""),
        ("at most", "used_memory_peak_human", ""),
    ];
    let known = parts.iter().filter_map(|(name, key, unit)| Some(format!(", {name} {}{unit}", info.get(*key)?)));
    known.collect()
}

fn by_state(stats: &Stats, out: &Output) -> String {
    let columns = TaskState::ALL.map(|state| format!("#{}", state.as_str().to_uppercase()));
    let mut rows = Rows::new(out, &columns.each_ref().map(String::as_str));
    rows.add(TaskState::ALL.map(|state| stats.states.get(state.as_str()).copied().unwrap_or(0).to_string()));
    rows.render()
}

fn by_queue(queues: &[QueueInfo], out: &Output) -> String {
    let mut rows =
        Rows::new(out, &["QUEUE", "", "#TASKS", "#DONE TODAY", "#FAILED TODAY", "#DONE EVER", "#FAILED EVER"]);
    for queue in queues {
        rows.add_marked(
            queue.paused,
            [
                shorten(&queue.name, 40),
                if queue.paused { "paused".to_owned() } else { String::new() },
                queue.size().to_string(),
                queue.processed.to_string(),
                queue.failed.to_string(),
                queue.processed_total.to_string(),
                queue.failed_total.to_string(),
            ],
        );
    }
    rows.render()
}
