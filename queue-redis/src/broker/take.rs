//! Tasks for a worker: `dequeue.lua`, `requeue_run.lua`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use queue_core::keys::QueueKeys;
use queue_core::limits::{LEASE_SECS, RECOVERY_MARGIN_SECS};
use queue_core::wire::{TaskMessage, WireError};
use redis::{Cmd, Value};

use super::{Broker, MAX_BATCH, MAX_TAKE_BYTES};
use crate::error::Error;
use crate::script::{DEQUEUE, DEQUEUE_LANES, REQUEUE_RUN, Script, Word};

/// The right to report on one run of a task; clones are the same run.
///
/// It knows the expiry of the lease, which no other run of the task has, and the token that the take wrote
/// next to the task. A report is refused when they no longer fit, because somebody else has recovered
/// the task.
#[derive(Debug, Clone)]
pub struct Run {
    /// Queue name.
    pub queue: Arc<str>,
    /// Task id, as it stands in the list. What is not UTF-8 in it is replaced.
    pub id: String,
    /// The id byte for byte, where it is not UTF-8.
    raw_id: Option<Bytes>,
    pub(super) token: Arc<str>,
    /// The lanes it runs in, with blanks between; none in a queue without limits.
    lanes: Option<Arc<[u8]>>,
    // A std mutex: held to copy or change a few numbers.
    expiries: Arc<Mutex<Expiries>>,
}

/// What is known of the end of a lease, in Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expiries {
    confirmed: i64,
    /// Set by renewals that were not answered, or not yet.
    attempted: Vec<i64>,
}

/// What a renewal may have made of a lease counts as ours if it is less than this many seconds after the end
/// that was confirmed last. A worker of this project that has the task since is told apart by the token,
/// which reports carry as long as a renewal is unanswered; so is one of Go's, if a recoverer of this project was
/// first, which removes the token. Go's recoverers leave it; but they take the task 30 s after that end at the
/// earliest, for 30 s. An owner gives up before it gets that far.
pub(super) const OURS_FOR: i64 = RECOVERY_MARGIN_SECS + LEASE_SECS;

impl Run {
    pub(super) fn new(queue: Arc<str>, id: Vec<u8>, token: Arc<str>, expires: i64) -> Self {
        let expiries = Expiries { confirmed: expires, attempted: Vec::new() };
        let (id, raw_id) = match String::from_utf8(id) {
            Ok(id) => (id, None),
            Err(error) => {
                let raw = Bytes::from(error.into_bytes());
                (String::from_utf8_lossy(&raw).into_owned(), Some(raw))
            }
        };
        Self { queue, id, raw_id, token, lanes: None, expiries: Arc::new(Mutex::new(expiries)) }
    }

    /// The lanes it runs in, with blanks between: one for each limit that its task falls under.
    pub fn lanes(&self) -> &[u8] {
        self.lanes.as_deref().unwrap_or_default()
    }

    /// The id as it stands in the list.
    pub(super) fn raw_id(&self) -> &[u8] {
        self.raw_id.as_deref().unwrap_or(self.id.as_bytes())
    }

    /// The key of the task.
    pub(super) fn task_key(&self, keys: &QueueKeys) -> Vec<u8> {
        [keys.task_prefix().as_bytes(), self.raw_id()].concat()
    }

    /// Whether this is the task of a message. An id that is not UTF-8 cannot be one of a message (R9).
    pub(super) fn is_of(&self, message: &TaskMessage) -> bool {
        self.raw_id.is_none() && message.id == self.id && message.queue == *self.queue
    }

    fn lock(&self) -> MutexGuard<'_, Expiries> {
        self.expiries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Unix second until which the lease is known to last.
    pub fn leased_until(&self) -> i64 {
        self.lock().confirmed
    }

    /// A renewal is under way, and may be applied without an answer.
    pub(super) fn renewing(&self, expires: i64) {
        let mut expiries = self.lock();
        if expires < expiries.confirmed + OURS_FOR && !expiries.attempted.contains(&expires) {
            expiries.attempted.push(expires);
        }
    }

    /// A renewal was applied. It never shortens a lease.
    pub(super) fn renewed(&self, expires: i64) {
        let mut expiries = self.lock();
        expiries.confirmed = expiries.confirmed.max(expires);
        expiries.attempted.clear();
    }

