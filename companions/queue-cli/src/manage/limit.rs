//! `queuectl limit`.

use std::time::Duration;

use clap::{Args, Subcommand};
use queue_admin::payload::harmless;
use queue_admin::{Admin, Error, LimitInfo, Rate, view};
use queue_core::limit::{Breaker, LaneChange, LaneOrder, Limit, LimitKey};
use queue_core::limits::MAX_WEIGHT;
use queue_core::options::check_limited_queue;

use super::now;
use crate::error::{CliError, complain};
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};
use crate::when;

/// What to do with limits.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Set a limit of a queue, in the place of one of the same name; running tasks go on
    Set(SetArgs),
    /// Show the limits of all queues, and how many tasks run and wait under each
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Remove a limit; what waits under it is taken as servers have room
    #[command(visible_aliases = ["remove", "delete"])]
    Rm {
        /// Name of the limit
        #[arg(value_name = "NAME")]
        name: String,
        /// Queue name
        #[arg(short, long, value_name = "Q", default_value = "default")]
        queue: String,
    },
    /// Remove all limits of a queue, and make pending what waits under them
    Off {
        /// Queue name
        #[arg(short, long, value_name = "Q", default_value = "default")]
        queue: String,
    },
    /// Show the keys of a limit under which tasks run or wait, or for which something is different
    Lanes(LanesArgs),
    /// Change what holds for one key of a limit
    Key(KeyArgs),
}

/// What to limit.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Name of the limit: letters a to z, digits and hyphens
    #[arg(value_name = "NAME")]
    name: String,
    /// Queue name
    #[arg(short, long, value_name = "Q", default_value = "default")]
    queue: String,
    /// By what tasks are told apart: queue, type, header:NAME or payload:/PATH
    #[arg(long, value_name = "KEY")]
    key: LimitKey,
    /// Only tasks of this type, or, with a star at the end, of types that begin so; may be given again
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// How many of one key may run at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// How many of one key may start in a time, such as 100/1m
    #[arg(long, value_name = "N/DURATION")]
    rate: Option<Rate>,
    /// How many may start at once after a rest
    #[arg(long, value_name = "N", default_value_t = 1)]
    burst: u32,
    /// With --rate: halve it for a key whose handlers say that it is too much, down to this share, such as 1/16
    #[arg(long, value_name = "1/N", value_parser = share, requires = "rate")]
    adapt: Option<u32>,
    /// free, or strict: the tasks of a key run one after another, in their order, also over retries
    #[arg(long, value_name = "ORDER", default_value = "free")]
    order: LaneOrder,
    /// The keys take turns while more waits than is taken, by their weights (limit key NAME KEY --weight N)
    #[arg(long)]
    fair: bool,
    /// Let nothing of a key start for a rest when so many percent have failed, of so many attempts at least, within a time
    #[arg(long, value_name = "PERCENT%/ATTEMPTS/DURATION")]
    breaker: Option<Breaker>,
    /// With --breaker: how long it rests before one task tries, and how long at the most, doubled while that one fails
    #[arg(long, value_name = "D..D", default_value = "30s..10m", value_parser = rest, requires = "breaker")]
    rest: (Duration, Duration),
    /// After how long a waiting task becomes pending for servers that know nothing of limits
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = when::duration)]
    fallback: Duration,
}

/// Which limits to show.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Queue name; without it, all
    #[arg(short, long, value_name = "Q")]
    queue: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Which keys to show.
#[derive(Debug, Args)]
pub(crate) struct LanesArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    name: String,
    /// Queue name
    #[arg(short, long, value_name = "Q", default_value = "default")]
    queue: String,
    /// Most keys to show
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
    #[command(flatten)]
    watch: WatchArgs,
}

/// What is to hold for a key.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    name: String,
    /// The type, the header's value, or the field's
    #[arg(value_name = "KEY")]
    key: String,
    /// Queue name
    #[arg(short, long, value_name = "Q", default_value = "default")]
    queue: String,
    #[command(flatten)]
    change: KeyChange,
}

/// One of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct KeyChange {
    /// How many of this key may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// How many times as often as one without a weight this key is at turn, 1 to 1000; for a fair limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WEIGHT)))]
    weight: Option<u32>,
    /// Let nothing of this key start
    #[arg(long)]
    pause: bool,
    /// Let it start again
    #[arg(long)]
    resume: bool,
    /// Let hold what holds for all, end a rest of its breaker, and make its rate whole again
    #[arg(long)]
    reset: bool,
}

/// `1/16`.
fn share(text: &str) -> Result<u32, String> {
    text.strip_prefix("1/")
        .and_then(|slowest| slowest.parse().ok())
        .ok_or_else(|| "it is a share such as 1/16".to_owned())
}

