//! Periodic entries: `register_entry.lua`, `enqueue_tick.lua`, `release_entry.lua`, and what schedulers tell
//! about themselves.

use prost::Message as _;
use queue_core::keys::{self, QueueKeys};
use queue_core::limits::{ENTRY_SHOWN_SECS, ENTRY_TTL_SECS, HISTORY_EVENTS, HISTORY_TTL_SECS};
use queue_core::options::Composed;
use queue_core::wire::{SchedulerEnqueueEvent, SchedulerEntry, TaskMessage, Timestamp};
use redis::{FromRedisValue, Value};

use super::{Broker, enqueue::place_of};
use crate::connection::Connection;
use crate::error::Error;
use crate::script::{ENQUEUE_TICK, PAUSE_ENTRY, REGISTER_ENTRY, RELEASE_ENTRY, Word};

queue_core::words! {
    /// What happens to a tick while the task of the run before is unfinished, that is neither gone, completed
    /// nor archived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    #[non_exhaustive]
    pub enum Overlap {
        /// It is enqueued. The default, as in asynq.
        #[default]
        Allow: "allow",
        /// It is left out.
        Skip: "skip",
        /// It waits for the end of that run; of several that wait, the latest is run.
        Queue: "queue",
    }
}

/// Why a task of an entry is to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Its tick has come.
    Tick,
    /// Its tick was missed, and is made up for.
    Missed,
    /// Its tick waited for the end of the run before.
    Waiting,
    /// The ticks up to it, from this one on, were missed and are let go: nothing is enqueued.
    LetGo {
        /// Unix second of the first of them.
        from: i64,
    },
    /// Somebody wants it.
    Manual,
    /// Somebody wants it even while the run before is unfinished.
    Forced,
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Missed => "missed",
            Self::Waiting => "waiting",
            Self::LetGo { .. } => "let-go",
            Self::Manual => "manual",
            Self::Forced => "forced",
        }
    }
}

/// What became of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TickVerdict {
    /// Its task is stored.
    Enqueued,
    /// Its task had been stored before, and the claim of it was lost.
    Exists,
    /// It was dealt with before, by another scheduler or by a call whose answer was lost.
    Claimed,
    /// The entry is paused.
    Paused,
    /// The run before is unfinished; the tick is left out.
    Unfinished,
    /// The run before is unfinished; the tick waits for it, and has to be asked for again.
    Waiting,
    /// The entry has had all its runs.
    Exhausted,
    /// Another task of its type and payload holds the uniqueness lock.
    Locked,
    /// It is let go.
    LetGo,
    /// It is in the future by the clock of Redis; nothing was written.
    Ahead,
}

/// A tick of an entry that is to be dealt with.
#[derive(Debug, Clone, Copy)]
pub struct Tick<'a> {
    /// Name of the entry.
    pub entry: &'a str,
    /// Why.
    pub why: Why,
    /// Unix second of the tick.
    pub at: i64,
    /// Its task, with an id that names the tick.
    pub task: &'a Composed,
    /// What to do while the run before is unfinished.
    pub overlap: Overlap,
    /// Most runs of the entry; 0 for any number.
    pub max_runs: u64,
}

/// What Redis says about a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TickReply {
    /// What became of it.
    pub verdict: TickVerdict,
    /// Unix second up to which all ticks of the entry are dealt with.
    pub upto: i64,
    /// Id of the task that was enqueued last; empty for none.
    pub last_id: String,
    /// When that was, in Unix nanoseconds; 0 for never.
    pub last_ns: i64,
    /// What `upto` was before this call; 0 where Redis did not know the entry.
    pub before: i64,
}

/// What describes an entry in Redis, for whoever looks at it.
#[derive(Debug, Clone, Copy)]
pub struct EntryDefinition<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its spec with its time zone and start; ticks are counted anew when it changes.
    pub spec: &'a str,
    /// Unix second after which it has no ticks; `None` for never.
    pub ends: Option<i64>,
    /// Its task, without an id.
    pub template: &'a TaskMessage,
    /// Seconds a uniqueness lock lives; 0 for none.
    pub unique_ttl: i64,
    /// What to do while the run before is unfinished.
    pub overlap: Overlap,
    /// Its policies, as JSON.
    pub policy: &'a str,
}

/// What schedulers know about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryStatus {
    /// Whether this scheduler is the one that shows it to Go's tools.
    pub shown: bool,
    /// Unix second up to which all its ticks are dealt with.
    pub upto: i64,
    /// Unix second of a tick that waits for the run before.
    pub waiting: Option<i64>,
    /// Id of the task that was enqueued last; empty for none.
    pub last_id: String,
    /// When that was, in Unix nanoseconds; 0 for never.
    pub last_ns: i64,
    /// Since which Unix second it is paused.
    pub paused: Option<i64>,
    /// How many tasks were enqueued.
    pub runs: u64,
    /// The number of the last registration, by whomever.
    pub registered: u64,
    /// What `upto` was before this call; 0 where Redis did not know the entry.
    pub before: i64,
}