    /// Whether a renewal was not answered, or not yet: then the token has to help.
    pub(super) fn is_uncertain(&self) -> bool {
        !self.lock().attempted.is_empty()
    }

    pub(super) fn known(&self) -> Expiries {
        self.lock().clone()
    }

    /// Adds the expiries that the lease may have, as `lua/lib/owns.lua` reads them.
    pub(super) fn with_expiries(&self, call: &mut Cmd) {
        let expiries = self.lock();
        if expiries.attempted.is_empty() {
            call.arg(expiries.confirmed);
            return;
        }
        let mut list = format!(" {} ", expiries.confirmed);
        for attempt in &expiries.attempted {
            list.push_str(&attempt.to_string());
            list.push(' ');
        }
        call.arg(list);
    }
}

/// A task in a worker's hands.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The task.
    pub message: TaskMessage,
    /// The right to report on it.
    pub run: Run,
    /// Since when it was pending, in Unix nanoseconds by the clock of whoever made it so. `None` when
    /// nobody asked ([`Broker::timed`]), or it is not known.
    pub pending_since_ns: Option<i64>,
}

/// One id that a dequeue took from the list.
#[derive(Debug)]
pub enum Taken {
    /// A task, now active and leased.
    Task(Delivery),
    /// An active task whose message cannot be read, or names another id or queue than those it is stored
    /// under. It belongs into the archive, with its message as it is.
    Poisoned(Run, Bytes, PoisonReason),
    /// An id without a task; it was dropped.
    Ghost(String),
}

impl Taken {
    /// Bytes of its message.
    fn bytes(&self) -> usize {
        match self {
            Self::Task(delivery) => delivery.message.encoded_len(),
            Self::Poisoned(_, raw, _) => raw.len(),
            Self::Ghost(_) => 0,
        }
    }

    /// Whether these are as many bytes as a take asks for, so that there may be more of them.
    pub fn fill_an_answer(tasks: &[Self]) -> bool {
        tasks.iter().map(Self::bytes).sum::<usize>() >= MAX_TAKE_BYTES
    }
}

/// Why a task cannot be handed to anybody.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoisonReason {
    /// The message cannot be decoded.
    #[error(transparent)]
    Unreadable(#[from] WireError),
    /// The message is that of another task.
    #[error("the message says it is task {id:?} of queue {queue:?}")]
    Misplaced {
        /// The id in the message.
        id: String,
        /// The queue in the message.
        queue: String,
    },
}

/// The answer to a dequeue.
#[derive(Debug)]
pub enum Dequeued {
    /// The queue is paused.
    Paused,
    /// What was taken, oldest first; empty when there was nothing.
    Tasks(Vec<Taken>),
    /// The same of a queue that has [limits](queue_core::limit).
    Limited {
        /// What was taken.
        tasks: Vec<Taken>,
        /// Whether there is more.
        more: More,
        /// The Unix millisecond by Redis' clock at which to look again; `None`: when something changes.
        look_at_ms: Option<i64>,
        /// The one at which this was said, by the same clock.
        now_ms: i64,
        /// Whether a [fair](queue_core::limit::Limit::fair) limit has not seen all that is pending
        /// ([`Broker::park_unsorted`]).
        is_unsorted: bool,
    },
}

/// Whether a queue with limits has more to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// Perhaps, now.
    Now,
    /// Not before something changes.
    Nothing,
    /// A limit for all of the queue lets nothing start.
    Shut,
}

impl Dequeued {
    /// What was taken; nothing from a paused queue.
    pub fn into_tasks(self) -> Vec<Taken> {
        match self {
            Self::Paused => Vec::new(),
            Self::Tasks(tasks) | Self::Limited { tasks, .. } => tasks,
        }
    }
}

/// Which tasks [`Broker::dequeue_matching`] takes, and among which it looks.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    /// Whole task types.
    pub types: Vec<String>,
    /// Beginnings of task types.
    pub prefixes: Vec<String>,
    /// The ids of the tasks to look at, at most [`MAX_BATCH`]; what is to be taken first comes first.
    pub ids: Vec<Bytes>,
    /// Whether they are near the young end of the list: it is searched from there.
    pub are_young: bool,
}

/// What became of one of the ids of a [`Matching`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matched {
    /// The task is of one of the types and was taken.
    Taken,
    /// It is none of these types, and stays where it is; or it is no task at all.
    Left,
    /// It is not in the list any more.
    Gone,
}

