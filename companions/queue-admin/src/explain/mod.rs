//! Why a task is not running.

mod lane;
mod reason;

use std::time::Duration;

use bytes::Bytes;
use queue_core::attempt::{Attempt, FIELDS};
use queue_core::budget::Account;
use queue_core::clock::UnixSecond;
use queue_core::crash::{CRASHES, Crashes};
use queue_core::doctor::{Suspect, Whereabouts, judge};
use queue_core::keys::{QUEUES, QueueKeys};
use queue_core::limit::LimitKey;
use queue_core::limits::SERVER_TTL_SECS;
use queue_core::limits::{RECOVERY_MARGIN_SECS, SILENT_MARGIN_SECS};
use queue_core::outcome::NO_HANDLER;
use queue_core::publish::{FOLLOW, PUBLISHED, Publications, twin};
use queue_core::queue_name::{Family, QueueName};
use queue_core::target::fallback_of;
use queue_core::{Clock as _, TaskMessage, TaskState};
pub use reason::Reason;

use super::{Inspector, ServerInfo};
use queue_redis::Error as RedisError;
use queue_redis::broker::CancelRequest;

use crate::error::{Error, WhyUnreadable};
use crate::limits::read_limits;
use queue_redis::Connection;

/// Locks that are told of an id without a task.
const MAX_LOCKS: usize = 10;

/// What is known of a task, and why it does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// Queue name.
    pub queue: String,
    /// Task id.
    pub id: String,
    /// Task type; `None` without a message that can be read.
    pub task_type: Option<String>,
    /// What its hash calls it; `None` where it does not.
    pub state: Option<TaskState>,
    /// The reasons, the one that matters most first. At least one.
    pub reasons: Vec<Reason>,
}

/// What the answer follows from.
#[derive(Debug, Default)]
struct Facts {
    seen: Whereabouts,
    message: Option<TaskMessage>,
    owner: String,
    crashes: Crashes,
    /// Whether it is to be canceled.
    cancel: Option<CancelRequest>,
    /// The active task that it follows.
    follows: Option<String>,
    /// How often it was published under its key.
    published: Option<Publications>,
    /// How many attempts failed, and the last of them.
    attempts: (u64, Vec<Attempt>),
    paused: Option<String>,
    is_removing: bool,
    is_listed: bool,
    /// Since when it is pending, as a Unix second.
    pending_since: Option<i64>,
    /// Pending tasks that are to be taken before it.
    ahead: Option<u64>,
    servers: Vec<ServerInfo>,
    lock_holder: Option<String>,
    /// Of its group: name, size, when the oldest and the youngest joined.
    group: Option<(String, u64, UnixSecond, UnixSecond)>,
    /// Of the lane that it waits in.
    lane: Option<Reason>,
    /// What is wrong with the limits of the queue.
    spoilt_limits: Option<WhyUnreadable>,
    /// The limits for all tasks of the queue together: who waits for them stays pending.
    limits_of_all: Vec<String>,
    /// Servers of the queue that know nothing of its limits.
    unaware: Vec<String>,
    deadline: Option<i64>,
}

impl Inspector {
    /// Why a task of this queue is not running. Searches the pending list, which takes Redis about 20 ms for a
    /// million tasks.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. That there is no such task or queue is an answer.
    pub async fn explain(&self, queue: &str, id: &str) -> Result<Explanation, Error> {
        let facts = self.facts(queue, id).await?;
        self.look_at_the_clock().await?;
        let now = self.clock.now_secs();
        let mut reasons = reasons(queue, id, &facts, now);
        if reasons == [Reason::NotFound] {
            reasons.extend(self.locks_of(queue, id).await?);
        }
        Ok(Explanation {
            queue: queue.to_owned(),
            id: id.to_owned(),
            task_type: facts.message.map(|message| message.r#type),
            state: facts.seen.state.parse().ok(),
            reasons,
        })
    }

    /// The same of every queue in which something is known of this id; empty when nothing is anywhere.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn explain_everywhere(&self, id: &str) -> Result<Vec<Explanation>, Error> {
        let mut found = Vec::new();
        for queue in self.queues().await? {
            let explanation = self.explain(&queue, id).await?;
            if explanation.reasons != [Reason::NotFound] {
                found.push(explanation);
            }
        }
        Ok(found)
    }

