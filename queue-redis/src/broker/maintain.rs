//! What keeps queues moving: `forward.lua`, `list_expired.lua`, `recover.lua`, `delete_expired_completed.lua`.

use std::time::Duration;

use bytes::Bytes;
use queue_core::attempt::Attempt;
use queue_core::crash::Crashes;
use queue_core::exhausted::FollowUp;
use queue_core::flow::MemberOutcome;
use queue_core::keys::QueueKeys;
use queue_core::limits::{ARCHIVE_MAX, ARCHIVE_MAX_AGE_SECS};
use queue_core::unique::UniqueUntil;
use queue_core::{TaskMessage, TaskState};
use redis::Value;

use super::finish::{Verdict, counted, verdict, with_attempt};
use super::{Broker, MAX_BATCH, MAX_BATCH_BYTES, SHORT_BATCH, Search, verdicts};
use crate::error::Error;
use crate::script::{DELETE_EXPIRED_COMPLETED, FORWARD, LIST_EXPIRED, RECOVER};

/// What one call of [`Broker::forward`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// Tasks that became pending, or joined their group.
    pub moved: u64,
    /// Ids without a task that were dropped.
    pub dropped: u64,
    /// Tasks that have to stay where they are, because a key of another type stands where their group
    /// should be. The next call leaves out so many of those that are due, or it meets them again.
    pub stayed: u64,
    /// The Unix second of the next task that is not due yet.
    pub next_due: Option<i64>,
}

/// An active task whose lease has ended.
#[derive(Debug, Clone)]
pub struct ExpiredLease {
    /// Task id. What is not UTF-8 in it is replaced.
    pub id: String,
    pub(super) raw_id: Bytes,
    /// When the lease ended: its score, as Redis printed it.
    pub expiry: String,
    /// The take by which a worker of this project got the task; empty if none did.
    pub owner: String,
    /// The crashes before this one.
    pub crashes: Crashes,
    /// The message as it is stored.
    pub raw: Bytes,
    /// The task; `None` when its message cannot be read, or is that of another task.
    pub message: Option<TaskMessage>,
}

/// What one call of [`Broker::list_expired`] found.
#[derive(Debug, Default)]
pub struct Expired {
    /// The tasks.
    pub leases: Vec<ExpiredLease>,
    /// Ids that had no task and were dropped.
    pub ghosts: Vec<String>,
    /// How many were looked at.
    pub seen: usize,
    /// Whether there may be more.
    pub more: bool,
    /// How many leases of the queue have ended.
    pub ended: u64,
    /// How long the active list is.
    pub active: u64,
    /// The Unix second at which the next lease ends; `None` when there is no other.
    pub next: Option<i64>,
}

/// A look at the heads of scheduled and retry sets.
pub(crate) fn heads_of(sets: &[(&str, TaskState)]) -> redis::Pipeline {
    let mut look = redis::pipe();
    for (queue, state) in sets {
        look.cmd("ZRANGE").arg(due_set(&QueueKeys::new(queue), *state)).arg(0).arg(0).arg("WITHSCORES");
    }
    // A key of another type must not hide the others.
    look.ignore_errors();
    look
}

/// So many sets are looked at at once; of more, those that exist are searched first.
pub(crate) const FEW_SETS: usize = 4;

/// Those of these sets that are there.
pub(crate) fn chosen<'a>(sets: &[(&'a str, TaskState)], there: &[bool]) -> Vec<(&'a str, TaskState)> {
    sets.iter().zip(there).filter(|(_, there)| **there).map(|(set, _)| *set).collect()
}

/// The heads of those sets that are there, in the places of all.
pub(crate) fn spread<T>(heads: Vec<Result<Option<T>, Error>>, there: Vec<bool>) -> Vec<Result<Option<T>, Error>> {
    let mut heads = heads.into_iter();
    there.into_iter().map(|there| if there { heads.next().unwrap_or(Ok(None)) } else { Ok(None) }).collect()
}

