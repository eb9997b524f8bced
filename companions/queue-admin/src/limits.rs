//! Limits of a queue, and the lanes of their keys.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::Clock as _;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::limit::{LaneChange, Limit, LimitError, Limits};
use queue_core::options::check_limited_queue;
use queue_core::registry::LIMITS;
use queue_redis::Error as RedisError;
use queue_redis::broker::{Change, Holding, Seen};
use redis::{RedisError as RedisFailure, RedisResult, Value};

use super::Inspector;
use crate::error::{Error, WhyUnreadable};

/// A limit, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The limit.
    pub limit: Limit,
    /// Tasks that run under its cap, and in strict order also those at turn that wait for a retry. Some of them may have
    /// ended without anybody having looked. 0 without a cap.
    pub running: u64,
    /// Tasks that wait in its lanes. Some of them may have been run or deleted by others meanwhile.
    pub waiting: u64,
    /// How often a task met a full lane and was parked, since the queue has limits.
    pub parked: u64,
    /// How often a handler said that it was too much ([`Failure::too_many`](https://docs.rs/queue-worker)), likewise.
    pub too_many: u64,
    /// How often a breaker let nothing start of a key, likewise.
    pub opened: u64,
    /// What is different for some of its keys.
    pub changes: BTreeMap<String, LaneChange>,
}

/// How often a change is tried while others change the limits at the same time.
const TRIES: usize = 10;
/// Parked tasks that become pending in one call.
const PAGE: usize = 50;
/// Entries of lanes that are read in one call.
const SCAN: usize = 1_000;

