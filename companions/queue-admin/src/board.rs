//! All queues at a glance, in a few round trips whatever their number.

use chrono::{DateTime, Utc};
use queue_core::keys::{QUEUES, QueueKeys};
use queue_core::{Clock as _, TaskState};
use redis::{FromRedisValue, RedisResult, Value};

use super::Inspector;
use crate::QueueInfo;
use crate::error::Error;
use crate::lenient::{Number, Text, sorted};
use queue_redis::Connection;

/// Groups of a queue that are counted. `SMEMBERS` of a large set would hold Redis up.
const GROUPS: usize = 200;
/// Commands of the first look at a queue.
const FIRST: usize = 15;

/// A queue on the [`Board`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BoardRow {
    /// Queue name.
    pub name: String,
    /// What is in it; or why it cannot be read: a key of a wrong type costs no other queue.
    pub queue: Result<QueueInfo, String>,
    /// Scheduled and retried tasks whose time is over: they wait for a server.
    pub overdue: u64,
    /// Whether all groups were counted. There may be more than the 200 that are.
    pub aggregating_exact: bool,
}

/// Queues as they were at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Board {
    /// The queues by name.
    pub rows: Vec<BoardRow>,
    /// When.
    pub at: DateTime<Utc>,
}

type Replies<'a> = std::slice::Iter<'a, RedisResult<Value>>;

/// The next reply; the first error is kept.
fn next<T: FromRedisValue>(replies: &mut Replies<'_>, error: &mut Option<String>) -> Option<T> {
    let value = replies.next()?.clone().and_then(|value| Ok(T::from_redis_value(value)?));
    value.map_err(|failed| error.get_or_insert_with(|| failed.to_string()).clone()).ok()
}

impl Inspector {
    /// All queues: 16 commands for each and one for each group, in three round trips. Memory is not measured.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. A queue that cannot be read is a row that says so.
    pub async fn board(&self) -> Result<Board, Error> {
        self.look_at_the_clock().await?;
        let mut connection = self.redis.pooled().await?;
        let names = connection.command("SMEMBERS", QUEUES).await.map(sorted)?;
        look(&mut connection, names, self.clock.now_ns(), Some(GROUPS)).await
    }

    /// These queues, with all of their groups counted: 16 commands for each and one for each group, in two round trips. One that is
    /// not there is empty.
    ///
    /// # Errors
    /// As [`board`](Self::board).
    pub async fn board_of(&self, queues: Vec<String>) -> Result<Board, Error> {
        self.look_at_the_clock().await?;
        look(&mut self.redis.pooled().await?, queues, self.clock.now_ns(), None).await
    }
}

/// Looks at queues, and counts about so many groups of each, or all.
async fn look(
    connection: &mut Connection,
    names: Vec<String>,
    now_ns: i64,
    groups: Option<usize>,
) -> Result<Board, Error> {
    let (at, now) = (DateTime::from_timestamp_nanos(now_ns), now_ns.div_euclid(1_000_000_000));
    if names.is_empty() {
        return Ok(Board { rows: Vec::new(), at });
    }
    let mut look = redis::pipe();
    for name in &names {
        let keys = QueueKeys::new(name);
        look.cmd("LLEN").arg(keys.pending()).cmd("LLEN").arg(keys.active());
        for set in [keys.scheduled(), keys.retry(), keys.archived(), keys.completed()] {
            look.cmd("ZCARD").arg(set);
        }
        look.cmd("EXISTS").arg(keys.paused());
        for counter in [keys.processed_on(now), keys.failed_on(now), keys.processed_total(), keys.failed_total()] {
            look.cmd("GET").arg(counter);
        }
        for set in [keys.scheduled(), keys.retry()] {
            look.cmd("ZCOUNT").arg(set).arg("-inf").arg(now);
        }
        look.cmd("LRANGE").arg(keys.pending()).arg(-1).arg(-1);
        match groups {
            Some(some) => look.cmd("SSCAN").arg(keys.groups()).arg(0).arg("COUNT").arg(some),
            None => look.cmd("SMEMBERS").arg(keys.groups()),
        };
    }
    look.ignore_errors();
    let replies: Vec<RedisResult<Value>> = connection.pipeline("reading all queues", &look).await?;
    let mut more = redis::pipe();
    let (mut rows, mut counted) = (Vec::new(), Vec::new());
    for (name, replies) in names.into_iter().zip(replies.chunks(FIRST)) {
        let (mut error, mut replies) = (None, replies.iter());
        let mut count = || next::<Number>(&mut replies, &mut error).map_or(0, |number| number.count());
        let [pending, active, scheduled, retry, archived, completed, paused] = std::array::from_fn(|_| count());
        let [processed, failed, processed_total, failed_total, due, again] = std::array::from_fn(|_| count());
        let oldest: Vec<Vec<u8>> = next(&mut replies, &mut error).unwrap_or_default();
        let (cursor, groups): (u64, Vec<Text>) = match groups {
            Some(_) => next(&mut replies, &mut error).unwrap_or_default(),
            None => (0, next(&mut replies, &mut error).unwrap_or_default()),
        };
        if let Some(error) = error {
            // Whoever has not answered is not waited for again.
            counted.push(None);
            rows.push(BoardRow { name, queue: Err(error), overdue: 0, aggregating_exact: false });
            continue;
        }
        let keys = QueueKeys::new(&name);
        more.cmd("HGET").arg([keys.task_prefix().into_bytes(), oldest.concat()].concat()).arg("pending_since");
        counted.push(Some(groups.len()));
        for Text(group) in &groups {
            more.cmd("ZCARD").arg(keys.group(group));
        }
        let info = QueueInfo {
            name: name.clone(),
            paused: paused == 1,
            pending,
            active,
            scheduled,
            retry,
            archived,
            completed,
            groups: groups.len() as u64,
            processed,
            failed,
            processed_total,
            failed_total,
            timestamp: at,
            ..QueueInfo::default()
        };
        let overdue = due.saturating_add(again);
        rows.push(BoardRow { name, queue: Ok(info), overdue, aggregating_exact: cursor == 0 });
    }
    if more.is_empty() {
        return Ok(Board { rows, at });
    }
    more.ignore_errors();
    let replies: Vec<RedisResult<Value>> = connection.pipeline("counting groups", &more).await?;
    let mut replies = replies.iter();
    for (row, groups) in rows.iter_mut().zip(counted) {
        let Some(groups) = groups else { continue };
        let mut error = None;
        let since = next::<Number>(&mut replies, &mut error).and_then(|since| since.0).unwrap_or(0);
        let aggregating = (0..groups).fold(0_u64, |sum, _| {
            sum.saturating_add(next::<Number>(&mut replies, &mut error).map_or(0, |number| number.count()))
        });
        if let Some(error) = error {
            row.queue = Err(error);
        }
        if let Ok(info) = &mut row.queue {
            info.aggregating = aggregating;
            let waited = if info.count(TaskState::Pending) > 0 && since > 0 { now_ns.saturating_sub(since) } else { 0 };
            info.latency = std::time::Duration::from_nanos(u64::try_from(waited).unwrap_or(0));
        }
    }
    Ok(Board { rows, at })
}
