//! Works tasks by running programs.

use queue_core::limits::MAX_RESULT_BYTES;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use queue_worker::{CancelReason, Failure, Job};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tracing::info;

use super::capture::{Errors, Forward, Result as ResultBytes};
use super::command::Command;
use super::environment;
use super::group::Group;
use super::notes::{self, Notes};
use super::outcome::judge;
use super::shortage::{self, Scarce, Shortage};
use super::watchdog::Watchdog;

/// How long to wait for the rest of the output when the program has ended but something it left behind has
/// its output open. `sh -c 'a | b &'` and bash's `>(…)` end that way.
const DRAIN: Duration = Duration::from_millis(500);

/// How long a task waits when its program cannot be started: that is the machine's fault, not the task's.
const CANNOT_START: Duration = Duration::from_secs(30);

/// The same after it has kept its place for long: others are to have it soon.
const STILL_SCARCE: Duration = Duration::from_secs(5);

type ProgramNotes = Notes<BufReader<Receiver>>;

/// How programs are run.
#[derive(Debug, Clone)]
pub(super) struct Exec {
    /// Time between TERM and KILL.
    pub(super) grace: Duration,
    /// Where lines on standard error go.
    pub(super) forward: Forward,
    pub(super) watchdog: Arc<Watchdog>,
    /// Whether programs can tell how far they are, and where to go on.
    pub(super) notes: bool,
    pub(super) shortage: Arc<Shortage>,
}

impl Exec {
    /// Works one task: starts the program, feeds it, waits for its end, and leaves no process behind.
    pub(super) async fn run(&self, command: &Command, job: &Job) -> Result<Bytes, Failure> {
        let started = Instant::now();
        let (mut child, mut notes) = self.start(command, job).await?;
        let mut group = Group::of(&child, self.watchdog.clone()).ok_or("the program ended before it was started")?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("the program has no pipes".into());
        };
        let (mut result, mut errors) = (ResultBytes::default(), Errors::new(job.id(), self.forward));
        let are_at_work = notes.as_ref().map(|notes| notes.is_at_work.clone()).unwrap_or_default();
        let drained = async |io: &mut (dyn Future<Output = _> + Unpin + Send)| loop {
            match tokio::time::timeout(DRAIN, &mut *io).await {
                Ok(_) => break true,
                // Not the pipes keep it: Redis is to store a checkpoint.
                Err(_) if are_at_work.load(Ordering::Relaxed) && !job.cancellation().is_cancelled() => {}
                Err(_) => break false,
            }
        };
        let status = {
            // All at the same time: a program may write before it has read, and a full pipe stops it.
            let io = async {
                tokio::join!(
                    feed(stdin, job.payload()),
                    result.read(stdout),
                    errors.read(stderr),
                    heed(&mut notes, job)
                )
            };
            let mut io = std::pin::pin!(io);
            let mut io_ended = false;
            let ended = tokio::select! {
                status = wait(&mut child, &mut io, &mut io_ended) => Some(status?),
                () = job.cancellation().cancelled() => None,
            };
            if ended.is_some() && !io_ended {
                io_ended = drained(&mut io).await;
            }
            // Whoever is told to end may have something to say, so the pipes are emptied meanwhile.
            {
                let mut end = std::pin::pin!(group.end(&mut child, self.grace));
                loop {
                    tokio::select! {
                        () = &mut end => break,
                        _ = &mut io, if !io_ended => io_ended = true,
                    }
                }
            }
            if !io_ended {
                drained(&mut io).await;
            }
            ended
        };
        let last_line = errors.into_last_line();
        let Some(status) = status else {
            return Err(interrupted(child.try_wait().ok().flatten(), last_line));
        };
        judge(status, last_line)?;
        let result = result.into_bytes().or_else(|| (!job.keeps_result()).then(Vec::new)).ok_or_else(|| {
            let limit = MAX_RESULT_BYTES / (1024 * 1024);
            Failure::archive(format!(
                "the program succeeded, but wrote more than {limit} MiB of result; let it store that elsewhere and print where"
            ))
        })?;
        let (id, task_type, queue, attempt) = (job.id(), job.task_type(), job.queue(), job.attempt());
        info!(task = id, task_type, queue, attempt, took = ?started.elapsed(), "task done");
        Ok(result.into())
    }

    /// Starts the program as soon as there are files, processes and memory for it. The task keeps its place meanwhile: a worker that
    /// put off what it cannot start would take all that others could run.
    async fn start(&self, command: &Command, job: &Job) -> Result<(Child, Option<ProgramNotes>), Failure> {
        let until = tokio::time::Instant::now() + shortage::PATIENCE;
        let mut pause = shortage::FIRST_PAUSE;
        let mut first_in_line = None;
        let mut stand_in_line = self.shortage.lasts();
        loop {
            if stand_in_line && first_in_line.is_none() {
                first_in_line = tokio::select! {
                    turn = self.shortage.line.lock() => Some(turn),
                    () = tokio::time::sleep_until(until) => return Err(cannot_start(command, &self.shortage.last())),
                    () = job.cancellation().cancelled() => return Err(stopped_before(command, job, &self.shortage.last())),
                };
            }
            let error = match try_to_start(command, job, self.notes).await {
                Ok(running) => {
                    self.shortage.is_over();
                    return Ok(running);
                }
                Err(error) => error,
            };
            let Some(scarce) = Scarce::of(&error) else { return Err(cannot_start(command, &error)) };
            self.shortage.met(scarce, &error);
            stand_in_line = true;
            if first_in_line.is_none() {
                continue;
            }
            if tokio::time::Instant::now() + pause > until {
                return Err(cannot_start(command, &error));
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = job.cancellation().cancelled() => return Err(stopped_before(command, job, &error)),
            }
            pause = shortage::LONGEST_PAUSE.min(2 * pause);
        }
    }
}