/// The bit by which a take says that pending tasks are left for a fair limit to park.
const UNSORTED: i64 = 4;

/// Why a server that chooses by type takes nothing.
const NO_LEAVING: &str =
    "the queue has limits, and nothing is taken from it by a server that leaves tasks of other types where they are";

impl Broker {
    /// Takes up to `count` tasks (at most [`MAX_BATCH`], and none after those that reach [`MAX_TAKE_BYTES`]), under
    /// leases until `expires` (Unix seconds).
    /// `token` names this call; it must differ from that of every other.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. After an [ambiguous](Error::is_ambiguous) error the tasks
    /// may be active without anybody working on them: give `token` and `expires` to [`requeue_run`](Self::requeue_run).
    ///
    /// # Cancel safety
    /// Not cancel safe, for the same reason.
    pub async fn dequeue(
        &self,
        queue: &Arc<str>,
        count: usize,
        token: &Arc<str>,
        expires: i64,
    ) -> Result<Dequeued, Error> {
        let take = Take { queue, token, expires };
        loop {
            let (script, call) = self.take_call(count, take);
            let reply = self.take_in_time(script, &call).await?;
            if let Some((dequeued, _)) = self.taken(reply, take)? {
                return Ok(dequeued);
            }
        }
    }

    /// Takes one task on a connection of its own, and waits so long for it: one that is too large for the way to come
    /// within the response timeout. Nothing else waits behind it. The lease should be longer by as much. With `matching`,
    /// as [`dequeue_matching`](Self::dequeue_matching) takes it.
    ///
    /// # Errors
    /// As [`dequeue`](Self::dequeue).
    ///
    /// # Cancel safety
    /// As [`dequeue`](Self::dequeue).
    pub async fn dequeue_within(
        &self,
        patience: Duration,
        queue: &Arc<str>,
        token: &Arc<str>,
        expires: i64,
        matching: Option<&Matching>,
    ) -> Result<Dequeued, Error> {
        let take = Take { queue, token, expires };
        let mut connection = self.redis.pooled().await?;
        if let Some(matching) = matching {
            let call = self.matching_call(1, take, matching);
            let reply = connection.run_within(patience, &DEQUEUE, &call).await?;
            return Ok(self.matched(reply, take)?.0);
        }
        loop {
            let (script, call) = self.take_call(1, take);
            let reply = connection.run_within(patience, script, &call).await?;
            if let Some((dequeued, _)) = self.taken(reply, take)? {
                return Ok(dequeued);
            }
        }
    }

    /// The call that takes from this queue, by what is known of its limits.
    fn take_call(&self, count: usize, take: Take<'_>) -> (&'static Script, Cmd) {
        if self.has_limits(take.queue) {
            (&DEQUEUE_LANES, self.dequeue_lanes_call(count.max(1), take))
        } else {
            (&DEQUEUE, self.dequeue_call(count, take))
        }
    }

    /// Parks the next pending tasks of a queue that has a [fair](queue_core::limit::Limit::fair) limit, up to
    /// [`LANE_WINDOW`](queue_core::limits::LANE_WINDOW) of them, so that the next take finds those of each key;
    /// returns whether there are more. Takes nothing.
    ///
    /// # Errors
    /// As [`dequeue`](Self::dequeue).
    pub async fn park_unsorted(&self, queue: &Arc<str>) -> Result<bool, Error> {
        let token: Arc<str> = Arc::default();
        let take = Take { queue, token: &token, expires: 0 };
        let reply = self.redis.run(&DEQUEUE_LANES, &self.dequeue_lanes_call(0, take)).await?;
        let taken = self.taken(reply, take)?;
        Ok(matches!(taken, Some((Dequeued::Limited { is_unsorted: true, .. }, _))))
    }

    fn dequeue_lanes_call(&self, count: usize, Take { queue, token, expires }: Take<'_>) -> Cmd {
        let keys = QueueKeys::new(queue);
        let mut call = DEQUEUE_LANES.call(11);
        call.arg(keys.paused()).arg(keys.pending()).arg(keys.active()).arg(keys.lease()).arg(keys.scheduled());
        call.arg(keys.rules()).arg(keys.lanes_waiting()).arg(keys.lane_slots()).arg(keys.lanes_due());
        call.arg(keys.lane_changes()).arg(keys.limit_stats());
        call.arg(keys.prefix()).arg(expires).arg(&token[..]).arg(count);
        call.arg(i32::from(self.timed)).arg(MAX_TAKE_BYTES);
        call
    }