/// `30s..10m`; one alone is both.
fn rest(text: &str) -> Result<(Duration, Duration), String> {
    let (first, longest) = text.split_once("..").unwrap_or((text, text));
    let duration = |text| when::duration(text).map_err(|error| error.to_string());
    Ok((duration(first)?, duration(longest)?))
}

crate::command::simple!(LimitCommand);

async fn run(command: LimitCommand, session: &Session, out: &Output) -> Result<(), CliError> {
    let admin = session.admin("cli");
    match command {
        LimitCommand::Ls(args) => {
            show(&args.watch, out, async |out| list(args.queue.as_deref(), &admin, out).await).await
        }
        LimitCommand::Set(args) => set(args, &admin, out).await,
        LimitCommand::Rm { name, queue } => {
            admin.remove_limit(&queue, &name).await?;
            out.told(
                &serde_json::json!({ "queue": queue, "name": name, "removed": true }),
                &format!("limit {name:?} of queue {queue:?} is removed"),
            )
        }
        LimitCommand::Off { queue } => {
            let tasks = admin.remove_limits(&queue).await?;
            out.told(
                &serde_json::json!({ "queue": queue, "made_pending": tasks }),
                &format!("queue {queue:?} has no limits any more; {tasks} waiting tasks are pending"),
            )
        }
        LimitCommand::Lanes(args) => show(&args.watch, out, async |out| lanes(&args, &admin, out).await).await,
        LimitCommand::Key(args) => key(args, &admin, out).await,
    }
}

async fn set(args: SetArgs, admin: &Admin, out: &Output) -> Result<(), CliError> {
    let mut limit = Limit::new(args.name, args.key).burst(args.burst).fallback(args.fallback);
    limit = args.types.into_iter().fold(limit, Limit::task_type);
    if args.order == LaneOrder::Strict {
        limit = limit.strict_order();
    }
    if args.fair {
        limit = limit.fair();
    }
    if let Some(most) = args.concurrency {
        limit = limit.concurrency(most);
    }
    if let Some(rate) = args.rate {
        limit = limit.rate(rate.count(), rate.per());
    }
    limit = args.adapt.into_iter().fold(limit, Limit::adaptive);
    if let Some(breaker) = args.breaker {
        limit = limit.breaker(breaker.rest(args.rest.0, args.rest.1));
    }
    limit.check().map_err(|error| CliError::Usage(error.to_string()))?;
    check_limited_queue(&args.queue).map_err(|error| CliError::Usage(error.to_string()))?;
    let name = limit.name.clone();
    let is_known = admin.inspector().knows_queue(&args.queue).await?;
    admin.set_limit(&args.queue, limit).await?;
    if !is_known {
        // It may be meant, so that the first task finds the limit.
        complain(&format!(
            "warning: there was no queue {:?}; there is now. If the name is misspelt, `queuectl queue rm` removes it",
            args.queue
        ));
    }
    let unaware = admin.inspector().servers_unaware_of_limits().await?;
    if out.json {
        let limits = admin.inspector().limits(&args.queue).await?;
        let info = limits.iter().find(|info| info.limit.name == name);
        return out.value(&info.map(|info| view::Limit::new(&args.queue, info, &unaware)));
    }
    let queue = &args.queue;
    let others = unaware.get(queue).map_or_else(String::new, |servers| {
        format!("; servers of the queue that do not know of it: {}", harmless(&servers.join(", ")))
    });
    out.line(&format!("limit {name:?} of queue {queue:?} is set{others}"))
}

async fn key(args: KeyArgs, admin: &Admin, out: &Output) -> Result<(), CliError> {
    let KeyArgs { name, key, queue, change } = args;
    let limits = admin.inspector().limits(&queue).await?;
    let old = limits.iter().find(|info| info.limit.name == name).and_then(|info| info.changes.get(&key));
    let mut new = if change.reset { LaneChange::default() } else { old.cloned().unwrap_or_default() };
    new.concurrency = change.concurrency.or(new.concurrency);
    new.weight = change.weight.or(new.weight);
    new.paused = !change.resume && (change.pause || new.paused);
    admin.change_lane(&queue, &name, &key, Some(&new)).await?;
    let most = new.concurrency.map_or_else(|| "as for all".to_owned(), |most| most.to_string());
    let paused = if new.paused { "paused" } else { "not paused" };
    let weight = new.weight.map_or_else(String::new, |weight| format!(", weight: {weight}"));
    let text = harmless(&format!("key {key:?} of limit {name:?}: {paused}, at once: {most}{weight}"));
    out.told(&serde_json::json!({ "queue": queue, "name": name, "key": key, "now": new }), &text)
}

