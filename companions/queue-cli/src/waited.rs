//! What is said of a task that goes on, and by `queuectl task wait` and `queuectl enqueue --wait` of its end.

use chrono::{DateTime, Utc};
use queue_admin::payload::{harmless, pretty, shorten};
use queue_admin::{Waited, view};
use queue_core::TaskInfo;
use queue_core::progress::Progress;
use serde::Serialize;

use crate::error::{CliError, exit};
use crate::output::Output;
use crate::when::distance;

/// What `--json` tells; the task as it was seen last.
#[derive(Debug, Serialize)]
struct View {
    outcome: Waited,
    task: Option<view::Task>,
}

/// Prints the result, or fails with what became of the task.
pub(crate) fn tell(
    queue: &str,
    id: &str,
    outcome: Waited,
    last: Option<TaskInfo>,
    out: &Output,
) -> Result<(), CliError> {
    let verdict = match outcome {
        Waited::Completed => Ok(()),
        Waited::Archived => {
            let error = last.as_ref().and_then(|task| task.last_error.as_deref()).unwrap_or("no error was recorded");
            Err(CliError::Coded(exit::ARCHIVED, format!("task {id:?} was archived: {}", shorten(error, 500))))
        }
        Waited::Gone => Err(CliError::Coded(
            exit::GONE,
            format!(
                "task {id:?} is gone from queue {queue:?}: it succeeded, was deleted, was moved to another queue of its family, or Redis has lost it; a task \
                 without a retention leaves no trace"
            ),
        )),
        Waited::Timeout => {
            let state = last.as_ref().map_or("not to be seen", |task| task.state.as_str());
            Err(CliError::Coded(exit::TIMEOUT, format!("task {id:?} has not ended in time; it is {state}")))
        }
    };
    if out.json {
        out.value(&View { outcome, task: last.map(view::Task::from) })?;
    } else if let (Waited::Completed, Some(result)) = (outcome, last.and_then(|task| task.result)) {
        print(&result, out)?;
    }
    verdict
}

/// A program gets the bytes as they are, a terminal what it can show.
fn print(result: &[u8], out: &Output) -> Result<(), CliError> {
    match out.terminal {
        Some(_) => out.line(pretty(result).trim_end()),
        None => out.bytes(result),
    }
}

/// How far a task is: `40 %, page 3 (12s ago)`.
pub(crate) fn progress(progress: &Progress, now: DateTime<Utc>) -> String {
    let note = if progress.note.is_empty() { String::new() } else { format!(", {}", harmless(&progress.note)) };
    let at = progress.at.date().map(|at| format!(" ({})", distance(at, now))).unwrap_or_default();
    format!("{} %{note}{at}", progress.percent)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use queue_core::clock::UnixMilli;

    use super::*;

    #[test]
    fn progress_says_since_when() {
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let shown = |note: &str| progress(&Progress::new(40, note, UnixMilli(999_988_000)), now);
        assert_eq!((shown("page 3"), shown("")), ("40 %, page 3 (12s ago)".to_owned(), "40 % (12s ago)".to_owned()));
    }
}