/// Members and scores, as one ZRANGE returns them.
pub(crate) type Head = Vec<(Vec<u8>, f64)>;

pub(crate) async fn read_heads(
    redis: &crate::Redis,
    sets: &[(&str, TaskState)],
    heads: Vec<redis::RedisResult<Head>>,
) -> Vec<Result<Option<i64>, Error>> {
    let mut read = Vec::with_capacity(heads.len());
    for (head, (queue, state)) in heads.into_iter().zip(sets) {
        read.push(match head {
            Ok(head) => Ok(head.first().map(|(_, due)| *due as i64)),
            Err(error) => {
                let look = redis::cmd("ZRANGE").arg(due_set(&QueueKeys::new(queue), *state)).to_owned();
                Err(redis.explain_one("ZRANGE", &look, error).await)
            }
        });
    }
    read
}

pub(crate) fn due_set(keys: &QueueKeys, state: TaskState) -> String {
    if state == TaskState::Retry { keys.retry() } else { keys.scheduled() }
}

/// What is to become of a task whose worker went silent.
#[derive(Debug)]
pub struct Recovery {
    /// The lease as it was found.
    pub lease: ExpiredLease,
    /// The message to store, as it is.
    pub message: Bytes,
    /// When the task may run again (Unix seconds); `None` archives it.
    pub retry_at: Option<i64>,
    /// Its crashes, this one included; `None` forgets them.
    pub crashes: Option<Crashes>,
    /// What is remembered of the attempt.
    pub attempt: Option<Attempt>,
    /// What is enqueued if the task is archived.
    pub follow_up: Option<Box<FollowUp>>,
}

impl ExpiredLease {
    /// When the lease ended, as a Unix second.
    pub fn ended_at(&self) -> i64 {
        self.expiry.parse::<f64>().map_or(0, |score| score as i64)
    }
}

