//! What Redis tells by itself: cancelations, and that there may be work.
//!
//! One connection listens for both. Work is noticed by client tracking (RESP3, Redis 6 and later): a
//! look at some keys arms the connection, and the first change of one of them afterwards, also by a
//! script of Go's, pushes a message. Nothing is written, one connection serves any number of queues, and
//! since the look itself arms, nothing is missed in between. Where tracking is not to be had, only the
//! cancelations are heard, and the caller polls.
//!
//! A connection on which nothing has to be sent would not notice that it was cut. So a listener that hears
//! nothing asks for a sign of life, and gives itself up when none comes, when a look through it fails, and
//! when another connection finds that its server is no longer the master.

mod ear;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use queue_core::TaskState;
use queue_core::event::Wanted;
use queue_core::keys::QueueKeys;
use queue_core::limits::WATCH_POLL;
use redis::{Pipeline, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use self::ear::{Arm, Ear};
use crate::broker::duties::{first_duty, read_first};
use crate::broker::events::{read_watchers, watchers};
use crate::broker::{CancelRequests, Wants};
use crate::broker::{
    FEW_SETS, Holding, IdRange, Search, TaskLook, Waiting, all_queue_names, any_of, chosen, due_set, first_lanes,
    heads_of, read_first_lanes, read_heads, read_queue_names, spread,
};
use crate::connection::Redis;
use crate::error::Error;
use crate::link::cluster::{self, Cluster};
use crate::link::server::{Server, read};

/// How long to do without the node of a cluster that could not be reached, before it is tried again.
const MISSING_FOR: Duration = Duration::from_secs(1);

/// Something that Redis told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The task with this id is to be canceled.
    Cancel(String),
    /// The pending tasks of this queue have changed, or whether it is paused.
    Work(String),
    /// The scheduled or the retried tasks of this queue have changed.
    Schedule(String),
    /// Which groups there are in this queue has changed.
    Groups(String),
    /// The tasks of a group have changed; the queue comes first.
    Group(String, String),
    /// A task has changed, or is gone; the queue comes first.
    Task(String, String),
    /// Something else of this queue has changed, perhaps from nothing to something or back.
    Holding(String, Holding),
    /// This key, which belongs to no queue, has changed.
    Shared(String),
    /// Anything that was looked at may have changed.
    Everything,
    /// The connection broke; connect again.
    Lost,
}

/// A connection that listens; in a cluster, one to each master.
pub struct Listener {
    redis: Redis,
    hearing: Hearing,
    watch: Option<Watch>,
}

enum Hearing {
    One(Box<Ear>),
    Many {
        heard: UnboundedReceiver<Signal>,
        // Each waits at its own ear: one that hears much does not keep the others from asking whether theirs still
        // works. Dropping the set ends them.
        _ears: JoinSet<()>,
    },
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("redis", &self.redis).field("tracking", &self.watch.is_some()).finish()
    }
}

impl Listener {
    /// Begins to listen. Falls back to cancelations alone when the server has no client tracking, or the
    /// user no right to it. In a cluster, nodes that cannot be reached are left out for a while.
    ///
    /// # Errors
    /// When Redis cannot be reached, or refuses the subscription.
    pub async fn connect(redis: &Redis) -> Result<Self, Error> {
        match Self::tracking(redis, true).await {
            Err(error) if !error.is_outage() => {
                crate::log::warn!(%error, "no client tracking; new tasks are noticed by polling");
                Self::plain(redis, &redis.masters().await?).await
            }
            listener => listener,
        }
    }

    /// The same for somebody who is no server: it hears of changes alone, so that nobody who cancels a task takes it for
    /// one that may have the task.
    pub(crate) async fn of_changes(redis: &Redis) -> Result<Self, Error> {
        Self::tracking(redis, false).await
    }

    async fn tracking(redis: &Redis, hears_cancelations: bool) -> Result<Self, Error> {
        let masters = redis.masters().await?;
        let ears = join_all(masters.iter().map(|master| Ear::tracking(master, hears_cancelations))).await;
        let (heard, failed): (Vec<_>, Vec<_>) = ears.into_iter().partition(Result::is_ok);
        let failed: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
        if let Some(refused) = failed.iter().find(|error| !error.is_outage()) {
            return Err(refused.clone());
        }
        let mut ears: Vec<Ear> = heard.into_iter().filter_map(Result::ok).collect();
        match failed.into_iter().next() {
            // It may have tracking once it is there.
            Some(error) if ears.is_empty() => Err(error),
            None if ears.len() == 1 && redis.cluster().is_none() => {
                let ear = ears.remove(0);
                let watch =
                    Watch { redis: redis.clone(), arms: ear.arm().into_iter().collect(), masters: masters.into() };
                Ok(Self { redis: redis.clone(), hearing: Hearing::One(Box::new(ear)), watch: Some(watch) })
            }
            missing => Ok(Self::many(redis, masters, ears, missing.is_some())),
        }
    }

