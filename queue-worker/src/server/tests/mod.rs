//! Each loop alone, on a real Redis, without a server.

mod leader;
mod told;
mod upkeep;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_admin::{Inspector, Page};
use queue_core::RetryPolicy;
use queue_core::clock::ManualClock;
use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::embedded::RedisServer;
use queue_redis::service::Service;
use queue_redis::service::stress::start_and_stop;
use queue_redis::{
    Client,
    broker::{Delivery, Dequeued, GroupRules, Taken},
};

use super::acks::AckWriter;
use super::options::GroupPace;
use super::shutdown::Phase;
use super::*;
use crate::aggregate::Group;
use crate::job::{CancelReason, Job};

/// In the year 2096: Redis deletes at once what expires before its own time.
const NOW: i64 = 4_000_000_000;
const LEASE: Duration = Duration::from_secs(30);

/// What the loops are built from.
struct Parts {
    server: RedisServer,
    clock: Arc<ManualClock>,
    broker: Broker,
    time: Arc<Time>,
    queues: Arc<Queues>,
    wakeups: Arc<Wakeups>,
    holdings: Arc<Holdings>,
    running: Arc<Running>,
    routes: Arc<Routes>,
    outage: Arc<Outage>,
    identity: Arc<Identity>,
    shutdown: Shutdown,
    handlers: TaskTracker,
}

impl Parts {
    async fn new() -> Self {
        Self::with(Router::new(())).await
    }

    async fn with(router: Router) -> Self {
        queue_redis::log_to_stderr(false);
        let server = RedisServer::start().await.unwrap();
        let clock = Arc::new(ManualClock::at_secs(NOW));
        let broker = Broker::new(server.redis());
        let time = Arc::new(Time::new(clock.clone(), false));
        let queues = Arc::new(Queues::new(&[("q".to_owned(), 1)], false, &BTreeMap::new()));
        let wakeups = Arc::<Wakeups>::default();
        let holdings = Arc::new(Holdings::new(broker.clone(), queues.clone(), wakeups.clone()));
        Self {
            identity: Arc::new(Identity::new(time.now_ns())),
            routes: Arc::new(router.into_routes()),
            running: Arc::default(),
            outage: Outage::new(|_| {}),
            shutdown: Shutdown::default(),
            handlers: TaskTracker::new(),
            server,
            clock,
            broker,
            time,
            queues,
            wakeups,
            holdings,
        }
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    async fn enqueue(&self, task: RawTask) {
        let client = Client::with_clock(self.server.redis(), self.clock.clone());
        client.enqueue_with(task.queue("q"), TaskOptions::new()).await.unwrap();
    }

    async fn take(&self) -> Delivery {
        let expires = self.time.lease_expiry(LEASE);
        let Dequeued::Tasks(mut taken) = self.broker.dequeue(&"q".into(), 1, &"run".into(), expires).await.unwrap()
        else {
            panic!("the queue is paused")
        };
        let Some(Taken::Task(delivery)) = taken.pop() else { panic!("took nothing") };
        delivery
    }

    /// A task in hand.
    async fn job(&self) -> Job {
        self.enqueue(RawTask::new("job").task_id("a")).await;
        let slot = std::sync::Weak::<()>::new();
        let job =
            Job::new(self.take().await, self.time.now_ns(), self.broker.clone(), slot, 0, (LEASE, Default::default()));
        self.running.insert(job.clone());
        job
    }

    fn inspector(&self) -> Inspector {
        Inspector::with_clock(self.server.redis(), self.clock.clone())
    }

    async fn count(&self, state: TaskState) -> usize {
        self.inspector().tasks("q", state, Page::default()).await.unwrap().len()
    }

    async fn cmd<T: redis::FromRedisValue>(&self, words: &str) -> T {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut cmd = redis::Cmd::new();
        words.split(' ').for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut connection).await.unwrap()
    }

