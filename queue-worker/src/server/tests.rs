//! Each loop alone, on a real Redis, without a server.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use queue_admin::{Inspector, Page};
use queue_core::clock::ManualClock;
use queue_core::{RawTask, TaskOptions, TaskState};
use queue_redis::embedded::RedisServer;
use queue_redis::leader::Looked;
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
use crate::job::CancelReason;

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
        Recoverer::new(self.broker.clone(), self.time.clone(), holdings, routes, max_crashes, Observers::default())
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

    /// A leader of this id that does this duty.
    fn leader(&self, id: &str, duty: &Probe) -> Leader {
        let duties: Arc<[Arc<dyn Duty>]> = Arc::new([Arc::new(duty.clone())]);
        Leader::new(self.broker.clone(), self.clock.clone(), id, duties)
    }

    async fn ask(&self, duty: &str, in_seconds: i64) {
        self.broker.ask_for_duty(duty, "s", (NOW + in_seconds) * 1_000).await.unwrap();
    }

    fn cancel_watcher(&self) -> CancelWatcher {
        let (broker, running, wakeups) = (self.broker.clone(), self.running.clone(), self.wakeups.clone());
        CancelWatcher { broker, cancels: Arc::default(), running, wakeups }
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

/// A duty that notes its looks, and answers each with what comes next.
#[derive(Clone, Default)]
struct Probe {
    looks: Arc<AtomicUsize>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

enum Answer {
    Again(u64),
    Panic,
    /// Somebody asks for it while it is looked at.
    Ask(Broker),
    /// For longer than a look may take.
    Stuck(Arc<ManualClock>),
}

impl Probe {
    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    fn then(&self, answer: Answer) {
        self.answers.lock().unwrap().insert(0, answer);
    }
}

impl Duty for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn look<'a>(&'a self, subject: &'a str) -> futures_util::future::BoxFuture<'a, Result<Looked, Error>> {
        assert_eq!(subject, "s");
        self.looks.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.lock().unwrap().pop();
        Box::pin(async move {
            let next = match answer {
                None => None,
                Some(Answer::Again(seconds)) => Some(Duration::from_secs(seconds)),
                Some(Answer::Panic) => panic!("in the duty of a test"),
                Some(Answer::Ask(broker)) => {
                    broker.ask_for_duty("probe", "s", (NOW + 1) * 1_000).await?;
                    None
                }
                Some(Answer::Stuck(clock)) => {
                    clock.advance(Duration::from_secs(5));
                    std::future::pending().await
                }
            };
            Ok(Looked { commands: 0, next })
        })
    }
}

fn digesting() -> Router {
    let digest = async |_: Group, tasks: Vec<RawTask>| RawTask::new("digest").payload(tasks.len().to_string());
    Router::new(()).aggregate(digest)
}

#[tokio::test]
async fn recoverer_takes_tasks_whose_leases_ended_for_long_enough() {
    for (max_crashes, expected) in [(1, TaskState::Retry), (0, TaskState::Archived)] {
        let parts = Parts::new().await;
        parts.job().await;
        let mut recoverer = parts.recoverer(max_crashes);
        recoverer.run_once().await.unwrap();
        // Redis was not heard for long: servers may not have said what they work on.
        parts.pass(30 + 29);
        recoverer.run_once().await.unwrap();
        assert_eq!(parts.count(TaskState::Active).await, 1);
        parts.pass(1);
        recoverer.run_once().await.unwrap();
        assert_eq!(parts.count(expected).await, 1);
    }
}

#[tokio::test]
async fn recoverer_waits_after_an_outage_before_it_recovers() {
    let parts = Parts::new().await;
    parts.job().await;
    parts.pass(600);
    let mut recoverer = parts.recoverer(1);
    parts.cmd::<()>("REPLICAOF 127.0.0.1 1").await;
    parts.cmd::<()>("CONFIG SET replica-serve-stale-data no").await;
    assert!(recoverer.run_once().await.is_err());
    parts.cmd::<()>("REPLICAOF NO ONE").await;
    assert_eq!(recoverer.run_once().await.unwrap(), Duration::from_secs(12));
    assert_eq!(parts.count(TaskState::Active).await, 1, "whoever is alive has to renew first");
    recoverer.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Active).await, 0);
}

#[tokio::test]
async fn forwarder_makes_due_tasks_pending_and_sleeps_until_the_next() {
    let parts = Parts::new().await;
    for delay in [2, 4] {
        parts.enqueue(RawTask::new("job").process_in(Duration::from_secs(delay))).await;
    }
    let mut forwarder = parts.forwarder();
    assert_eq!(forwarder.run_once().await.unwrap(), Duration::from_secs(2));
    assert_eq!(parts.count(TaskState::Pending).await, 0);
    parts.pass(2);
    assert_eq!(forwarder.run_once().await.unwrap(), Duration::from_secs(2));
    assert_eq!((parts.count(TaskState::Pending).await, parts.count(TaskState::Scheduled).await), (1, 1));
}