async fn try_to_start(command: &Command, job: &Job, with_notes: bool) -> io::Result<(Child, Option<ProgramNotes>)> {
    let mut process = tokio::process::Command::new(&command.program);
    process.args(&command.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, to signal it as a whole; also, a Ctrl-C in the terminal is for us alone.
    process.process_group(0);
    for (name, value) in environment::describe(job) {
        process.env(format!("TASK_{name}"), value);
    }
    let notes = if with_notes { Some(notes::open(&mut process, job).await?) } else { None };
    // Our copy of the program's end of the pipe goes with `process`.
    Ok((process.spawn()?, notes))
}

async fn heed(notes: &mut Option<ProgramNotes>, job: &Job) {
    if let Some(notes) = notes {
        while let Ok(Some(_)) = notes.next(job).await {}
    }
}

/// Waits for the program to end, moving its input and output meanwhile.
async fn wait<T>(
    child: &mut Child,
    io: &mut (impl Future<Output = T> + Unpin),
    io_ended: &mut bool,
) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = &mut *io, if !*io_ended => *io_ended = true,
        }
    }
}

/// Writes the payload. A program that does not read all of it, or nothing, is within its rights.
async fn feed(mut stdin: ChildStdin, payload: &Bytes) {
    let _ = stdin.write_all(payload).await;
}

/// What a task comes to that was told to stop. Many programs exit with 0 on TERM without having done their
/// work, so only what they say clearly counts: archive, or snooze. The server knows the reason for anything
/// else.
fn interrupted(status: Option<ExitStatus>, last_line: Option<String>) -> Failure {
    let judged = status.map(|status| judge(status, last_line));
    match judged {
        Some(Err(failure @ (Failure::Archive(_) | Failure::Snooze(..)))) => failure,
        _ => "the program was told to end".into(),
    }
}

/// What a task comes to that was told to stop before its program was started. That its time is over is not its fault.
fn stopped_before(command: &Command, job: &Job, error: &io::Error) -> Failure {
    match job.cancel_reason() {
        Some(CancelReason::Deadline) => cannot_start(command, error),
        _ => interrupted(None, None),
    }
}

fn cannot_start(command: &Command, error: &io::Error) -> Failure {
    let message = format!("cannot run {:?}: {error}", command.program);
    match error.kind() {
        // A NUL in the type, or headers beyond what an environment can hold: it will be so for ever.
        io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => {
            Failure::archive(format!("{message}; the task's id, type or headers do not fit into the environment"))
        }
        _ if Scarce::of(error).is_some() => Failure::snooze(STILL_SCARCE, message),
        _ => Failure::snooze(CANNOT_START, message),
    }
}