    /// Listens for cancelations only. What one node of a cluster is told is told by all.
    async fn plain(redis: &Redis, masters: &[Arc<Server>]) -> Result<Self, Error> {
        let mut failed = None;
        for master in masters {
            match Ear::plain(master).await {
                Ok(ear) => return Ok(Self { redis: redis.clone(), hearing: Hearing::One(Box::new(ear)), watch: None }),
                Err(error) => failed = Some(error),
            }
        }
        let nobody = || Error::unexpected("CLUSTER SLOTS", &"no masters");
        Err(failed.unwrap_or_else(nobody))
    }

    fn many(redis: &Redis, masters: Vec<Arc<Server>>, ears: Vec<Ear>, missing: bool) -> Self {
        let arms = ears.iter().filter_map(Ear::arm).collect();
        let (sender, heard) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for mut ear in ears {
            let sender = sender.clone();
            tasks.spawn(async move {
                loop {
                    let signal = ear.signal().await;
                    let is_lost = signal == Signal::Lost;
                    if sender.send(signal).is_err() || is_lost {
                        return;
                    }
                }
            });
        }
        if missing {
            tasks.spawn(async move {
                tokio::time::sleep(MISSING_FOR).await;
                // Nobody listens any more, or connects again.
                let _ = sender.send(Signal::Lost);
            });
        }
        let watch = Watch { redis: redis.clone(), arms, masters: masters.into() };
        Self { redis: redis.clone(), hearing: Hearing::Many { heard, _ears: tasks }, watch: Some(watch) }
    }

    /// A handle that looks at keys and arms this connection; `None` when there is no tracking.
    pub fn watch(&self) -> Option<Watch> {
        self.watch.clone()
    }

    /// Waits for the next signal. After [`Signal::Lost`] there are no more.
    ///
    /// # Cancel safety
    /// Cancel safe: no signal is lost.
    pub async fn signal(&mut self) -> Signal {
        match &mut self.hearing {
            Hearing::One(ear) => ear.signal().await,
            Hearing::Many { heard, .. } => heard.recv().await.unwrap_or(Signal::Lost),
        }
    }
}

/// Looks at keys through a listening connection, so that their next change is signalled.
#[derive(Clone)]
pub struct Watch {
    redis: Redis,
    arms: Vec<Arm>,
    /// Those who were to be listened to. Not all of them have an arm.
    masters: Arc<[Arc<Server>]>,
}

queue_core::debug_some!(Watch, redis);

impl Watch {
    /// Sends a look. One that fails tells the listener that its connection is of no use.
    async fn look<T: redis::FromRedisValue>(&mut self, name: &'static str, look: &Pipeline) -> Result<T, Error> {
        read(name, self.send(name, look).await?)
    }

    async fn send(&mut self, name: &'static str, look: &Pipeline) -> Result<Value, Error> {
        let redis = &self.redis;
        if let Some(cluster) = redis.cluster() {
            let replies = look_at_nodes(cluster, &mut self.arms, &self.masters, look).await;
            return cluster::replay(look, replies).await.map_err(|error| redis.explain(name, error));
        }
        let Some(arm) = self.arms.first_mut() else { return Err(Error::unexpected(name, &"nobody listens")) };
        let found = look.query_async(&mut arm.connection).await.map_err(|error| arm.server.explain(name, error));
        arm.looks.note(&found);
        found
    }

    /// How long nobody has to look again who is told of changes: so long, but no longer than without a watch in a cluster. There a key
    /// that does not exist may move to another node, of which no node says a word.
    pub fn rest(&self, longest: Duration) -> Duration {
        if self.redis.cluster().is_some() { longest.min(WATCH_POLL) } else { longest }
    }

