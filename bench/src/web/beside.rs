//! What workers notice of dashboards: the rate of a drain with three open, and the time to pick a task up while somebody searches.

use std::time::Duration;

use queue_core::TaskState;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::Site;
use super::{Place, Row, Web, fill};
use crate::report::spread;
use crate::server::Server;
use crate::{Failure, program};

const ROUNDS: usize = 9;
/// Dashboards that are open.
const OPEN: usize = 3;
const DRAIN_TASKS: u64 = 500_000;
/// Tasks that a search is to find.
const FOUND: u64 = 12;
const QUEUE: &str = "mail";
const SEARCH: &str = "/api/v1/tasks?queue=mail&state=scheduled&limit=50&q=payload.marked:true";

/// Drains, with three streams of the overview open and with none.
pub(super) async fn drains(args: &Web) -> Result<Vec<Row>, Failure> {
    eprintln!("drains");
    let mut place = Place::start(args).await?;
    let (mut alone, mut watched, mut ratios) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()), Vec::new());
    let ours = place.ours().await?;
    for round in 0..ROUNDS {
        let mut rates = [0.0; 2];
        // Neither side always follows the other.
        for is_watched in [round % 2 == 0, round % 2 != 0] {
            let mut streams = Vec::new();
            for _ in 0..if is_watched { OPEN } else { 0 } {
                streams.push(ours.stream("/api/v1/events").await?);
            }
            let (rate, cpu) = drain(args, &mut place.server).await?;
            let side = if is_watched { &mut watched } else { &mut alone };
            side.0.push(rate);
            side.1.push(cpu);
            rates[usize::from(is_watched)] = rate;
            drop(streams);
            // The reader ends by itself.
            sleep(Duration::from_secs(3)).await;
        }
        ratios.push(rates[1] / rates[0]);
    }
    place.server.stop().await;
    let say = |side: &(Vec<f64>, Vec<f64>)| format!("{} tasks/s, Redis {} µs/task", spread(&side.0), spread(&side.1));
    Ok(vec![Row {
        what: format!("drain at 50 with {OPEN} overviews open, beside none ({})", say(&alone)),
        ours: format!("{}; {} of the rate without, within a round", say(&watched), spread(&ratios)),
        asynqmon: String::new(),
        wanted: "0.99",
    }])
}

/// Tasks each second, and microseconds of Redis' CPU for each.
async fn drain(args: &Web, server: &mut Server) -> Result<(f64, f64), Failure> {
    let url = server.url();
    let tasks = DRAIN_TASKS.min(args.tasks);
    let fill = format!("bench enqueue --tasks {tasks} --callers 1 --batch 100 --redis {url} --json");
    program::run(&args.queuectl, &fill, 1).await?;
    let before = server.cpu().await?;
    let drain = program::run(&args.queuectl, &format!("bench drain --concurrency 50 --redis {url} --json"), 1).await?;
    let rate = drain.report["per_second"].as_f64().ok_or("no rate")?;
    Ok((rate, (server.cpu().await? - before) * 1e6 / tasks as f64))
}

/// A search for few of very many tasks by their payload, and how long tasks wait to be taken meanwhile.
pub(super) async fn search(args: &Web) -> Result<Vec<Row>, Failure> {
    eprintln!("search");
    let mut place = Place::start(args).await?;
    fill::fill_and_mark(&mut place.server, QUEUE, TaskState::Scheduled, args.tasks, FOUND).await?;
    let mut ours = place.ours().await?;
    let mut firsts = Vec::new();
    for _ in 0..ROUNDS {
        let (took, _) = ours.timed(SEARCH).await?;
        firsts.push(took.as_secs_f64());
    }
    let cpu = place.server.cpu().await?;
    let searched = searched(&mut ours).await?;
    let cpu = place.server.cpu().await? - cpu;
    let (mut alone, mut beside, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut late = [0.0; 2];
        for is_searched in [round % 2 == 0, round % 2 != 0] {
            let run = latency(args, place.server.url());
            let p99 = if is_searched {
                let mut run = std::pin::pin!(run);
                loop {
                    // It is begun anew until the workers are done.
                    tokio::select! {
                        p99 = &mut run => break p99?,
                        ended = self::searched(&mut ours) => { ended?; }
                    }
                }
            } else {
                run.await?
            };
            late[usize::from(is_searched)] = p99;
            // A search that was given up ends with its answer.
            sleep(Duration::from_millis(500)).await;
            ours.connect_anew().await?;
        }
        alone.push(late[0]);
        beside.push(late[1]);
        ratios.push(late[1] / late[0]);
    }
    place.server.stop().await;
    Ok(vec![
        Row {
            what: format!("search by payload for {FOUND} among {}", args.tasks),
            ours: format!(
                "first answer after {} s; all found after {:.1} s, in {} answers; {cpu:.1} s of Redis' CPU",
                spread(&firsts),
                searched.all,
                searched.answers
            ),
            asynqmon: "cannot".into(),
            wanted: "0.5 s, 60 s",
        },
        Row {
            what: format!("p99 until a task is taken, 100 tasks/s ({} ms without)", spread(&alone)),
            ours: format!("{} ms while somebody searches; {} times, within a round", spread(&beside), spread(&ratios)),
            asynqmon: String::new(),
            wanted: "2 times",
        },
    ])
}

struct Searched {
    /// Seconds until the last answer.
    all: f64,
    answers: usize,
}

/// Searches as the page does: it goes on from each answer at once.
async fn searched(site: &mut Site) -> Result<Searched, Failure> {
    let (began, mut cursor) = (Instant::now(), String::new());
    let (mut answers, mut found) = (0, 0);
    loop {
        let answer = site.get(&format!("{SEARCH}{cursor}")).await?;
        answers += 1;
        found += answer["items"].as_array().map_or(0, Vec::len) as u64;
        match &answer["next"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => break,
        }
    }
    if found != FOUND {
        return Err(format!("the search has found {found} of {FOUND}").into());
    }
    Ok(Searched { all: began.elapsed().as_secs_f64(), answers })
}

async fn latency(args: &Web, url: String) -> Result<f64, Failure> {
    let run =
        program::run(&args.queuectl, &format!("bench latency --rate 100 --seconds 10 --redis {url} --json"), 1).await?;
    Ok(run.report["p99_ms"].as_f64().ok_or("no latency")?)
}
