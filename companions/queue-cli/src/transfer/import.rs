//! `queuectl import`.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use queue_admin::Inspector;
use queue_admin::payload::harmless;
use queue_core::limits::CHANGE_BATCH;
use queue_core::options::check_existing_queue_name;
use queue_core::{Clock as _, SystemClock};
use queue_redis::{
    Error,
    broker::{Broker, MAX_BATCH, MAX_BATCH_BYTES, RestoreVerdict, Restored, StoredTask},
};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::tally::{Tally, render};
use crate::error::{CliError, complain, exit};
use crate::lines::send_chunks;
use crate::output::Output;
use crate::progress;
use crate::session::Session;
use queue_admin::export::{End, Header, Line, QueueLine, TaskLine, VERSION};

/// How often a call is sent again while Redis does not answer, with [`PAUSE`] in between.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// What to import.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct ImportArgs {
    /// File that `queuectl export` has written; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Look at all lines once more, although they were imported before
    ///
    /// Tasks that were imported, and are done and gone by now, are stored once more.
    #[arg(long)]
    again: bool,
}

const IMPORT_HELP: &str = "\
An import that was ended half-way goes on where it was when it is started
again. Redis remembers for 30 days how far each file came, so that no task is
stored twice. A task whose id or uniqueness lock belongs to another task, or
for which a full archive has no room, is reported and left out; the exit code
is then 4. A damaged line or file gives 1.";

/// What `--json` tells.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    queues: &'a [Tally],
    /// Whether the file came to its end and had all its tasks.
    complete: bool,
}

crate::command::simple!(ImportArgs);

async fn run(args: ImportArgs, session: &Session, out: &Output) -> Result<(), CliError> {
    let is_stdin = args.file == std::path::Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { args.file.display().to_string() };
    let failed = |error: io::Error| CliError::failed(format!("cannot read {name}: {error}"));
    let (input, size): (Box<dyn Read + Send>, u64) = if is_stdin {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(&args.file).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        (Box::new(file), size)
    };
    let bar = if size > 0 { progress::bar("importing", size, "bytes") } else { ProgressBar::hidden() };
    let (send, mut lines) = mpsc::channel(1);
    let watched = bar.clone();
    let reader = tokio::task::spawn_blocking(move || send_chunks(watched.wrap_read(input), MAX_BATCH, &send, parse));

    let mut import = Import::new(session, args.again);
    while let Some(chunk) = lines.recv().await {
        for (number, line) in chunk {
            import.take(number, line).await?;
        }
    }
    match reader.await {
        Ok(read) => read.map_err(failed)?,
        Err(error) => return Err(CliError::failed(format!("cannot read {name}: {error}"))),
    }
    bar.finish_and_clear();
    import.finish(out).await
}

