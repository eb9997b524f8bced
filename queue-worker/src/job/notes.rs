//! What a job says of itself while it runs: [`Job::progress`], [`Job::log`], [`Job::checkpoint`].
//!
//! Progress and log are written together, at most once a second. What comes in between waits for its turn; progress takes the
//! place of what waited before it, lines gather. What still waits at the end of the attempt is written before the report. A
//! job that says nothing costs nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_core::event::{Event, Kind};
use queue_core::limits::{MAX_CURSOR_BYTES, PROGRESS_INTERVAL};
use queue_core::progress::{CURSOR, PROGRESS, Progress};
use queue_core::task_log::{LOG, TaskLog};
use queue_redis::Error;
use queue_redis::broker::Verdict;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::debug;

use super::Job;

/// When Redis is asked again for the cursor, after it did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why a checkpoint was not stored, or could not be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It is larger than 16 KiB as JSON.
    #[error(
        "the checkpoint has {bytes} bytes as JSON, and {limit} are the most; store the data elsewhere and keep its address"
    )]
    TooLarge {
        /// Bytes of the JSON.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It cannot be written as JSON, or what is stored is not what the handler asks for.
    #[error("the checkpoint cannot be written or read: {0}")]
    Json(#[from] serde_json::Error),
    /// Redis could not be asked, or refused.
    #[error(transparent)]
    Redis(#[from] Error),
}

queue_core::debug_as_text!(CheckpointError);

/// What waits to be written of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// A std lock: held to put or take a value, never across an await.
    state: Mutex<State>,
    /// The log as it was written last, once it is known. Held while something is written, so that nothing older overtakes it.
    written: tokio::sync::Mutex<Option<TaskLog>>,
}

#[derive(Debug, Default)]
struct State {
    progress: Option<Progress>,
    lines: TaskLog,
    written_at: Option<Instant>,
    /// Whether somebody sees to it that what waits is written.
    is_kept: bool,
}

impl State {
    fn is_written(&self) -> bool {
        self.progress.is_none() && self.lines.is_empty()
    }
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Says how far the task is (0 to 100), with a note for people, of at most 512 bytes. It is shown by `queuectl task show`,
    /// the dashboard and [`TaskHandle::progress`](queue_redis::TaskHandle::progress). It returns at once: it is written in the
    /// background, once a second at the most, and always before the end of the attempt is reported. A Redis that cannot be
    /// asked is no error. If the process dies, the last second may be missing.
    ///
    /// It stays with the task when the attempt ends, until the next attempt says something else.
    pub fn progress(&self, percent: u8, note: impl Into<String>) {
        self.note(|state| state.progress = Some(Progress::new(percent, note, self.now_milli())));
    }

    /// Writes a line into the log of the task, for people, of at most 1,024 bytes; a text of several lines is several. The
    /// last 200 lines of all attempts are kept, or as many as 16 KiB hold, as long as the task is; `queuectl task show --log` and
    /// [`TaskHandle::log`](queue_redis::TaskHandle::log) have them. It returns at once, and is written when and as
    /// [`progress`](Self::progress) is, in one call with that. Passwords in URLs are masked.
    pub fn log(&self, text: impl AsRef<str>) {
        self.note(|state| state.lines.push(self.now_milli(), self.attempt(), text.as_ref()));
    }

    /// Puts something among what waits.
    fn note(&self, put: impl FnOnce(&mut State)) {
        let begins = {
            let mut state = self.notes().lock();
            put(&mut state);
            !state.is_written() && !std::mem::replace(&mut state.is_kept, true)
        };
        if begins {
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(self.clone().write_in_turn())),
                // A thread of the handler's own: it is written with the next one, or at the end.
                Err(_) => self.notes().lock().is_kept = false,
            }
        }
    }

    async fn write_in_turn(self) {
        loop {
            let pause = {
                let mut state = self.notes().lock();
                if state.is_written() {
                    state.is_kept = false;
                    return;
                }
                state.written_at.map_or(Duration::ZERO, |at| PROGRESS_INTERVAL.saturating_sub(at.elapsed()))
            };
            tokio::time::sleep(pause).await;
            self.write_notes().await;
        }
    }

    /// Writes what waits. What could not be written is left out.
    pub(crate) async fn write_notes(&self) {
        let mut written = self.notes().written.lock().await;
        let (progress, lines) = {
            let mut state = self.notes().lock();
            state.written_at = Some(Instant::now());
            (state.progress.take(), std::mem::take(&mut state.lines))
        };
        if progress.is_none() && lines.is_empty() {
            return;
        }
        match self.write(progress.as_ref(), lines, &mut written).await {
            Ok(Verdict::Applied | Verdict::AlreadyApplied) => {
                if let Some(progress) = progress {
                    self.broker().feed().tell(|| {
                        let (queue, id, task_type) = (self.queue(), self.id(), self.task_type());
                        let mut event = Event::of_task(Kind::Progress, progress.at, queue, id, task_type);
                        (event.percent, event.note) = (Some(progress.percent), Some(progress.note));
                        event
                    });
                }
            }
            Ok(_) => {}
            Err(error) => debug!(task = self.id(), %error, "its progress or log was not written"),
        }
    }

    async fn write(
        &self,
        progress: Option<&Progress>,
        lines: TaskLog,
        written: &mut Option<TaskLog>,
    ) -> Result<Verdict, Error> {
        let (progress, mut log) = (progress.map(Progress::to_string), None);
        if !lines.is_empty() {
            if written.is_none() {
                // Those of earlier attempts.
                *written = Some(self.broker().log_of(self.run()).await?);
            }
            let whole = written.get_or_insert_default();
            whole.append(lines);
            log = Some(whole.to_string());
        }
        let fields = [(PROGRESS, &progress), (LOG, &log)];
        let fields = fields.iter().filter_map(|(name, text)| Some((*name, text.as_deref()?.as_bytes())));
        self.broker().write_fields(self.run(), &fields.collect::<Vec<_>>()).await
    }

    /// Whether there is something left to write, or on its way: behind the report it would be refused.
    pub(crate) fn has_notes(&self) -> bool {
        self.inner.notes.get().is_some_and(|notes| !notes.lock().is_written() || notes.written.try_lock().is_err())
    }

    /// Stores where to go on, as JSON of at most 16 KiB. The next attempt, here or elsewhere, gets it by [`Cursor`](crate::Cursor) or
    /// [`cursor`](Self::cursor): after a failure, a snooze, a shutdown or a crash, and when the archived task is run again. A
    /// task that has completed begins anew when it is run again.
    ///
    /// When it returns `true`, it is as safe as anything in Redis. Whatever comes after it may be done twice: write what was done
    /// first, then the checkpoint.
    ///
    /// # Errors
    /// See [`CheckpointError`]. Returns `false`, having written nothing, when the task is no longer this handler's.
    pub async fn checkpoint(&self, cursor: &(impl Serialize + ?Sized)) -> Result<bool, CheckpointError> {
        let json = serde_json::to_vec(cursor)?;
        let (bytes, limit) = (json.len(), MAX_CURSOR_BYTES);
        if bytes > limit {
            return Err(CheckpointError::TooLarge { bytes, limit });
        }
        let verdict = self.broker().write_fields(self.run(), &[(CURSOR, &json)]).await?;
        Ok(matches!(verdict, Verdict::Applied | Verdict::AlreadyApplied))
    }

    /// Where an earlier attempt has left off; `None` if none has said. Redis is asked only by this call, again and again while it is
    /// away, until the task is [told to stop](Self::cancellation).
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub async fn cursor<T: DeserializeOwned>(&self) -> Result<Option<T>, CheckpointError> {
        let json = loop {
            match self.broker().cursor(self.run()).await {
                // Nothing has been done yet that could fail. Whoever waits for too long is told to stop.
                Err(error) if error.is_transient() && self.cancel_reason().is_none() => {
                    let _ = tokio::time::timeout(ASK_AGAIN, self.cancellation().cancelled()).await;
                }
                json => break json?,
            }
        };
        Ok(json.map(|json| serde_json::from_slice(&json)).transpose()?)
    }
}