    fn dequeue_call(&self, count: usize, Take { queue, token, expires }: Take<'_>) -> Cmd {
        let keys = QueueKeys::new(queue);
        let mut call = DEQUEUE.call(5);
        call.arg(keys.paused()).arg(keys.pending()).arg(keys.active()).arg(keys.lease()).arg(keys.rules());
        call.arg(keys.task_prefix()).arg(expires).arg(&token[..]).arg(count.clamp(1, MAX_BATCH));
        call.arg(i32::from(self.timed)).arg(MAX_TAKE_BYTES);
        call
    }

    /// Takes up to `count` tasks of certain types and leaves the others where they are. Also returns what
    /// became of the ids, of the first of them when so many tasks were found before the end.
    ///
    /// # Errors
    /// As [`dequeue`](Self::dequeue).
    pub async fn dequeue_matching(
        &self,
        queue: &Arc<str>,
        count: usize,
        token: &Arc<str>,
        expires: i64,
        matching: &Matching,
    ) -> Result<(Dequeued, Vec<Matched>), Error> {
        let take = Take { queue, token, expires };
        self.matched(self.take_in_time(&DEQUEUE, &self.matching_call(count, take, matching)).await?, take)
    }

    /// Waits no longer than the response timeout in all: the leases that a take begins are running.
    async fn take_in_time(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        self.redis.run_within(self.redis.response_timeout(), script, call).await
    }

    fn matching_call(&self, count: usize, take: Take<'_>, matching: &Matching) -> Cmd {
        let mut call = self.dequeue_call(count, take);
        let ids = &matching.ids[..matching.ids.len().min(MAX_BATCH)];
        call.arg(if matching.are_young { 1 } else { -1 }).arg(ids.len()).arg(matching.types.len());
        for id in ids {
            call.arg(&id[..]);
        }
        for pattern in matching.types.iter().chain(&matching.prefixes) {
            call.arg(pattern);
        }
        call
    }

    fn matched(&self, reply: Value, take: Take<'_>) -> Result<(Dequeued, Vec<Matched>), Error> {
        self.taken(reply, take)?.ok_or_else(|| Error::unexpected(DEQUEUE.name, &NO_LEAVING))
    }

    /// Requeues the tasks of a dequeue whose answer was lost, named by the token and the expiry that it
    /// was given; returns how many there were.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn requeue_run(&self, queue: &str, token: &str, expires: i64, now_ns: i64) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let (mut skip, mut total) = (0, 0);
        loop {
            let mut call = REQUEUE_RUN.call(3);
            call.arg(keys.active()).arg(keys.lease()).arg(keys.pending());
            call.arg(keys.task_prefix()).arg(token).arg(expires).arg(now_ns).arg(MAX_BATCH).arg(skip);
            let reply = self.redis.run(&REQUEUE_RUN, &call).await?;
            let (seen, count) = match &reply {
                Value::Array(counts) => match counts[..] {
                    [Value::Int(seen), Value::Int(count)] if is_page(seen, count) => (seen, count),
                    _ => return Err(Error::unexpected(REQUEUE_RUN.name, &reply)),
                },
                _ => return Err(Error::unexpected(REQUEUE_RUN.name, &reply)),
            };
            total += u64::try_from(count).unwrap_or(0);
            skip += seen - count;
            if seen < MAX_BATCH as i64 {
                return Ok(total);
            }
        }
    }
}

/// Whether a call can have looked at so many ids and have requeued so many of them.
fn is_page(seen: i64, count: i64) -> bool {
    (0..=MAX_BATCH as i64).contains(&seen) && (0..=seen).contains(&count)
}

/// What the tasks of one call have in common.
#[derive(Clone, Copy)]
struct Take<'a> {
    queue: &'a Arc<str>,
    token: &'a Arc<str>,
    expires: i64,
}

