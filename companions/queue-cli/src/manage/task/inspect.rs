//! `queuectl task inspect`.

use chrono::{DateTime, Utc};
use clap::Args;
use queue_admin::payload::{harmless, pretty, shorten};
use queue_admin::view;
use queue_core::attempt::Attempt;
use queue_core::budget::Account;
use queue_core::task_log::{LogLine, TaskLog};
use queue_core::{TaskInfo, TaskState};
use serde::Serialize;

use crate::error::CliError;
use crate::manage::now;
use crate::output::Output;
use crate::session::Session;
use crate::table::{Rows, facts};
use crate::waited::{self, tell};
use crate::watch::{WatchArgs, show};
use crate::when;

/// Which task to show.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Queue name
    #[arg(short, long, value_name = "Q")]
    queue: String,
    /// Task id
    #[arg(short, long, value_name = "ID")]
    id: String,
    /// Show the last five attempts that failed, too, and the backtrace of the last if it had one
    #[arg(long)]
    attempts: bool,
    /// Show what it has written down, too: the last lines of its log
    #[arg(long)]
    log: bool,
    /// Show how it goes on, a line for each change of its state or progress, until it has ended; then as `task wait`
    ///
    /// With --log also the lines of its log as they are written, beginning with those that are there.
    #[arg(long, conflicts_with_all = ["attempts", "watch"])]
    follow: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

pub(crate) async fn run(args: InspectArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    if args.follow {
        return follow(&args, session, out).await;
    }
    show(&args.watch, out, async |out| {
        let task = inspector.task(&args.queue, &args.id).await?;
        let attempts = if args.attempts { Some(inspector.attempts(&args.queue, &args.id).await?) } else { None };
        let log = if args.log { Some(inspector.log(&args.queue, &args.id).await?) } else { None };
        if out.json {
            return out.json(&view::TaskInFull::new(task, attempts.map(|(_, attempts)| attempts), log.as_ref()));
        }
        let attempts = attempts.map(|(count, attempts)| history(count, &attempts, out));
        Ok([Some(describe(&task)), attempts, log.as_ref().map(written_down)].into_iter().flatten().collect())
    })
    .await
}

/// What `--follow --json` tells of each change.
#[derive(Debug, Serialize)]
struct Change {
    state: Option<TaskState>,
    progress: Option<view::Progress>,
    /// With `--log`: the lines that have come.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Vec<view::LogLine>>,
}

async fn follow(args: &InspectArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let task = inspector.task(&args.queue, &args.id).await?;
    let mut changes = session.client().handle(&args.queue, &args.id).changes();
    let (mut last, mut lines_seen) = (None, 0);
    while let Some(look) = changes.next().await? {
        let log = if args.log { inspector.log(&args.queue, &args.id).await? } else { TaskLog::default() };
        let lines: Vec<_> = log.after(lines_seen).collect();
        lines_seen = log.count();
        if !out.json {
            lines.iter().try_for_each(|line| out.line(&log_line(line)))?;
        }
        // Other fields change, too.
        if last.as_ref() != Some(&look) || (out.json && !lines.is_empty()) {
            let (state, progress) = (look.state, look.progress.clone());
            if out.json {
                // One line each, in a terminal too.
                let log = args.log.then(|| lines.into_iter().map(view::LogLine::from).collect());
                let change = Change { state, progress: progress.map(view::Progress::from), log };
                out.text(&Output { terminal: None, ..*out }.json(&change)?)?;
            } else {
                let state = state.map_or("?", TaskState::as_str);
                let progress = progress.map(|it| format!("  {:>3} %  {}", it.percent, harmless(&it.note)));
                out.line(format!("{state:<11}{}", progress.unwrap_or_default()).trim_end())?;
            }
        }
        if matches!(look.state, Some(TaskState::Completed | TaskState::Archived)) {
            break;
        }
        last = Some(look);
    }
    let (outcome, task) = inspector.wait(&args.queue, &args.id, Some(task), None).await?;
    tell(&args.queue, &args.id, outcome, task, out)
}

fn describe(task: &TaskInfo) -> String {
    let now = now();
    let date = |at: DateTime<Utc>| when::date(at, now);
    let mut lines = vec![
        ("ID", harmless(&task.id)),
        ("Queue", harmless(&task.queue)),
        ("Type", harmless(&task.task_type)),
        ("State", format!("{}{}", task.state, if task.is_orphaned { ", orphaned: its worker is silent" } else { "" })),
        ("Retried", format!("{} of {}", task.retried, task.max_retry)),
    ];
    let rough = |duration| (duration != std::time::Duration::ZERO).then(|| when::rough(duration));
    let optional = [
        ("Last error", task.last_error.as_deref().map(|error| shorten(error, 2_000))),
        ("Last failed", task.last_failed_at.map(date)),
        ("Next try", task.next_process_at.filter(|_| task.state != TaskState::Pending).map(date)),
        ("Budgets", Account::of(&task.headers, task.crashes).map(|account| account.to_string())),
        ("Timeout", task.timeout.and_then(rough)),
        ("Deadline", task.deadline.map(date)),
        ("Group", task.group.as_deref().map(harmless)),
        ("Retention", rough(task.retention)),
        ("Completed", task.completed_at.map(date)),
        ("Progress", task.progress.as_ref().map(|progress| waited::progress(progress, now))),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let headers = task.headers.iter().map(|(key, value)| ("Header", harmless(&format!("{key}={value}"))));
    lines.extend(headers);
    let parts = [facts(&lines), bytes("Payload", Some(&task.payload)), bytes("Result", task.result.as_deref())];
    parts.concat()
}

fn history(count: u64, attempts: &[Attempt], out: &Output) -> String {
    if attempts.is_empty() {
        return "\nAttempts: none failed at a server that remembers it\n".to_owned();
    }
    let mut rows = Rows::new(out, &["ENDED", "#TOOK", "END", "SERVER", "ERROR"]);
    for attempt in attempts {
        rows.add([
            attempt.ended.date().map_or_else(|| "-".to_owned(), |ended| when::date(ended, now())),
            attempt.took.map_or_else(|| "-".to_owned(), |took| format!("{:.3}s", took.as_secs_f64())),
            attempt.end.as_str().to_owned(),
            harmless(&attempt.server),
            shorten(&attempt.error, 200),
        ]);
    }
    let backtrace = attempts.last().and_then(|attempt| attempt.backtrace.as_deref()).map(|backtrace| {
        let lines: String = backtrace.lines().map(|line| harmless(line) + "\n").collect();
        format!("\nBacktrace of the last:\n{lines}")
    });
    let (rows, backtrace) = (rows.render(), backtrace.unwrap_or_default());
    format!("\nAttempts that failed, the last {} of {count}:\n{rows}{backtrace}", attempts.len())
}

fn written_down(log: &TaskLog) -> String {
    if log.is_empty() {
        return "\nLog: nothing was written down\n".to_owned();
    }
    let lines: String = log.lines().map(|line| log_line(line) + "\n").collect();
    format!("\nLog, the last {} of {} lines:\n{lines}", log.lines().len(), log.count())
}

/// `2026-11-21T20:15:00.120Z #2 connected`.
pub(crate) fn log_line(line: &LogLine) -> String {
    format!("{} #{} {}", line.at, line.attempt, harmless(&line.text))
}

fn bytes(name: &str, bytes: Option<&[u8]>) -> String {
    match bytes {
        None => String::new(),
        Some([]) => format!("\n{name}: empty\n"),
        Some(bytes) => format!("\n{name}, {} bytes:\n{}\n", bytes.len(), pretty(bytes).trim_end()),
    }
}