    fn recoverer(&self, max_crashes: u32) -> Recoverer {
        let (holdings, routes) = (self.holdings.clone(), self.routes.clone());
        let (on_exhausted, observers) = Default::default();
        Recoverer::new(self.broker.clone(), self.time.clone(), holdings, routes, max_crashes, on_exhausted, observers)
    }

    fn forwarder(&self) -> Forwarder {
        let (queues, wakeups) = (self.queues.clone(), self.wakeups.clone());
        Forwarder::new(self.broker.clone(), self.time.clone(), queues, wakeups, Observers::default())
    }

    fn janitor(&self) -> Janitor {
        Janitor::new(self.broker.clone(), self.time.clone(), self.holdings.clone())
    }

    fn reclaimer(&self) -> Reclaimer {
        Reclaimer::new(self.broker.clone(), self.time.clone(), self.holdings.clone())
    }

    fn reconciler(&self) -> Reconciler {
        let (queues, identity) = (self.queues.clone(), self.identity.clone());
        let interval = Duration::from_secs(60);
        Reconciler::new(
            self.broker.clone(),
            self.inspector().doctor(),
            queues,
            identity,
            interval,
            Observers::default(),
        )
    }

    fn lease_extender(&self) -> LeaseExtender {
        let (broker, time, running) = (self.broker.clone(), self.time.clone(), self.running.clone());
        LeaseExtender { broker, time, running, lease: LEASE }
    }

    fn subscriber(&self) -> Subscriber {
        let (queues, running) = (self.queues.clone(), self.running.clone());
        Subscriber::new(self.server.redis(), queues, running, self.wakeups.clone(), false)
    }

    fn heartbeater(&self) -> Heartbeater {
        Heartbeater {
            broker: self.broker.clone(),
            time: self.time.clone(),
            identity: self.identity.clone(),
            queues: self.queues.clone(),
            slots: Slots::new(7),
            running: self.running.clone(),
            shutdown: self.shutdown.clone(),
            beats: 0,
            was_idle: false,
        }
    }

    fn health_check(&self, hook: impl Fn(Result<(), &Error>) + Send + Sync + 'static) -> HealthCheck {
        let (redis, outage, interval) = (self.server.redis(), self.outage.clone(), LEASE);
        HealthCheck { redis, outage, interval, hook: Arc::new(hook) }
    }

    fn cancel_watcher(&self) -> CancelWatcher {
        let (broker, running, wakeups) = (self.broker.clone(), self.running.clone(), self.wakeups.clone());
        CancelWatcher { broker, cancels: Arc::default(), running, wakeups }
    }

    fn audience(&self) -> Audience {
        Audience { broker: self.broker.clone(), time: self.time.clone(), wakeups: self.wakeups.clone() }
    }

    fn teller(&self) -> Teller {
        Teller { broker: self.broker.clone(), time: self.time.clone() }
    }

    fn joiner(&self, queues: &Arc<Queues>) -> Joiner {
        Joiner {
            broker: self.broker.clone(),
            queues: queues.clone(),
            wakeups: self.wakeups.clone(),
            heartbeater: self.heartbeater(),
            observers: Observers::default(),
            is_full: false,
            asked_for: HashSet::new(),
        }
    }

    fn aggregator(&self) -> Aggregator {
        let pace = GroupPace { grace_period: Duration::from_secs(60), max_delay: Duration::ZERO, max_size: 0 };
        let aggregations = Aggregations {
            means: Means {
                broker: self.broker.clone(),
                routes: self.routes.clone(),
                outage: self.outage.clone(),
                time: self.time.clone(),
                stop: self.shutdown.interrupting.clone(),
                cancel_grace: Duration::from_secs(1),
            },
            rules: pace.rules(),
            retry_interval: pace.check_interval(),
            on_error: None,
            observers: Observers::default(),
            wakeups: self.wakeups.clone(),
            failing: Default::default(),
        };
        let permits = Arc::new(Semaphore::new(1));
        Aggregator::new(self.holdings.clone(), Arc::new(aggregations), pace, permits, self.handlers.clone())
    }
}

