//! Carrying operations out.

use std::time::Duration;

use chrono::DateTime;
use queue_core::Clock as _;
use queue_core::TaskState;
use queue_core::clock::UnixSecond;
use queue_core::flow::is_member;
use queue_core::keys::{self, OPERATIONS, QueueKeys};
use queue_core::limits::{BIN_PIECE, MAX_BATCH};
use queue_redis::broker::{Bin, Broker, Change, Seen, Wish};
use tokio::time::{Instant, sleep};

use super::{Operation, OperationState, PIECE, Work};
use crate::bulk::Drive;
use crate::error::Error;
use crate::verb::Verb;
use crate::{Changed, Inspector, Progress};

/// Whoever carries an operation out beside other work rests for four times as long as a step took: it has Redis for a fifth of the time.
const PAUSE_FACTOR: u32 = 4;
/// The longest rest: the lease has to be renewed.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How often whoever waits because of a rate says that the operation is still its own, and hears what is wanted of it.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
/// By how much a step that comes late because of what Redis or the machine is busy with may be made up for.
const LATE_MS: i64 = 200;
/// Tasks that go into the bin or come back in one call. With 25, one call of a thousand kept Redis busy for 1.4 to 2.0 ms.
pub(super) const BIN_BATCH: usize = 10;
/// Tasks named by their ids that are changed in one step.
const IDS_AT_ONCE: usize = 20;

/// How fast an operation is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At a fifth of the time, so that Redis has time for others.
    Gentle,
    /// As fast as Redis answers: somebody waits for it.
    Full,
}

impl Inspector {
    /// Carries out an operation, or goes on with one that another process has left, until it ends, pauses, or another process has it. `told`
    /// hears how far it is after each step. Two of one process at once are enough
    /// ([`OPERATIONS_AT_ONCE`](queue_core::limits::OPERATIONS_AT_ONCE)).
    ///
    /// # Errors
    /// [`Error::OperationNotFound`]; or Redis cannot be asked: then somebody goes on with it after half a minute. Other errors end the
    /// operation, which says them.
    pub async fn run_operation(
        &self,
        id: &str,
        pace: Pace,
        mut told: impl FnMut(Progress) + Send,
    ) -> Result<Operation, Error> {
        self.carry_out(id, pace, &mut told).await
    }

