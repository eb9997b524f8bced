use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::Clock as _;
use queue_core::TaskState;
use queue_core::clock::UnixSecond;
use queue_core::keys::{QUEUES, QueueKeys};
use queue_core::options::check_existing_queue_name;
use queue_core::queue_name::base_of;
use redis::RedisResult;

use super::Inspector;
use queue_redis::Error as RedisError;

use crate::error::Error;
use crate::lenient::{Number, sorted, total};

/// A queue as it was at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Queue name.
    pub name: String,
    /// Whether it is paused.
    pub paused: bool,
    /// How long the oldest pending task has waited; zero when there is none.
    pub latency: Duration,
    /// Tasks waiting for a worker.
    pub pending: u64,
    /// Tasks being worked on.
    pub active: u64,
    /// Tasks waiting for their time.
    pub scheduled: u64,
    /// Tasks waiting for their next attempt.
    pub retry: u64,
    /// Tasks given up on.
    pub archived: u64,
    /// Tasks kept after success.
    pub completed: u64,
    /// Tasks waiting in groups.
    pub aggregating: u64,
    /// Groups that may hold tasks.
    pub groups: u64,
    /// Tasks finished today (UTC), failures included.
    pub processed: u64,
    /// Failures today (UTC).
    pub failed: u64,
    /// Tasks finished ever, failures included.
    pub processed_total: u64,
    /// Failures ever.
    pub failed_total: u64,
    /// When this was so.
    pub timestamp: DateTime<Utc>,
}

impl QueueInfo {
    /// All tasks in the queue, in whatever state.
    pub fn size(&self) -> u64 {
        total(&TaskState::ALL.map(|state| self.count(state)))
    }

    /// Tasks in this state.
    pub fn count(&self, state: TaskState) -> u64 {
        match state {
            TaskState::Active => self.active,
            TaskState::Pending => self.pending,
            TaskState::Scheduled => self.scheduled,
            TaskState::Retry => self.retry,
            TaskState::Archived => self.archived,
            TaskState::Completed => self.completed,
            TaskState::Aggregating => self.aggregating,
        }
    }
}