    /// Which of these queues have pending tasks and are not paused. Afterwards the first push to one of the others,
    /// and the end of a pause that was in the way, gives [`Signal::Work`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn have_work(&mut self, queues: &[&str]) -> Result<Vec<bool>, Error> {
        let queues: Vec<QueueKeys> = queues.iter().map(|queue| QueueKeys::new(queue)).collect();
        let mut found = self.existing(queues.iter().map(QueueKeys::pending).collect()).await?;
        // Whether a queue is paused matters only where something waits.
        let filled: Vec<usize> = (0..found.len()).filter(|queue| found[*queue]).collect();
        let paused = self.existing(filled.iter().map(|queue| queues[*queue].paused()).collect()).await?;
        filled.into_iter().zip(paused).for_each(|(queue, paused)| found[queue] = !paused);
        Ok(found)
    }

    /// As [`Broker::lanes_due`](crate::broker::Broker::lanes_due). Afterwards the first change gives [`Signal::Work`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn lanes_due(&mut self, queues: &[&str]) -> Result<Vec<Option<i64>>, Error> {
        Ok(read_first_lanes(self.look("ZRANGE", &first_lanes(queues)).await?))
    }

    /// As [`Broker::waiting`](crate::broker::Broker::waiting). Afterwards the first change of the list, and of the pause, gives
    /// [`Signal::Work`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn waiting(&mut self, queue: &str, ranges: &[IdRange]) -> Result<Waiting, Error> {
        Ok(Waiting::read(self.look("LRANGE", &Waiting::look(queue, ranges)).await?))
    }

    /// As [`Broker::which_hold`](crate::broker::Broker::which_hold). Afterwards the first change gives [`Signal::Holding`], or
    /// [`Signal::Work`] and [`Signal::Groups`] where these were asked about.
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses to tell of one queue.
    pub async fn which_hold(&mut self, queues: &[&str], holding: Holding) -> Result<Vec<bool>, Error> {
        let (keys, owners) = holding.keys_of(queues);
        let found = self.existing(keys).await?;
        Ok(any_of(queues.len(), owners, found))
    }

    /// As [`Broker::look_at`](crate::broker::Broker::look_at). Afterwards the first change of the task gives
    /// [`Signal::Task`], also when it is stored or deleted.
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn look_at(&mut self, queue: &str, id: &str) -> Result<Option<TaskLook>, Error> {
        let mut look = redis::pipe();
        look.add_command(TaskLook::command(queue, id));
        let (fields,) = self.look("HMGET", &look).await?;
        Ok(TaskLook::read(fields))
    }

    /// Which of these keys exist.
    async fn existing(&mut self, keys: Vec<String>) -> Result<Vec<bool>, Error> {
        let mut search = Search::new(keys, self.redis.cluster().is_some());
        while let Some(look) = search.look() {
            let found = self.look("EXISTS", &look).await?;
            search.narrow(found).map_err(|error| self.redis.explain("EXISTS", error))?;
        }
        Ok(search.found())
    }

    /// As [`Broker::next_due`](crate::broker::Broker::next_due). Afterwards the first change of one of the sets
    /// gives [`Signal::Schedule`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn next_due(&mut self, sets: &[(&str, TaskState)]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
        let there = if sets.len() > FEW_SETS {
            let keys = sets.iter().map(|(queue, state)| due_set(&QueueKeys::new(queue), *state)).collect();
            match self.existing(keys).await {
                Err(error) if error.is_outage() => return Err(error),
                // One of them is refused; who looks at each learns which.
                there => there.unwrap_or_else(|_| vec![true; sets.len()]),
            }
        } else {
            vec![true; sets.len()]
        };
        let filled = chosen(sets, &there);
        if filled.is_empty() {
            return Ok(sets.iter().map(|_| Ok(None)).collect());
        }
        let heads = self.look("ZRANGE", &heads_of(&filled)).await?;
        Ok(spread(read_heads(&self.redis, &filled, heads).await, there))
    }

    /// As [`Broker::cancel_requests`](crate::broker::Broker::cancel_requests). Afterwards the first change gives
    /// [`Signal::Shared`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn cancel_requests(&mut self) -> Result<CancelRequests, Error> {
        Ok(CancelRequests::read(self.look("HGETALL", &CancelRequests::look()).await?))
    }

    /// As [`Broker::wants`](crate::broker::Broker::wants). Afterwards the first change gives [`Signal::Shared`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn wants(&mut self, server: &str, name: Option<&str>) -> Result<Wants, Error> {
        let found = self.look("HGETALL", &Wants::look(server, name)).await?;
        Wants::read(found).map_err(|error| self.redis.explain("HGETALL", error))
    }

    /// As [`Broker::wanted`](crate::broker::Broker::wanted). Afterwards the first change gives [`Signal::Shared`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn wanted(&mut self) -> Result<Vec<Wanted>, Error> {
        Ok(read_watchers(self.look("HGETALL", &watchers()).await?))
    }

    /// As [`Broker::first_duty`](crate::broker::Broker::first_duty). Afterwards the first change of any duty gives
    /// [`Signal::Shared`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn first_duty(&mut self) -> Result<Option<i64>, Error> {
        Ok(read_first(self.look("ZRANGEBYSCORE", &first_duty()).await?))
    }

    /// As [`Broker::queue_names`](crate::broker::Broker::queue_names). Afterwards the first new or removed one gives
    /// [`Signal::Shared`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn queue_names(&mut self) -> Result<Vec<String>, Error> {
        Ok(read_queue_names(self.look("SMEMBERS", &all_queue_names()).await?))
    }

    /// Looks at the groups of a queue, the first thousand or so. Afterwards the first change of one of them, or
    /// of which there are, gives [`Signal::Groups`].
    ///
    /// # Errors
    /// When the connection is lost, or Redis refuses.
    pub async fn groups(&mut self, queue: &str) -> Result<(), Error> {
        const MOST: usize = 1_000;
        let keys = QueueKeys::new(queue);
        let (mut cursor, mut groups) = (0, Vec::new());
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SSCAN").arg(keys.groups()).arg(cursor).arg("COUNT").arg(100);
            let ((next, names),): ((u64, Vec<Vec<u8>>),) = self.look("SSCAN", &scan).await?;
            groups.extend(names);
            cursor = next;
            if cursor == 0 || groups.len() >= MOST {
                break;
            }
        }
        // Redis does not track the keys that a script finds by itself, so each is looked at by a command.
        let mut look = redis::pipe();
        for name in &groups {
            look.cmd("EXISTS").arg([keys.group_prefix().as_bytes(), name].concat()).ignore();
        }
        if look.is_empty() {
            return Ok(());
        }
        self.look("EXISTS", &look).await
    }
}

