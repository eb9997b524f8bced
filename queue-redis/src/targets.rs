//! The duty that looks after queues whose tasks are for certain servers, while none of these is alive.
//!
//! It notes since when that is so. Meanwhile it does for the queue what its servers would: it takes tasks from those that went
//! silent, and makes pending what is due. Tasks that have a fallback go to the plain queue when their time is over, and a
//! queue that has had nothing for an hour is removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::crash::{DEFAULT_LIMIT, step_after_crash};
use queue_core::flow::is_member;
use queue_core::limits::{
    QUEUE_LISTED_FOR, RECOVERY_MARGIN_SECS, RENEWED_WITHIN, SHORT_BATCH, TARGET_INTERVAL, TARGET_INTERVAL_GONE,
    TARGET_KEPT_SECS,
};
use queue_core::queue_name::{Family, QueueName, base_of};
use queue_core::target::read_fallback;
use queue_core::{Clock, RetryPolicy, TaskMessage, TaskState};

use crate::broker::targets::TARGETS;
use crate::broker::{Broker, ExpiredLease, MoveVerdict, Recovery, Verdict};
use crate::error::Error;
use crate::leader::Duty;
use crate::log::{info, warn};

/// How many queues without servers one look deals with; the next look goes on.
const QUEUES_PER_LOOK: usize = 50;
/// The shortest pause between two looks at all of them.
const LOOKS_APART: Duration = Duration::from_secs(5);
/// How many calls of one kind a look makes for a queue.
const CALLS: usize = 10;

pub(crate) struct TendTargets {
    broker: Broker,
    clock: Arc<dyn Clock>,
    /// Where the next look goes on. Whoever leads next begins anew, which only takes longer.
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// When all was looked at last, as a Unix second.
    looked: i64,
    /// The last of the queues that the look before has dealt with.
    after: Option<String>,
    /// How many pending tasks of a queue, the oldest first, have been looked at.
    pending: HashMap<String, usize>,
    heard: Heard,
}

/// Since when Redis has been asked again and again, as Unix seconds. While it was away, nobody could renew a lease or say that he is alive:
/// those that were cut off are to be heard first.
#[derive(Default)]
struct Heard {
    since: i64,
    last: i64,
}

impl Heard {
    /// Notes that Redis has answered. Whether whoever is alive has had the time to renew his leases.
    fn hear(&mut self, now: i64) -> bool {
        // Shorter than it takes a lease to end and to be left alone after that.
        if !(0..=RECOVERY_MARGIN_SECS).contains(&(now - self.last)) {
            self.since = now;
        }
        self.last = now;
        now - self.since >= RENEWED_WITHIN.as_secs().cast_signed()
    }
}

impl Duty for TendTargets {
    fn name(&self) -> &'static str {
        TARGETS
    }

    fn look<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        if queue.is_empty() { self.look_at_all().boxed() } else { self.look_again(queue).boxed() }
    }
}