#[tokio::test]
async fn janitor_deletes_completed_tasks_whose_retention_has_ended() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("job").retention(Duration::from_secs(60))).await;
    let delivery = parts.take().await;
    let report = queue_redis::broker::Report::by_owner(delivery.run.clone(), &delivery.message, Default::default());
    let (policy, outcome) = (RetryPolicy::Asynq, queue_core::outcome::Outcome::Done(None));
    let step = queue_core::outcome::next_step(&delivery.message, outcome, NOW, &policy);
    parts.broker.apply(&[(&report, &step)], parts.time.now_ns()).await.unwrap();
    let mut janitor = parts.janitor();
    janitor.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Completed).await, 1);
    parts.pass(61);
    janitor.run_once().await.unwrap();
    assert_eq!(parts.count(TaskState::Completed).await, 0);
}

#[tokio::test]
async fn heartbeater_tells_what_the_server_is_and_works_on() {
    let parts = Parts::new().await;
    parts.job().await;
    let mut heartbeater = parts.heartbeater();
    for (phase, status) in [(None, "active"), (Some(Phase::Quiet), "stopped"), (Some(Phase::Closing), "closed")] {
        phase.into_iter().for_each(|phase| parts.shutdown.enter(phase));
        heartbeater.run_once().await.unwrap();
        let servers = parts.inspector().servers().await.unwrap();
        assert_eq!((servers.len(), &*servers[0].status, servers[0].workers.len()), (1, status, 1));
    }
    heartbeater.clear().await;
    assert!(parts.inspector().servers().await.unwrap().is_empty());
}

#[tokio::test]
async fn lease_extender_renews_what_is_ours_and_cancels_what_is_not() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut extender = parts.lease_extender();
    parts.pass(10);
    extender.run_once().await.unwrap();
    assert_eq!(parts.cmd::<i64>("ZSCORE asynq:{q}:lease a").await, NOW + 10 + 30);
    assert_eq!(job.cancel_reason(), None);
    parts.cmd::<()>("ZADD asynq:{q}:lease 4100000000 a").await;
    extender.run_once().await.unwrap();
    assert_eq!(job.cancel_reason(), Some(CancelReason::LeaseLost));
}

#[tokio::test]
async fn leader_does_what_is_due_until_nothing_is_left() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    leader.run_once().await.unwrap();
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:leader").await, "nothing to do, nobody leads");
    parts.ask("probe", 10).await;
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(10));
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:leader").await, "nothing to do yet");
    parts.pass(10);
    probe.then(Answer::Again(7));
    leader.run_once().await.unwrap();
    assert_eq!(parts.cmd::<String>("GET asynq:x:leader").await, "one");
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(7));
    parts.pass(7);
    leader.run_once().await.unwrap();
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:duties").await, "it said that nothing is left");
}

#[tokio::test]
async fn leader_looks_again_at_a_duty_that_was_asked_for_while_it_was_done() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    probe.then(Answer::Ask(parts.broker.clone()));
    leader.run_once().await.unwrap();
    assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(1), "it is not forgotten");
    parts.pass(1);
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
}

#[tokio::test]
async fn leader_tries_again_what_panics_and_what_takes_too_long() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    for answer in [Answer::Panic, Answer::Stuck(parts.clock.clone())] {
        probe.then(answer);
        leader.run_once().await.unwrap();
        assert_eq!(leader.run_once().await.unwrap(), Duration::from_secs(5));
        parts.pass(5);
    }
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 3);
}

#[tokio::test]
async fn a_duty_is_due_again_when_its_leader_was_lost_half_way() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let mut leader = parts.leader("one", &probe);
    parts.ask("probe", 0).await;
    probe.then(Answer::Stuck(parts.clock.clone()));
    let lost = tokio::time::timeout(Duration::from_secs(1), leader.run_once()).await;
    assert!(lost.is_err() && probe.looks() == 1);
    // Its claim has run out; nobody else does what it may still be doing.
    parts.cmd::<()>("DEL asynq:x:leader").await;
    let mut other = parts.leader("other", &probe);
    assert_eq!(other.run_once().await.unwrap(), Duration::from_secs(5));
    parts.pass(5);
    other.run_once().await.unwrap();
    assert_eq!(probe.looks(), 2);
}