    async fn facts(&self, queue: &str, id: &str) -> Result<Facts, Error> {
        let keys = QueueKeys::new(queue);
        let suspect = Suspect { id: Bytes::copy_from_slice(id.as_bytes()), groups: Vec::new() };
        let seen = self.broker().examine_tasks(queue, std::slice::from_ref(&suspect)).await?;
        let seen = seen.into_iter().next().unwrap_or_default();
        // No bytes at all would be a message too, an empty one.
        let raw = Some(seen.message.clone()).filter(|raw| !raw.is_empty());
        let message = raw.and_then(|raw| TaskMessage::from_bytes(raw).ok());
        let mut facts = Facts { message, ..Facts::default() };
        let mut connection = self.redis.pooled().await?;
        let mut look = redis::pipe();
        look.cmd("HMGET").arg(keys.task(id)).arg("owner").arg(CRASHES).arg("pending_since").arg(PUBLISHED);
        look.cmd("HMGET").arg(keys.task(id)).arg(&FIELDS);
        look.cmd("GET").arg(keys.paused()).cmd("EXISTS").arg(keys.removing());
        look.cmd("SISMEMBER").arg(QUEUES).arg(queue).cmd("GET").arg(keys.rules()).ignore_errors();
        let mut replies: Vec<redis::RedisResult<redis::Value>> =
            connection.pipeline("explaining a task", &look).await?;
        let rules = replies.pop().unwrap_or(Ok(redis::Value::Nil));
        let mut replies = replies.into_iter().map(Result::ok);
        let [owner, crashes, since, published]: [Option<String>; 4] = parse(replies.next());
        facts.pending_since = since.and_then(|ns| Some(ns.parse::<i64>().ok()?.div_euclid(1_000_000_000)));
        facts.owner = owner.unwrap_or_default();
        facts.crashes = Crashes::parse(&crashes.unwrap_or_default());
        facts.published = published.and_then(|field| Publications::parse(&field));
        facts.attempts = Attempt::read(&parse(replies.next()));
        facts.paused = parse(replies.next());
        facts.is_removing = parse(replies.next());
        facts.is_listed = parse(replies.next());
        match &rules {
            Err(error) => {
                facts.spoilt_limits = (error.code() == Some("WRONGTYPE")).then_some(WhyUnreadable::OtherType);
            }
            Ok(redis::Value::Nil) => {}
            Ok(text) => match redis::from_redis_value::<Vec<u8>>(text.clone()).map(|text| read_limits(&text)) {
                Ok(Ok(limits)) => {
                    let of_all = limits.rules.into_iter().filter(|limit| limit.key == LimitKey::Queue);
                    facts.limits_of_all = of_all.map(|limit| limit.name).collect();
                }
                Ok(Err(why)) => facts.spoilt_limits = Some(why),
                Err(_) => {}
            },
        }
        if !matches!(rules, Ok(redis::Value::Nil)) {
            facts.unaware = self.servers_unaware_of_limits().await?.remove(queue).unwrap_or_default();
        }
        facts.servers = match self.servers().await {
            Err(error) if error.is_transient() => return Err(error),
            servers => servers.unwrap_or_default(),
        };
        facts.cancel = self.broker().cancel_request(queue, id).await?;
        facts.seen = seen;
        if facts.seen.state == TaskState::Pending.as_str() {
            facts.ahead = ahead(&mut connection, &keys, id).await?;
        }
        if facts.seen.state == TaskState::Scheduled.as_str() {
            facts.lane = lane::look(&mut connection, &keys, id).await?;
            if facts.message.as_ref().is_some_and(|message| message.headers.contains_key(FOLLOW)) {
                let first = twin(id);
                let state = self.broker().state_of(queue, &first).await?;
                facts.follows = (state == Some(TaskState::Active)).then_some(first);
            }
        }
        self.look_at_group(&mut connection, &keys, &mut facts).await?;
        let lock = facts.message.as_ref().map(|message| message.unique_key.as_str()).unwrap_or_default();
        if keys.may_own(lock) {
            facts.lock_holder = self.broker().lock_holder(lock).await.unwrap_or_default();
        }
        Ok(facts)
    }

