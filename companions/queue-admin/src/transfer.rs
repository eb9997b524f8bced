//! Reading all tasks of a queue.

use std::collections::{HashMap, VecDeque};
use std::iter::Peekable;
use std::vec;

use bytes::Bytes;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::limits::STATS_TTL_SECS;
use queue_core::unique::holder_of;
use queue_core::wire::TaskMessage;

use queue_redis::broker::{FIELDS_LEFT_BEHIND, next_batch};
use queue_redis::broker::{MAX_BATCH, StoredCounter, StoredQueue, StoredTask};

use crate::Inspector;
use queue_redis::Connection;
use queue_redis::Error as RedisError;

use crate::error::Error;
use crate::lenient::total;
use crate::tasks::{key, measure};

/// How many days counters are kept.
const DAYS: i64 = STATS_TTL_SECS / (24 * 60 * 60);
/// Passes over a queue before it counts as one that never comes to rest.
const MAX_PASSES: u32 = 10;

/// A task that cannot be carried, because no worker could read it either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Its id, with a sign for what is not UTF-8.
    pub id: String,
    /// Why.
    pub reason: String,
}

impl Inspector {
    /// What is true of a queue as a whole.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn stored_queue(&self, queue: &str) -> Result<StoredQueue, Error> {
        self.require_queue(queue).await?;
        let keys = QueueKeys::new(queue);
        let mut connection = self.redis.pooled().await?;
        let now = time_ms(&mut connection).await?.div_euclid(1_000);
        // A counter of tomorrow can be there: the clocks of the fleet are not the same.
        let days = (-1..=DAYS).map(|ago| now - ago * 86_400);
        let counters: Vec<String> = [keys.processed_total(), keys.failed_total()]
            .into_iter()
            .chain(days.flat_map(|day| [keys.processed_on(day), keys.failed_on(day)]))
            .collect();
        let mut look = redis::pipe();
        look.cmd("GET").arg(keys.paused());
        for counter in &counters {
            look.cmd("GET").arg(counter).cmd("PTTL").arg(counter);
        }
        let replies: Vec<Option<String>> = connection.pipeline("reading counters", &look).await?;
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<i64>().ok());
        let found = counters.iter().zip(replies.get(1..).unwrap_or_default().chunks_exact(2));
        let counters = found.filter_map(|(key, reply)| {
            let ttl_ms = number(&reply[1]).filter(|ttl_ms| *ttl_ms >= 0);
            let expires_at = ttl_ms.map(|ttl_ms| now + ttl_ms.saturating_add(999) / 1_000);
            let name = key.strip_prefix(keys.prefix())?.to_owned();
            Some(StoredCounter { name, value: number(&reply[0])?, expires_at }).filter(StoredCounter::is_known)
        });
        Ok(StoredQueue {
            queue: queue.to_owned(),
            paused: replies.first().cloned().flatten(),
            counters: counters.collect(),
        })
    }

    /// Whether tasks of a queue are in somebody's hands: with a worker, or with an aggregator.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn tasks_in_hand(&self, queue: &str) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let mut look = redis::pipe();
        look.cmd("LLEN").arg(keys.active()).cmd("ZCARD").arg(keys.aggregation_sets());
        let found: Vec<u64> = self.redis.pooled().await?.pipeline("counting tasks in hand", &look).await?;
        Ok(total(&found))
    }

    /// Begins to read all tasks of a queue. With `in_hand`, those that are with a worker or an aggregator are
    /// read too, as if they had been requeued.
    pub fn reader(&self, queue: &str, in_hand: bool) -> Reader {
        Reader {
            inspector: self.clone(),
            queue: queue.to_owned(),
            keys: QueueKeys::new(queue),
            in_hand,
            left: VecDeque::new(),
            found: None,
            seen: HashMap::new(),
            passes: 0,
            new_in_pass: 0,
            unfit: Vec::new(),
        }
    }
}

/// Reads all tasks of a queue, in portions.
///
/// Tasks can move while they are read: what is due becomes pending even in a paused queue. So the queue is gone
/// through until a pass finds no task that was not there before; a task is given once.
#[derive(Debug)]
pub struct Reader {
    inspector: Inspector,
    queue: String,
    keys: QueueKeys,
    in_hand: bool,
    left: VecDeque<Place>,
    /// What was found last and is not read yet: large tasks are not all to be in memory at once.
    found: Option<Found>,
    /// The ids that were met, and the states of the tasks that were given.
    seen: HashMap<Vec<u8>, Option<TaskState>>,
    passes: u32,
    new_in_pass: usize,
    unfit: Vec<Unfit>,
}

