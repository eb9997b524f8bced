//! The doctor: whether all queues are in order, and repairs where they are not. What is wrong with a task is decided in
//! `queue_core::doctor`.
//!
//! * `names`: which queue and family a key belongs to, without I/O.
//! * `keys`, `walk`, `lanes`, `flows`, `fleet`: the steps of an [`Examination`].
//! * `mend`: repairs.

mod fleet;
mod flows;
mod keys;
mod lanes;
mod mend;
mod names;
mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use keys::Teller;
use lanes::LaneSet;
pub use mend::Copied;
pub use queue_core::doctor::{Fault, Finding, Severity};
use queue_core::doctor::{Repair, Suspect, Whereabouts, judge};
use queue_core::keys::QueueKeys;
use queue_core::{Clock, SystemClock, TaskState};
use tokio::time::Instant;

use crate::broker::{Broker, MAX_BATCH};
use crate::clock::RedisClock;
use crate::connection::Redis;
use crate::error::Error;

/// Examines the queues of one Redis and repairs them; cheap to clone.
#[derive(Debug, Clone)]
pub struct Doctor {
    redis: Redis,
    clock: Arc<RedisClock>,
}

impl Doctor {
    /// A doctor for this Redis, who goes by Redis' clock.
    pub fn new(redis: Redis) -> Self {
        Self { redis, clock: Arc::new(RedisClock::new(Arc::new(SystemClock))) }
    }

    /// A doctor who goes by a clock that is right, or a test's.
    pub fn with_clock(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        Self { redis, clock: Arc::new(RedisClock::exact(clock)) }
    }

    /// A doctor who goes by this clock.
    #[doc(hidden)]
    pub fn sharing(redis: Redis, clock: Arc<RedisClock>) -> Self {
        Self { redis, clock }
    }

    fn broker(&self) -> Broker {
        Broker::new(self.redis.clone())
    }

    /// Begins to look whether everything is in order: each task in the one place that its state names, leases,
    /// locks, groups, types of keys, the list of queues, servers, schedulers, and the settings of Redis.
    ///
    /// ```no_run
    /// # async fn examine(doctor: queue_redis::doctor::Doctor) -> Result<(), queue_redis::Error> {
    /// let mut examination = doctor.examine();
    /// while let Some(findings) = examination.next().await? {
    ///     for finding in findings {
    ///         println!("{}: {}; {}", finding.subject, finding.fault.meaning(), finding.fault.advice());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn examine(&self) -> Examination {
        Examination {
            doctor: self.clone(),
            only: None,
            only_harmless: false,
            steps: VecDeque::from([
                Step::Settings,
                Step::Globals,
                Step::Servers,
                Step::Schedulers,
                Step::Queues,
                Step::Plan,
            ]),
            nodes: Vec::new(),
            listed: HashSet::new(),
            facts: BTreeMap::new(),
            seen: HashSet::new(),
            strays: HashMap::new(),
            reported: HashSet::new(),
            unhandled: BTreeMap::new(),
            started_ns: self.clock.now_ns(),
            tasks: 0,
        }
    }
}

/// An examination on its way, in short steps.
///
/// Nothing is changed. A step reads at most 100 tasks, or the names of 500 keys. What looks wrong is looked at
/// again in one atomic step before it is reported, so that tasks on their way are no findings, however busy the
/// fleet; such a step searches the pending list, 20,000 entries at the most for a call, but never less than for
/// one task. About 20 bytes are kept for each task until the end. Dropping it ends it.
#[derive(Debug)]
pub struct Examination {
    doctor: Doctor,
    /// The queues to look at; all without it.
    only: Option<HashSet<String>>,
    only_harmless: bool,
    steps: VecDeque<Step>,
    /// A key on each node that has keys.
    nodes: Vec<String>,
    listed: HashSet<String>,
    facts: BTreeMap<String, Facts>,
    /// Tasks that stand in some list, by a hash of queue and id.
    seen: HashSet<u64>,
    /// Of those that stand in a group or set which their hashes do not name, in which. One look at a task knows
    /// only of the groups that it is told of.
    strays: HashMap<u64, Vec<Bytes>>,
    reported: HashSet<u64>,
    /// By queue and type, how many tasks wait to be tried again that the last worker had no handler for.
    unhandled: BTreeMap<(String, String), u64>,
    started_ns: i64,
    tasks: u64,
}