/// What a scheduler has to do with an entry when it tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It has just taken it up, as it is now.
    Register,
    /// It still carries it; with the number that its registration had.
    Beat(u64),
}

impl Broker {
    /// Pauses an entry since `since`, or resumes it (`None`). Returns whether that changed anything; `None` where there
    /// is no such entry.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn pause_entry(
        &self,
        queue: &str,
        name: &str,
        since: Option<i64>,
        now: i64,
    ) -> Result<Option<bool>, Error> {
        let mut call = PAUSE_ENTRY.call(1);
        let since = since.map(|since| since.to_string()).unwrap_or_default();
        call.arg(QueueKeys::new(queue).cron_entry(name)).arg(since).arg(now);
        let reply = self.redis.run(&PAUSE_ENTRY, &call).await?;
        let answer = |word| match word {
            Word::Applied => Some(Some(true)),
            Word::AlreadyThere => Some(Some(false)),
            Word::Missing => Some(None),
            _ => None,
        };
        super::verdicts(PAUSE_ENTRY.name, &reply, 1, answer).map(|answers| answers[0])
    }

    /// Claims a tick of an entry and enqueues its task, in one step.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then nothing was done, unless the error
    /// [is ambiguous](Error::is_ambiguous), and the same call can be made again.
    pub async fn enqueue_tick(&self, tick: Tick<'_>, now_ns: i64) -> Result<TickReply, Error> {
        let message = &tick.task.message;
        let keys = QueueKeys::new(&message.queue);
        let task = keys.task(&message.id);
        let lock = if message.unique_key.is_empty() { &task } else { &message.unique_key };
        let (state, place, score) = place_of(&keys, tick.task, now_ns);
        let from = if let Why::LetGo { from } = tick.why { from } else { tick.at };
        let mut call = ENQUEUE_TICK.call(6);
        call.arg(keys.cron_entry(tick.entry)).arg(keys.cron_history(tick.entry));
        call.arg(&task).arg(lock).arg(place).arg(keys.groups());
        call.arg(tick.why.as_str()).arg(tick.at).arg(now_ns).arg(&message.id).arg(&message.to_bytes()[..]);
        call.arg(tick.task.unique_ttl).arg(state).arg(score).arg(&message.group_key);
        call.arg(tick.overlap.as_str()).arg(tick.max_runs).arg(from);
        let reply = self.redis.run(&ENQUEUE_TICK, &call).await?;
        parse_tick(&reply).ok_or_else(|| Error::unexpected(ENQUEUE_TICK.name, &reply))
    }

    /// Tells that a scheduler carries an entry; `known` is up to when it knows the ticks to be dealt with. `None` when its
    /// clock is ahead of that of Redis.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn register_entry(
        &self,
        definition: EntryDefinition<'_>,
        scheduler: &str,
        occasion: Occasion,
        known: i64,
        now: i64,
    ) -> Result<Option<EntryStatus>, Error> {
        let EntryDefinition { name, spec, ends, template, unique_ttl, overlap, policy } = definition;
        let (occasion, own) = match occasion {
            Occasion::Register => ("register", 0),
            Occasion::Beat(own) => ("beat", own),
        };
        let keys = QueueKeys::new(&template.queue);
        let mut call = REGISTER_ENTRY.call(1);
        call.arg(keys.cron_entry(name)).arg(occasion).arg(now).arg(known);
        call.arg(scheduler).arg(ENTRY_SHOWN_SECS).arg(ENTRY_TTL_SECS).arg(spec);
        call.arg(ends.map_or(String::new(), |ends| ends.to_string())).arg(own);
        call.arg("task").arg(&template.to_bytes()[..]).arg("unique").arg(unique_ttl);
        call.arg("overlap").arg(overlap.as_str()).arg("policy").arg(policy);
        let reply = self.redis.run(&REGISTER_ENTRY, &call).await?;
        parse_status(&reply).ok_or_else(|| Error::unexpected(REGISTER_ENTRY.name, &reply))
    }

    /// Tells that a scheduler no longer carries an entry; `removed` is the Unix second at which somebody took
    /// it out of service, `None` when only the scheduler ends.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn release_entry(
        &self,
        queue: &str,
        name: &str,
        scheduler: &str,
        removed: Option<i64>,
    ) -> Result<(), Error> {
        let mut call = RELEASE_ENTRY.call(1);
        call.arg(QueueKeys::new(queue).cron_entry(name)).arg(scheduler);
        call.arg(removed.map_or(String::new(), |at| at.to_string()));
        self.redis.run(&RELEASE_ENTRY, &call).await.map(drop)
    }

    /// Lists the entries that a scheduler shows to Go's tools for the next 20 s, and those that it carries
    /// (name and queue) for ours; forgets schedulers that have not done so in time.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn write_scheduler_entries(
        &self,
        connection: &mut Connection,
        key: &str,
        shown: &[SchedulerEntry],
        carried: &[(&str, &str)],
        now: i64,
    ) -> Result<(), Error> {
        let mut index = redis::pipe();
        index.cmd("ZADD").arg(keys::SCHEDULERS).arg(now + ENTRY_SHOWN_SECS).arg(key).ignore();
        index.cmd("ZREMRANGEBYSCORE").arg(keys::SCHEDULERS).arg("-inf").arg(now - 1).ignore();
        for (name, queue) in carried {
            index.cmd("ZADD").arg(keys::CRON_ENTRIES).arg(now).arg(format!("{name} {queue}")).ignore();
        }
        index.cmd("ZREMRANGEBYSCORE").arg(keys::CRON_ENTRIES).arg("-inf").arg(now - ENTRY_TTL_SECS).ignore();
        connection.pipeline::<()>("listing the scheduler", &index).await?;
        let mut list = redis::pipe();
        list.atomic().cmd("DEL").arg(key).ignore();
        for entries in shown.chunks(super::MAX_BATCH) {
            let encoded: Vec<Vec<u8>> = entries.iter().map(prost::Message::encode_to_vec).collect();
            list.cmd("LPUSH").arg(key).arg(encoded).ignore();
        }
        if !shown.is_empty() {
            // Whole seconds, or Redis refuses it after the list has been written (R18, W30).
            list.cmd("EXPIRE").arg(key).arg(ENTRY_SHOWN_SECS).ignore();
        }
        connection.pipeline::<()>("writing the scheduler's entries", &list).await
    }

    /// Takes a scheduler off the list.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; it then expires by itself after 20 s.
    pub async fn clear_scheduler_entries(&self, connection: &mut Connection, key: &str) -> Result<(), Error> {
        connection.command::<()>("ZREM", (keys::SCHEDULERS, key)).await?;
        connection.command::<()>("DEL", key).await
    }

    /// Takes an entry off the list of those that are carried.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn unlist_entry(&self, queue: &str, name: &str) -> Result<(), Error> {
        self.redis.command("ZREM", (keys::CRON_ENTRIES, format!("{name} {queue}"))).await
    }

    /// Adds to the history of an entry that Go's tools show: 1000 events, kept for 30 days after the last.
    /// The same event twice counts once.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn record_enqueue_event(&self, entry: &str, task_id: &str, at_ns: i64) -> Result<(), Error> {
        let key = keys::scheduler_history(entry);
        let event =
            SchedulerEnqueueEvent { task_id: task_id.to_owned(), enqueue_time: Some(Timestamp::from_unix_ns(at_ns)) };
        let mut record = redis::pipe();
        record.atomic();
        record.cmd("ZADD").arg(&key).arg(at_ns.div_euclid(1_000_000_000)).arg(event.encode_to_vec()).ignore();
        record.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-(HISTORY_EVENTS as isize) - 1).ignore();
        record.cmd("EXPIRE").arg(&key).arg(HISTORY_TTL_SECS).ignore();
        self.redis.pooled().await?.pipeline::<()>("recording an enqueue event", &record).await
    }
}