fn digesting() -> Router {
    let digest = async |_: Group, tasks: Vec<RawTask>| RawTask::new("digest").payload(tasks.len().to_string());
    Router::new(()).aggregate(digest)
}

/// What takes, runs and reports tasks, without its loops.
fn shared(parts: &Parts) -> (Arc<Shared>, AckWriter) {
    let (acks, ack_loop) = Acks::new(Trouble::new(parts.queues.clone(), parts.wakeups.clone()));
    let shared = Arc::new(Shared {
        broker: parts.broker.clone(),
        slots: Slots::new(4),
        adaptive: Some(Adaptive::new(1..=4)),
        options: Options { concurrency: 4, ..Options::default() },
        span_guard: Guard::default(),
        time: parts.time.clone(),
        outage: parts.outage.clone(),
        routes: parts.routes.clone(),
        queues: parts.queues.clone(),
        identity: parts.identity.clone(),
        running: parts.running.clone(),
        cancels: Arc::default(),
        acks,
        one_by_one: OneByOne::default(),
        takes: AtomicU64::new(0),
        wakeups: parts.wakeups.clone(),
        told_of_limits: Default::default(),
        shutdown: parts.shutdown.clone(),
        pace: Pace::default(),
        handlers: parts.handlers.clone(),
        lookups: TaskTracker::new(),
    });
    let writer = AckWriter { shared: shared.clone(), acks: Arc::new(tokio::sync::Mutex::new(ack_loop)) };
    (shared, writer)
}

/// The names of all loops of a server.
fn names() -> BTreeSet<String> {
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/server")).unwrap();
    let sources = sources.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
    let name =
        |line: &str| Some(line.split_once("const NAME: &'static str = \"")?.1.trim_end_matches("\";").to_owned());
    let mut names: BTreeSet<String> =
        sources.flat_map(|source| source.lines().filter_map(name).collect::<Vec<_>>()).collect();
    assert!(names.len() >= 18, "{names:?}");
    names.extend([Leader::NAME, Recorder::NAME].map(str::to_owned));
    names
}

#[test]
fn every_loop_has_a_test_of_its_own() {
    let tests =
        [include_str!("leader.rs"), include_str!("told.rs"), include_str!("upkeep.rs"), include_str!("work.rs")];
    for name in names() {
        let test = format!("async fn {}_", name.replace(' ', "_"));
        assert!(tests.iter().any(|tests| tests.contains(&test)), "no test begins with the name of the loop {name:?}");
    }
}

#[tokio::test]
async fn every_loop_can_be_started_twice_and_stopped_at_any_time() {
    let parts = Parts::with(digesting()).await;
    let (shared, writer) = shared(&parts);
    let stopped = [
        start_and_stop(parts.recoverer(1)).await,
        start_and_stop(parts.forwarder()).await,
        start_and_stop(parts.janitor()).await,
        start_and_stop(parts.reclaimer()).await,
        start_and_stop(parts.reconciler()).await,
        start_and_stop(parts.lease_extender()).await,
        start_and_stop(parts.subscriber()).await,
        start_and_stop(parts.heartbeater()).await,
        start_and_stop(Leader::new(parts.broker.clone(), parts.clock.clone(), "one", Arc::new([]))).await,
        start_and_stop(parts.cancel_watcher()).await,
        start_and_stop(parts.audience()).await,
        start_and_stop(parts.teller()).await,
        start_and_stop(parts.joiner(&parts.queues)).await,
        start_and_stop(parts.aggregator()).await,
        start_and_stop(parts.health_check(|_| {})).await,
        start_and_stop(Recorder::new(parts.broker.clone(), parts.clock.clone())).await,
        start_and_stop(Steering::new(shared.clone(), parts.heartbeater(), CancellationToken::new())).await,
        start_and_stop(Adapter { shared: shared.clone() }).await,
        start_and_stop(writer).await,
        start_and_stop(Processor { shared }).await,
    ];
    assert_eq!(BTreeSet::from(stopped.map(str::to_owned)), names());
}