async fn lanes(args: &LanesArgs, admin: &Admin, out: &Output) -> Result<String, CliError> {
    let (lanes, next) = admin.inspector().lanes(&args.queue, &args.name, None, args.size as usize).await?;
    if out.json {
        return out.json(&lanes);
    }
    if lanes.is_empty() {
        return Ok(format!("nothing runs or waits under limit {:?}\n", args.name));
    }
    let mut rows = Rows::new(out, &["KEY", "#RUNNING", "#WAITING", "NEXT LOOK", "#AT ONCE", "#WEIGHT", "STARTS"]);
    for lane in lanes {
        rows.add([
            harmless(&lane.key),
            lane.running.to_string(),
            lane.waiting.to_string(),
            when::ago(lane.next_look, now()),
            lane.concurrency.map_or_else(String::new, |most| most.to_string()),
            lane.weight.map_or_else(String::new, |weight| weight.to_string()),
            match lane.rests_until {
                _ if lane.paused => "paused".to_owned(),
                Some(at) if at > now() => format!("none until {}", when::date(at, now())),
                Some(_) => "one at a time".to_owned(),
                None => lane.slowed.map_or_else(String::new, |slowed| {
                    format!("cut to {} %, whole again {}", slowed.percent, when::distance(slowed.until, now()))
                }),
            },
        ]);
    }
    let more = if next.is_some() { "and more; --size shows them\n" } else { "" };
    Ok(rows.render() + more)
}

async fn list(queue: Option<&str>, admin: &Admin, out: &Output) -> Result<String, CliError> {
    let inspector = admin.inspector();
    let names = match queue {
        Some(queue) => vec![queue.to_owned()],
        None => inspector.queues().await?,
    };
    let mut found = Vec::new();
    for name in &names {
        match inspector.limits(name).await {
            Ok(limits) => found.extend(limits.into_iter().map(|info| (name, info))),
            // Limits that somebody has spoilt cost no other queue its line.
            Err(error @ Error::LimitsUnreadable { .. }) if queue.is_none() => {
                complain(&format!("warning: {error}"));
            }
            // Removed since we asked for the names.
            Err(Error::QueueNotFound(_)) if queue.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    if found.is_empty() && !out.json {
        return Ok("no limits; `queuectl limit set` makes one\n".to_owned());
    }
    let unaware = inspector.servers_unaware_of_limits().await?;
    if out.json {
        let shown = found.iter().map(|(queue, info)| view::Limit::new(queue, info, &unaware));
        return out.json(&shown.collect::<Vec<_>>());
    }
    let mut rows = Rows::new(
        out,
        &[
            "QUEUE",
            "LIMIT",
            "KEY",
            "TYPES",
            "#AT ONCE",
            "RATE",
            "BREAKER",
            "#RUNNING",
            "#WAITING",
            "#PARKED",
            "CHANGED KEYS",
        ],
    );
    for (queue, LimitInfo { limit, running, waiting, parked, changes, .. }) in &found {
        let rate = match (limit.rate, limit.per) {
            (Some(rate), Some(per)) => format!("{rate}/{}", when::rough(Duration::from_millis(per))),
            _ => String::new(),
        };
        let changed = changes.iter().map(|(key, change)| match change {
            LaneChange { paused: true, .. } => format!("{key} (paused)"),
            LaneChange { concurrency: Some(most), .. } => format!("{key} ({most})"),
            LaneChange { weight: Some(weight), .. } => format!("{key} (weight {weight})"),
            LaneChange { .. } => key.clone(),
        });
        rows.add([
            harmless(queue),
            limit.name.clone(),
            harmless(&limit.key.to_string()),
            harmless(&limit.types.join(" ")),
            match limit.concurrency {
                _ if limit.is_strict() => "in order".to_owned(),
                Some(most) if limit.fair => format!("{most}, fair"),
                None if limit.fair => "fair".to_owned(),
                Some(most) => most.to_string(),
                None => String::new(),
            },
            rate,
            limit.breaker.map_or_else(String::new, |breaker| {
                format!("{}%/{}/{}", breaker.percent, breaker.of, when::rough(Duration::from_millis(breaker.within)))
            }),
            running.to_string(),
            waiting.to_string(),
            parked.to_string(),
            harmless(&changed.collect::<Vec<_>>().join(", ")),
        ]);
    }
    let mut text = rows.render();
    for (queue, servers) in unaware.iter().filter(|(queue, _)| found.iter().any(|(limited, _)| limited == queue)) {
        let servers = servers.join(", ");
        text += &harmless(&format!("queue {queue:?} is served without regard to its limits by {servers}\n"));
    }
    Ok(text)
}
