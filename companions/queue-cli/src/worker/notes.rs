//! What a program says of its task while it runs: lines of JSON on a file descriptor of its own.

use std::io;
use std::os::fd::OwnedFd;

use command_fds::{CommandFdExt as _, FdMapping};
use queue_worker::Job;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tracing::warn;

/// The file descriptor, the first that has no meaning of its own.
const DESCRIPTOR: i32 = 3;

/// The longest line: a checkpoint of 16 KiB, also where all of it is written as `\u….`, and a note.
const LONGEST: u64 = 128 * 1024;

/// One line.
#[derive(Deserialize)]
struct Line {
    progress: Option<f64>,
    #[serde(default)]
    note: String,
    checkpoint: Option<Value>,
    log: Option<String>,
}

/// The end of the pipe that we read.
pub(super) struct Notes(BufReader<Receiver>);

impl Notes {
    /// Gives a program that is about to be started the other end, and what an earlier attempt has left.
    pub(super) async fn of(process: &mut Command, job: &Job) -> io::Result<Self> {
        let (ours, theirs) = io::pipe()?;
        let mapping = FdMapping { parent_fd: OwnedFd::from(theirs), child_fd: DESCRIPTOR };
        process.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        process.env("TASK_NOTES_FD", DESCRIPTOR.to_string());
        if let Some(cursor) = job.cursor::<Value>().await.map_err(io::Error::other)? {
            process.env("TASK_CURSOR", cursor.to_string());
        }
        Ok(Self(BufReader::new(Receiver::from_owned_fd(ours.into())?)))
    }

    /// Does what the lines say, until nobody can write any more.
    pub(super) async fn read(&mut self, job: &Job) {
        let mut line = Vec::new();
        let mut told = false;
        loop {
            line.clear();
            match (&mut self.0).take(LONGEST).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if let Err(error) = heed(&line, job).await
                && !std::mem::replace(&mut told, true)
            {
                warn!(
                    task = job.id(),
                    error, "a line on TASK_NOTES_FD was not heeded; of this task no other is mentioned"
                );
            }
        }
    }
}

async fn heed(line: &[u8], job: &Job) -> Result<(), String> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let Line { progress, note, checkpoint, log } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if let Some(progress) = progress {
        job.progress(progress.clamp(0.0, 100.0) as u8, note);
    }
    if let Some(text) = log {
        job.log(text);
    }
    if let Some(checkpoint) = checkpoint {
        job.checkpoint(&checkpoint).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