fn parse(line: &[u8]) -> Result<Line, String> {
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// An import on its way.
struct Import {
    broker: Broker,
    inspector: Inspector,
    again: bool,
    header: Option<Header>,
    end: Option<End>,
    tallies: Vec<Tally>,
    /// Tasks that wait to be stored, with their lines.
    batch: Vec<(u64, StoredTask)>,
    bytes: usize,
}

impl Import {
    fn new(session: &Session, again: bool) -> Self {
        Self {
            broker: Broker::new(session.redis().clone()),
            inspector: session.inspector(),
            again,
            header: None,
            end: None,
            tallies: Vec::new(),
            batch: Vec::new(),
            bytes: 0,
        }
    }

    async fn take(&mut self, number: u64, line: Result<Line, String>) -> Result<(), CliError> {
        match (&self.header, line) {
            (None, Ok(Line::Export(header))) if header.version == VERSION => {
                if header.live {
                    complain("warning: the queues were worked on during the export; tasks may have run since");
                }
                self.header = Some(header);
                Ok(())
            }
            (None, Ok(Line::Export(header))) => Err(CliError::failed(format!(
                "the file has version {}, and this program reads version {VERSION}",
                header.version
            ))),
            (None, _) => Err(CliError::failed("the file does not begin as an export of queuectl does")),
            (Some(_), Ok(Line::Queue(queue))) => self.begin(queue).await,
            (Some(_), Ok(Line::Task(task))) => self.task(number, *task).await,
            (Some(_), Ok(Line::End(end))) => {
                self.end = Some(end);
                Ok(())
            }
            (Some(_), Ok(Line::Export(_))) => self.invalid(number, "a second export begins in the file"),
            (Some(_), Err(reason)) => self.invalid(number, &reason),
        }
    }

    fn invalid(&mut self, number: u64, reason: &str) -> Result<(), CliError> {
        complain(&format!("line {number}: {}", harmless(reason)));
        match self.tallies.last_mut() {
            Some(tally) => tally.invalid += 1,
            None => return Err(CliError::failed("the file is damaged where its first queue should begin")),
        }
        Ok(())
    }

    fn export_id(&self) -> &str {
        self.header.as_ref().map_or("", |header| &header.id)
    }

    async fn begin(&mut self, line: QueueLine) -> Result<(), CliError> {
        self.flush().await?;
        let queue = line.queue.clone();
        check_existing_queue_name(&queue).map_err(|error| CliError::failed(error.to_string()))?;
        self.broker.publish_queue(&queue).await?;
        if self.again {
            self.broker.forget_restored(&queue, self.export_id()).await?;
        }
        // The pause comes before the first task, so that none runs before all are there.
        self.broker.restore_queue(self.export_id(), &line.into()).await?;
        let note = self.broker.restore_note(&queue, self.export_id()).await?;
        self.tallies.push(Tally::new(&queue, note, self.inspector.queue(&queue).await?));
        Ok(())
    }

    async fn task(&mut self, number: u64, line: TaskLine) -> Result<(), CliError> {
        let Some(tally) = self.tallies.last_mut().filter(|tally| tally.queue == line.queue) else {
            return self.invalid(number, "the task belongs to another queue than the lines around it");
        };
        match line.task() {
            Err(reason) => return self.invalid(number, &reason),
            Ok(_) if number <= tally.note.line => {
                tally.skipped += 1;
                return Ok(());
            }
            Ok(task) => {
                self.bytes += task.fields.values().map(bytes::Bytes::len).sum::<usize>();
                self.batch.push((number, task));
            }
        }
        if self.batch.len() >= CHANGE_BATCH || self.bytes >= MAX_BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Stores what waits.
    async fn flush(&mut self) -> Result<(), CliError> {
        self.bytes = 0;
        let mut batch = std::mem::take(&mut self.batch);
        let again = self.again;
        let Some(tally) = self.tallies.last_mut() else { return Ok(()) };
        let export_id = self.header.as_ref().map_or("", |header| &header.id);
        let mut failures = 0;
        while let Some((last, _)) = batch.last() {
            let tasks: Vec<StoredTask> = batch.iter().map(|(_, task)| task.clone()).collect();
            let span = (tally.note.line, *last);
            let now_ms = SystemClock.now_ms();
            match self.broker.restore(&tally.queue, export_id, span, &tasks, now_ms).await {
                Ok(Restored::Done(verdicts)) => {
                    tally.note.line = *last;
                    let before = tally.present;
                    for ((number, task), verdict) in batch.drain(..).zip(verdicts) {
                        tally.note.refused += u64::from(verdict != RestoreVerdict::Stored);
                        settle(tally, number, &task, &verdict);
                    }
                    if tally.present > before {
                        let present = tally.present - before;
                        let noted = self.broker.note_present(&tally.queue, export_id, present).await;
                        noted.map_err(|error| stopped(&error, tally.note.line, again))?;
                    }
                }
                Ok(Restored::StandsAt(line)) if line < span.0 => return Err(went_back(&tally.queue, line, again)),
                Ok(Restored::StandsAt(line)) => {
                    tally.note.line = line;
                    let left = batch.split_off(batch.partition_point(|(number, _)| *number <= line));
                    // Stored by a call of ours whose answer was lost; or by somebody else who imports the same.
                    let ours = failures > 0;
                    let dealt_with = std::mem::replace(&mut batch, left);
                    if ours {
                        let note = self.broker.restore_note(&tally.queue, export_id).await;
                        let refused = note.map_err(|error| stopped(&error, line, again))?.refused;
                        settle_unheard(tally, &dealt_with, refused);
                    } else {
                        tally.is_unsure = true;
                        tally.skipped += dealt_with.len() as u64;
                    }
                }
                Err(error) if error.is_transient() && failures < ATTEMPTS => {
                    failures += 1;
                    tracing::warn!(%error, "storing tasks failed; trying again");
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(stopped(&error, span.0, again)),
            }
        }
        Ok(())
    }

    async fn finish(mut self, out: &Output) -> Result<(), CliError> {
        self.flush().await?;
        if self.header.is_none() {
            return Err(CliError::failed("the file is empty"));
        }
        let export_id = self.header.as_ref().map_or("", |header| &header.id);
        let mut left_before = 0;
        for tally in &mut self.tallies {
            let note = self.broker.restore_note(&tally.queue, export_id).await?;
            if note.line < tally.note.line {
                return Err(went_back(&tally.queue, note.line, self.again));
            }
            left_before += tally.were_left_out(note.left_out());
            tally.verify(&self.inspector).await?;
        }
        let seen = |queue: &String, count: &u64| {
            let tallies = self.tallies.iter().filter(|tally| tally.queue == *queue);
            tallies.map(Tally::seen).sum::<u64>() == *count
        };
        let complete = self.end.as_ref().is_some_and(|end| end.tasks.iter().all(|(queue, count)| seen(queue, count)));
        if out.json {
            out.value(&Summary { queues: &self.tallies, complete })?;
        } else {
            out.text(&render(&self.tallies, out))?;
            for tally in self.tallies.iter().filter(|tally| tally.paused) {
                out.line(&format!("queue {:?} is paused; `queuectl queue resume` starts it", harmless(&tally.queue)))?;
            }
        }
        let sum = |count: &dyn Fn(&Tally) -> u64| self.tallies.iter().map(count).sum::<u64>();
        let (invalid, conflicts) = (sum(&|tally| tally.invalid), sum(&|tally| tally.conflicts));
        if !complete {
            return Err(CliError::failed("the file is cut off or damaged: tasks are missing; what it had is imported"));
        }
        if invalid > 0 {
            return Err(CliError::failed(format!(
                "{invalid} lines were left out, for the reasons above; mend them and import with --again, which also stores \
                 once more what has run since"
            )));
        }
        if self.tallies.iter().any(|tally| tally.verified == Some(false)) {
            return Err(CliError::failed(
                "the number of tasks is not what it should be; something else changed the queue meanwhile",
            ));
        }
        if left_before > 0 {
            complain(&format!(
                "{left_before} tasks of this file were left out by an earlier import of it, which said why; --again looks at them again"
            ));
        }
        match conflicts {
            0 => Ok(()),
            count => Err(CliError::Coded(exit::REFUSED, format!("{count} tasks were left out, for the reasons above"))),
        }
    }
}

fn settle(tally: &mut Tally, number: u64, task: &StoredTask, verdict: &RestoreVerdict) {
    let reason = match verdict {
        RestoreVerdict::Stored => return tally.count_stored(task.state),
        RestoreVerdict::IdTaken(message) if task.is_same_task(message) => {
            tally.present += 1;
            return;
        }
        RestoreVerdict::IdTaken(_) => "its id belongs to another task",
        RestoreVerdict::Duplicate => "another task holds its uniqueness lock",
        RestoreVerdict::InWindow => "its window is open, so it was stored before, and is gone",
        RestoreVerdict::ArchiveFull => "it is archived, and the archive is full",
    };
    tally.conflicts += 1;
    let (id, queue) = (harmless(&task.id), &tally.queue);
    complain(&format!("line {number}: task {id:?} of queue {queue:?} was left out: {reason}"));
}

/// Tasks whose verdicts were lost with an answer. How many were refused is known by how many are noted now.
fn settle_unheard(tally: &mut Tally, tasks: &[(u64, StoredTask)], noted: u64) {
    let refused = noted.saturating_sub(tally.note.refused).min(tasks.len() as u64);
    tally.note.refused = noted;
    tally.conflicts += refused;
    for (_, task) in tasks.iter().skip(refused as usize) {
        tally.count_stored(task.state);
    }
    if let ([(first, _), ..], [.., (last, _)]) = (tasks, tasks)
        && refused > 0
    {
        tally.is_unsure = true;
        let queue = &tally.queue;
        complain(&format!(
            "lines {first} to {last}: {refused} tasks of queue {queue:?} were left out: they are there already, or others \
             have their ids or locks; the answer that said which was lost, and --again looks at them again"
        ));
    }
}

fn stopped(error: &Error, line: u64, again: bool) -> CliError {
    CliError::failed(format!("stopped after line {line}: {error}; {}", resume(again)))
}

/// What was stored after this line is lost, and would stay so if the note came to stand behind it.
fn went_back(queue: &str, line: u64, again: bool) -> CliError {
    CliError::failed(format!(
        "Redis went back to line {line} in queue {queue:?}, as in a failover, and has lost what came after it; {}",
        resume(again)
    ))
}

/// How to go on. With `--again`, an import begins anew.
fn resume(again: bool) -> &'static str {
    if again {
        "start the import again without --again, and it goes on from there"
    } else {
        "start the import again, and it goes on from there"
    }
}
