//! What a program or a service says of its task while it works: lines of JSON.

use std::io;
use std::os::fd::OwnedFd;

use command_fds::{CommandFdExt as _, FdMapping};
use queue_worker::Job;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tracing::warn;

/// The file descriptor of a program, the first that has no meaning of its own.
const DESCRIPTOR: i32 = 3;

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
    status: Option<u16>,
    error: Option<String>,
    retry_after: Option<u64>,
    result: Option<Box<RawValue>>,
}

/// What the last line of a service says: what an answer with this status would mean. Programs have their exit code.
pub(super) struct End {
    pub(super) status: u16,
    pub(super) error: Option<String>,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) result: Option<Box<RawValue>>,
}

/// Lines as they come in.
pub(super) struct Notes<R> {
    lines: R,
    /// A longer line is cut in pieces of so many bytes, which make no sense.
    longest: u64,
    /// Where they come from, for the log.
    source: &'static str,
    told: bool,
    /// Whether a line was too long.
    pub(super) cut: bool,
}

impl<R: AsyncBufRead + Unpin> Notes<R> {
    pub(super) fn new(lines: R, longest: u64, source: &'static str) -> Self {
        Self { lines, longest, source, told: false, cut: false }
    }

    /// Does what the lines say, up to the next that tells an end; `None` where nobody can write any more.
    ///
    /// # Errors
    /// When nothing can be read.
    pub(super) async fn until_end(&mut self, job: &Job) -> io::Result<Option<End>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut self.lines).take(self.longest).read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            self.cut |= line.len() as u64 == self.longest && !line.ends_with(b"\n");
            match heed(&line, job).await {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(Some(end)),
                Err(error) => {
                    let source = self.source;
                    if !std::mem::replace(&mut self.told, true) {
                        warn!(
                            task = job.id(),
                            error, "a line {source} was not heeded; of this task no other is mentioned"
                        );
                    }
                }
            }
        }
    }
}

/// Gives a program that is about to be started the other end of a pipe, and what an earlier attempt has left.
pub(super) async fn open(process: &mut Command, job: &Job) -> io::Result<Notes<BufReader<Receiver>>> {
    let (ours, theirs) = io::pipe()?;
    let mapping = FdMapping { parent_fd: OwnedFd::from(theirs), child_fd: DESCRIPTOR };
    process.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    process.env("TASK_NOTES_FD", DESCRIPTOR.to_string());
    if let Some(cursor) = job.cursor::<Value>().await.map_err(io::Error::other)? {
        process.env("TASK_CURSOR", cursor.to_string());
    }
    Ok(Notes::new(BufReader::new(Receiver::from_owned_fd(ours.into())?), LONGEST, "on TASK_NOTES_FD"))
}

async fn heed(line: &[u8], job: &Job) -> Result<Option<End>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if let Some(progress) = line.progress {
        job.progress(progress.clamp(0.0, 100.0) as u8, line.note);
    }
    if let Some(text) = line.log {
        job.log(text);
    }
    if let Some(checkpoint) = line.checkpoint {
        job.checkpoint(&checkpoint).await.map_err(|error| error.to_string())?;
    }
    let Line { error, retry_after, result, .. } = line;
    Ok(line.status.map(|status| End { status, error, retry_after, result }))
}