impl Broker {
    /// The Unix seconds at which the first task of each of these sets (scheduled or retry) is due; an error
    /// where a set cannot be looked at.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn next_due(&self, sets: &[(&str, TaskState)]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
        let mut there = vec![true; sets.len()];
        if sets.len() > FEW_SETS {
            let keys = sets.iter().map(|(queue, state)| due_set(&QueueKeys::new(queue), *state)).collect();
            let mut search = Search::new(keys, self.redis.cluster().is_some());
            let mut refused = false;
            while let Some(look) = search.look().filter(|_| !refused) {
                refused = search.narrow(self.redis.pipeline("EXISTS", &look).await?).is_err();
            }
            if !refused {
                there = search.found();
            }
        }
        let filled = chosen(sets, &there);
        if filled.is_empty() {
            return Ok(sets.iter().map(|_| Ok(None)).collect());
        }
        let heads = self.redis.pipeline("ZRANGE", &heads_of(&filled)).await?;
        Ok(spread(read_heads(&self.redis, &filled, heads).await, there))
    }

    /// Makes up to [`SHORT_BATCH`] tasks of `from` (scheduled or retry) pending whose time has come; `skip` is
    /// the sum of what [had to stay](Forwarded::stayed) in the calls before.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn forward(&self, queue: &str, from: TaskState, now_ns: i64, skip: u64) -> Result<Forwarded, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = FORWARD.call(3);
        call.arg(due_set(&keys, from)).arg(keys.pending()).arg(keys.groups());
        call.arg(keys.task_prefix()).arg(keys.group_prefix());
        call.arg(now_ns.div_euclid(1_000_000_000)).arg(now_ns).arg(SHORT_BATCH).arg(skip);
        let reply = self.redis.run(&FORWARD, &call).await?;
        let Value::Array(items) = &reply else { return Err(Error::unexpected(FORWARD.name, &reply)) };
        let [Value::Int(moved), Value::Int(dropped), Value::Int(stayed), Value::Int(next)] = items[..] else {
            return Err(Error::unexpected(FORWARD.name, &reply));
        };
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Forwarded {
            moved: count(moved),
            dropped: count(dropped),
            stayed: count(stayed),
            next_due: (next >= 0).then_some(next),
        })
    }

    /// The active tasks whose leases ended at `cutoff` (Unix seconds) or before, at most [`MAX_BATCH`], without the first
    /// `skip` of them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_expired(&self, queue: &str, cutoff: i64, skip: usize) -> Result<Expired, Error> {
        self.list(queue, cutoff, skip, "lease").await
    }

    /// The same of the next [`MAX_BATCH`] ids of the active list, from its tail, without the first `skip`: where very
    /// many have ended, [`recover`](Self::recover) then need not search the list for them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn list_expired_in_order(&self, queue: &str, cutoff: i64, skip: usize) -> Result<Expired, Error> {
        self.list(queue, cutoff, skip, "active").await
    }

    async fn list(&self, queue: &str, cutoff: i64, skip: usize, order: &str) -> Result<Expired, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = LIST_EXPIRED.call(2);
        call.arg(keys.lease()).arg(keys.active());
        call.arg(keys.task_prefix()).arg(cutoff).arg(MAX_BATCH).arg(skip).arg(order).arg(MAX_BATCH_BYTES);
        let reply = self.redis.run(&LIST_EXPIRED, &call).await?;
        let Value::Array(items) = &reply else { return Err(Error::unexpected(LIST_EXPIRED.name, &reply)) };
        let [
            Value::Int(seen),
            Value::Int(more),
            Value::Int(ended),
            Value::Int(active),
            Value::BulkString(next),
            entries @ ..,
        ] = &items[..]
        else {
            return Err(Error::unexpected(LIST_EXPIRED.name, &reply));
        };
        let next = std::str::from_utf8(next).ok().and_then(|score| score.parse::<f64>().ok());
        let mut expired = Expired {
            seen: usize::try_from(*seen).unwrap_or(0),
            more: *more == 1,
            ended: u64::try_from(*ended).unwrap_or(0),
            active: u64::try_from(*active).unwrap_or(0),
            // A fraction of a second (R4) counts as a whole one; casting a float saturates.
            next: next.map(|score| score.ceil() as i64),
            ..Expired::default()
        };
        for entry in entries.chunks_exact(5) {
            let [
                Value::BulkString(id),
                Value::BulkString(expiry),
                Value::BulkString(raw),
                Value::BulkString(owner),
                Value::BulkString(crashes),
            ] = entry
            else {
                return Err(Error::unexpected(LIST_EXPIRED.name, &entry));
            };
            if raw.is_empty() {
                expired.ghosts.push(String::from_utf8_lossy(id).into_owned());
                continue;
            }
            let raw = Bytes::copy_from_slice(raw);
            let of_this_task = |message: &TaskMessage| message.id.as_bytes() == &id[..] && message.queue == queue;
            expired.leases.push(ExpiredLease {
                id: String::from_utf8_lossy(id).into_owned(),
                raw_id: Bytes::copy_from_slice(id),
                expiry: String::from_utf8_lossy(expiry).into_owned(),
                owner: String::from_utf8_lossy(owner).into_owned(),
                crashes: Crashes::parse(&String::from_utf8_lossy(crashes)),
                message: TaskMessage::from_bytes(raw.clone()).ok().filter(of_this_task),
                raw,
            });
        }
        Ok(expired)
    }

    /// Takes tasks from silent workers, all of this queue and 1 to [`MAX_BATCH`]: they wait for another attempt, or go
    /// to the archive. `at` is how many ids [`list_expired_in_order`](Self::list_expired_in_order) had left out when it
    /// found them; 0 where they were found by their leases.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn recover(
        &self,
        queue: &str,
        recoveries: &[Recovery],
        at: usize,
        now: i64,
    ) -> Result<Vec<Verdict>, Error> {
        let mut all = vec![Verdict::Lost; recoveries.len()];
        let (mut again, mut over, mut followed) = (Vec::new(), Vec::new(), Vec::new());
        for (position, recovery) in recoveries.iter().enumerate() {
            match (recovery.retry_at, &recovery.follow_up) {
                (Some(_), _) => again.push(position),
                (None, None) => over.push(position),
                // What follows a task is told of it alone.
                (None, Some(follow_up)) => followed.push((true, vec![position], Some(&**follow_up))),
            }
        }
        let calls =
            [(false, again, None), (true, over, None)].into_iter().filter(|(_, positions, _)| !positions.is_empty());
        for (archived, positions, follow_up) in calls.chain(followed) {
            let keys = QueueKeys::new(queue);
            let (state, place) = if archived { ("archived", keys.archived()) } else { ("retry", keys.retry()) };
            let outcome = if archived { MemberOutcome::Dead } else { MemberOutcome::Failing };
            let ids = || positions.iter().map(|position| &recoveries[*position].lease.raw_id[..]);
            let telling = match follow_up {
                None => self.telling(queue, ids(), outcome, now),
                Some(_) => self.telling_of_last(queue, &recoveries[positions[0]].lease.raw_id, follow_up, now).await?,
            };
            let mut call = RECOVER.call(3 + telling.keys() + positions.len());
            call.arg(keys.active()).arg(keys.lease()).arg(place);
            telling.with_keys(&mut call);
            for position in &positions {
                call.arg([keys.task_prefix().as_bytes(), &recoveries[*position].lease.raw_id].concat());
            }
            counted(&mut call, &keys, now);
            call.arg(state).arg(at).arg(now - ARCHIVE_MAX_AGE_SECS).arg(ARCHIVE_MAX);
            telling.with_entry(&mut call);
            for position in &positions {
                let Recovery { lease, message, retry_at, crashes, attempt, .. } = &recoveries[*position];
                let message_of = lease.message.as_ref();
                let ends = message_of.filter(|message| archived && UniqueUntil::of(message).ends_in_archive());
                let lock = ends.map_or("", |message| &message.unique_key);
                call.arg(&lease.raw_id[..]).arg(&lease.expiry).arg("").arg(lock);
                call.arg(&message[..]).arg(retry_at.unwrap_or(now));
                // In the archive they stand in the message.
                with_attempt(&mut call, crashes.as_ref().filter(|_| !archived), attempt.as_ref());
            }
            let reply = self.redis.run(&RECOVER, &call).await?;
            let verdicts = verdicts(RECOVER.name, &reply, positions.len(), verdict)?;
            self.told(queue, telling, ids().zip(verdicts.iter().copied()));
            positions.into_iter().zip(verdicts).for_each(|(position, verdict)| all[position] = verdict);
        }
        Ok(all)
    }

    /// Claims the upkeep of a queue for a server, or extends its claim; returns whether it has it. Two servers
    /// that have it at the same time do no harm.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn claim_upkeep(&self, queue: &str, server: &str, lives: Duration) -> Result<bool, Error> {
        let key = QueueKeys::new(queue).reconciler();
        let secs = queue_core::clock::secs_ceil(lives).max(1);
        match self.redis.command::<Option<String>>("SET", (&key, server, "NX", "EX", secs)).await {
            Ok(Some(_)) => return Ok(true),
            Ok(None) => {}
            // Whoever has the claim by now goes on; nobody is worse off for a queue that waits for its upkeep.
            Err(error) if error.is_out_of_memory() => {}
            Err(error) => return Err(error),
        }
        let holder: Option<String> = self.redis.command("GET", &key).await?;
        if holder.as_deref() != Some(server) {
            return Ok(false);
        }
        self.redis.command("EXPIRE", (&key, secs)).await
    }

    /// Deletes up to [`SHORT_BATCH`] completed tasks whose retention has ended; returns how many.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn delete_expired_completed(&self, queue: &str, now: i64) -> Result<usize, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = DELETE_EXPIRED_COMPLETED.call(1);
        call.arg(keys.completed()).arg(keys.task_prefix()).arg(now).arg(SHORT_BATCH);
        Ok(usize::try_from(self.integer(&DELETE_EXPIRED_COMPLETED, &call).await?).unwrap_or(0))
    }
}
