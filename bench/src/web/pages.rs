//! A page of tasks at any depth.
//!
//! Each page is looked at command by command (see [`cost`](super::cost)), and then all are asked for in turn for the time they take.

use std::time::Duration;

use queue_core::TaskState;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::cost::{Cost, cost};
use super::site::Site;
use super::{Place, Row, Web, fill, quantile};
use crate::Failure;

const QUEUE: &str = "mail";
/// An answer is made anew for everybody.
const NOW: Duration = Duration::ZERO;
/// Tasks on a page.
const PAGE: u64 = 50;
/// Tasks in a step on the way to a depth; the most that there are in one answer.
const STEP: u64 = 200;
/// How often a page is timed.
const TIMES: usize = 300;

/// A page, whoever answers it.
struct Page {
    of_ours: bool,
    depth: &'static str,
    path: String,
    cost: Cost,
    millis: Vec<f64>,
}

/// A page on the way.
#[derive(Deserialize)]
struct Answer {
    items: Vec<IgnoredAny>,
    next: Option<String>,
}

pub(super) async fn measure(args: &Web) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for state in [TaskState::Pending, TaskState::Scheduled, TaskState::Retry, TaskState::Completed] {
        eprintln!("pages of {state}");
        // A Redis of its own for each, so that a table which grows meets none of the others.
        let mut place = Place::start(args).await?;
        fill::fill(&mut place.server, QUEUE, state, args.tasks).await?;
        let (mut ours, mut asynqmon) = (place.ours().await?, place.asynqmon().await?);
        let mut pages = Vec::new();
        for (depth, path) in our_places(&mut ours, state, args.tasks).await? {
            let cost = cost(&mut place.server, &mut ours, &path, NOW).await?;
            pages.push(Page { of_ours: true, depth, path, cost, millis: Vec::new() });
        }
        for (depth, number) in [("first", 1), ("middle", args.tasks / PAGE / 2), ("last", args.tasks / PAGE)] {
            let path = format!("/api/queues/{QUEUE}/{state}_tasks?page={number}&size={PAGE}");
            let cost = cost(&mut place.server, &mut asynqmon, &path, NOW).await?;
            pages.push(Page { of_ours: false, depth, path, cost, millis: Vec::new() });
        }
        place.server.watch_slow_calls(1_000_000).await?;
        for round in 0..TIMES {
            // None always comes behind the same other one.
            let places = pages.len();
            for at in 0..places {
                let page = &mut pages[(at + round) % places];
                let site = if page.of_ours { &mut ours } else { &mut asynqmon };
                page.millis.push(site.timed(&page.path).await?.0.as_secs_f64() * 1e3);
            }
        }
        for depth in ["first", "middle", "last"] {
            let mut of = |ours: bool| {
                let page = pages.iter_mut().find(|page| page.of_ours == ours && page.depth == depth);
                page.map(say).unwrap_or_default()
            };
            rows.push(Row {
                what: format!("{depth} page of {PAGE}, {state}"),
                ours: of(true),
                asynqmon: of(false),
                wanted: "p99 20 ms, 3 round trips, no command above 1 ms",
            });
        }
        place.server.stop().await;
    }
    Ok(rows)
}

fn say(page: &mut Page) -> String {
    let (middle, late) = (quantile(&mut page.millis, 0.5), quantile(&mut page.millis, 0.99));
    format!("p50 {middle:.1}, p99 {late:.1} ms; {}", page.cost)
}

/// The addresses of the first page, of the one in the middle, and of the last one.
async fn our_places(site: &mut Site, state: TaskState, tasks: u64) -> Result<[(&'static str, String); 3], Failure> {
    let path = |limit: u64, cursor: &str| {
        let cursor = if cursor.is_empty() { String::new() } else { format!("&cursor={cursor}") };
        format!("/api/v1/tasks?queue={QUEUE}&state={state}&limit={limit}{cursor}")
    };
    let (mut cursor, mut seen, mut middle) = (String::new(), 0, String::new());
    loop {
        let Answer { items, next } = serde_json::from_slice(&site.timed(&path(STEP, &cursor)).await?.1)?;
        seen += items.len() as u64;
        if seen >= tasks {
            break;
        }
        cursor = next.ok_or_else(|| format!("{state}: nothing behind {seen} of {tasks}"))?;
        if seen == tasks / 2 {
            middle.clone_from(&cursor);
        }
    }
    Ok([("first", path(PAGE, "")), ("middle", path(PAGE, &middle)), ("last", path(PAGE, &cursor))])
}
