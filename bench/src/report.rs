//! The table.

use std::fmt::Write as _;

use crate::Failure;
use crate::rounds::{Measured, median};
use crate::server::Server;
use crate::sizes::Size;

const HEAD: &str = "\
| figure | Go asynq | this library | better by | must | goal | Redis CPU µs/task (Go, ours) | own CPU µs/task (Go, ours) | peak MB (Go, ours) |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

fn number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

pub(crate) fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{} [{}–{}]", number(median(values)), number(low), number(high))
}

fn pair(go: &[f64], ours: &[f64]) -> String {
    if ours.is_empty() { String::new() } else { format!("{}, {}", number(median(go)), number(median(ours))) }
}

fn mark(target: &str, reached: bool) -> String {
    if target.ends_with(" 0") || target == "0x" {
        return String::new();
    }
    format!("{target} {}", if reached { "✓" } else { "✗" })
}

/// One row of the table.
pub(crate) fn line(figure: &Measured) -> String {
    format!(
        "| {}, {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        figure.name,
        figure.unit,
        spread(&figure.go.values),
        spread(&figure.ours.values),
        spread(&figure.ratios),
        mark(&figure.must, figure.must_reached),
        mark(&figure.goal, figure.goal_reached),
        pair(&figure.go.redis_cpu, &figure.ours.redis_cpu),
        pair(&figure.go.own_cpu, &figure.ours.own_cpu),
        pair(&figure.go.peak_mb, &figure.ours.peak_mb),
    )
}

/// The whole report in Markdown.
pub(crate) async fn document(figures: &[Measured], sizes: &[Size], rounds: usize) -> Result<String, Failure> {
    let redis = Server::start(false, &[]).await?.version().await?;
    let cores = std::thread::available_parallelism()?;
    let mut text = format!(
        "Redis {redis}, {cores} cores that Redis and both programs share, loopback TCP, payload 200 bytes, no persistence \
         unless said; {rounds} rounds in turn. Medians [lowest–highest]; \"better by\" is the ratio within a round.\n\n"
    );
    text.push_str(HEAD);
    figures.iter().for_each(|figure| text.push_str(&line(figure)));
    if !sizes.is_empty() {
        text.push_str("\n| figure | this library | must | goal |\n| --- | --- | --- | --- |\n");
        for Size { name, value, must, goal } in sizes {
            writeln!(text, "| {name} | {value} | {must} | {goal} |")?;
        }
    }
    Ok(text)
}
