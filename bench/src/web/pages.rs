//! A page of tasks at any depth.
//!
//! Each page is asked for nine times while Redis notes all commands, scripts' own too. Of every command the shortest of the nine
//! times counts, and of these the longest. Then the pages are asked for in turn, with no log, for the time they take.

use queue_core::TaskState;

use super::site::Site;
use super::{Place, Row, Web, fill, quantile};
use crate::Failure;
use crate::server::Server;

const QUEUE: &str = "mail";
/// Tasks on a page.
const PAGE: u64 = 50;
/// Tasks in a step on the way to a depth; the most that there are in one answer.
const STEP: u64 = 200;
/// How often a page is looked at command by command.
const LOOKS: usize = 9;
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

/// What Redis had to do for an answer.
struct Cost {
    commands: usize,
    round_trips: f64,
    longest_micros: u64,
    longest: String,
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
            let cost = cost(&mut place.server, &mut ours, &path).await?;
            pages.push(Page { of_ours: true, depth, path, cost, millis: Vec::new() });
        }
        for (depth, number) in [("first", 1), ("middle", args.tasks / PAGE / 2), ("last", args.tasks / PAGE)] {
            let path = format!("/api/queues/{QUEUE}/{state}_tasks?page={number}&size={PAGE}");
            let cost = cost(&mut place.server, &mut asynqmon, &path).await?;
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
    let Cost { commands, round_trips, longest_micros, longest } = &page.cost;
    format!(
        "p50 {middle:.1}, p99 {late:.1} ms; {commands} commands, {round_trips:.1} round trips; {longest} {longest_micros} µs"
    )
}

/// The addresses of the first page, of the one in the middle, and of the last one.
async fn our_places(site: &mut Site, state: TaskState, tasks: u64) -> Result<[(&'static str, String); 3], Failure> {
    let path = |limit: u64, cursor: &str| {
        let cursor = if cursor.is_empty() { String::new() } else { format!("&cursor={cursor}") };
        format!("/api/v1/tasks?queue={QUEUE}&state={state}&limit={limit}{cursor}")
    };
    let (mut cursor, mut seen, mut middle) = (String::new(), 0, String::new());
    loop {
        let answer = site.get(&path(STEP, &cursor)).await?;
        seen += answer["items"].as_array().map_or(0, Vec::len) as u64;
        if seen >= tasks {
            break;
        }
        answer["next"].as_str().ok_or_else(|| format!("{state}: nothing behind {seen} of {tasks}"))?.clone_into(&mut cursor);
        if seen == tasks / 2 {
            middle.clone_from(&cursor);
        }
    }
    Ok([("first", path(PAGE, "")), ("middle", path(PAGE, &middle)), ("last", path(PAGE, &cursor))])
}

async fn cost(server: &mut Server, site: &mut Site, path: &str) -> Result<Cost, Failure> {
    // Connections are made and scripts are loaded.
    site.timed(path).await?;
    let mut looks: Vec<Vec<(String, u64)>> = Vec::new();
    let mut round_trips = Vec::new();
    server.watch_slow_calls(0).await?;
    for _ in 0..LOOKS {
        server.forget_slow_calls().await?;
        let before = server.info("stats", "total_reads_processed").await?;
        site.timed(path).await?;
        // What asks for the number is one of them.
        round_trips.push(server.info("stats", "total_reads_processed").await? - before - 1.0);
        looks.push(server.all_calls().await?);
    }
    // A dashboard looks for operations now and then, too.
    let commands = looks.iter().map(Vec::len).min().unwrap_or(0);
    looks.retain(|look| look.len() == commands);
    let shortest = (0..commands).map(|at| {
        let of_all = looks.iter().map(|look| look[at].1).min().unwrap_or(0);
        (of_all, looks[0][at].0.clone())
    });
    let (longest_micros, longest) = shortest.max().unwrap_or_default();
    Ok(Cost { commands, round_trips: quantile(&mut round_trips, 0.0), longest_micros, longest })
}