impl Inspector {
    /// Which of these queues have limits. One command asks for a thousand of them; in a cluster, one for each.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn limited_queues(&self, queues: &[String]) -> Result<Vec<String>, Error> {
        let names: Vec<&str> = queues.iter().map(String::as_str).collect();
        let have = self.broker().which_hold(&names, Holding::Limits).await?;
        Ok(queues.iter().zip(have).filter(|(_, has)| *has).map(|(queue, _)| queue.clone()).collect())
    }

    /// By queue, with limits or without, the servers that are alive, serve it, and take tasks without asking for limits:
    /// those of Go and of older releases, as `<host>:<pid>:<uuid>`.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn servers_unaware_of_limits(&self) -> Result<BTreeMap<String, Vec<String>>, Error> {
        self.look_at_the_clock().await?;
        Ok(self.broker().unaware_servers(LIMITS, self.clock.now_secs()).await?)
    }

    /// The limits of a queue, with what they do. Empty where there are none.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`] where there are none, and [no such queue](Self::knows_queue); when they cannot be read, or Redis cannot be asked or
    /// refuses.
    pub async fn limits(&self, queue: &str) -> Result<Vec<LimitInfo>, Error> {
        let limits = self.stored_limits(queue).await?.map(|(_, limits)| limits).unwrap_or_default();
        let mut look = redis::pipe();
        if ask(&mut look, queue, &limits) == 0 {
            let is_known = self.knows_queue(queue).await?;
            return is_known.then(Vec::new).ok_or_else(|| Error::QueueNotFound(queue.to_owned()));
        }
        let replies = self.redis.pooled().await?.pipeline::<Vec<Value>>("looking at limits", &look).await?;
        Ok(told(limits, replies))
    }

    /// The same of several queues, in two round trips. What cannot be read of one costs no other.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn limits_of(&self, queues: &[String]) -> Result<Vec<Result<Vec<LimitInfo>, Error>>, Error> {
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let refused = |error: &RedisFailure| Error::Redis(RedisError::unexpected("looking at limits", error));
        let mut connection = self.redis.pooled().await?;
        let mut look = redis::pipe();
        for queue in queues {
            look.cmd("GET").arg(QueueKeys::new(queue).rules());
        }
        look.ignore_errors();
        let texts: Vec<RedisResult<Option<Vec<u8>>>> = connection.pipeline("reading limits", &look).await?;
        let (mut all, mut look) = (Vec::with_capacity(queues.len()), redis::pipe());
        for (queue, text) in queues.iter().zip(texts) {
            let spoilt = |why| Error::LimitsUnreadable { queue: queue.to_owned(), why };
            let limits = match text {
                Ok(text) => text.map_or(Ok(Limits::default()), |text| read_limits(&text).map_err(spoilt)),
                Err(error) if error.code() == Some("WRONGTYPE") => Err(spoilt(WhyUnreadable::OtherType)),
                Err(error) => Err(refused(&error)),
            };
            let asked = limits.as_ref().map_or(0, |limits| ask(&mut look, queue, limits));
            all.push((limits, asked));
        }
        look.ignore_errors();
        let mut replies: Vec<RedisResult<Value>> = Vec::new();
        if !look.is_empty() {
            replies = connection.pipeline("looking at limits", &look).await?;
        }
        let mut replies = replies.into_iter();
        let found = all.into_iter().map(|(limits, asked)| {
            let replies: RedisResult<Vec<Value>> = replies.by_ref().take(asked).collect();
            Ok(told(limits?, replies.map_err(|error| refused(&error))?))
        });
        Ok(found.collect())
    }

    /// The limits of a queue, as they stand in Redis and as they are read.
    pub(crate) async fn stored_limits(&self, queue: &str) -> Result<Option<(Vec<u8>, Limits)>, Error> {
        let spoilt = |why| Error::LimitsUnreadable { queue: queue.to_owned(), why };
        match self.broker().limits_text(queue).await {
            Err(error) if error.is_wrong_type() => Err(spoilt(WhyUnreadable::OtherType)),
            Err(error) => Err(error.into()),
            Ok(None) => Ok(None),
            Ok(Some(text)) => match read_limits(&text) {
                Ok(limits) => Ok(Some((text, limits))),
                Err(why) => Err(spoilt(why)),
            },
        }
    }

    /// Sets a limit of a queue, in the place of one of the same name. It holds for tasks that are taken from now on. A queue that never had
    /// a task is listed with it.
    ///
    /// # Errors
    /// When it is none, the limits there cannot be read, or Redis cannot be asked or refuses.
    pub async fn set_limit(&self, queue: &str, limit: Limit) -> Result<(), Error> {
        check_limited_queue(queue)?;
        let stored = self.stored_limits(queue).await?;
        let is_new = stored.is_none_or(|(_, limits)| limits.rules.iter().all(|other| other.name != limit.name));
        if is_new {
            // Whoever removed a limit of this name may have been killed before its changes went with it.
            self.forget_changes(queue, &limit.name).await?;
        }
        self.change_limits(queue, |limits| Ok(limits.set(limit.clone())?)).await?;
        Ok(self.broker().publish_queue(queue).await?)
    }

    /// Removes a limit of a queue. What waits in its lanes is taken as servers have room.
    ///
    /// # Errors
    /// When there is none of this name, or Redis cannot be asked or refuses.
    pub async fn remove_limit(&self, queue: &str, name: &str) -> Result<(), Error> {
        let missing = || Error::LimitNotFound { queue: queue.to_owned(), limit: name.to_owned() };
        self.change_limits(queue, |limits| limits.remove(name).then_some(()).ok_or_else(missing)).await?;
        self.forget_changes(queue, name).await
    }

    /// What holds for single keys of a limit goes with it: a limit that gets its name later is another one.
    async fn forget_changes(&self, queue: &str, name: &str) -> Result<(), Error> {
        let changes = QueueKeys::new(queue).lane_changes();
        let lanes: BTreeMap<String, String> = self.redis.command("HGETALL", &changes).await?;
        let is_of_limit = |lane: &String| lane.split_once(':').is_some_and(|(limit, _)| limit == name);
        let of_limit: Vec<String> = lanes.into_keys().filter(is_of_limit).collect();
        if of_limit.is_empty() {
            return Ok(());
        }
        Ok(self.redis.command("HDEL", (changes, of_limit)).await?)
    }

    /// Removes all limits of a queue, also those that cannot be read, and makes the tasks pending that wait in lanes;
    /// returns how many.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`]; [`Error::LimitsUnreadable`] where something of another type stands in their place; when Redis cannot be
    /// asked or refuses. It can be repeated.
    pub async fn remove_limits(&self, queue: &str) -> Result<u64, Error> {
        let (broker, keys) = (self.broker(), QueueKeys::new(queue));
        let traces = [keys.rules(), keys.lanes_waiting(), keys.lanes_due(), keys.lane_slots(), keys.lane_changes()];
        let are_left: u64 = self.redis.command("EXISTS", &traces).await?;
        if are_left == 0 {
            self.require_queue(queue).await?;
        }
        loop {
            let text = match self.stored_limits(queue).await {
                Err(Error::LimitsUnreadable { why: WhyUnreadable::Text(_), .. }) => broker.limits_text(queue).await?,
                stored => stored?.map(|(text, _)| text),
            };
            if text.is_none() || broker.set_limits(queue, text.as_deref(), &Limits::default().text()).await? {
                break;
            }
        }
        let (mut moved, none) = (0, Limits::default().text());
        loop {
            let mut entries = self.waiting_entries(&keys).await?;
            if entries.is_empty() {
                if broker.remove_limits(queue, &none).await? {
                    return Ok(moved);
                }
                continue;
            }
            // Over all lanes, the first that came is the first to go.
            let since = |entry: &[u8]| entry.split(|byte| *byte == b' ').nth(1).map(<[u8]>::to_vec);
            entries.sort_by_cached_key(|entry| since(entry));
            for page in entries.chunks(PAGE) {
                let ids: Vec<&[u8]> =
                    page.iter().filter_map(|entry| entry.splitn(3, |byte| *byte == b' ').nth(2)).collect();
                moved += self.run_parked(queue, &ids).await?;
                self.redis.command::<()>("ZREM", (keys.lanes_waiting(), page)).await?;
            }
        }
    }

    /// The entries of all lanes of a queue, in no order.
    async fn waiting_entries(&self, keys: &QueueKeys) -> Result<Vec<Vec<u8>>, Error> {
        let (mut entries, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let (next, page): (u64, Vec<(Vec<u8>, f64)>) =
                self.redis.command("ZSCAN", (keys.lanes_waiting(), cursor, "COUNT", SCAN)).await?;
            entries.extend(page.into_iter().map(|(entry, _)| entry));
            if next == 0 {
                return Ok(entries.into_iter().collect());
            }
            cursor = next;
        }
    }

    async fn run_parked(&self, queue: &str, ids: &[&[u8]]) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        // An entry may be left of a task that somebody has scheduled since; that one waits for its own time.
        let mut look = redis::pipe();
        for id in ids {
            look.cmd("HGET").arg([keys.task_prefix().as_bytes(), id].concat()).arg("x_waits");
        }
        let waits: Vec<Option<Vec<u8>>> = self.redis.pooled().await?.pipeline("looking at parked tasks", &look).await?;
        let parked: Vec<&[u8]> =
            ids.iter().zip(waits).filter(|(_, waits)| waits.is_some()).map(|(id, _)| *id).collect();
        if parked.is_empty() {
            return Ok(0);
        }
        let (seen, now_ns) = (Seen::In(TaskState::Scheduled), self.clock.now_ns());
        let changes = self.broker().run_tasks(queue, seen, &parked, now_ns).await?;
        Ok(changes.into_iter().filter(|change| change == &Change::Applied).count() as u64)
    }

    /// Changes what holds for one key of a limit, or with `None` lets it be as for all; then a rest of its breaker ends, too, and its rate is whole again.
    ///
    /// # Errors
    /// When there is no such queue or limit, [it cannot be changed so](LaneChange::check), or Redis cannot be asked or refuses.
    pub async fn change_lane(
        &self,
        queue: &str,
        name: &str,
        key: &str,
        change: Option<&LaneChange>,
    ) -> Result<(), Error> {
        let missing = || Error::LimitNotFound { queue: queue.to_owned(), limit: name.to_owned() };
        let limits = self.limits(queue).await?;
        let limit = &limits.iter().find(|info| info.limit.name == name).ok_or_else(missing)?.limit;
        let lane = limit.lane(key)?;
        change.map_or(Ok(()), |change| change.check(limit))?;
        let changes = QueueKeys::new(queue).lane_changes();
        match change.filter(|change| **change != LaneChange::default()) {
            Some(change) => {
                let text = serde_json::json!(change).to_string();
                self.redis.command::<()>("HSET", (changes, lane, text)).await?;
            }
            None => {
                let keys = QueueKeys::new(queue);
                let (health, pace) = (keys.lane_health(&lane), keys.lane_pace(&lane));
                self.redis.command::<()>("HDEL", (changes, lane)).await?;
                self.redis.command::<()>("DEL", (health, pace)).await?;
            }
        }
        Ok(self.broker().look_at_lanes(queue).await?)
    }

    async fn change_limits(&self, queue: &str, change: impl Fn(&mut Limits) -> Result<(), Error>) -> Result<(), Error> {
        let broker = self.broker();
        for _ in 0..TRIES {
            let (text, mut limits) = self.stored_limits(queue).await?.unzip();
            let limits = limits.get_or_insert_default();
            change(limits)?;
            if broker.set_limits(queue, text.as_deref(), &limits.text()).await? {
                return Ok(());
            }
        }
        Err(Error::LimitsContended(queue.to_owned()))
    }
}