    async fn look_at_group(
        &self,
        connection: &mut Connection,
        keys: &QueueKeys,
        facts: &mut Facts,
    ) -> Result<(), Error> {
        let in_group = |key: &Bytes| key.starts_with(keys.group_prefix().as_bytes());
        let Some(entry) = facts.seen.entries.iter().find(|entry| in_group(&entry.key)) else { return Ok(()) };
        let mut look = redis::pipe();
        look.cmd("ZSCORE").arg(keys.aggregation_sets()).arg(&entry.key[..]).cmd("ZCARD").arg(&entry.key[..]);
        look.cmd("ZRANGE").arg(&entry.key[..]).arg(0).arg(0).arg("WITHSCORES");
        look.cmd("ZRANGE").arg(&entry.key[..]).arg(-1).arg(-1).arg("WITHSCORES");
        type Ends = Vec<(Vec<u8>, f64)>;
        let (deadline, size, oldest, youngest): (Option<f64>, u64, Ends, Ends) =
            connection.pipeline("looking at a group", &look).await?;
        let name = String::from_utf8_lossy(&entry.key[keys.group_prefix().len()..]).into_owned();
        let name = match name.rsplit_once(':') {
            Some((group, _)) if deadline.is_some() => group.to_owned(),
            _ => name,
        };
        let at = |ends: Ends| ends.first().map_or(UnixSecond(0), |(_, score)| UnixSecond(*score as i64));
        facts.deadline = deadline.map(|deadline| deadline as i64);
        facts.group = Some((name, size, at(oldest), at(youngest)));
        Ok(())
    }

    /// Locks that name a task which is not there. Goes through all keys of the Redis, 500 in a step.
    async fn locks_of(&self, queue: &str, id: &str) -> Result<Vec<Reason>, Error> {
        let keys = QueueKeys::new(queue);
        let prefix = keys.unique_prefix();
        let mut connection = self.redis.pooled().await?;
        let (mut cursor, mut found) = (0_u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(super::remove::pattern(&prefix)).arg("COUNT").arg(500);
            let (next, locks): (u64, Vec<Vec<u8>>) = connection.query_near(&keys.pending(), "SCAN", &scan).await?;
            for lock in locks {
                let mut look = redis::pipe();
                look.cmd("GET").arg(&lock).cmd("PTTL").arg(&lock).ignore_errors();
                let replies: Vec<redis::RedisResult<redis::Value>> =
                    connection.pipeline("looking at a lock", &look).await?;
                let mut replies = replies.into_iter().map(Result::ok);
                let (holder, ttl_ms): (Option<Vec<u8>>, Option<i64>) = (parse(replies.next()), parse(replies.next()));
                if holder.as_deref() == Some(id.as_bytes()) {
                    let lock = String::from_utf8_lossy(&lock).into_owned();
                    let ends_in = ttl_ms.filter(|ttl_ms| *ttl_ms >= 0).map(|ttl_ms| ttl_ms.saturating_add(999) / 1_000);
                    found.push(Reason::LockLeft { lock, ends_in });
                }
            }
            if next == 0 || found.len() >= MAX_LOCKS {
                return Ok(found);
            }
            cursor = next;
        }
    }
}

/// A reply, or nothing where Redis has refused it.
fn parse<T: redis::FromRedisValue + Default>(reply: Option<Option<redis::Value>>) -> T {
    reply.flatten().and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default()
}