/// Where ids stand, and how far it was read.
#[derive(Debug, Clone)]
enum Place {
    /// A list from its tail; how many were read.
    List(String, TaskState, usize),
    /// A set, with the cursor of the scan; its tasks wait in this group.
    Set(String, TaskState, u64, Option<String>),
    /// The set of groups, with the cursor.
    Groups(u64),
    /// The sets that aggregators have in hand.
    Staged,
}

/// An id with its score in its set.
type Entry = (Vec<u8>, Option<i64>);

/// Tasks of one place, with their sizes; the group they wait in.
#[derive(Debug)]
struct Found {
    sized: Peekable<vec::IntoIter<(Entry, usize)>>,
    state: TaskState,
    group: Option<String>,
}

impl Reader {
    /// The next portion, empty only at the end.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn next(&mut self) -> Result<Vec<StoredTask>, Error> {
        loop {
            if let Some(mut found) = self.found.take() {
                let tasks = self.tasks(&mut found).await?;
                self.found = Some(found).filter(|found| found.sized.len() > 0);
                if !tasks.is_empty() {
                    return Ok(tasks);
                }
                continue;
            }
            let Some(place) = self.left.pop_front() else {
                let done = self.passes > 0 && (self.new_in_pass == 0 || self.passes >= MAX_PASSES);
                if done {
                    return Ok(Vec::new());
                }
                (self.passes, self.new_in_pass) = (self.passes + 1, 0);
                self.left = self.places();
                continue;
            };
            self.found = self.look(place).await?;
        }
    }

    /// The tasks that were found and cannot be carried.
    pub fn unfit(&self) -> &[Unfit] {
        &self.unfit
    }

    /// How many of the tasks that were given are no longer what they were: somebody has worked or deleted them, or
    /// has made one task of a group. Then what was given is not what the queue is. What was completed or archived may
    /// go by itself.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn gone(&self) -> Result<u64, Error> {
        let given = self.seen.iter().filter_map(|(id, state)| Some((&id[..], (*state)?)));
        let given: Vec<(&[u8], TaskState)> = given.filter(|(_, state)| *state != TaskState::Completed).collect();
        let mut connection = self.inspector.redis.pooled().await?;
        let mut gone = 0;
        for tasks in given.chunks(MAX_BATCH) {
            let mut look = redis::pipe();
            for (id, _) in tasks {
                look.cmd("HMGET").arg(self.task(id)).arg("state").arg("group");
            }
            type Fields = (Option<Vec<u8>>, Option<Vec<u8>>);
            let found: Vec<Fields> = connection.pipeline("HMGET", &look).await?;
            let is_gone = |given: TaskState, now: Option<&[u8]>| match now {
                None => given != TaskState::Archived,
                Some(now) => now == TaskState::Completed.as_str().as_bytes(),
            };
            let states = tasks.iter().zip(&found).map(|((_, given), (now, _))| (*given, now.as_deref()));
            gone += states.filter(|(given, now)| is_gone(*given, *now)).count() as u64;
            // An aggregated task outlasts its aggregation for a moment. It is in no group then.
            let mut look = redis::pipe();
            for ((id, _), fields) in tasks.iter().zip(&found) {
                if let (Some(b"aggregating"), Some(group)) = (fields.0.as_deref(), &fields.1) {
                    look.cmd("ZSCORE").arg([self.keys.group_prefix().as_bytes(), group].concat()).arg(id);
                }
            }
            if !look.is_empty() {
                let scores: Vec<Option<f64>> = connection.pipeline("ZSCORE", &look).await?;
                gone += scores.iter().filter(|score| score.is_none()).count() as u64;
            }
        }
        Ok(gone)
    }

    /// In the order in which tasks move, so that one that moves meanwhile is seen the second time.
    fn places(&self) -> VecDeque<Place> {
        let set = |state: TaskState, key: String| Place::Set(key, state, 0, None);
        let keys = &self.keys;
        let mut places = VecDeque::from([
            set(TaskState::Scheduled, keys.scheduled()),
            set(TaskState::Retry, keys.retry()),
            Place::Groups(0),
        ]);
        if self.in_hand {
            places.push_back(Place::Staged);
            places.push_back(Place::List(keys.active(), TaskState::Active, 0));
        }
        places.push_back(Place::List(keys.pending(), TaskState::Pending, 0));
        places.extend([set(TaskState::Archived, keys.archived()), set(TaskState::Completed, keys.completed())]);
        places
    }

    async fn look(&mut self, place: Place) -> Result<Option<Found>, Error> {
        let mut connection = self.inspector.redis.pooled().await?;
        let (entries, state, group) = match place {
            Place::List(key, state, read) => {
                let (from, to) = (-(read as i64 + MAX_BATCH as i64), -(read as i64 + 1));
                let ids: Vec<Vec<u8>> = connection.command("LRANGE", (&key, from, to)).await?;
                if ids.len() == MAX_BATCH {
                    self.left.push_front(Place::List(key, state, read + MAX_BATCH));
                }
                (ids.into_iter().rev().map(|id| (id, None)).collect::<Vec<Entry>>(), state, None)
            }
            Place::Set(key, state, cursor, group) => {
                let (next, members): (u64, Vec<(Vec<u8>, f64)>) =
                    connection.command("ZSCAN", (&key, cursor, "COUNT", MAX_BATCH)).await?;
                if next != 0 {
                    self.left.push_front(Place::Set(key, state, next, group.clone()));
                }
                (members.into_iter().map(|(id, score)| (id, Some(score as i64))).collect(), state, group)
            }
            Place::Groups(cursor) => {
                let (next, groups): (u64, Vec<String>) =
                    connection.command("SSCAN", (self.keys.groups(), cursor, "COUNT", MAX_BATCH)).await?;
                if next != 0 {
                    self.left.push_front(Place::Groups(next));
                }
                for group in groups {
                    let key = self.keys.group(&group);
                    self.left.push_front(Place::Set(key, TaskState::Aggregating, 0, Some(group)));
                }
                return Ok(None);
            }
            Place::Staged => {
                let sets: Vec<String> = connection.command("ZRANGE", (self.keys.aggregation_sets(), 0, -1)).await?;
                for key in sets {
                    self.left.push_front(Place::Set(key, TaskState::Aggregating, 0, None));
                }
                return Ok(None);
            }
        };
        let new: Vec<Entry> = entries.into_iter().filter(|(id, _)| !self.seen.contains_key(id)).collect();
        if new.is_empty() {
            return Ok(None);
        }
        let sizes = measure(&mut connection, &self.keys, new.iter().map(|(id, _)| &id[..])).await?;
        let sized = new.into_iter().zip(sizes).collect::<Vec<_>>().into_iter().peekable();
        Ok(Some(Found { sized, state, group }))
    }

    /// Reads the hashes of the next of these, no more than should travel together.
    async fn tasks(&mut self, found: &mut Found) -> Result<Vec<StoredTask>, Error> {
        let mut connection = self.inspector.redis.pooled().await?;
        let batch = next_batch(&mut found.sized, MAX_BATCH, |(_, size)| *size);
        let mut look = redis::pipe();
        for ((id, _), _) in &batch {
            look.cmd("HGETALL").arg(self.task(id));
        }
        let hashes: Vec<Vec<(Vec<u8>, Vec<u8>)>> = connection.pipeline("reading tasks", &look).await?;
        let mut tasks = Vec::new();
        for (((id, score), _), hash) in batch.into_iter().zip(hashes) {
            // One that has moved on meanwhile is met again where it is now.
            let in_place =
                hash.iter().any(|(name, value)| name == b"state" && value == found.state.as_str().as_bytes());
            if !in_place && !hash.is_empty() {
                continue;
            }
            let met = self.seen.entry(id.clone()).or_default();
            self.new_in_pass += 1;
            match stored(&self.queue, id, score, found.state, found.group.as_deref(), hash) {
                Ok(task) => {
                    *met = Some(task.state);
                    tasks.push(task);
                }
                Err(unfit) => self.unfit.push(unfit),
            }
        }
        self.add_locks(&mut connection, &mut tasks).await?;
        Ok(tasks)
    }

    async fn add_locks(&self, connection: &mut Connection, tasks: &mut [StoredTask]) -> Result<(), Error> {
        let locked = |task: &StoredTask| Some(task.message().ok()?.unique_key).filter(|key| !key.is_empty());
        let locks: Vec<Option<String>> = tasks.iter().map(locked).collect();
        if locks.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut look = redis::pipe();
        for key in locks.iter().flatten() {
            look.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
        let now_ms = time_ms(connection).await?;
        let replies: Vec<(Option<Vec<u8>>, i64)> = {
            let flat: Vec<redis::Value> = connection.pipeline("reading locks", &look).await?;
            let pair = |pair: &[redis::Value]| redis::from_redis_value(redis::Value::Array(pair.to_vec()));
            let pairs: Result<_, _> = flat.chunks_exact(2).map(pair).collect();
            pairs.map_err(|_| RedisError::unexpected("reading locks", &flat))?
        };
        let with_lock = tasks.iter_mut().zip(locks).filter(|(_, lock)| lock.is_some());
        for ((task, _), (holder, ttl_ms)) in with_lock.zip(replies) {
            let holder = holder.as_deref().map(|value| holder_of(value).0);
            if holder == Some(task.id.as_bytes()) && ttl_ms > 0 {
                task.lock_expires_at_ms = Some(now_ms.saturating_add(ttl_ms));
            }
        }
        Ok(())
    }

    fn task(&self, id: &[u8]) -> Vec<u8> {
        key(&self.keys, id)
    }
}

