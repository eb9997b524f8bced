//! One task, with all that is known of it.

use chrono::{DateTime, Utc};
use queue_admin::payload::shorten;
use queue_core::attempt::Attempt;
use queue_core::{TaskInfo, TaskState};
use ratatui::text::{Line, Span};

use super::palette::Palette;
use crate::dash::model::Model;
use crate::dash::screen::{TaskInFull, TaskScreen};
use crate::dash::text::{clean, wrap, wrap_words};
use crate::manage::task::log_line;
use crate::waited;
use crate::when;

/// Lines of an error that are shown: Go's may hold a stack.
const MAX_ERROR: usize = 60;
/// Characters of a value that are shown.
const MAX_VALUE: usize = 8_000;
/// Where values begin.
const INDENT: usize = 13;

/// All lines, however many fit.
pub(super) fn lines(model: &Model, screen: &TaskScreen, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(why) = &screen.gone {
        lines.extend(wrap_words(&clean(why), cells.max(1)).into_iter().map(|line| Line::styled(line, palette.bad())));
    }
    let Some(TaskInFull { task, failed, attempts, log }) = &screen.found else { return lines };
    for (name, value) in facts(task, model.now) {
        let state = name == "State";
        for (number, piece) in value.iter().flat_map(|line| wrap(line, cells.saturating_sub(INDENT).max(8))).enumerate()
        {
            let name = if number == 0 { name } else { "" };
            let look = if state { palette.state(task.state) } else { palette.plain() };
            lines.push(Line::from(vec![
                Span::styled(format!(" {name:<width$}", width = INDENT - 1), palette.label()),
                Span::styled(piece, look),
            ]));
        }
    }
    lines.push(Line::default());
    let mut add = |line: &str, look| {
        let pieces = wrap(line, cells.saturating_sub(1).max(1));
        lines.extend(pieces.into_iter().map(|piece| Line::styled(format!(" {piece}"), look)));
    };
    if !attempts.is_empty() {
        add(&format!("Attempts that failed, the last {} of {failed}", attempts.len()), palette.label());
        attempts.iter().for_each(|attempt| add(&ended(attempt, model.now), palette.plain()));
        add("", palette.plain());
    }
    if !log.is_empty() {
        add(&format!("Log, the last {} of {} lines", log.lines().len(), log.count()), palette.label());
        log.lines().for_each(|line| add(&clean(&log_line(line)), palette.plain()));
        add("", palette.plain());
    }
    let heading = |line: &str| ["Payload, ", "Result, "].iter().any(|name| line.starts_with(name));
    for line in &screen.body {
        add(line, if heading(line) { palette.label() } else { palette.plain() });
    }
    lines
}

/// `failed 2030-01-31 18:00:00Z (2m ago) after 2.500s on web-1:7:5f0c: connection refused`.
fn ended(attempt: &Attempt, now: DateTime<Utc>) -> String {
    let at = attempt.ended.date().map(|ended| format!(" {}", when::date(ended, now))).unwrap_or_default();
    let took = attempt.took.map(|took| format!(" after {:.3}s", took.as_secs_f64())).unwrap_or_default();
    clean(&format!("{}{at}{took} on {}: {}", attempt.end.as_str(), attempt.server, shorten(&attempt.error, MAX_VALUE)))
}

fn facts(task: &TaskInfo, now: DateTime<Utc>) -> Vec<(&'static str, Vec<String>)> {
    let one = |text: &str| vec![clean(&text.chars().take(MAX_VALUE).collect::<String>())];
    let date = |date: DateTime<Utc>| vec![when::date(date, now)];
    let state = match (task.state, task.is_orphaned) {
        (TaskState::Active, true) => "active, orphaned: its server is gone or silent".to_owned(),
        (state, _) => state.to_string(),
    };
    let retried = format!("{} of {}", task.retried, task.max_retry);
    let mut facts = vec![
        ("ID", one(&task.id)),
        ("Type", one(&task.task_type)),
        ("Queue", one(&task.queue)),
        ("State", one(&state)),
        ("Retried", one(&retried)),
    ];
    let mut add = |name, value: Option<Vec<String>>| facts.extend(value.map(|value| (name, value)));
    let waits = matches!(task.state, TaskState::Scheduled | TaskState::Retry);
    add("Next try", task.next_process_at.filter(|_| waits).map(date));
    add("Last failed", task.last_failed_at.map(date));
    add(
        "Last error",
        task.last_error.as_deref().map(|error| {
            let shown: String = error.chars().take(MAX_VALUE).collect();
            shown.lines().take(MAX_ERROR).map(clean).collect()
        }),
    );
    add("Progress", task.progress.as_ref().map(|progress| one(&waited::progress(progress, now))));
    add("Completed", task.completed_at.map(date));
    add("Group", task.group.as_deref().map(one));
    add("Timeout", task.timeout.map(|timeout| vec![when::rough(timeout)]));
    add("Deadline", task.deadline.map(date));
    add("Retention", (!task.retention.is_zero()).then(|| vec![when::rough(task.retention)]));
    let headers: Vec<String> =
        task.headers.iter().take(MAX_ERROR).flat_map(|(name, value)| one(&format!("{name}: {value}"))).collect();
    add("Headers", (!headers.is_empty()).then_some(headers));
    facts
}
