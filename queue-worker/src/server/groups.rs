//! Groups: which are to be aggregated, and what became of sets that were lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use queue_redis::service::Backoff;
use queue_redis::{Error, GroupRules, Holding, ListedSet, ReadyGroups};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Shared, aggregator};
use crate::log::{info, warn};

/// Longest pause between two looks at groups, as in asynq; a shorter grace period shortens it.
const CHECK_INTERVAL: Duration = Duration::from_secs(7);
/// Longest pause between two looks at all groups, where the next that will be ready are known.
const LONGEST_CHECK: Duration = Duration::from_secs(60);
/// Shortest: a burst of new tasks is not a burst of looks.
const CHECK_PAUSE: Duration = Duration::from_millis(50);
/// A group whose aggregation failed over and over is tried this often, at the least.
const LONGEST_RETRY: Duration = Duration::from_secs(120);
/// How often lost sets are looked for while there are sets. asynq: 60 s.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(5);
/// The same while there are none: a set is lost after two minutes at the earliest.
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// How long nothing is reclaimed after Redis was away. Deadlines have passed in the meantime, and whoever is
/// alive prolongs his every 10 s.
const PATIENCE: Duration = Duration::from_secs(12);

/// What the options of a server say about groups.
pub(super) struct GroupOptions {
    pub(super) grace_period: Duration,
    pub(super) max_delay: Duration,
    pub(super) max_size: usize,
    pub(super) concurrency: usize,
    pub(super) on_error: Option<Box<GroupErrorHook>>,
}

pub(super) type GroupErrorHook = dyn Fn(&crate::Aggregation, &crate::Failure) + Send + Sync;

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            grace_period: Duration::from_secs(60),
            max_delay: Duration::ZERO,
            max_size: 0,
            concurrency: 3,
            on_error: None,
        }
    }
}

impl GroupOptions {
    pub(super) fn rules(&self) -> GroupRules {
        GroupRules::new(self.grace_period, self.max_delay, self.max_size)
    }

    /// How long the groups of a queue need not be looked at again: one that is new, or that a task joins, is not ready
    /// before, unless it is full.
    fn look_interval(&self) -> Duration {
        if self.max_size > 0 {
            return self.check_interval();
        }
        let delay = Some(self.max_delay).filter(|delay| !delay.is_zero()).unwrap_or(Duration::MAX);
        self.grace_period.min(delay).min(LONGEST_CHECK)
    }

    /// What part of the time looks may take that come of changes.
    fn looks_one_in(&self) -> u32 {
        if self.max_size > 0 { 9 } else { 99 }
    }

    fn check_interval(&self) -> Duration {
        CHECK_INTERVAL.min(self.grace_period)
    }
}

/// What a server knows about groups.
pub(super) struct Groups {
    /// As many permits as groups may be aggregated at once.
    permits: Arc<Semaphore>,
    /// Wakes the look at groups when one of them has changed.
    pub(super) changed: Notify,
    /// Triggers when no more aggregations are to begin.
    pub(super) closing: CancellationToken,
    /// Triggers when running aggregators are to stop.
    pub(super) stop: CancellationToken,
    // A std mutex: held to read or change one entry.
    failing: Mutex<HashMap<GroupName, Failing>>,
    /// Queues of which was said that nobody here aggregates some of their groups.
    left: Mutex<HashSet<Arc<str>>>,
}

type GroupName = (Arc<str>, String);

struct Failing {
    failures: u32,
    not_before: Instant,
}

impl Groups {
    /// How many aggregations run, of at most `concurrency`.
    pub(super) fn running(&self, concurrency: usize) -> usize {
        concurrency.saturating_sub(self.permits.available_permits())
    }

    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(concurrency)),
            changed: Notify::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            failing: Mutex::default(),
            left: Mutex::default(),
        }
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<GroupName, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a group alone for this long, or for longer after each failure in a row.
    pub(super) fn failed(&self, queue: &Arc<str>, group: &str, delay: Option<Duration>, interval: Duration) {
        let mut failing = self.failing();
        let entry = failing
            .entry((queue.clone(), group.to_owned()))
            .or_insert(Failing { failures: 0, not_before: Instant::now() });
        let pause = delay.unwrap_or_else(|| (interval * (1 << entry.failures.min(10))).min(LONGEST_RETRY));
        entry.failures += 1;
        entry.not_before = Instant::now() + pause.min(Duration::from_secs(24 * 60 * 60));
    }

    pub(super) fn succeeded(&self, queue: &Arc<str>, group: &str) {
        let mut failing = self.failing();
        if !failing.is_empty() {
            failing.remove(&(queue.clone(), group.to_owned()));
        }
    }

    /// When a group that has failed may be tried again; `None` for any time.
    fn not_before(&self, queue: &Arc<str>, group: &str) -> Option<Instant> {
        let failing = self.failing();
        if failing.is_empty() {
            return None;
        }
        failing.get(&(queue.clone(), group.to_owned())).map(|entry| entry.not_before).filter(|at| *at > Instant::now())
    }

    /// Says once for each queue that nobody here aggregates a group.
    fn leave(&self, queue: &Arc<str>, group: &str) {
        if self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.clone()) {
            warn!(
                queue = %queue,
                group,
                "a group is ready, and no aggregator of this server is for it; unless another server aggregates it, it \
                 waits for ever (Router::aggregate, Router::aggregate_in)"
            );
        }
    }

    /// Forgets groups that have long been dealt with by others.
    fn forget(&self) {
        self.failing().retain(|_, entry| entry.not_before.elapsed() < LONGEST_RETRY);
    }
}