#[tokio::test]
async fn one_leads_and_the_others_come_when_a_duty_is_late() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let (mut leader, mut other) = (parts.leader("one", &probe), parts.leader("other", &probe));
    parts.ask("probe", 0).await;
    probe.then(Answer::Again(60));
    parts.cmd::<()>("SET asynq:x:leader one EX 3").await;
    let lease = Duration::from_secs(3);
    let patience = lease..=2 * lease;
    assert!(patience.contains(&other.run_once().await.unwrap()), "another one leads");
    leader.run_once().await.unwrap();
    assert_eq!(probe.looks(), 1);
    parts.pass(60);
    parts.cmd::<()>("DEL asynq:x:leader").await;
    assert!(patience.contains(&other.run_once().await.unwrap()), "it leaves the leader some time");
    assert_eq!(probe.looks(), 1);
    parts.pass(6);
    other.run_once().await.unwrap();
    assert_eq!((probe.looks(), &*parts.cmd::<String>("GET asynq:x:leader").await), (2, "other"));
}

#[tokio::test]
async fn a_server_that_does_not_know_a_duty_leaves_the_lead_to_another_one() {
    let (parts, probe) = (Parts::new().await, Probe::default());
    let (mut leader, mut other) = (parts.leader("one", &probe), parts.leader("other", &probe));
    parts.ask("unknown", 0).await;
    leader.run_once().await.unwrap();
    parts.cmd::<()>("DEL asynq:x:leader").await;
    parts.ask("probe", 0).await;
    assert!(leader.run_once().await.unwrap() > Duration::from_secs(20));
    other.run_once().await.unwrap();
    assert_eq!(probe.looks(), 1);
    let left = parts.cmd::<Vec<String>>("ZRANGE asynq:x:duties 0 -1").await;
    assert_eq!(left, ["unknown s"], "it waits for one who knows it");
}

#[tokio::test]
async fn canceler_stops_what_is_to_end_and_remembers_it_for_those_that_come() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut watcher = parts.cancel_watcher();
    watcher.run_once().await.unwrap();
    assert_eq!((job.cancel_reason(), watcher.cancels.by(&job)), (None, None));
    parts.broker.request_cancel("q", "a", "ann", NOW * 1_000).await.unwrap();
    watcher.run_once().await.unwrap();
    assert_eq!(job.cancel_reason(), Some(CancelReason::Canceled));
    assert_eq!(watcher.cancels.by(&job).as_deref(), Some("ann"));
}

/// Go's server has let it be tried again, or nobody heard of it.
#[tokio::test]
async fn leader_archives_a_canceled_task_that_waits_and_forgets_one_that_has_ended() {
    let parts = Parts::new().await;
    parts.job().await;
    let duties = queue_redis::duties::standard(&parts.broker, parts.clock.clone());
    let mut leader = Leader::new(parts.broker.clone(), parts.clock.clone(), "one", duties.into());
    parts.broker.request_cancel("q", "a", "ann", NOW * 1_000).await.unwrap();
    parts.broker.request_cancel("q", "gone", "ann", NOW * 1_000).await.unwrap();
    leader.do_all().await.unwrap();
    let left: Vec<String> = parts.cmd("HKEYS asynq:x:cancels").await;
    assert_eq!(
        (left, parts.count(TaskState::Active).await),
        (vec!["a q".to_owned()], 1),
        "its worker may still end it"
    );
    // As Go leaves it.
    parts.cmd::<()>("LREM asynq:{q}:active 0 a").await;
    parts.cmd::<()>("ZREM asynq:{q}:lease a").await;
    parts.cmd::<()>("HSET asynq:{q}:t:a state retry").await;
    parts.cmd::<()>("ZADD asynq:{q}:retry 4000000060 a").await;
    parts.pass(2);
    leader.do_all().await.unwrap();
    assert_eq!((parts.count(TaskState::Archived).await, parts.count(TaskState::Retry).await), (1, 0));
    assert!(!parts.cmd::<bool>("EXISTS asynq:x:cancels").await);
    assert_eq!(leader.do_all().await.unwrap(), None, "nothing is left to do");
}

#[tokio::test]
async fn subscriber_hears_cancelations_and_changes() {
    let parts = Parts::new().await;
    let job = parts.job().await;
    let mut subscriber = parts.subscriber();
    subscriber.run_once().await.unwrap();
    assert!(parts.wakeups.watch().is_some());
    assert!(parts.wakeups.work.take().everywhere, "nobody listened before");
    let listening = tokio::spawn(async move { subscriber.wait(Duration::ZERO).await });
    assert_eq!(parts.broker.cancel("a").await.unwrap(), 1);
    job.cancellation().cancelled().await;
    assert_eq!(job.cancel_reason(), Some(CancelReason::Canceled));
    parts.cmd::<u64>("CLIENT KILL TYPE pubsub").await;
    listening.await.unwrap();
    assert!(parts.wakeups.watch().is_none(), "nobody listens any more");
}

