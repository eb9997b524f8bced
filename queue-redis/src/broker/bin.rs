//! Tasks that are deleted and can be restored: `delete_tasks.lua` with a bin, `undelete_tasks.lua`.

use queue_core::flow::{MemberOutcome, is_member};
use queue_core::keys::QueueKeys;
use queue_core::limits::{ARCHIVE_MAX, ARCHIVE_MAX_AGE_SECS, BIN_KEPT_SECS, BIN_SPREAD_SECS};
use redis::Cmd;

use super::duties::MEMBERS;
use super::manage::{Change, Seen, change};
use super::{Broker, verdicts};
use crate::error::Error;
use crate::script::{DELETE_TASKS, UNDELETE_TASKS, Word};

/// Where an operation puts the tasks of a queue that it deletes. Each queue has a bin of its own for each operation.
#[derive(Debug, Clone, Copy)]
pub struct Bin<'a> {
    /// The id of the operation; it has no colon.
    pub operation: &'a str,
    /// The number of the list into which the ids go; it takes [`BIN_PIECE`](queue_core::limits::BIN_PIECE) of them.
    pub piece: u64,
    /// Seconds for which the tasks are kept. Their ids are kept for an hour longer.
    pub keep_secs: i64,
}

impl<'a> Bin<'a> {
    /// One that keeps tasks for a day and up to an hour more, by chance: not all of them are to expire at once.
    pub fn new(operation: &'a str, piece: u64) -> Self {
        Self { operation, piece, keep_secs: BIN_KEPT_SECS + fastrand::i64(0..=BIN_SPREAD_SECS) }
    }
}

/// What became of a task that was to be restored. All but [`Undeleted::Restored`] mean that nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undeleted {
    /// It is where it was.
    Restored,
    /// The bin does not have it, or no longer.
    Gone,
    /// Another task has its id.
    IdTaken,
    /// Another task holds its uniqueness lock.
    Locked,
    /// What is remembered of its state leads nowhere, or there is a key of another type.
    Misplaced,
    /// It was archived, and the archive is full.
    Full,
}

fn undeleted(word: Word) -> Option<Undeleted> {
    match word {
        Word::Applied => Some(Undeleted::Restored),
        Word::Missing => Some(Undeleted::Gone),
        Word::IdTaken => Some(Undeleted::IdTaken),
        Word::Locked => Some(Undeleted::Locked),
        Word::Misplaced => Some(Undeleted::Misplaced),
        Word::Full => Some(Undeleted::Full),
        _ => None,
    }
}

impl Broker {
    /// Deletes tasks that no worker has, with the locks they own; 1 to [`MAX_BATCH`](super::MAX_BATCH).
    ///
    /// # Errors
    /// As [`run_tasks`](Self::run_tasks).
    pub async fn delete_tasks<I: AsRef<[u8]>>(
        &self,
        queue: &str,
        seen: Seen<'_>,
        ids: &[I],
    ) -> Result<Vec<Change>, Error> {
        let call = delete_call(queue, seen, ids, None);
        verdicts(DELETE_TASKS.name, &self.redis.run(&DELETE_TASKS, &call).await?, ids.len(), change)
    }

    /// The same, but the tasks can be [restored](Self::undelete_tasks) for a day. What is only left of a task, an id or a hash
    /// without a message, is deleted for good. `None` if this piece of the bin has no room for so many: then nothing was done.
    ///
    /// # Errors
    /// As [`run_tasks`](Self::run_tasks).
    pub async fn bin_tasks<I: AsRef<[u8]>>(
        &self,
        queue: &str,
        seen: Seen<'_>,
        ids: &[I],
        bin: Bin<'_>,
        now_ms: i64,
    ) -> Result<Option<Vec<Change>>, Error> {
        let call = delete_call(queue, seen, ids, Some((bin, now_ms)));
        let reply = self.redis.run(&DELETE_TASKS, &call).await?;
        let change = |word| if word == Word::Beyond { Some(None) } else { change(word).map(Some) };
        Ok(verdicts(DELETE_TASKS.name, &reply, ids.len(), change)?.into_iter().collect())
    }

    /// Brings tasks back from a bin; 1 to [`MAX_BATCH`](super::MAX_BATCH) that are in this piece of it. Pending ones are taken
    /// next, the last one given first. An archived one that is too old for the archive counts as archived now. Members of batches tell that
    /// they run again.
    ///
    /// # Errors
    /// As [`run_tasks`](Self::run_tasks).
    pub async fn undelete_tasks<I: AsRef<[u8]>>(
        &self,
        queue: &str,
        ids: &[I],
        bin: Bin<'_>,
        now_ms: i64,
    ) -> Result<Vec<Undeleted>, Error> {
        let keys = QueueKeys::new(queue);
        if ids.iter().any(|id| is_member(id.as_ref())) {
            // What they tell stands in a list of this process, and somebody has to look for it.
            self.ask_for_duty(MEMBERS, queue, now_ms).await?;
        }
        let ids_told = ids.iter().map(AsRef::as_ref);
        let telling = self.telling(queue, ids_told, MemberOutcome::Again, now_ms / 1_000);
        let mut call = UNDELETE_TASKS.call(3 + telling.keys());
        call.arg(keys.bin_piece(bin.operation, bin.piece)).arg(keys.pending()).arg(keys.groups());
        telling.with_keys(&mut call);
        call.arg(keys.prefix()).arg(keys.bin_prefix(bin.operation)).arg(now_ms);
        call.arg(now_ms / 1_000 - ARCHIVE_MAX_AGE_SECS).arg(ARCHIVE_MAX);
        telling.with_entry(&mut call);
        super::manage::with_ids(&mut call, ids);
        verdicts(UNDELETE_TASKS.name, &self.redis.run(&UNDELETE_TASKS, &call).await?, ids.len(), undeleted)
    }
}

fn delete_call<I: AsRef<[u8]>>(queue: &str, seen: Seen<'_>, ids: &[I], bin: Option<(Bin<'_>, i64)>) -> Cmd {
    let keys = QueueKeys::new(queue);
    let mut call = DELETE_TASKS.call(7);
    call.arg(keys.pending()).arg(keys.groups()).arg(keys.active()).arg(keys.lease());
    call.arg(keys.aggregation_sets()).arg(keys.aggregated());
    call.arg(bin.map_or_else(|| keys.pending(), |(bin, _)| keys.bin_piece(bin.operation, bin.piece)));
    let group = if let Seen::InGroup(group) = seen { group } else { "" };
    call.arg(keys.prefix()).arg(seen.state()).arg(group).arg(seen.place());
    match bin {
        None => call.arg("").arg("").arg("").arg(""),
        Some((bin, now_ms)) => {
            let keep = bin.keep_secs;
            call.arg(keys.bin_prefix(bin.operation)).arg(now_ms).arg(keep).arg(keep + BIN_SPREAD_SECS)
        }
    };
    super::manage::with_ids(&mut call, ids);
    call
}