impl Shared {
    pub(super) fn group_retry_interval(&self) -> Duration {
        self.options.groups.check_interval()
    }
}

/// Starts an aggregation for each group that is ready, over and over.
pub(super) async fn watch(shared: Arc<Shared>) {
    let (served, others): (HashSet<_>, HashSet<_>) =
        shared.queues.names().partition(|queue| shared.routes.aggregators().serve(queue));
    let warn = async {
        if !others.is_empty() {
            warn_of_groups(&shared, others).await;
        }
    };
    let start = async {
        if !served.is_empty() {
            start_groups(&shared, &served).await;
        }
    };
    futures_util::future::join(warn, start).await;
}

async fn start_groups(shared: &Arc<Shared>, queues: &HashSet<&Arc<str>>) {
    let mut backoff = Backoff::new(&shared.outage, "looking for groups to aggregate");
    let interval = shared.options.groups.check_interval();
    let mut agenda =
        Agenda { again: false, not_before: Instant::now(), next_look: HashMap::new(), ready: BTreeSet::new() };
    loop {
        let looked = agenda.look(shared, queues).await;
        // Of a queue that cannot be looked at nothing is started; the others do not wait for it.
        agenda.start(shared).await;
        if let Err(error) = looked {
            backoff.failed(&error).await;
            continue;
        }
        backoff.succeeded();
        shared.groups.forget();
        tokio::time::sleep(CHECK_PAUSE).await;
        let mut pause = interval.min(agenda.until_ready(shared));
        if agenda.again {
            pause = pause.min(agenda.not_before.saturating_duration_since(Instant::now()));
        }
        agenda.again |= tokio::time::timeout(pause, shared.groups.changed.notified()).await.is_ok();
    }
}

/// When which groups are to be started, and when a look at all of them may show others.
struct Agenda {
    /// Groups have changed since the last look.
    again: bool,
    /// When the next look may be, if it is only for that.
    not_before: Instant,
    /// When the groups of each queue are looked at in any case.
    next_look: HashMap<Arc<str>, Instant>,
    /// The Unix seconds at which groups will be ready, as the last look has seen them.
    ready: BTreeSet<(i64, Arc<str>, String)>,
}