/// What the names of keys tell about a queue.
#[derive(Debug, Default)]
struct Facts {
    has_tasks: bool,
    /// The lists and sets that exist, by what follows the queue in their names.
    holders: HashSet<&'static str>,
    /// What follows `g:` in the names of keys.
    groups: Vec<Bytes>,
    lists_groups: bool,
    /// The sets of lanes that exist.
    lanes: Vec<LaneSet>,
    has_limits: bool,
}

#[derive(Debug)]
enum Step {
    Settings,
    Globals,
    Servers,
    Schedulers,
    Queues,
    /// The next keys of a node: from where on, and who has told that.
    Keys {
        round: Round,
        node: String,
        cursor: u64,
        told_by: Option<Teller>,
    },
    /// The names of all keys are known.
    Plan,
    /// What the names have told: queues that are not listed, and those that are listed and have nothing.
    Listing,
    Groups {
        queue: String,
    },
    /// The next trees of flows that are listed.
    ListedTrees {
        cursor: u64,
    },
    /// Trees of which something may have been on its way are looked at again.
    TreesAgain {
        roots: BTreeSet<String>,
        not_before: Instant,
    },
    /// All tasks were seen.
    Unhandled,
    /// The next groups that a queue lists.
    ListedGroups {
        queue: String,
        cursor: u64,
    },
    /// The next slots, or waits, of a queue with limits.
    Lanes {
        queue: String,
        set: LaneSet,
        cursor: u64,
    },
    /// Slots that had no lease are looked at again.
    SlotsAgain {
        queue: String,
        slots: Vec<Bytes>,
        not_before: Instant,
    },
    Walk {
        queue: String,
        holder: Holder,
        at: u64,
        trail: Trail,
    },
}

/// All keys are gone through twice.
#[derive(Debug, Clone, Copy)]
enum Round {
    /// What the names and the types tell.
    Names,
    /// Hashes of tasks that stood in no list, and locks, now that tasks are what they should be.
    Hashes,
}

/// A list or set to go through.
#[derive(Debug, Clone)]
enum Holder {
    State(TaskState),
    Lease,
    /// A group or a set taken out of one: what follows `g:`.
    Group(Bytes, bool),
}

/// How a list looked when its last page was read.
#[derive(Debug, Clone, Default)]
struct Trail {
    head: Vec<u8>,
    /// The last id that was new to us.
    last: Vec<u8>,
    /// How many entries of that page may be gone when the next one is read: our caller was told of them, and may have repaired them.
    told: u64,
}

fn mark(queue: &str, of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (queue, of).hash(&mut hasher);
    hasher.finish()
}

impl Examination {
    /// Looks at these queues only. Redis and the servers are looked at anyway.
    #[must_use]
    pub fn queues<N: Into<String>>(mut self, queues: impl IntoIterator<Item = N>) -> Self {
        self.only = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// Looks only for what [is harmless](Finding::is_harmless) to repair, which is what servers do: Redis is asked
    /// for less.
    #[must_use]
    pub fn only_harmless(mut self) -> Self {
        self.only_harmless = true;
        self.steps.retain(|step| !matches!(step, Step::Settings | Step::Globals));
        self
    }

    /// The tasks that were looked at so far.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Does the next step; what it found, or `None` at the end.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. The step is lost then, and the examination incomplete.
    pub async fn next(&mut self) -> Result<Option<Vec<Finding>>, Error> {
        self.boxed_step().await
    }

    /// Boxed, so that a program has one copy of the doctor, not one for each crate that calls it.
    fn boxed_step(&mut self) -> BoxFuture<'_, Result<Option<Vec<Finding>>, Error>> {
        Box::pin(self.take_step())
    }

