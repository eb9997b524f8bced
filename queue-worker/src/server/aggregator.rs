//! The aggregator: starts an aggregation for each group that is ready.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use queue_redis::service::Service;
use queue_redis::{
    Error,
    broker::{Broker, Holding, ReadyGroups},
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::aggregation::Aggregations;
use super::holdings::Holdings;
use super::options::GroupPace;
use super::time::Time;
use crate::log::warn;
use crate::routes::Routes;

/// Shortest: a burst of new tasks is not a burst of looks.
const CHECK_PAUSE: Duration = Duration::from_millis(50);
#[derive(Clone)]
pub(super) struct Aggregator {
    broker: Broker,
    time: Arc<Time>,
    holdings: Arc<Holdings>,
    routes: Arc<Routes>,
    aggregations: Arc<Aggregations>,
    pace: GroupPace,
    /// As many permits as groups may be aggregated at once.
    permits: Arc<Semaphore>,
    /// Where aggregations run, so that a shutdown can wait for them.
    handlers: TaskTracker,
    /// Queues of which was said that nobody here aggregates their groups, or some of them.
    left: HashSet<Arc<str>>,
    /// Groups have changed since the last look.
    again: bool,
    /// When the next look may be, if it is only for that.
    not_before: Instant,
    /// When the groups of each queue are looked at in any case.
    next_look: HashMap<Arc<str>, Instant>,
    /// The Unix seconds at which groups will be ready, as the last look has seen them.
    ready: BTreeSet<(i64, Arc<str>, String)>,
}

impl Service for Aggregator {
    const NAME: &'static str = "aggregator";
    const WORK: &'static str = "looking for groups to aggregate";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        let looked = self.look().await;
        // Of a queue that cannot be looked at nothing is started; the others do not wait for it.
        self.start().await;
        looked?;
        self.aggregations.forget();
        let pause = self.pace.check_interval().min(self.until_ready());
        let again = self.not_before.saturating_duration_since(Instant::now());
        Ok(if self.again { pause.min(again) } else { pause })
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(CHECK_PAUSE).await;
        let changed = self.aggregations.wakeups.groups.notified();
        self.again |= tokio::time::timeout(pause.saturating_sub(CHECK_PAUSE), changed).await.is_ok();
    }
}

impl Aggregator {
    pub(super) fn new(
        holdings: Arc<Holdings>,
        aggregations: Arc<Aggregations>,
        pace: GroupPace,
        permits: Arc<Semaphore>,
        handlers: TaskTracker,
    ) -> Self {
        let means = &aggregations.means;
        let (broker, time, routes) = (means.broker.clone(), means.time.clone(), means.routes.clone());
        let (again, not_before, left, next_look, ready) =
            (false, Instant::now(), HashSet::new(), HashMap::new(), BTreeSet::new());
        Self {
            broker,
            time,
            holdings,
            routes,
            aggregations,
            pace,
            permits,
            handlers,
            left,
            again,
            not_before,
            next_look,
            ready,
        }
    }

    /// Looks at the groups of the queues whose time has come. A queue that cannot be served does not keep the others from
    /// being served.
    async fn look(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        let again = self.again && began >= self.not_before;
        let mut result = Ok(());
        let hold: Vec<Arc<str>> = self.holdings.which_hold(Holding::Groups).await?.into_iter().cloned().collect();
        self.next_look.retain(|queue, _| hold.contains(queue));
        for queue in &hold {
            if !self.routes.aggregators().serve(queue) {
                self.warn_of_groups(queue).await;
                continue;
            }
            let is_due = self.next_look.get(queue).is_none_or(|at| *at <= Instant::now());
            if !again && !is_due {
                continue;
            }
            let now = self.time.now();
            let soon = now.saturating_add(queue_core::clock::secs_ceil(self.pace.look_interval()) + 1);
            match self.look_at(queue, now, soon).await {
                Ok(found) => {
                    // Of a queue that is paused nothing is said.
                    let is_silent = found == ReadyGroups::default();
                    let pause = if is_silent { self.pace.check_interval() } else { self.pace.look_interval() };
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
        let pause = (began.elapsed() * self.pace.looks_one_in()).min(self.pace.look_interval());
        self.not_before = self.not_before.max(Instant::now() + pause);
        result
    }

    /// Starts the groups whose time has come. Where a task has joined one of them since, that changes nothing, and a later
    /// look sees it again.
    async fn start(&mut self) {
        let later = self.ready.split_off(&(self.time.now().saturating_add(1), "".into(), String::new()));
        for (at, queue, group) in std::mem::replace(&mut self.ready, later) {
            if self.routes.aggregators().find(&queue, &group).is_none() {
                self.leave(&queue, &group);
                continue;
            }
            if let Some(not_before) = self.aggregations.not_before(&queue, &group) {
                let pause = queue_core::clock::secs_ceil(not_before.saturating_duration_since(Instant::now())).max(1);
                self.ready.insert((at.max(self.time.now()).saturating_add(pause), queue, group));
                continue;
            }
            // The semaphore is never closed.
            let Ok(permit) = self.permits.clone().acquire_owned().await else { break };
            self.handlers.spawn(self.aggregations.clone().run(queue, group, permit));
        }
    }

    fn until_ready(&self) -> Duration {
        self.ready.first().map_or(Duration::MAX, |(at, ..)| self.time.until(*at))
    }

    /// Which groups are ready. Only a new task makes a group full, so only then is it worth being told of them;
    /// all else is a matter of time.
    async fn look_at(&self, queue: &Arc<str>, now: i64, soon: i64) -> Result<ReadyGroups, Error> {
        let rules = self.aggregations.rules;
        if rules.max_size > 0
            && let Some(mut watch) = self.aggregations.wakeups.watch()
            && let Err(error) = watch.groups(queue).await
        {
            // The interval is enough.
            debug!(queue = %queue, %error, "could not watch groups");
        }
        self.broker.list_groups_until(queue, rules, now, soon).await
    }

    /// Says once for each queue that nobody here aggregates a group.
    fn leave(&mut self, queue: &Arc<str>, group: &str) {
        if self.left.insert(queue.clone()) {
            warn!(
                queue = %queue,
                group,
                "a group is ready, and no aggregator of this server is for it; unless another server aggregates it, it \
                 waits for ever (Router::aggregate, Router::aggregate_in)"
            );
        }
    }

    /// Says once for each queue that nobody here aggregates any of its groups.
    async fn warn_of_groups(&mut self, queue: &Arc<str>) {
        // Where Redis does not tell, any queue may have them.
        if !self.left.contains(queue) && self.broker.has_groups(queue).await.unwrap_or(false) {
            self.left.insert(queue.clone());
            warn!(
                queue = %queue,
                "tasks wait in groups, and this server has no aggregator; unless another server aggregates \
                 them they wait for ever (Router::aggregate)"
            );
        }
    }
}