impl Agenda {
    /// Looks at the groups of the queues whose time has come. A queue that cannot be served does not keep the others from
    /// being served.
    async fn look(&mut self, shared: &Shared, queues: &HashSet<&Arc<str>>) -> Result<(), Error> {
        let groups = &shared.options.groups;
        let began = Instant::now();
        let again = self.again && began >= self.not_before;
        let mut result = Ok(());
        let hold: Vec<&Arc<str>> =
            shared.which_hold(Holding::Groups).await?.into_iter().filter(|queue| queues.contains(queue)).collect();
        self.next_look.retain(|queue, _| hold.contains(&queue));
        for queue in hold {
            let is_due = self.next_look.get(queue).is_none_or(|at| *at <= Instant::now());
            if !again && !is_due {
                continue;
            }
            let now = shared.now();
            let soon = now.saturating_add(queue_core::clock::secs_ceil(groups.look_interval()) + 1);
            match look(shared, queue, now, soon).await {
                Ok(found) => {
                    // Of a queue that is paused nothing is said.
                    let is_silent = found == ReadyGroups::default();
                    let pause = if is_silent { groups.check_interval() } else { groups.look_interval() };
                    self.ready.retain(|(_, other, _)| other != queue);
                    self.ready.extend(found.ready.into_iter().map(|group| (now, queue.clone(), group)));
                    self.ready.extend(found.soon.into_iter().map(|(group, at)| (at, queue.clone(), group)));
                    self.next_look.insert(queue.clone(), Instant::now() + pause);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        if again {
            self.again = false;
        }
        // With many groups a look is long. Those that come of changes must take no more than a part of the time.
        let pause = (began.elapsed() * groups.looks_one_in()).min(groups.look_interval());
        self.not_before = self.not_before.max(Instant::now() + pause);
        result
    }

    /// Starts the groups whose time has come. Where a task has joined one of them since, that changes nothing, and a later
    /// look sees it again.
    async fn start(&mut self, shared: &Arc<Shared>) {
        let later = self.ready.split_off(&(shared.now().saturating_add(1), "".into(), String::new()));
        for (at, queue, group) in std::mem::replace(&mut self.ready, later) {
            if shared.routes.aggregators().find(&queue, &group).is_none() {
                shared.groups.leave(&queue, &group);
                continue;
            }
            if let Some(not_before) = shared.groups.not_before(&queue, &group) {
                let pause = queue_core::clock::secs_ceil(not_before.saturating_duration_since(Instant::now())).max(1);
                self.ready.insert((at.max(shared.now()).saturating_add(pause), queue, group));
                continue;
            }
            // The semaphore is never closed.
            let Ok(permit) = shared.groups.permits.clone().acquire_owned().await else { break };
            shared.handlers.spawn(aggregator::run(shared.clone(), queue, group, permit));
        }
    }

    fn until_ready(&self, shared: &Shared) -> Duration {
        let Some((at, ..)) = self.ready.first() else { return Duration::MAX };
        let left = at.saturating_mul(1_000_000_000).saturating_sub(shared.now_ns());
        Duration::from_nanos(u64::try_from(left).unwrap_or(0))
    }
}

/// Which groups are ready. Only a new task makes a group full, so only then is it worth being told of them;
/// all else is a matter of time.
async fn look(shared: &Shared, queue: &Arc<str>, now: i64, soon: i64) -> Result<ReadyGroups, Error> {
    let rules = shared.options.groups.rules();
    if rules.max_size > 0
        && let Some(mut watch) = shared.watch()
        && let Err(error) = watch.groups(queue).await
    {
        // The interval is enough.
        debug!(queue = %queue, %error, "could not watch groups");
    }
    shared.broker.list_groups_until(queue, rules, now, soon).await
}

/// Says once for each of these queues that nobody here aggregates its groups.
async fn warn_of_groups(shared: &Shared, mut quiet: HashSet<&Arc<str>>) {
    while !quiet.is_empty() {
        for queue in shared.which_hold(Holding::Groups).await.unwrap_or_default() {
            // Where Redis does not tell, any queue may have them.
            if quiet.contains(queue) && shared.broker.has_groups(queue).await.unwrap_or(false) {
                quiet.remove(queue);
                warn!(
                    queue = %queue,
                    "tasks wait in groups, and this server has no aggregator; unless another server aggregates \
                     them they wait for ever (Router::aggregate)"
                );
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Puts back the tasks of aggregations that were lost.
pub(super) async fn reclaim(shared: Arc<Shared>) {
    let mut backoff = Backoff::new(&shared.outage, "looking for lost aggregations");
    let mut seen = Seen::new();
    let mut was_away = false;
    loop {
        if was_away && shared.broker.redis().ping().await.is_ok() {
            backoff.succeeded();
            tokio::time::sleep(PATIENCE).await;
            was_away = false;
        }
        match reclaim_once(&shared, &mut seen).await {
            Ok(()) => backoff.succeeded(),
            Err(error) => {
                was_away |= error.is_outage();
                backoff.failed(&error).await;
                continue;
            }
        }
        let idle = seen.values().all(HashSet::is_empty);
        let interval = if idle { IDLE_INTERVAL } else { RECLAIM_INTERVAL };
        tokio::time::sleep(interval.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

type Seen = HashMap<Arc<str>, HashSet<ListedSet>>;

async fn reclaim_once(shared: &Shared, seen: &mut Seen) -> Result<(), Error> {
    // What was seen before may be gone by now, and have left a group that nobody knows of.
    seen.retain(|_, sets| !sets.is_empty());
    let mut queues: HashSet<Arc<str>> = seen.keys().cloned().collect();
    queues.extend(shared.which_hold(Holding::Aggregations).await?.into_iter().cloned());
    let mut result = Ok(());
    for queue in queues {
        result = result.and(reclaim_queue(shared, &queue, seen.entry(queue.clone()).or_default()).await);
    }
    result
}

async fn reclaim_queue(shared: &Shared, queue: &Arc<str>, seen: &mut HashSet<ListedSet>) -> Result<(), Error> {
    let listed = shared.broker.aggregation_sets(queue).await?;
    let now = shared.now();
    if shared.time.is_settling() {
        return Ok(());
    }
    for set in listed.iter().filter(|set| set.deadline <= now) {
        let tasks = shared.broker.reclaim(queue, &set.group, &set.id, Some(now)).await?;
        if tasks > 0 {
            warn!(queue = %queue, group = set.group, tasks, "an aggregation was lost; its tasks are in their group again");
        }
    }
    // Go puts lost sets back too, and then does not list their group (W19). So each set that somebody has
    // taken away since the last look may have left a group that nobody knows of.
    let still: HashSet<&str> = listed.iter().map(|set| &*set.id).collect();
    let mut groups: Vec<String> =
        seen.iter().filter(|set| !still.contains(&*set.id)).map(|set| set.group.clone()).collect();
    groups.sort();
    groups.dedup();
    for groups in groups.chunks(queue_redis::MAX_BATCH) {
        let [again, _] = shared.broker.list_groups_again(queue, groups).await?;
        if again > 0 {
            warn!(queue = %queue, groups = again, "groups with tasks were not listed; now they are");
        }
    }
    *seen = listed.into_iter().collect();
    let deleted = shared.broker.delete_aggregated(queue).await?;
    if deleted > 0 {
        info!(queue = %queue, deleted, "tasks that had been aggregated were deleted");
    }
    Ok(())
}