    async fn take_step(&mut self) -> Result<Option<Vec<Finding>>, Error> {
        let Some(step) = self.steps.pop_front() else { return Ok(None) };
        if let Step::SlotsAgain { not_before, .. } | Step::TreesAgain { not_before, .. } = &step {
            tokio::time::sleep_until(*not_before).await;
        }
        self.doctor.clock.refresh(&self.doctor.redis).await?;
        if let Step::Settings = step {
            self.started_ns = self.doctor.clock.now_ns();
        }
        let mut connection = self.doctor.redis.pooled().await?;
        let connection = &mut connection;
        let found = match step {
            Step::Settings => self.settings().await,
            Step::Globals => self.globals(connection).await,
            Step::Servers => self.servers(connection).await,
            Step::Schedulers => self.schedulers(connection).await,
            Step::Queues => self.list_queues(connection).await,
            Step::Keys { round, node, cursor, told_by } => self.keys(connection, round, node, cursor, told_by).await,
            Step::Plan => {
                self.plan();
                Ok(Vec::new())
            }
            Step::Listing => self.listing(connection).await,
            Step::Unhandled => Ok(self.unhandled()),
            Step::Groups { queue } => self.groups(connection, &queue).await,
            Step::ListedGroups { queue, cursor } => self.listed_groups(connection, queue, cursor).await,
            Step::Lanes { queue, set, cursor } => self.lanes(connection, queue, set, cursor).await,
            Step::SlotsAgain { queue, slots, .. } => lanes::stale_slots(connection, &queue, &slots).await,
            Step::ListedTrees { cursor } => self.listed_trees(connection, cursor).await,
            Step::TreesAgain { roots, .. } => self.trees_again(connection, roots).await,
            Step::Walk { queue, holder, at, trail } => self.walk(connection, queue, holder, at, trail).await,
        };
        match found {
            // That a key has another type is found by its name.
            Err(error) if error.is_wrong_type() => Ok(Some(Vec::new())),
            found => found.map(Some),
        }
    }

    fn is_meant(&self, queue: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(queue))
    }

    /// Looks at tasks again, each at one moment; what is wrong with them then is.
    async fn confirm(&mut self, queue: &str, suspects: Vec<Suspect>) -> Result<Vec<Finding>, Error> {
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        let broker = self.doctor.broker();
        let at_once = broker.examine_at_once(queue).await?;
        let mut findings = Vec::new();
        for suspects in suspects.chunks(at_once) {
            let begun = tokio::time::Instant::now();
            let seen = broker.examine_tasks(queue, suspects).await?;
            if at_once < MAX_BATCH {
                // Searching long lists for one task after the other must leave Redis half of its time.
                tokio::time::sleep(begun.elapsed()).await;
            }
            for (suspect, seen) in suspects.iter().zip(seen) {
                let found = finding(queue, suspect, seen, self.doctor.clock.now_secs());
                // In another group it is another finding.
                if found.is_some() && self.reported.insert(mark(queue, suspect)) {
                    findings.extend(found);
                }
            }
        }
        Ok(findings)
    }
}

/// What is wrong with a task as it was seen at one moment, with its repair.
fn finding(queue: &str, suspect: &Suspect, seen: Whereabouts, now: i64) -> Option<Finding> {
    let judgement = judge(queue, &suspect.id, &seen, now)?;
    let found = Finding::new(judgement.fault, Some(queue), &suspect.id).detail(places(queue, &seen));
    let Some(remedy) = judgement.remedy else { return Some(found) };
    let Whereabouts { digest, entries, lease, .. } = seen;
    let (queue, suspect) = (queue.to_owned(), suspect.clone());
    Some(found.repair(Repair::Task { queue, suspect, digest, remedy, entries, lease }))
}

/// Where a task was seen: `state "pending", in pending and retry`.
fn places(queue: &str, seen: &Whereabouts) -> String {
    let prefix = QueueKeys::new(queue).prefix().len();
    let name = |key: &Bytes| String::from_utf8_lossy(key.get(prefix..).unwrap_or_default()).into_owned();
    let mut places: Vec<String> = seen.entries.iter().map(|entry| name(&entry.key)).collect();
    if !seen.lease.is_empty() {
        places.push("lease".to_owned());
    }
    let places = if places.is_empty() { "in no list".to_owned() } else { format!("in {}", places.join(" and ")) };
    match (seen.key_type.as_str(), seen.state.as_str()) {
        ("none", _) => places,
        (_, "") => format!("without a state, {places}"),
        (_, state) => format!("state {state:?}, {places}"),
    }
}