/// How many pending tasks are to be taken before this one.
async fn ahead(connection: &mut Connection, keys: &QueueKeys, id: &str) -> Result<Option<u64>, Error> {
    let mut look = redis::pipe();
    look.cmd("LLEN").arg(keys.pending()).cmd("LPOS").arg(keys.pending()).arg(id);
    let found: Result<(u64, Option<u64>), RedisError> = connection.read_at_once("searching a task", &look).await;
    match found {
        Ok((length, place)) => Ok(place.map(|place| length.saturating_sub(place + 1))),
        Err(error) if error.is_transient() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// The reasons, from what is known. No I/O.
fn reasons(queue: &str, id: &str, facts: &Facts, now: i64) -> Vec<Reason> {
    let Facts { seen, message, .. } = facts;
    let mut reasons = Vec::new();
    if let Some(found) = judge(queue, id.as_bytes(), seen, now) {
        reasons.push(Reason::Damaged { fault: found.fault });
    }
    let Some(message) = message else {
        if reasons.is_empty() {
            reasons.push(Reason::NotFound);
        }
        return reasons;
    };
    let second = |score: &str| score.parse::<f64>().map_or(0, |score| score as i64);
    let entry = seen.entries.first();
    let score = entry.map_or(0, |entry| second(&entry.score));
    let waits =
        |due: Reason| if score <= now && entry.is_some() { Reason::Overdue { since: UnixSecond(score) } } else { due };
    let state: Option<TaskState> = seen.state.parse().ok();
    // What keeps any task of the queue from running.
    let (mut stopped, mut slow) = (Vec::new(), Vec::new());
    if let Some(since) = &facts.paused {
        stopped.push(Reason::Paused { since: since.parse().ok().filter(|since| *since > 0).map(UnixSecond) });
    }
    if let Some(why) = &facts.spoilt_limits {
        stopped.push(Reason::LimitsUnreadable { why: why.clone() });
    }
    // Go's tools resume a queue, and know nothing of a removal that was interrupted.
    if facts.is_removing && facts.paused.is_some() {
        stopped.push(Reason::Removing);
    }
    let serving: Vec<&ServerInfo> = facts.servers.iter().filter(|server| server.fits(queue)).collect();
    if serving.is_empty() {
        stopped.push(unserved(queue, &facts.servers, fallback_of(message)));
    } else if serving.iter().all(|server| server.status != "active") {
        stopped.push(Reason::ServersEnding);
    } else {
        let running: usize = serving.iter().map(|server| server.workers.len()).sum();
        let slots: i64 = serving.iter().map(|server| i64::from(server.concurrency)).sum();
        if running as i64 >= slots {
            slow.push(Reason::Busy { running, slots });
        }
    }
    let error = || message.error_msg.clone();
    if matches!(state, Some(TaskState::Pending | TaskState::Retry)) && message.error_msg.starts_with(NO_HANDLER) {
        reasons.push(Reason::NoHandler { task_type: message.r#type.clone() });
    }
    match state {
        Some(TaskState::Pending) => {
            reasons.extend(stopped);
            let since = facts.pending_since.filter(|since| since.saturating_add(SERVER_TTL_SECS) < now);
            if let Some(since) = since.filter(|_| reasons.is_empty() && slow.is_empty()) {
                let since = UnixSecond(since);
                let is_for_others =
                    |server: &&ServerInfo| server.entry.as_ref().is_some_and(|entry| !entry.handles(&message.r#type));
                reasons.push(match serving.iter().filter(|server| server.status == "active").all(is_for_others) {
                    true => Reason::PassedOver { since },
                    false => Reason::HeldBack { since, limits: facts.limits_of_all.clone() },
                });
            }
            match facts.ahead {
                Some(ahead @ 1..) => reasons.push(Reason::Behind { ahead }),
                Some(0) if reasons.is_empty() && slow.is_empty() => reasons.push(Reason::Next),
                _ => {}
            }
            reasons.extend(slow);
            reasons.extend(unaware(facts));
        }
        Some(TaskState::Scheduled) => {
            let follows = facts.follows.clone().map(|first| Reason::Follows { first, fallback: UnixSecond(score) });
            let is_parked = facts.lane.is_some() && score > now;
            let held = facts.lane.clone().or(follows).filter(|_| score > now);
            reasons.push(held.unwrap_or_else(|| waits(Reason::Scheduled { at: UnixSecond(score) })));
            reasons.extend(stopped);
            reasons.extend(unaware(facts).filter(|_| is_parked));
        }
        Some(TaskState::Retry) => {
            let (retried, max_retry) = (message.retried, message.retry);
            let retry = Reason::Retry { at: UnixSecond(score), retried, max_retry, error: error() };
            if let overdue @ Reason::Overdue { .. } = waits(retry.clone()) {
                reasons.push(overdue);
            }
            reasons.push(retry);
            reasons.extend(stopped);
        }
        Some(TaskState::Active) => reasons.push(running(queue, id, facts, now)),
        Some(TaskState::Archived) => reasons.push(Reason::Archived { at: UnixSecond(score), error: error() }),
        Some(TaskState::Completed) => {
            let at = Some(message.completed_at).filter(|at| *at > 0).map(UnixSecond);
            reasons.push(Reason::Completed { at, until: UnixSecond(score) });
        }
        Some(TaskState::Aggregating) if seen.is_remains => reasons.push(Reason::Aggregated),
        Some(TaskState::Aggregating) => {
            if let Some((group, size, oldest, youngest)) = facts.group.clone() {
                reasons.push(match facts.deadline {
                    Some(deadline) => Reason::Aggregating { group, deadline: UnixSecond(deadline) },
                    None => Reason::InGroup { group, size, oldest, youngest },
                });
            }
            // An aggregation that has begun goes on.
            let holds_up = |reason: &Reason| facts.deadline.is_none() || !matches!(reason, Reason::Paused { .. });
            reasons.extend(stopped.into_iter().filter(holds_up));
        }
        None => {}
    }
    if facts.crashes.count() > 0 {
        reasons.push(Reason::Crashes { count: facts.crashes.count(), holders: facts.crashes.holders().to_vec() });
    }
    if let Some(account) = Account::of(&message.headers, facts.crashes.count()) {
        reasons.push(Reason::Budgets { account });
    }
    if let Some(request) = &facts.cancel {
        let at = request.at.second();
        let ago_secs = u64::try_from(now.saturating_sub(at.0)).unwrap_or(0);
        let server = reasons.iter().find_map(|reason| match reason {
            Reason::Running { worker, .. } | Reason::Silent { worker, .. } if !worker.is_empty() => {
                Some(worker.clone())
            }
            _ => None,
        });
        reasons.push(Reason::CancelRequested { by: request.by.clone(), at, ago_secs, server });
    }
    if let Some(published) = facts.published {
        let (first, last) = (UnixSecond(published.first), UnixSecond(published.last));
        reasons.push(Reason::Published { count: published.count, first, last });
    }
    if let Some(last) = facts.attempts.1.last() {
        reasons.push(Reason::FailedBefore { count: facts.attempts.0, last: last.clone() });
    }
    if let Some(twin) = facts.lock_holder.as_ref().filter(|holder| *holder != id) {
        reasons.push(Reason::LockedByTwin { twin: twin.clone() });
    }
    if !facts.is_listed {
        reasons.push(Reason::Unlisted);
    }
    reasons
}

/// Why nobody serves its queue.
fn unserved(queue: &str, servers: &[ServerInfo], fallback: Option<Duration>) -> Reason {
    let QueueName { base, family } = QueueName::parse(queue);
    let of_base = servers.iter().filter(|server| server.queues.contains_key(base));
    let id = |server: &ServerInfo| format!("{}:{}", server.host, server.pid);
    if let Some(target) = family.filter(Family::is_target) {
        let known_as = |server: &ServerInfo| {
            let labels = server.entry.iter().flat_map(|entry| &entry.labels).map(|label| format!("#{label}"));
            let words: Vec<String> = server.name().map(str::to_owned).into_iter().chain(labels).collect();
            format!("{} ({})", id(server), if words.is_empty() { "no name".to_owned() } else { words.join(" ") })
        };
        return Reason::NoFittingServer { only: target.whom(), others: of_base.map(known_as).collect(), fallback };
    }
    let of_base: Vec<String> = of_base.map(id).collect();
    if of_base.is_empty() { Reason::NoServer } else { Reason::NoPriorities { servers: of_base } }
}

/// Who takes tasks of its queue although a limit lets nothing start.
fn unaware(facts: &Facts) -> Option<Reason> {
    (!facts.unaware.is_empty()).then(|| Reason::UnawareServers { servers: facts.unaware.clone() })
}

/// Who has an active task.
fn running(queue: &str, id: &str, facts: &Facts, now: i64) -> Reason {
    let with_it = facts.servers.iter().find_map(|server| {
        let worker = server.workers.iter().find(|worker| worker.task_id == id && worker.queue == queue)?;
        Some((server, worker))
    });
    let since = with_it.and_then(|(_, worker)| worker.started).map(UnixSecond::from);
    let worker = match with_it {
        Some((server, _)) => format!("{}:{} (server {})", server.host, server.pid, server.id),
        // The number of the take says nothing to anybody.
        None => facts.owner.rsplit_once(':').map_or(String::new(), |(name, _)| name.to_owned()),
    };
    let lease = facts.seen.lease.parse::<f64>().map_or(now, |score| score as i64);
    if lease > now {
        return Reason::Running { worker, since, lease_until: UnixSecond(lease) };
    }
    // As the recoverer decides.
    let margin = if with_it.is_some() { RECOVERY_MARGIN_SECS } else { SILENT_MARGIN_SECS };
    Reason::Silent { worker, lease_ended: UnixSecond(lease), recovered_at: UnixSecond(lease.saturating_add(margin)) }
}

#[cfg(test)]
mod tests;
