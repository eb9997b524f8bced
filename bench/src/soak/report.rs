//! What a soak has shown.

use std::fmt::Write as _;

use plotters::prelude::*;

use super::{Counters, Sample, Soak};
use crate::Failure;
use crate::rounds::median;

/// How long memory and kept tasks may take to reach their level.
const WARM_UP_SECONDS: u64 = 180;
/// What may be more at the end than in the beginning, and still be called flat.
const FLAT: f64 = 1.1;

/// The medians of a third of the time.
fn third(samples: &[&Sample], part: usize, of: impl Fn(&Sample) -> f64) -> f64 {
    let length = samples.len() / 3;
    let values: Vec<f64> = samples.iter().skip(part * length).take(length.max(1)).map(|sample| of(sample)).collect();
    median(&values)
}

type Line = (&'static str, fn(&Sample) -> f64);

const LINES: [Line; 5] = [
    ("memory of the worker, MB", |sample| sample.worker_mb),
    ("memory of Redis, MB", |sample| sample.redis_mb),
    ("keys in Redis", |sample| sample.keys),
    ("start after enqueue, p50, ms", |sample| sample.window.p50_ms),
    ("start after enqueue, p99, ms", |sample| sample.window.p99_ms),
];

/// Writes the report and fails if something grew, or was lost.
pub(super) fn write(args: &Soak, samples: &[Sample], counters: &Counters) -> Result<(), Failure> {
    let settled: Vec<&Sample> = samples.iter().filter(|sample| sample.seconds >= WARM_UP_SECONDS).collect();
    let mut text = format!(
        "{} minutes at {} tasks per second: 70 % done at once, 15 % kept for a minute with a result, 10 % fail once, 5 % scheduled. \
         One worker process, concurrency 50, one Redis, two cores, a look every 10 s; the first {WARM_UP_SECONDS} s are not counted. \
         Medians of each third of the time.\n\n\
         | | first | middle | last |\n| --- | --- | --- | --- |\n",
        args.minutes, args.rate
    );
    for (name, of) in LINES {
        let [first, middle, last] = [0, 1, 2].map(|part| third(&settled, part, of));
        writeln!(text, "| {name} | {first:.2} | {middle:.2} | {last:.2} |")?;
    }
    let Counters { enqueued, attempts, failed, redis_processed, redis_failed } = counters;
    write!(
        text,
        "\n{enqueued} tasks were enqueued. The worker counted {attempts} attempts, {failed} of them failed on purpose; Redis counts \
         {redis_processed} processed and {redis_failed} failed.\n"
    )?;
    println!("{text}");
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)?;
        std::fs::write(out.join("soak.md"), &text)?;
        std::fs::write(out.join("soak.json"), serde_json::to_string_pretty(samples)? + "\n")?;
        draw(samples, &out.join("soak.svg"))?;
    }
    // asynq counts a failed attempt as processed too.
    if attempts != redis_processed || failed != redis_failed || *attempts != enqueued + failed {
        return Err("the counters do not agree".into());
    }
    for (name, of) in &LINES[..3] {
        let (first, last) = (third(&settled, 0, of), third(&settled, 2, of));
        if last > first * FLAT {
            return Err(format!("{name}: from {first:.2} to {last:.2}").into());
        }
    }
    Ok(())
}

/// One small chart for each line, below each other.
fn draw(samples: &[Sample], path: &std::path::Path) -> Result<(), Failure> {
    let area = SVGBackend::new(path, (900, 900)).into_drawing_area();
    area.fill(&WHITE)?;
    let end = samples.last().map_or(1.0, |sample| sample.seconds as f64 / 60.0);
    for ((name, of), part) in LINES.iter().zip(area.split_evenly((LINES.len(), 1))) {
        let highest = samples.iter().map(of).fold(0.0, f64::max) * 1.15;
        let mut chart = ChartBuilder::on(&part)
            .caption(name, ("sans-serif", 14))
            .margin(6)
            .x_label_area_size(18)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end, 0.0..highest.max(0.001))?;
        chart.configure_mesh().light_line_style(WHITE).x_labels(7).y_labels(4).draw()?;
        let points = samples.iter().map(|sample| (sample.seconds as f64 / 60.0, of(sample)));
        chart.draw_series(LineSeries::new(points, RGBColor(46, 125, 50)))?;
    }
    area.present()?;
    Ok(())
}
