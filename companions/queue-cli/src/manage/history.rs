//! `queuectl queue history`.

use clap::Args;
use queue_admin::DailyStats;
use queue_admin::payload::shorten;
use serde::Serialize;

use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;
use crate::table::Rows;
use crate::watch::{WatchArgs, show};

/// Which days to show.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Queue name
    #[arg(value_name = "NAME", required = true)]
    queues: Vec<String>,
    /// How many days, today first; Redis keeps 90
    #[arg(short = 'x', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=90))]
    days: u16,
    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Debug, Serialize)]
struct Day<'a> {
    queue: &'a str,
    date: String,
    processed: u64,
    failed: u64,
}

pub(crate) async fn run(args: HistoryArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    show(&args.watch, out, async |out| {
        let mut days = Vec::new();
        for queue in &args.queues {
            let history = inspector.history(queue, usize::from(args.days)).await?;
            days.extend(history.iter().map(|day| describe(queue, day)));
        }
        if out.json { out.json(&days) } else { Ok(render(&days, out)) }
    })
    .await
}

fn describe<'a>(queue: &'a str, day: &DailyStats) -> Day<'a> {
    Day { queue, date: day.date.to_string(), processed: day.processed, failed: day.failed }
}

fn render(days: &[Day<'_>], out: &Output) -> String {
    let mut rows = Rows::new(out, &["QUEUE", "DATE (UTC)", "#PROCESSED", "#FAILED", "#ERROR RATE"]);
    for day in days {
        let rate = match day.processed {
            0 => "-".to_owned(),
            processed => format!("{:.2} %", 100.0 * day.failed as f64 / processed as f64),
        };
        let cells = [shorten(day.queue, 40), day.date.clone(), day.processed.to_string(), day.failed.to_string(), rate];
        rows.add(cells);
    }
    rows.render()
}
