//! What a program or a service says of its task while it works: lines of JSON.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use command_fds::{CommandFdExt as _, FdMapping};
use queue_worker::Job;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::Command;
use tracing::warn;

/// The file descriptor of a program, the first that has no meaning of its own.
const DESCRIPTOR: i32 = 3;

/// The one on which it is answered.
const ANSWERS: i32 = 4;

/// The longest line of a program: a checkpoint of 16 KiB, also where all of it is written as `\u….`, and a note.
const LONGEST: u64 = 128 * 1024;

/// One line.
#[derive(Deserialize)]
struct Line {
    progress: Option<f64>,
    #[serde(default)]
    note: String,
    checkpoint: Option<Value>,
    log: Option<String>,
    /// Whether to say what became of the checkpoint.
    #[serde(default)]
    answer: bool,
}

/// What became of a checkpoint.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    stored: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Lines as they come in.
pub(super) struct Notes<R> {
    lines: R,
    /// A longer line is cut in pieces of so many bytes, which make no sense.
    longest: u64,
    /// Where they come from, for the log.
    source: &'static str,
    told: bool,
    /// Where those who ask are answered, if they can be.
    answers: Option<Sender>,
    /// Whether a line was too long.
    pub(super) cut: bool,
    /// Whether what a line said is being done just now.
    pub(super) is_at_work: Arc<AtomicBool>,
}

impl<R: AsyncBufRead + Unpin> Notes<R> {
    pub(super) fn new(lines: R, longest: u64, source: &'static str) -> Self {
        Self { lines, longest, source, told: false, answers: None, cut: false, is_at_work: Arc::default() }
    }

    /// Does what the next line says, and returns it; `None` where nobody can write any more.
    ///
    /// # Errors
    /// When nothing can be read.
    pub(super) async fn next(&mut self, job: &Job) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if (&mut self.lines).take(self.longest).read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        self.cut |= line.len() as u64 == self.longest && !line.ends_with(b"\n");
        self.is_at_work.store(true, Ordering::Relaxed);
        let heeded = heed(&line, job, self.answers.as_ref()).await;
        self.is_at_work.store(false, Ordering::Relaxed);
        if let Err(error) = heeded
            && !std::mem::replace(&mut self.told, true)
        {
            let source = self.source;
            warn!(task = job.id(), error, "a line {source} was not heeded; of this task no other is mentioned");
        }
        Ok(Some(line))
    }
}

/// Gives a program that is about to be started the other end of a pipe, and what an earlier attempt has left.
pub(super) async fn open(process: &mut Command, job: &Job) -> io::Result<Notes<BufReader<Receiver>>> {
    let ((notes, their_notes), (their_answers, answers)) = (io::pipe()?, io::pipe()?);
    let mapping = |end: OwnedFd, child_fd| FdMapping { parent_fd: end, child_fd };
    let mappings = vec![mapping(their_notes.into(), DESCRIPTOR), mapping(their_answers.into(), ANSWERS)];
    process.fd_mappings(mappings).map_err(io::Error::other)?;
    process.env("TASK_NOTES_FD", DESCRIPTOR.to_string()).env("TASK_ANSWERS_FD", ANSWERS.to_string());
    if let Some(cursor) = job.cursor::<Value>().await.map_err(io::Error::other)? {
        process.env("TASK_CURSOR", cursor.to_string());
    }
    let notes = Notes::new(BufReader::new(Receiver::from_owned_fd(notes.into())?), LONGEST, "on TASK_NOTES_FD");
    Ok(Notes { answers: Some(Sender::from_owned_fd(answers.into())?), ..notes })
}

async fn heed(line: &[u8], job: &Job, answers: Option<&Sender>) -> Result<(), String> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let Line { progress, note, checkpoint, log, answer } =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if let Some(progress) = progress {
        job.progress(progress.clamp(0.0, 100.0) as u8, note);
    }
    if let Some(text) = log {
        job.log(text);
    }
    if let Some(checkpoint) = checkpoint {
        let stored = job.checkpoint(&checkpoint).await.map_err(|error| error.to_string());
        if let Some(answers) = answers.filter(|_| answer) {
            say(answers, &stored)?;
        }
        stored?;
    }
    Ok(())
}

/// Never waits: a program that does not read what it has asked for holds up nobody.
fn say(answers: &Sender, stored: &Result<bool, String>) -> Result<(), String> {
    let error = stored.as_ref().err().map(|error| error.as_str());
    let answer = Answer { stored: *stored == Ok(true), error };
    let line = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
    match answers.try_write(format!("{line}\n").as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the answer to a checkpoint was not taken: {error}")),
    }
}