impl Inspector {
    /// When the oldest outcome of a batch's member was told that nobody has recorded; `None` if there is none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn oldest_outcome(&self, queue: &str) -> Result<Option<UnixSecond>, Error> {
        Ok(self.broker().oldest_outcome(queue).await?.map(UnixSecond))
    }

    /// The same of several queues, in two round trips. What Redis refuses to tell of one costs no other.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn oldest_outcomes(&self, queues: &[String]) -> Result<Vec<Result<Option<UnixSecond>, Error>>, Error> {
        let oldest = self.broker().oldest_outcomes(queues).await?;
        Ok(oldest.into_iter().map(|oldest| Ok(oldest?.map(UnixSecond))).collect())
    }

    /// When the first scheduled or retried task of each of these queues is due, in one round trip; `None` where there is
    /// none. What Redis refuses to tell of one queue costs no other.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn first_due(&self, queues: &[String]) -> Result<Vec<Result<Option<UnixSecond>, Error>>, Error> {
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for keys in queues.iter().map(|queue| QueueKeys::new(queue)) {
            for set in [keys.scheduled(), keys.retry()] {
                look.cmd("ZRANGE").arg(set).arg(0).arg(0).arg("WITHSCORES");
            }
        }
        look.ignore_errors();
        type First = RedisResult<Vec<(Vec<u8>, f64)>>;
        let firsts: Vec<First> = self.redis.pooled().await?.pipeline("looking for what is due", &look).await?;
        let due = firsts.chunks(2).map(|firsts| {
            let firsts: RedisResult<Vec<_>> = firsts.iter().cloned().collect();
            let firsts = firsts.map_err(|error| RedisError::unexpected("looking for what is due", &error))?;
            Ok(firsts.concat().into_iter().map(|(_, score)| UnixSecond(score as i64)).min())
        });
        Ok(due.collect())
    }

    /// The names of all queues, sorted.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn queues(&self) -> Result<Vec<String>, Error> {
        Ok(sorted(self.redis.command("SMEMBERS", QUEUES).await?))
    }

    pub(super) async fn require_queue(&self, queue: &str) -> Result<(), Error> {
        if self.is_listed(queue).await? { Ok(()) } else { Err(Error::QueueNotFound(queue.to_owned())) }
    }

    async fn is_listed(&self, queue: &str) -> Result<bool, Error> {
        Ok(self.redis.command("SISMEMBER", (QUEUES, queue)).await?)
    }

    /// Whether there is this queue, or the one that it [belongs to](base_of).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn knows_queue(&self, queue: &str) -> Result<bool, Error> {
        let base = base_of(queue);
        Ok(self.is_listed(queue).await? || base != queue && self.is_listed(base).await?)
    }

    /// Sizes, statistics and latency of a queue.
    ///
    /// # Errors
    /// When there is no such queue, or Redis cannot be asked or refuses.
    pub async fn queue(&self, queue: &str) -> Result<QueueInfo, Error> {
        self.require_queue(queue).await?;
        self.look_at_the_clock().await?;
        let keys = QueueKeys::new(queue);
        let now_ns = self.clock.now_ns();
        let now = now_ns.div_euclid(1_000_000_000);
        let mut connection = self.redis.pooled().await?;
        let mut counts = redis::pipe();
        counts.cmd("LLEN").arg(keys.pending()).cmd("LLEN").arg(keys.active());
        for set in [keys.scheduled(), keys.retry(), keys.archived(), keys.completed()] {
            counts.cmd("ZCARD").arg(set);
        }
        counts.cmd("EXISTS").arg(keys.paused());
        let sizes: Vec<u64> = connection.pipeline("counting a queue", &counts).await?;
        let [pending, active, scheduled, retry, archived, completed, paused] = sizes[..] else {
            return Err(RedisError::unexpected("counting a queue", &sizes).into());
        };

        let mut details = redis::pipe();
        for counter in [keys.processed_on(now), keys.failed_on(now), keys.processed_total(), keys.failed_total()] {
            details.cmd("GET").arg(counter);
        }
        details.cmd("LRANGE").arg(keys.pending()).arg(-1).arg(-1).cmd("SMEMBERS").arg(keys.groups());
        type Details = (Number, Number, Number, Number, Vec<Vec<u8>>, Vec<Vec<u8>>);
        let (processed, failed, processed_total, failed_total, oldest, groups): Details =
            connection.pipeline("reading the statistics of a queue", &details).await?;

        let mut rest = redis::pipe();
        let mut oldest_key = keys.task_prefix().into_bytes();
        oldest_key.extend(oldest.into_iter().flatten());
        rest.cmd("HGET").arg(oldest_key).arg("pending_since");
        for group in &groups {
            rest.cmd("ZCARD").arg([keys.group_prefix().as_bytes(), group].concat());
        }
        let rest: Vec<Number> = connection.pipeline("counting groups", &rest).await?;
        let since = rest.first().and_then(|since| since.0).unwrap_or(0);
        let waited = if pending > 0 && since > 0 { u64::try_from(now_ns - since).unwrap_or(0) } else { 0 };
        let aggregating = total(&rest.iter().skip(1).map(Number::count).collect::<Vec<_>>());
        Ok(QueueInfo {
            name: queue.to_owned(),
            paused: paused == 1,
            latency: Duration::from_nanos(waited),
            pending,
            active,
            scheduled,
            retry,
            archived,
            completed,
            aggregating,
            groups: groups.len() as u64,
            processed: processed.count(),
            failed: failed.count(),
            processed_total: processed_total.count(),
            failed_total: failed_total.count(),
            timestamp: DateTime::from_timestamp_nanos(now_ns),
        })
    }

    /// Pauses a queue: no task of it is handed to a worker, by us or by Go, until it is resumed. The queue
    /// need not have had a task yet. Returns whether it was running before.
    ///
    /// # Errors
    /// [`Error::BadName`] when no queue can have the name; when Redis cannot be asked or refuses.
    pub async fn pause(&self, queue: &str) -> Result<bool, Error> {
        check_existing_queue_name(queue)?;
        let now = self.clock.now_secs();
        Ok(self.redis.command("SETNX", (QueueKeys::new(queue).paused(), now)).await?)
    }

    /// Resumes a queue. Returns whether it was paused before. A removal that was interrupted is given up by it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn unpause(&self, queue: &str) -> Result<bool, Error> {
        let keys = QueueKeys::new(queue);
        let was_paused = self.redis.command("DEL", keys.paused()).await?;
        self.redis.command::<()>("DEL", keys.removing()).await?;
        Ok(was_paused)
    }
}
