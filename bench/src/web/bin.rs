//! Very many tasks deleted into the bin, and brought back.

use std::collections::BTreeMap;
use std::time::Duration;

use queue_core::TaskState;
use tokio::time::{Instant, sleep};

use super::site::Site;
use super::{Place, Row, Web, fill, quantile};
use crate::Failure;

const QUEUE: &str = "mail";
/// Calls of scripts below this are not noted; as in [`scripts`](crate::scripts).
const NOTED_FROM_MICROS: u64 = 15;
const DELETE: &str = r#"{"action":"delete","queues":["mail"],"filter":"state:scheduled"}"#;
const ROUNDS: usize = 9;
/// How many times fewer tasks there are where each round is to be short.
const FEWER: u64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn measure(args: &Web) -> Result<Vec<Row>, Failure> {
    eprintln!("bin");
    let mut place = Place::start(args).await?;
    fill::fill(&mut place.server, QUEUE, TaskState::Scheduled, args.tasks).await?;
    let mut ours = place.ours().await?;
    let before = place.server.digests("asynq:{mail}:*").await?;
    let mut rows = Vec::new();
    let mut last = String::new();
    for (what, spec) in [("deleted into the bin", DELETE.to_owned()), ("brought back", String::new())] {
        let spec = if spec.is_empty() { format!(r#"{{"action":"restore","operation":"{last}"}}"#) } else { spec };
        place.server.watch_slow_calls(NOTED_FROM_MICROS).await?;
        let began = Instant::now();
        last = operate(&mut ours, &spec, args.tasks).await?;
        let seconds = began.elapsed().as_secs_f64();
        let mut calls: Vec<f64> =
            place.server.slow_calls("EVALSHA").await?.into_iter().map(|micros| micros as f64 / 1e3).collect();
        let noted = calls.len();
        let after = place.server.digests("asynq:{mail}:*").await?;
        let same = if what == "brought back" { told(&before, &after) } else { format!("{} keys", after.len()) };
        rows.push(Row {
            what: format!("{} scheduled tasks {what}", args.tasks),
            ours: format!(
                "{seconds:.0} s; {noted} calls of scripts noted, p50 {:.2}, p99.9 {:.2}, longest {:.2} ms; {same}",
                quantile(&mut calls, 0.5),
                quantile(&mut calls, 0.999),
                quantile(&mut calls, 1.0)
            ),
            asynqmon: if what == "brought back" { "cannot" } else { "" }.into(),
            wanted: "p99.9 1 ms; key space equal",
        });
    }
    place.server.stop().await;
    rows.push(calls(args).await?);
    Ok(rows)
}

/// How long the calls hold Redis up in the quietest of some rounds with fewer tasks.
async fn calls(args: &Web) -> Result<Row, Failure> {
    let tasks = args.tasks / FEWER;
    let mut place = Place::start(args).await?;
    fill::fill(&mut place.server, QUEUE, TaskState::Scheduled, tasks).await?;
    let mut ours = place.ours().await?;
    let (mut quiet, mut last) = ([[f64::INFINITY; 3]; 2], String::new());
    for _ in 0..ROUNDS {
        for (at, quiet) in quiet.iter_mut().enumerate() {
            let undo = format!(r#"{{"action":"restore","operation":"{last}"}}"#);
            place.server.watch_slow_calls(NOTED_FROM_MICROS).await?;
            last = operate(&mut ours, if at == 0 { DELETE } else { &undo }, tasks).await?;
            let mut calls: Vec<f64> =
                place.server.slow_calls("EVALSHA").await?.into_iter().map(|micros| micros as f64).collect();
            for (part, quiet) in [0.5, 0.999, 1.0].into_iter().zip(quiet) {
                *quiet = quiet.min(quantile(&mut calls, part));
            }
        }
    }
    place.server.stop().await;
    let say = |[middle, late, longest]: [f64; 3]| format!("p50 {middle:.0}, p99.9 {late:.0}, longest {longest:.0} µs");
    Ok(Row {
        what: format!("calls of scripts for {tasks} tasks, the least of {ROUNDS} rounds"),
        ours: format!("deleted: {}; brought back: {}", say(quiet[0]), say(quiet[1])),
        asynqmon: String::new(),
        wanted: "p99.9 1 ms",
    })
}

/// Begins an operation and waits for its end; its id.
async fn operate(site: &mut Site, spec: &str, tasks: u64) -> Result<String, Failure> {
    let started = site.json("POST", "/api/v1/operations", spec).await?;
    let id = started["id"].as_str().ok_or("no id of the operation")?.to_owned();
    loop {
        let now = site.get(&format!("/api/v1/operations/{id}")).await?;
        match now["state"].as_str() {
            Some("done") if now["changed"] == tasks => return Ok(id),
            Some("queued" | "running") => sleep(LOOK_EVERY).await,
            _ => return Err(format!("the operation has come to {now}").into()),
        }
    }
}

/// What differs between the keys before and after.
fn told(before: &BTreeMap<Vec<u8>, String>, after: &BTreeMap<Vec<u8>, String>) -> String {
    let differ = |one: &BTreeMap<Vec<u8>, String>, other: &BTreeMap<Vec<u8>, String>| {
        one.iter().filter(|(key, digest)| other.get(*key) != Some(digest)).count()
    };
    match (differ(before, after), differ(after, before)) {
        (0, 0) => format!("all {} keys of the queue are as before", before.len()),
        (lost, new) => format!("**{lost} of {} keys are not as before, {new} are new or not as before**", before.len()),
    }
}