    async fn carry_out(
        &self,
        id: &str,
        pace: Pace,
        told: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Operation, Error> {
        self.look_at_the_clock().await?;
        let who = uuid::Uuid::new_v4().simple().to_string();
        let running = [("state", OperationState::Running.as_str().to_owned())];
        let wish = self.broker().write_operation(id, &who, true, &running).await?;
        // Read behind the lease: whoever had it before has written more.
        let mut operation = self.operation(id).await?;
        let is_first = operation.started_at.is_none();
        if is_first {
            let now_ms = self.clock.now_ms();
            operation.started_at = DateTime::from_timestamp_millis(now_ms);
            self.broker().write_operation(id, &who, true, &[("started_ms", now_ms.to_string())]).await?;
        }
        let mut step = Step {
            inspector: self,
            begun: operation.progress(),
            queue_begun: Progress::default(),
            operation,
            who,
            pace,
            told,
            wish,
            since: Instant::now(),
            piece: None,
            is_first,
            archived_before: 0,
            full: None,
        };
        let done = if wish == Wish::Run { step.work().await } else { Ok(()) };
        let Step { operation, who, wish, .. } = step;
        let (state, error) = match (done, wish) {
            (_, Wish::Others | Wish::Over) => return self.operation(id).await,
            (Ok(()), Wish::Run) => (OperationState::Done, None),
            (Ok(()), Wish::Pause) => (OperationState::Paused, None),
            (Ok(()), Wish::Cancel) => (OperationState::Cancelled, None),
            (Err(error), _) if error.is_transient() => return Err(error),
            (Err(error @ (Error::LimitReached { .. } | Error::ArchiveFull { .. })), _) => {
                (OperationState::Stopped, Some(error))
            }
            (Err(error), _) => (OperationState::Failed, Some(error)),
        };
        self.put_down(&operation, &who, state, error.as_ref()).await?;
        self.operation(id).await
    }

    /// Writes that an operation rests or is over, and frees it, unless another process than `who` has it.
    pub(super) async fn put_down(
        &self,
        operation: &Operation,
        who: &str,
        state: OperationState,
        error: Option<&Error>,
    ) -> Result<Wish, Error> {
        let mut fields = vec![("state", state.as_str().to_owned())];
        fields.extend(error.map(|error| ("error", error.to_string())));
        if state.is_over() {
            fields.push(("ended_ms", self.clock.now_ms().to_string()));
        }
        let wish = self.broker().write_operation(&operation.id, who, false, &fields).await?;
        if state == OperationState::Paused && wish == Wish::Run {
            // Somebody has let it go on in between.
            let queued = [("state", OperationState::Queued.as_str().to_owned())];
            return Ok(self.broker().write_operation(&operation.id, who, false, &queued).await?);
        }
        if state.is_over() && !matches!(wish, Wish::Others | Wish::Over) {
            let error = error.map(Error::to_string);
            let changed = self.read_operation(&operation.id).await?.changed;
            self.has_acted(operation.audit.as_deref(), Some(changed), error.as_deref()).await;
        }
        Ok(wish)
    }
    /// The operations that wait for somebody to begin or go on with them. One that a process has until now is among them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        // The oldest first. All of them: one that keeps to a rate is soon behind many that are over.
        let ids: Vec<String> = self.redis.command("ZRANGE", (OPERATIONS, 0, -1)).await?;
        let mut connection = self.redis.pooled().await?;
        let mut open = Vec::new();
        for ids in ids.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for id in ids {
                look.cmd("HGET").arg(keys::operation(id)).arg("state");
            }
            let states: Vec<Option<String>> = connection.pipeline("HGET", &look).await?;
            let states = states.iter().map(|state| state.as_deref().and_then(OperationState::from_name));
            let is_open = |state| matches!(state, Some(OperationState::Queued | OperationState::Running));
            open.extend(ids.iter().zip(states).filter(|(_, state)| is_open(*state)).map(|(id, _)| id));
        }
        drop(connection);
        let mut operations = Vec::new();
        for id in open {
            match self.operation(id).await {
                Ok(operation) => operations.push(operation),
                Err(Error::OperationNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(operations)
    }
}

/// An operation at work.
pub(super) struct Step<'a> {
    pub(super) inspector: &'a Inspector,
    pub(super) operation: Operation,
    who: String,
    pace: Pace,
    told: &'a mut (dyn FnMut(Progress) + Send),
    wish: Wish,
    since: Instant,
    /// What it had come to when this process began, and when it began with the present queue.
    begun: Progress,
    queue_begun: Progress,
    /// The list of the bin that is being filled, and the field that tells of it.
    piece: Option<(String, u64)>,
    /// Whether no other process has begun it.
    is_first: bool,
    /// How many tasks the archive of this queue has got since the operation was begun.
    archived_before: u64,
    /// That the archive of a queue has no room for what was archived when it was deleted.
    pub(super) full: Option<Error>,
}

impl Step<'_> {
    async fn work(&mut self) -> Result<(), Error> {
        let spec = self.operation.spec.clone();
        // What was looked at of a queue that is begun anew is looked at again.
        let [looked_at, of, skipped] = self.operation.before;
        (self.begun.looked_at, self.begun.of) = (looked_at, of);
        if spec.operation.is_some() {
            // What could not come back, while what came back is no longer there.
            let so_far = &mut self.begun.so_far;
            (so_far.matched, so_far.skipped) = (so_far.changed + skipped, skipped);
        }
        for (at, queue) in spec.queues.iter().enumerate().skip(self.operation.queues_done) {
            self.queue_begun = self.begun;
            self.piece = None;
            let may_be_begun = !self.is_first && at == self.operation.queues_done;
            self.archived_before = match spec.action {
                Work::Archive if may_be_begun => self.archived_since_it_began(queue).await?,
                _ => 0,
            };
            match spec.action.verb() {
                None => self.restore(queue, spec.operation.as_deref().unwrap_or_default(), &spec.ids).await?,
                Some(verb) if !spec.ids.is_empty() => self.change_ids(queue, verb, &spec.ids).await?,
                Some(verb) => {
                    let (mut filter, states) = spec.selection(verb)?;
                    // What has run for it and failed again is not run once more, which another process knows by nothing else; and
                    // one that takes its time runs what was there when it began.
                    if verb == Verb::Run && (spec.rate.is_some() || !self.is_first) {
                        let began = self.operation.started_at.map_or(0, |at| at.timestamp());
                        filter = filter.ended_by(UnixSecond(began));
                    }
                    let inspector = self.inspector;
                    inspector.change_in(queue, &filter, &states, verb, self).await?;
                }
            }
            if self.wish != Wish::Run {
                return Ok(());
            }
            let Progress { looked_at, of, so_far } = self.begun;
            let before = format!("{looked_at} {of} {}", so_far.skipped);
            let fields = [("queues_done", (at + 1).to_string()), ("before", before)];
            self.wish = self.inspector.broker().write_operation(&self.operation.id, &self.who, true, &fields).await?;
            if self.wish != Wish::Run {
                return Ok(());
            }
        }
        self.full.take().map_or(Ok(()), Err)
    }