fn parse_tick(reply: &Value) -> Option<TickReply> {
    let (word, upto, last_id, last_ns, before): (String, i64, String, i64, i64) =
        FromRedisValue::from_redis_value_ref(reply).ok()?;
    let verdict = match word.as_str() {
        "enqueued" => TickVerdict::Enqueued,
        "exists" => TickVerdict::Exists,
        "claimed" => TickVerdict::Claimed,
        "paused" => TickVerdict::Paused,
        "unfinished" => TickVerdict::Unfinished,
        "waiting" => TickVerdict::Waiting,
        "exhausted" => TickVerdict::Exhausted,
        "locked" => TickVerdict::Locked,
        "let-go" => TickVerdict::LetGo,
        "ahead" => TickVerdict::Ahead,
        _ => return None,
    };
    Some(TickReply { verdict, upto, last_id, last_ns, before })
}

fn parse_status(reply: &Value) -> Option<Option<EntryStatus>> {
    let fields = Vec::<String>::from_redis_value_ref(reply).ok()?;
    if fields == ["ahead"] {
        return Some(None);
    }
    let [word, upto, waiting, last_id, last_ns, paused, runs, registered, before] = fields.try_into().ok()?;
    let optional = |text: String| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
    Some(Some(EntryStatus {
        shown: word == "shown",
        upto: upto.parse().ok()?,
        waiting: optional(waiting)?,
        last_id,
        last_ns: last_ns.parse().ok()?,
        paused: optional(paused)?,
        runs: runs.parse().ok()?,
        registered: registered.parse().ok()?,
        before: before.parse().ok()?,
    }))
}
