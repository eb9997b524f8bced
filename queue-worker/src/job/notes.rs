//! What a job says of itself while it runs: [`Job::progress`], [`Job::checkpoint`].
//!
//! Progress is written at most once a second. What comes in between waits for its turn, and takes the place of what waited
//! before it; what still waits at the end of the attempt is written before the report. A job that says nothing costs nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_core::event::{Event, Kind};
use queue_core::limits::{MAX_CURSOR_BYTES, PROGRESS_INTERVAL};
use queue_core::progress::{CURSOR, PROGRESS, Progress};
use queue_redis::Error;
use queue_redis::broker::Verdict;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::debug;

use super::Job;

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
    /// Held while something is written, so that nothing older overtakes it.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<Progress>,
    written_at: Option<Instant>,
    /// Whether somebody sees to it that what waits is written.
    is_kept: bool,
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
        let begins = {
            let mut state = self.notes().lock();
            state.waiting = Some(Progress::new(percent, note, self.now_ms()));
            !std::mem::replace(&mut state.is_kept, true)
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
                if state.waiting.is_none() {
                    state.is_kept = false;
                    return;
                }
                state.written_at.map_or(Duration::ZERO, |at| PROGRESS_INTERVAL.saturating_sub(at.elapsed()))
            };
            tokio::time::sleep(pause).await;
            self.write_notes().await;
        }
    }

    /// Writes what waits.
    pub(crate) async fn write_notes(&self) {
        let notes = self.notes();
        let _turn = notes.writing.lock().await;
        let progress = {
            let mut state = notes.lock();
            state.written_at = Some(Instant::now());
            state.waiting.take()
        };
        let Some(progress) = progress else { return };
        match self.broker().write_fields(self.run(), &[(PROGRESS, progress.to_string().as_bytes())]).await {
            Ok(Verdict::Applied | Verdict::AlreadyApplied) => self.broker().feed().tell(|| {
                let mut event =
                    Event::of_task(Kind::Progress, progress.at_ms, self.queue(), self.id(), self.task_type());
                (event.percent, event.note) = (Some(progress.percent), Some(progress.note));
                event
            }),
            Ok(_) => {}
            Err(error) => debug!(task = self.id(), %error, "the progress was not written"),
        }
    }

    /// Whether there is something left to write.
    pub(crate) fn has_notes(&self) -> bool {
        self.inner.notes.get().is_some_and(|notes| notes.lock().waiting.is_some())
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

    /// Where an earlier attempt has left off; `None` if none has said. Redis is asked only by this call.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub async fn cursor<T: DeserializeOwned>(&self) -> Result<Option<T>, CheckpointError> {
        let json = self.broker().cursor(self.run()).await?;
        Ok(json.map(|json| serde_json::from_slice(&json)).transpose()?)
    }
}
