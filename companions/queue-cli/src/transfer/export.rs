//! `queuectl export`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use queue_admin::payload::harmless;
use queue_admin::{Inspector, Reader};
use queue_core::flow::is_member;
use queue_core::queue_name::base_of;
use queue_core::{Clock as _, SystemClock};
use tokio::time::{Instant, sleep};

use crate::error::{CliError, complain, exit};
use crate::output::Output;
use crate::progress;
use crate::session::Session;
use crate::when;
use queue_admin::export::{End, Header, Line, TaskLine, VERSION};

/// How often to look whether the last task has ended.
const DRAIN_POLL: Duration = Duration::from_millis(200);

/// What to export.
#[derive(Debug, Args)]
#[command(after_help = EXPORT_HELP)]
pub(crate) struct ExportArgs {
    /// Queue name; may be given many times
    #[arg(short, long = "queue", value_name = "Q", required_unless_present = "all", conflicts_with = "all")]
    queues: Vec<String>,
    /// Export all queues
    #[arg(long)]
    all: bool,
    /// Pause the queues, and wait at most this long for running tasks to end; the queues stay paused
    #[arg(long, value_name = "D", value_parser = when::duration, conflicts_with = "live")]
    drain: Option<Duration>,
    /// Export queues that are being worked on, running tasks as pending ones
    ///
    /// A backup, and no move: what runs meanwhile is in the file all the same, and would run once more where it
    /// is imported.
    #[arg(long)]
    live: bool,
}

const EXPORT_HELP: &str = "\
To move a queue: send new tasks to the other Redis, then
  queuectl export --queue mail --drain 5m > mail.jsonl
  queuectl --redis redis://new import mail.jsonl
  queuectl --redis redis://new queue resume mail
  queuectl queue remove mail --force
The file has payloads in it: keep it as safe as the Redis.";

crate::command::simple!(ExportArgs);

async fn run(args: ExportArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let inspector = session.inspector();
    let mut queues = if args.all { inspector.queues().await? } else { args.queues.clone() };
    let mut named = BTreeSet::new();
    queues.retain(|queue| named.insert(queue.clone()));
    let mut total = 0;
    for queue in &queues {
        // A name that is misspelled must not pause something.
        total += inspector.queue(queue).await?.size();
    }
    if let Some(patience) = args.drain {
        drain(&inspector, &queues, patience).await?;
    }
    if !args.live {
        for queue in &queues {
            check_rest(&inspector, queue).await?;
        }
    }
    let header = Header {
        version: VERSION,
        id: uuid::Uuid::new_v4().to_string(),
        exported_at: SystemClock.now(),
        live: args.live,
    };
    out.text(&Line::Export(header).to_text())?;
    let bar = progress::bar("exporting", total, "tasks");
    let (mut tasks, mut left_out) = (BTreeMap::new(), 0);
    let mut readers = Vec::new();
    for queue in &queues {
        let mut reader = inspector.reader(queue, args.live);
        let (count, missing) = export(&inspector, queue, args.live, &mut reader, &bar, out).await?;
        readers.push(reader);
        tasks.insert(queue.clone(), count);
        left_out += missing;
    }
    bar.finish_and_clear();
    if !args.live {
        for (queue, reader) in queues.iter().zip(&readers) {
            check_rest(&inspector, queue).await?;
            check_there(queue, reader).await?;
        }
    }
    out.text(&Line::End(End { tasks }).to_text())?;
    tell_of_parts(&inspector, &queues).await?;
    match left_out {
        0 => Ok(()),
        count => {
            let count = progress::thousands(count);
            Err(CliError::Coded(exit::REFUSED, format!("{count} tasks are not in the export, as told above")))
        }
    }
}