    /// Whoever was at it before may have died before it wrote down what it did; and what others have archived since takes the
    /// place of ours as well.
    async fn archived_since_it_began(&mut self, queue: &str) -> Result<u64, Error> {
        let began = self.operation.started_at.map_or(0, |at| at.timestamp());
        Ok(self.inspector.redis.command("ZCOUNT", (QueueKeys::new(queue).archived(), began, "+inf")).await?)
    }

    /// Tasks that are named one by one. Another process goes on behind those that were looked at.
    async fn change_ids(&mut self, queue: &str, verb: Verb, ids: &[String]) -> Result<(), Error> {
        let looked_at = self.operation.looked_at.min(ids.len() as u64);
        let mut progress = Progress { looked_at, of: ids.len() as u64, ..Progress::default() };
        for ids in ids[looked_at as usize..].chunks(IDS_AT_ONCE) {
            for id in ids {
                match self.room(progress, 1).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    Err(error) => {
                        self.go_on(progress).await?;
                        return Err(error);
                    }
                }
                let is_changed = if verb == Verb::Delete {
                    let (broker, inspector) = (self.inspector.broker(), self.inspector);
                    let from = if is_member(id.as_bytes()) { broker.state_of(queue, id).await? } else { None };
                    let is_done = self.delete(&broker, queue, Seen::Anywhere, &[id.as_bytes()]).await?[0].is_done();
                    if is_done {
                        inspector.tell_batches(verb, from, [id.as_bytes()]).await;
                    }
                    is_done
                } else {
                    match self.change(verb, queue, id).await {
                        Ok(is_changed) => is_changed,
                        Err(error @ (Error::Redis(_) | Error::QueueNotFound(_))) => return Err(error),
                        Err(_) => false,
                    }
                };
                let so_far = &mut progress.so_far;
                so_far.matched += 1;
                *(if is_changed { &mut so_far.changed } else { &mut so_far.skipped }) += 1;
                progress.looked_at += 1;
            }
            if !self.go_on(progress).await? {
                break;
            }
        }
        Ok(())
    }

    async fn change(&mut self, verb: Verb, queue: &str, id: &str) -> Result<bool, Error> {
        // Servers hear of any id, whatever its queue: of those alone that are in this one.
        if verb == Verb::Interrupt && self.inspector.task(queue, id).await?.state != TaskState::Active {
            return Ok(false);
        }
        self.inspector.change_task(verb, queue, id, &self.operation.actor).await
    }

    /// Writes down how far it is, and hears whether it is to go on.
    async fn write(&mut self, progress: Progress, more: Option<(&'static str, String)>) -> Result<(), Error> {
        let before = self.queue_begun;
        let (done, done_before) = (progress.so_far, before.so_far);
        let so_far = Changed {
            matched: done_before.matched + done.matched,
            changed: done_before.changed + done.changed,
            skipped: done_before.skipped + done.skipped,
            trimmed: done_before.trimmed.saturating_add(done.trimmed),
        };
        let looked_at = before.looked_at + progress.looked_at;
        let now = Progress { looked_at, of: before.of.saturating_add(progress.of), so_far };
        self.begun = now;
        (self.told)(now);
        let fields = [
            ("looked_at", now.looked_at),
            ("of", now.of),
            ("matched", so_far.matched),
            ("changed", so_far.changed),
            ("skipped", so_far.skipped),
            ("trimmed", so_far.trimmed),
        ];
        let fields = fields.map(|(name, number)| (name, number.to_string())).into_iter().chain(more);
        // Once more: a failover may have lost it, and what is in the bin since would not be found.
        let piece = self.piece.as_ref().map(|(field, piece)| (&**field, piece.to_string()));
        let fields: Vec<_> = fields.chain(piece).collect();
        self.wish = self.inspector.broker().write_operation(&self.operation.id, &self.who, true, &fields).await?;
        Ok(())
    }

    /// The next list of the bin. It is written down before anything is in it, so that it is found whatever becomes of this process.
    async fn begin_piece(&mut self, queue: &str) -> Result<u64, Error> {
        let piece = match &self.piece {
            Some((_, piece)) => piece + 1,
            // One that another process had begun may have room yet.
            None => self.operation.pieces.get(queue).copied().unwrap_or(0),
        };
        let field = format!("{PIECE}{queue}");
        let written = [(&*field, piece.to_string())];
        self.wish = self.inspector.broker().write_operation(&self.operation.id, &self.who, true, &written).await?;
        self.piece = Some((field, piece));
        self.operation.pieces.insert(queue.to_owned(), piece);
        Ok(piece)
    }
}