impl Broker {
    /// What was taken, and what became of each task that was looked at; `None` where another script is to be called.
    fn taken(&self, reply: Value, take: Take<'_>) -> Result<Option<(Dequeued, Vec<Matched>)>, Error> {
        let Value::Array(items) = reply else { return Err(Error::unexpected(DEQUEUE.name, &reply)) };
        let unexpected = || Error::unexpected(DEQUEUE.name, &"not what the letters say");
        let mut tasks = Vec::with_capacity(items.len() / 2);
        let mut items = items.into_iter();
        let Some(Value::BulkString(letters)) = items.next() else { return Err(unexpected()) };
        if let Some(word @ (Word::Governed | Word::Free)) = letters.first().and_then(|letter| Word::of(*letter)) {
            self.learn_limits(take.queue, word == Word::Governed);
            return Ok(None);
        }
        let limits = if let [Value::Int(more), Value::Int(look_at), Value::Int(now), ..] = items.as_slice() {
            let limits = (*more, Some(*look_at).filter(|at| *at >= 0), *now);
            items.nth(2);
            Some(limits)
        } else {
            None
        };
        let mut text = || match items.next() {
            Some(Value::BulkString(text)) => Ok(text),
            _ => Err(unexpected()),
        };
        let mut matched = Vec::with_capacity(letters.len());
        for letter in letters {
            matched.push(match Word::of(letter).ok_or_else(unexpected)? {
                Word::Paused => return Ok(Some((Dequeued::Paused, Vec::new()))),
                Word::Applied => {
                    let mut run = Run::new(take.queue.clone(), text()?, take.token.clone(), take.expires);
                    let raw = text()?.into();
                    let since = if self.timed { unix_ns(&text()?) } else { None };
                    if limits.is_some() {
                        // As they stand in Redis: keys of payloads need not be text.
                        run.lanes = Some(Arc::<[u8]>::from(&text()?[..])).filter(|lanes| !lanes.is_empty());
                    }
                    tasks.push(sort_out(run, raw, since));
                    Matched::Taken
                }
                Word::Remains => {
                    tasks.push(Taken::Ghost(String::from_utf8_lossy(&text()?).into_owned()));
                    Matched::Gone
                }
                Word::Unwanted => Matched::Left,
                Word::Missing => Matched::Gone,
                _ => return Err(unexpected()),
            });
        }
        let dequeued = match limits {
            None => Dequeued::Tasks(tasks),
            Some((more, look_at_ms, now_ms)) => {
                let (more, is_unsorted) = (more & !UNSORTED, more & UNSORTED != 0);
                let more = match more {
                    0 => More::Nothing,
                    1 => More::Now,
                    _ => More::Shut,
                };
                Dequeued::Limited { tasks, more, look_at_ms, now_ms, is_unsorted }
            }
        };
        Ok(Some((dequeued, matched)))
    }
}

/// The time in a reply; an empty one is none.
fn unix_ns(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn sort_out(run: Run, raw: Bytes, pending_since_ns: Option<i64>) -> Taken {
    match TaskMessage::from_bytes(raw.clone()) {
        Ok(message) if run.is_of(&message) => Taken::Task(Delivery { message, run, pending_since_ns }),
        Ok(other) => Taken::Poisoned(run, raw, PoisonReason::Misplaced { id: other.id, queue: other.queue }),
        Err(error) => Taken::Poisoned(run, raw, error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `replies`: the sum of such numbers was a panic.
    #[test]
    fn a_page_has_no_more_ids_than_were_asked_for() {
        for (seen, count) in [(0, 0), (100, 0), (100, 100), (7, 3)] {
            assert!(is_page(seen, count), "{seen} {count}");
        }
        for (seen, count) in [(101, 0), (1, 2), (-1, -1), (i64::MAX, i64::MIN), (i64::MIN, i64::MIN), (5, -1)] {
            assert!(!is_page(seen, count), "{seen} {count}");
        }
    }

    #[test]
    fn an_unanswered_renewal_leaves_both_expiries_possible() {
        let run = Run::new("q".into(), b"id".to_vec(), "token".into(), 130);
        let expiries = |run: &Run| {
            let mut call = Cmd::new();
            run.with_expiries(&mut call);
            call.args_iter()
                .filter_map(crate::script::word)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect::<String>()
        };
        assert_eq!(expiries(&run), "130");
        run.renewing(135);
        assert_eq!(expiries(&run), " 130 135 ");
        run.renewing(189);
        run.renewing(190);
        assert_eq!(expiries(&run), " 130 135 189 ", "190 could be the expiry of a Go worker who recovered the task");
        run.renewed(135);
        assert_eq!((expiries(&run), run.leased_until()), ("135".to_owned(), 135));
        run.renewed(100);
        assert_eq!(run.leased_until(), 135, "a renewal never shortens a lease");
    }
}