#[tokio::test]
async fn reconciler_lists_a_queue_that_is_not_listed() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("job")).await;
    parts.cmd::<()>("SREM asynq:queues q").await;
    parts.reconciler().run_once().await.unwrap();
    assert_eq!(parts.cmd::<Vec<String>>("SMEMBERS asynq:queues").await, ["q"]);
}

#[tokio::test]
async fn aggregator_starts_an_aggregation_for_a_group_that_is_quiet() {
    let parts = Parts::with(digesting()).await;
    for _ in 0..2 {
        parts.enqueue(RawTask::new("note").group("g")).await;
    }
    let mut aggregator = parts.aggregator();
    aggregator.run_once().await.unwrap();
    assert_eq!(parts.handlers.len(), 0);
    parts.pass(61);
    // What is ready, and when, was learned by the first look.
    aggregator.run_once().await.unwrap();
    parts.handlers.close();
    parts.handlers.wait().await;
    let digests = parts.inspector().tasks("q", TaskState::Pending, Page::default()).await.unwrap();
    assert_eq!((digests.len(), &*digests[0].task_type, &digests[0].payload[..]), (1, "digest", &b"2"[..]));
}

#[tokio::test]
async fn reclaimer_puts_the_tasks_of_a_lost_aggregation_back() {
    let parts = Parts::new().await;
    parts.enqueue(RawTask::new("note").group("g")).await;
    parts.pass(61);
    let rules = GroupRules::new(Duration::from_secs(60), Duration::ZERO, 0);
    let now = parts.time.now();
    parts.broker.stage(&"q".into(), "g", "set", rules, now, now + 120).await.unwrap().unwrap();
    let mut reclaimer = parts.reclaimer();
    reclaimer.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("ZCARD asynq:{q}:g:g").await, 0);
    parts.pass(120);
    reclaimer.run_once().await.unwrap();
    assert_eq!(parts.cmd::<u64>("ZCARD asynq:{q}:g:g").await, 1);
}

#[tokio::test]
async fn health_check_tells_whether_redis_answers() {
    let parts = Parts::new().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut check = parts.health_check(move |health| tell.lock().unwrap().push(health.is_ok()));
    check.run_once().await.unwrap();
    check.redis = Redis::lazy("redis+unix:///nowhere", queue_redis::RedisOptions::default()).unwrap();
    check.run_once().await.unwrap();
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

/// What takes, runs and reports tasks, without its loops.
fn shared(parts: &Parts) -> (Arc<Shared>, AckWriter) {
    let (acks, ack_loop) = Acks::new(Trouble::new(parts.queues.clone(), parts.wakeups.clone()));
    let shared = Arc::new(Shared {
        broker: parts.broker.clone(),
        slots: Slots::new(4),
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

#[tokio::test]
async fn processor_starts_what_there_is_and_the_acks_writer_writes_what_came_of_it() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let work = move |_: Job| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let parts = Parts::with(Router::new(()).route("job", work)).await;
    for _ in 0..3 {
        parts.enqueue(RawTask::new("job")).await;
    }
    let (shared, mut writer) = shared(&parts);
    Processor { shared }.run_once().await.unwrap();
    parts.handlers.close();
    parts.handlers.wait().await;
    assert_eq!((ran.load(Ordering::SeqCst), parts.count(TaskState::Active).await), (3, 3), "nothing is written yet");
    writer.run_once().await.unwrap();
    assert_eq!((parts.count(TaskState::Active).await, parts.running.len()), (0, 0));
}

#[tokio::test]
async fn every_loop_can_be_started_twice_and_stopped_at_any_time() {
    let parts = Parts::with(digesting()).await;
    let (shared, writer) = shared(&parts);
    start_and_stop(parts.recoverer(1)).await;
    start_and_stop(parts.forwarder()).await;
    start_and_stop(parts.janitor()).await;
    start_and_stop(parts.reclaimer()).await;
    start_and_stop(parts.reconciler()).await;
    start_and_stop(parts.lease_extender()).await;
    start_and_stop(parts.subscriber()).await;
    start_and_stop(parts.heartbeater()).await;
    start_and_stop(parts.leader("one", &Probe::default())).await;
    start_and_stop(parts.cancel_watcher()).await;
    start_and_stop(parts.aggregator()).await;
    start_and_stop(parts.health_check(|_| {})).await;
    start_and_stop(writer).await;
    start_and_stop(Processor { shared }).await;
}