impl Drive for Step<'_> {
    fn by(&self) -> &str {
        &self.operation.actor
    }

    async fn go_on(&mut self, progress: Progress) -> Result<bool, Error> {
        self.write(progress, None).await?;
        if self.wish == Wish::Run && self.pace == Pace::Gentle {
            sleep((self.since.elapsed() * PAUSE_FACTOR).min(MAX_PAUSE)).await;
        }
        self.since = Instant::now();
        Ok(self.wish == Wish::Run)
    }

    fn takes_its_time(&self) -> bool {
        self.operation.spec.rate.is_some()
    }

    async fn room(&mut self, progress: Progress, wanted: usize) -> Result<usize, Error> {
        let mut room = wanted;
        if self.operation.spec.action == Work::Delete && self.operation.spec.bin {
            room = room.min(BIN_BATCH);
        }
        if let Some(at_most) = self.operation.spec.at_most {
            let left = at_most.saturating_sub(self.queue_begun.so_far.changed + progress.so_far.changed);
            if left == 0 {
                return Err(Error::LimitReached { at_most });
            }
            room = room.min(usize::try_from(left).unwrap_or(room));
        }
        let Some(rate) = self.operation.spec.rate else { return Ok(room) };
        room = room.min(rate.together());
        loop {
            self.inspector.look_at_the_clock().await?;
            let now_ms = self.inspector.clock.now_ms();
            let next_ms = &mut self.operation.next_ms;
            let wait_ms = next_ms.saturating_sub(now_ms);
            // It is written before they are changed: whoever goes on after a death is never faster than the rate.
            if wait_ms <= 0 {
                *next_ms = (*next_ms).max(now_ms - LATE_MS).saturating_add(rate.time_of(room as u64));
            }
            let next = next_ms.to_string();
            self.write(progress, Some(("next_ms", next))).await?;
            self.since = Instant::now();
            if self.wish != Wish::Run {
                return Ok(0);
            }
            if wait_ms <= 0 {
                return Ok(room);
            }
            sleep(Duration::from_millis(wait_ms.unsigned_abs()).min(LISTEN_EVERY)).await;
        }
    }

    fn archived_before(&self) -> u64 {
        self.archived_before
    }

    async fn delete(
        &mut self,
        broker: &Broker,
        queue: &str,
        seen: Seen<'_>,
        ids: &[&[u8]],
    ) -> Result<Vec<Change>, Error> {
        if !self.operation.spec.bin {
            return Ok(broker.delete_tasks(queue, seen, ids).await?);
        }
        self.inspector.look_at_the_clock().await?;
        let now_ms = self.inspector.clock.now_ms();
        let mut piece = match &self.piece {
            Some((_, piece)) => *piece,
            None => self.begin_piece(queue).await?,
        };
        loop {
            if matches!(self.wish, Wish::Others | Wish::Over) {
                // What is not written down is not binned. The next look ends this.
                return Ok(vec![Change::MovedOn; ids.len()]);
            }
            let bin = Bin::new(&self.operation.id, piece);
            if let Some(changes) = broker.bin_tasks(queue, seen, ids, bin, now_ms).await? {
                return Ok(changes);
            }
            debug_assert!(ids.len() <= BIN_PIECE);
            piece = self.begin_piece(queue).await?;
        }
    }
}