/// Sends each command of a look to the node that has its key. Where nobody can be asked, an error stands in the
/// place of the reply.
async fn look_at_nodes(
    cluster: &Arc<Cluster>,
    arms: &mut [Arm],
    masters: &[Arc<Server>],
    look: &Pipeline,
) -> Vec<Value> {
    let commands: Vec<&redis::Cmd> = look.cmd_iter().collect();
    let mut replies = vec![Value::Nil; commands.len()];
    let mut open: Vec<usize> = (0..commands.len()).collect();
    // Twice: who was wrong about where a slot is has been told by then.
    for _ in 0..2 {
        let mut parts: Vec<(Pipeline, Vec<usize>)> = vec![Default::default(); arms.len()];
        for position in open.drain(..) {
            let owner = cluster.server_of_command(commands[position]);
            let is = |server: &Arc<Server>| owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, server));
            match arms.iter().position(|arm| is(&arm.server)) {
                Some(arm) => {
                    parts[arm].0.add_command(commands[position].clone());
                    parts[arm].1.push(position);
                }
                None => {
                    // A node that is new is to be listened to from now on.
                    if owner.is_some() && !masters.iter().any(is) {
                        arms.iter().for_each(|arm| arm.looks.give_up());
                    }
                    replies[position] = cluster::unanswered("nobody listens to the node of this key");
                }
            }
        }
        let asked = arms.iter_mut().zip(&parts).filter(|(_, (part, _))| !part.is_empty());
        let answers = join_all(asked.map(|(arm, (part, positions))| async move {
            let found = crate::link::server::send_all(&mut arm.connection, part).await;
            let found = found.map_err(|error| arm.server.explain("looking at keys", error));
            arm.looks.note(&found);
            (&arm.server, positions, found)
        }))
        .await;
        for (server, positions, found) in answers {
            match found {
                Ok(found) => {
                    for (position, reply) in positions.iter().zip(found) {
                        if let Value::ServerError(error) = &reply
                            && error.code() == "MOVED"
                        {
                            cluster.heard(error.details().unwrap_or_default(), server);
                            open.push(*position);
                        }
                        replies[*position] = reply;
                    }
                }
                Err(error) => {
                    positions.iter().for_each(|position| replies[*position] = cluster::unanswered(&error.to_string()));
                }
            }
        }
        if open.is_empty() {
            break;
        }
    }
    replies
}