/// Tells of tasks of these queues that wait for a priority or a server, which is in queues of other names.
async fn tell_of_parts(inspector: &Inspector, queues: &[String]) -> Result<(), CliError> {
    let all = inspector.queues().await?;
    let parts = all.iter().filter(|name| base_of(name) != *name && !queues.contains(name));
    for part in parts.filter(|name| queues.iter().any(|queue| queue == base_of(name))) {
        let size = inspector.queue(part).await?.size();
        if size > 0 {
            let size = progress::thousands(size);
            complain(&format!(
                "warning: {size} tasks of {:?} are in the queue {part:?}, which was not exported",
                base_of(part)
            ));
        }
    }
    Ok(())
}

async fn drain(inspector: &Inspector, queues: &[String], patience: Duration) -> Result<(), CliError> {
    for queue in queues {
        inspector.pause(queue).await?;
    }
    let end = Instant::now() + patience;
    for queue in queues {
        loop {
            let in_hand = inspector.tasks_in_hand(queue).await?;
            if in_hand == 0 {
                break;
            }
            if Instant::now() >= end {
                return Err(CliError::Coded(
                    exit::REFUSED,
                    format!("{in_hand} tasks of queue {queue:?} still run after the time given; it stays paused"),
                ));
            }
            sleep(DRAIN_POLL).await;
        }
    }
    Ok(())
}

/// A task that runs would be in the file and end here: it would run twice.
async fn check_rest(inspector: &Inspector, queue: &str) -> Result<(), CliError> {
    let refused = |text: String| Err(CliError::Coded(exit::REFUSED, text));
    if !inspector.queue(queue).await?.paused {
        return refused(format!(
            "queue {queue:?} is not paused, so tasks would run here and in the copy; --drain 5m pauses it, --live \
             exports it all the same"
        ));
    }
    match inspector.tasks_in_hand(queue).await? {
        0 => Ok(()),
        count => refused(format!(
            "{count} tasks or groups of queue {queue:?} are being worked on; --drain 5m waits for their end"
        )),
    }
}

/// A task that is gone or completed here has run, or is part of a task that is in the file too: either would run twice. Go's
/// aggregators go on in a paused queue.
async fn check_there(queue: &str, reader: &Reader) -> Result<(), CliError> {
    let gone = match reader.gone().await? {
        0 => return Ok(()),
        1 => "1 task".to_owned(),
        gone => format!("{} tasks", progress::thousands(gone)),
    };
    Err(CliError::Coded(
        exit::REFUSED,
        format!(
            "{gone} of queue {queue:?} went or succeeded during the export, so the file is not what the queue is: do not import \
             it. Somebody aggregated a group, as Go's servers do in paused queues too, ran tasks, or deleted them; \
             stop that and export again"
        ),
    ))
}

/// Writes a queue; returns how many tasks are in the export, and how many are not.
async fn export(
    inspector: &Inspector,
    queue: &str,
    live: bool,
    reader: &mut Reader,
    bar: &ProgressBar,
    out: &Output,
) -> Result<(u64, u64), CliError> {
    out.text(&Line::Queue(inspector.stored_queue(queue).await?.into()).to_text())?;
    let (mut count, mut members) = (0, 0);
    loop {
        let tasks = reader.next().await?;
        if tasks.is_empty() {
            break;
        }
        count += tasks.len() as u64;
        members += tasks.iter().filter(|task| is_member(task.id.as_bytes())).count() as u64;
        bar.inc(tasks.len() as u64);
        let lines = tasks.into_iter().map(|task| Line::Task(Box::new(TaskLine::new(queue, task))).to_text());
        out.text(&lines.collect::<String>())?;
    }
    for unfit in reader.unfit() {
        complain(&format!("task {:?} of queue {queue:?} stays: {}", harmless(&unfit.id), unfit.reason));
    }
    if members > 0 {
        let members = progress::thousands(members);
        complain(&format!(
            "warning: {members} tasks of queue {queue:?} are members of batches, which stay: imported, they belong to none"
        ));
    }
    let mut missing = reader.unfit().len() as u64;
    let size = inspector.queue(queue).await?.size();
    if !live && size > count + missing {
        let more = size - count - missing;
        complain(&format!("warning: {more} tasks came to queue {queue:?} during the export, and are not in it"));
        missing += more;
    }
    Ok((count, missing))
}