impl TendTargets {
    pub(crate) fn new(broker: Broker, clock: Arc<dyn Clock>) -> Self {
        Self { broker, clock, places: Mutex::default() }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_at_all(&self) -> Result<Option<Duration>, Error> {
        let now = self.clock.now_secs();
        // Each client that lists such a queue asks.
        if (0..LOOKS_APART.as_secs().cast_signed()).contains(&(now - self.places().looked)) {
            return Ok(Some(LOOKS_APART));
        }
        let mut queues = self.broker.queue_names().await?;
        queues.retain(|queue| QueueName::parse(queue).family.as_ref().is_some_and(Family::is_target));
        if queues.is_empty() {
            *self.places() = Places::default();
            return Ok(None);
        }
        queues.sort_unstable();
        let served = self.broker.served_queues().await?;
        let all_heard = self.places().heard.hear(now);
        let names: Vec<&str> = queues.iter().map(String::as_str).collect();
        let noted = self.broker.gone_since(&names).await?;
        let mut gone = Vec::new();
        for (queue, noted) in names.into_iter().zip(noted) {
            if !served.contains(queue) {
                gone.push((queue, noted.filter(|since| *since <= now)));
            } else if noted.is_some() {
                self.broker.note_gone(queue, None).await?;
            }
        }
        if gone.is_empty() {
            self.places().looked = now;
            return Ok(Some(TARGET_INTERVAL));
        }
        let after = self.places().after.take();
        let begin = after.map_or(0, |after| gone.partition_point(|(queue, _)| **queue <= *after));
        let begin = if begin < gone.len() { begin } else { 0 };
        let (mut goes_on, end) = (false, gone.len().min(begin + QUEUES_PER_LOOK));
        let mut refused = Ok(());
        for (queue, since) in &gone[begin..end] {
            // What is wrong with one is not in the way of those behind it.
            match self.tend(queue, (*since, now), all_heard).await {
                Ok(more) => goes_on |= more,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => refused = Err(error),
            }
            self.places().after = Some((*queue).to_owned());
        }
        if end == gone.len() {
            self.places().after = None;
        }
        goes_on |= end < gone.len();
        let next = if goes_on { Duration::from_secs(1) } else { TARGET_INTERVAL_GONE };
        self.places().looked = if goes_on { 0 } else { now };
        refused.map(|()| Some(next))
    }

    /// Does what is to be done for a queue without servers. Returns whether there is more.
    async fn tend(&self, queue: &str, (since, now): (Option<i64>, i64), all_heard: bool) -> Result<bool, Error> {
        let since = since.unwrap_or(now);
        self.broker.note_gone(queue, Some(since)).await?;
        let gone_for = Duration::from_secs(now.saturating_sub(since).unsigned_abs());
        let mut goes_on = all_heard && self.recover(queue, now).await?;
        for from in [TaskState::Scheduled, TaskState::Retry] {
            for _ in 0..CALLS {
                let forwarded = self.broker.forward(queue, from, self.clock.now_ns(), 0).await?;
                if forwarded.moved < SHORT_BATCH as u64 {
                    break;
                }
            }
        }
        goes_on |= self.fall_back(queue, gone_for).await?;
        if gone_for >= Duration::from_secs(TARGET_KEPT_SECS.unsigned_abs()) {
            self.remove(queue, now).await?;
        }
        Ok(goes_on)
    }

    /// Takes tasks from servers that went silent: none of those that are left would. Returns whether there are more.
    async fn recover(&self, queue: &str, now: i64) -> Result<bool, Error> {
        let expired = self.broker.list_expired(queue, now - RECOVERY_MARGIN_SECS, 0).await?;
        let more = expired.more;
        let recoveries: Vec<Recovery> = expired.leases.into_iter().map(|lease| decide(lease, now)).collect();
        let mut applied = 0;
        for batch in recoveries.chunks(SHORT_BATCH) {
            let verdicts = self.broker.recover(queue, batch, 0, now).await?;
            applied += verdicts.into_iter().filter(|verdict| *verdict == Verdict::Applied).count();
        }
        Ok(more && applied > 0)
    }

    /// Puts tasks into the plain queue that are to wait no longer. Returns whether there are others to be looked at.
    async fn fall_back(&self, queue: &str, gone_for: Duration) -> Result<bool, Error> {
        // Whoever has paused it wants none of its tasks to run.
        if self.broker.is_paused(queue).await? {
            return Ok(false);
        }
        let mut skip = self.places().pending.remove(queue).unwrap_or(0);
        let mut moved = 0;
        let mut more = true;
        for _ in 0..CALLS {
            let some = self.broker.list_fallbacks(queue, skip).await?;
            skip += some.seen;
            for (id, fallback) in &some.found {
                if read_fallback(fallback).is_none_or(|fallback| fallback > gone_for) || is_member(id) {
                    continue;
                }
                if self.give_to_all(queue, id).await? {
                    (moved, skip) = (moved + 1, skip.saturating_sub(1));
                }
            }
            more = some.seen == queue_core::limits::MAX_BATCH;
            if !more {
                break;
            }
        }
        if more {
            self.places().pending.insert(queue.to_owned(), skip);
        }
        if moved > 0 {
            info!(
                queue,
                tasks = moved,
                "no server that may run these tasks is alive; they are for all servers of the queue now"
            );
        }
        Ok(more)
    }

    async fn give_to_all(&self, queue: &str, id: &[u8]) -> Result<bool, Error> {
        // One that is to be canceled for good is archived here, where the record says that it is.
        if let Ok(id) = std::str::from_utf8(id)
            && self.broker.cancel_request(queue, id).await?.is_some()
        {
            return Ok(false);
        }
        let Some(raw) = self.broker.message_of(queue, id).await? else { return Ok(false) };
        let Ok(message) = TaskMessage::from_bytes(raw.clone()) else { return Ok(false) };
        let base = base_of(queue);
        self.broker.publish_queue(base).await?;
        let verdict = self.broker.move_task((queue, base), &raw, message, self.clock.now_ns()).await?;
        if verdict == MoveVerdict::IdTaken {
            let id = String::from_utf8_lossy(id);
            warn!(queue, task = &*id, "the plain queue has a task of this id, so that this one waits for its servers");
        }
        Ok(verdict == MoveVerdict::Moved)
    }

    /// Removes a queue that has nothing. A client that lists a queue once a minute may put a task there all the same: so somebody
    /// looks again.
    async fn remove(&self, queue: &str, now: i64) -> Result<(), Error> {
        self.broker.delete_expired_completed(queue, now).await?;
        if !self.broker.is_bare(queue).await? {
            return Ok(());
        }
        let listed_for = i64::try_from(QUEUE_LISTED_FOR.as_millis()).unwrap_or(i64::MAX / 2);
        let again = self.clock.now_ms().saturating_add(2 * listed_for);
        self.broker.ask_for_duty(TARGETS, queue, again).await?;
        self.broker.unlist_queue(queue).await?;
        if self.broker.finish_removal(queue).await? {
            info!(
                queue,
                "the queue is removed: it was empty, and no server that may run its tasks was alive for an hour"
            );
        } else {
            self.broker.publish_queue(queue).await?;
        }
        Ok(())
    }

    /// Lists a queue again that was removed and has got a task since.
    async fn look_again(&self, queue: &str) -> Result<Option<Duration>, Error> {
        if !self.broker.is_bare(queue).await? {
            self.broker.publish_queue(queue).await?;
        }
        Ok(None)
    }
}

/// As a recoverer does that has been told nothing else.
fn decide(lease: ExpiredLease, now: i64) -> Recovery {
    let Some(message) = &lease.message else { return Recovery::as_it_is(lease) };
    let crashes = lease.crashes.clone().and(&lease.owner, lease.ended_at());
    let step = step_after_crash(message, &crashes, DEFAULT_LIMIT, now, &RetryPolicy::Asynq);
    Recovery::new(lease, step, crashes, now)
}
