//! `queuectl queue forecast`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use queue_core::forecast::{Drain, Forecast, Look, forecast};
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Unread, queues};
use crate::error::{CliError, exit};
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::when;

/// How often to look, unless that would be more than this many times.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 60;

/// Which queues, and from what to tell their future.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    /// Queue name [default: all]
    #[arg(value_name = "NAME")]
    queues: Vec<String>,
    /// How long to look at them
    ///
    /// Bursts that are farther apart are not seen, and tasks that take longer are not seen to end.
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "10s")]
    over: Duration,
    /// In which time the tasks that wait should have started; says how many slots that takes
    #[arg(long, value_name = "D", value_parser = when::duration, default_value = "1m")]
    within: Duration,
}

/// A queue that was looked at.
#[derive(Debug, Serialize)]
struct Row {
    queue: String,
    paused: bool,
    waiting: u64,
    active: u64,
    slots: u64,
    over_secs: f64,
    arrival_rate: f64,
    service_rate: f64,
    run_secs: Option<f64>,
    capacity: Option<f64>,
    drain: &'static str,
    drain_secs: Option<f64>,
    wanted_slots: Option<u64>,
}

impl Row {
    fn new(queue: String, told: &Forecast) -> Self {
        let drain = match told.drain {
            Drain::Empty => "empty",
            Drain::In(_) => "drains",
            Drain::Never => "never",
            Drain::Unknown => "unknown",
        };
        Self {
            queue,
            drain,
            paused: told.now.is_paused,
            waiting: told.now.waiting,
            active: told.now.active,
            slots: told.now.slots,
            over_secs: told.over.as_secs_f64(),
            arrival_rate: told.arrival_rate,
            service_rate: told.service_rate,
            run_secs: told.run_time,
            capacity: told.capacity,
            drain_secs: told.drain.seconds(),
            wanted_slots: told.wanted_slots,
        }
    }
}

pub(crate) async fn run(args: ForecastArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    if args.over.is_zero() {
        return Err(CliError::Usage(
            "--over has to be longer than 0s: two looks tell what goes on between them".to_owned(),
        ));
    }
    let inspector = session.inspector();
    let mut looks: BTreeMap<String, Vec<Look>> = BTreeMap::new();
    let end = Instant::now() + args.over;
    loop {
        let began = Instant::now();
        for (queue, look) in inspector.looks().await? {
            looks.entry(queue).or_default().push(look);
        }
        if let Some(missing) = args.queues.iter().find(|queue| !looks.contains_key(*queue)) {
            return Err(CliError::Coded(exit::NOT_FOUND, format!("queue {missing:?} not found, or it cannot be read")));
        }
        if began >= end {
            break;
        }
        sleep_until(end.min(began + LOOK.max(args.over / LOOKS))).await;
        // Instants of a millisecond are what looks are told apart by.
        sleep(Duration::from_millis(1)).await;
    }
    let wanted = |queue: &String| args.queues.is_empty() || args.queues.contains(queue);
    let told = looks.into_iter().filter(|(queue, _)| wanted(queue));
    let told = told.filter_map(|(queue, looks)| Some(Row::new(queue, &forecast(&looks, args.within)?)));
    let told: Vec<Row> = told.collect();
    let unread = if args.queues.is_empty() { queues(&inspector).await?.1 } else { Unread::default() };
    out.text(&shown(&told, out)?)?;
    unread.with(String::new()).map(drop)
}

fn shown(told: &[Row], out: &Output) -> Result<String, CliError> {
    if out.json {
        return out.json(&told);
    }
    if told.is_empty() {
        return Ok("there is no queue\n".to_owned());
    }
    let mut rows = Rows::new(
        out,
        &["QUEUE", "#WAITING", "#ACTIVE", "#SLOTS", "#IN/S", "#OUT/S", "#RUN", "DRAINS IN", "#WANTED SLOTS"],
    );
    for row in told {
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let drain = match (row.drain, row.drain_secs) {
            ("drains", Some(seconds)) => seconds_text(seconds),
            ("never", _) if row.paused => "never: paused".to_owned(),
            ("never", _) if row.slots == 0 => "never: no slots".to_owned(),
            (word, _) => word.to_owned(),
        };
        rows.add_marked(
            row.drain == "never",
            [
                row.queue.clone(),
                row.waiting.to_string(),
                row.active.to_string(),
                row.slots.to_string(),
                format!("{:.1}", row.arrival_rate),
                format!("{:.1}", row.service_rate),
                or_unknown(row.run_secs.map(seconds_text)),
                drain,
                or_unknown(row.wanted_slots.map(|slots| slots.to_string())),
            ],
        );
    }
    Ok(rows.render())
}

/// Three figures are enough for what is a guess.
fn seconds_text(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1_000.0),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_what_they_are_worth() {
        for (seconds, text) in [
            (0.0123, "12.3 ms"),
            (1.0, "1.0 s"),
            (119.9, "119.9 s"),
            (600.0, "10 min"),
            (9_000.0, "2.5 h"),
            (1e6, "11.6 days"),
        ] {
            assert_eq!(seconds_text(seconds), text);
        }
    }
}