fn stored(
    queue: &str,
    id: Vec<u8>,
    score: Option<i64>,
    state: TaskState,
    group: Option<&str>,
    hash: Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<StoredTask, Unfit> {
    let lossy = String::from_utf8_lossy(&id).into_owned();
    let unfit = |reason: &str| Unfit { id: lossy.clone(), reason: reason.to_owned() };
    if hash.is_empty() {
        return Err(unfit("there is nothing but its id"));
    }
    let fields = hash.into_iter().map(|(name, value)| Some((String::from_utf8(name).ok()?, Bytes::from(value))));
    let fields: Option<std::collections::BTreeMap<String, Bytes>> = fields.collect();
    let mut fields = fields.ok_or_else(|| unfit("the name of a field is not UTF-8"))?;
    let field_group = fields.get("group").and_then(|group| String::from_utf8(group.to_vec()).ok());
    let is_parked = state == TaskState::Scheduled && fields.contains_key("x_waits");
    for field in FIELDS_LEFT_BEHIND {
        fields.remove(field);
    }
    let message = TaskMessage::from_bytes(fields.get("msg").cloned().unwrap_or_default());
    let message_group = message.ok().map(|message| message.group_key).filter(|group| !group.is_empty());
    // A task that waits for room under a limit is judged anew where it comes to.
    let waits_here = state == TaskState::Active || is_parked;
    let (state, score) = if waits_here { (TaskState::Pending, None) } else { (state, score) };
    let task = StoredTask {
        id: String::from_utf8(id).map_err(|_| unfit("its id is not UTF-8"))?,
        state,
        score,
        group: group.map(str::to_owned).or(field_group).or(message_group),
        fields,
        lock_expires_at_ms: None,
    };
    match task.unfit(queue) {
        Some(reason) => Err(unfit(&reason)),
        None => Ok(task),
    }
}

/// The time of Redis, by which its TTLs run.
async fn time_ms(connection: &mut Connection) -> Result<i64, Error> {
    let (secs, micros): (i64, i64) = connection.query("TIME", &redis::cmd("TIME")).await?;
    as_ms(secs, micros).ok_or_else(|| RedisError::unexpected("TIME", &(secs, micros)).into())
}

/// Milliseconds, of a time that a date can have.
fn as_ms(secs: i64, micros: i64) -> Option<i64> {
    let (dates, fractions) = (0..253_402_300_800, 0..1_000_000);
    (dates.contains(&secs) && fractions.contains(&micros)).then(|| secs * 1_000 + micros / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `replies`: it was a panic.
    #[test]
    fn a_time_that_no_date_has_is_refused() {
        assert_eq!(as_ms(1_700_000_000, 123_456), Some(1_700_000_000_123));
        for (secs, micros) in [(i64::MAX, 0), (i64::MIN, 0), (-1, 0), (253_402_300_800, 0), (0, 1_000_000), (0, -1)] {
            assert_eq!(as_ms(secs, micros), None, "{secs} {micros}");
        }
    }
}
