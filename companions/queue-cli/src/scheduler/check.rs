//! `queuectl scheduler --check`.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use queue_core::clock::UnixSecond;
use queue_core::{Clock as _, SystemClock};
use queue_scheduler::{Entry, EntryProblem, Zone};
use serde::Serialize;

use super::file::EntryFile;
use crate::error::{CliError, complain};
use crate::output::Output;
use crate::when;

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    spec: String,
    timezone: String,
    r#type: String,
    queue: String,
    ticks: Vec<DateTime<Utc>>,
}

#[derive(Debug, Serialize)]
struct Report {
    entries: Vec<Checked>,
    problems: Vec<String>,
}

pub(super) fn run(file: &EntryFile, count: usize, out: &Output) -> Result<(), CliError> {
    let entries = file.read()?;
    let now = SystemClock.now();
    let mut report = Report { entries: Vec::new(), problems: Vec::new() };
    let mut names = BTreeSet::new();
    for entry in &entries {
        match look(entry, now, count) {
            Ok(checked) if names.insert(checked.name.clone()) => report.entries.push(checked),
            Ok(_) => report.problems.push(entry.error(EntryProblem::Duplicate).to_string()),
            Err(problem) => report.problems.push(problem),
        }
    }
    if out.json {
        out.value(&report)?;
    } else {
        for entry in &report.entries {
            out.line(&format!(
                "{}  {}  {}  {} in {:?}",
                entry.name, entry.spec, entry.timezone, entry.r#type, entry.queue
            ))?;
            if entry.ticks.is_empty() {
                out.line("  never")?;
            }
            for tick in &entry.ticks {
                out.line(&format!("  {}", when::date(*tick, now)))?;
            }
        }
        report.problems.iter().for_each(|problem| complain(&format!("error: {problem}")));
    }
    match report.problems.len() {
        0 => Ok(()),
        bad => Err(CliError::failed(format!("{bad} of {} entries cannot be used", entries.len()))),
    }
}

fn look(entry: &Entry, now: DateTime<Utc>, count: usize) -> Result<Checked, String> {
    let summary = entry.summary(&Zone::UTC).map_err(|problem| problem.to_string())?;
    let ticks = entry.ticks(&Zone::UTC, now.into(), count).map_err(|problem| problem.to_string())?;
    Ok(Checked {
        name: summary.name,
        spec: summary.spec,
        timezone: summary.zone,
        r#type: summary.task_type,
        queue: summary.queue,
        ticks: ticks.into_iter().filter_map(UnixSecond::date).collect(),
    })
}