/// What stands in Redis, as limits.
pub(crate) fn read_limits(text: &[u8]) -> Result<Limits, WhyUnreadable> {
    Limits::read(&String::from_utf8_lossy(text)).map_err(|error| match error {
        LimitError::Unreadable(reason) => WhyUnreadable::Text(reason),
        error => WhyUnreadable::Text(error.to_string()),
    })
}

/// Adds the commands that look at what limits do; returns how many those are. None without limits.
fn ask(look: &mut redis::Pipeline, queue: &str, limits: &Limits) -> usize {
    if limits.rules.is_empty() {
        return 0;
    }
    let keys = QueueKeys::new(queue);
    look.cmd("HGETALL").arg(keys.lane_changes()).cmd("HGETALL").arg(keys.limit_stats());
    for limit in &limits.rules {
        // A colon follows the name; what comes after the colon is `;`.
        let (from, to) = (format!("[{}:", limit.name), format!("({};", limit.name));
        match limit.parks() {
            true => look.cmd("ZLEXCOUNT").arg(keys.lane_slots()).arg(&from).arg(&to),
            false => look.cmd("ZCARD").arg(keys.lease()),
        };
        look.cmd("ZLEXCOUNT").arg(keys.lanes_waiting()).arg(from).arg(to);
    }
    2 + 2 * limits.rules.len()
}

/// The limits, with the replies to what [`ask`] asked.
fn told(limits: Limits, replies: Vec<Value>) -> Vec<LimitInfo> {
    let mut replies = replies.into_iter();
    let changes: BTreeMap<String, String> = read(replies.next());
    let stats: BTreeMap<String, u64> = read(replies.next());
    let mut found = Vec::new();
    for limit in limits.rules {
        let count = |what: &str| stats.get(&format!("{}:{what}", limit.name)).copied().unwrap_or(0);
        let (parked, too_many, opened) = (count("parked"), count("too-many"), count("opened"));
        let (running, waiting) = (read(replies.next()), read(replies.next()));
        let of_limit = changes.iter().filter_map(|(lane, text)| {
            let (name, key) = lane.split_once(':')?;
            let change = (name == limit.name).then(|| serde_json::from_str(text).unwrap_or_default())?;
            Some((limit.key_of_lane(key), change))
        });
        found.push(LimitInfo { running, waiting, parked, too_many, opened, changes: of_limit.collect(), limit });
    }
    found
}

/// A reply, or nothing where Redis has refused it.
fn read<T: redis::FromRedisValue + Default>(reply: Option<Value>) -> T {
    reply.and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default()
}
