//! The server: takes tasks, runs their handlers, and keeps the queues it serves moving.

mod acks;
pub(crate) mod aggregator;
pub(crate) mod attempt;
mod crowd;
mod forwarder;
mod groups;
mod handle;
mod heartbeat;
mod holdings;
mod keeper;
mod limit;
mod maintenance;
mod one_by_one;
mod own_clock;
mod processor;
mod queues;
mod reconciler;
mod running;
mod shared;
mod signals;
mod slots;
mod survey;
mod time;
mod told;
mod trouble;

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use queue_core::options::{OptionError, check_existing_queue_name};
use queue_core::outcome::Failure;
use queue_core::{Clock, RetryPolicy, SystemClock};
use queue_redis::service::Outage;
use queue_redis::{Broker, Error, MAX_SET, Redis, Role};
pub(crate) use slots::Slot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::acks::Acks;
use self::groups::{GroupOptions, Groups};
pub use self::handle::Handle;
use self::handle::{Ending, HandleInner, Leash};
use self::heartbeat::Identity;
use self::holdings::Holdings;
use self::one_by_one::OneByOne;
use self::own_clock::OwnClock;
use self::queues::Queues;
use self::running::Running;
use self::shared::{Shared, Status};
use self::slots::Slots;
use self::time::Time;
use self::told::Told;
use crate::aggregate::Aggregation;
use crate::events::{Event, Observers};
use crate::job::Job;
use crate::log::{error, info};
use crate::panic::{Catch, Guard};
use crate::router::Router;
use crate::routes::Routes;
use crate::work::{Work, WorkOptions};

/// What happens to a task whose type no handler serves.
///
/// asynq lets such a task fail, so that a fleet in which a server lacks a handler burns the task's
/// retries. Here no choice but [`Fail`](Self::Fail) spends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unhandled {
    /// Put it back, to be taken again, perhaps by another server, after this long. The default, with
    /// 30 s.
    PutBack(Duration),
    /// Leave it where it is: only tasks that have a handler are taken. Costs Redis a look at the type of
    /// each waiting task.
    Leave,
    /// Let it fail, as asynq does.
    Fail,
    /// Archive it.
    Archive,
}

/// The most bytes of a result that a server keeps, unless told otherwise.
pub const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// The longest lease, and the longest pause between looks.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest of all other times. Whoever means "for ever" has it, and no sum of two overflows.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

type ErrorHook = dyn Fn(&Job, &Failure) + Send + Sync;
type SpanHook = dyn Fn(&Job) -> tracing::Span + Send + Sync;
type HealthHook = dyn Fn(Result<(), &Error>) + Send + Sync;

struct Options {
    concurrency: usize,
    queues: Vec<(String, u32)>,
    strict: bool,
    work: Work,
    /// How many tasks of a queue may run at once.
    queue_concurrency: BTreeMap<String, usize>,
    shutdown_timeout: Duration,
    cancel_grace: Duration,
    poll_interval: Duration,
    lease: Duration,
    max_crashes: u32,
    reconcile: Duration,
    unhandled: Unhandled,
    max_result_bytes: usize,
    on_error: Option<Box<ErrorHook>>,
    health: Option<(Duration, Box<HealthHook>)>,
    start_check: bool,
    observers: Observers,
    span: Box<SpanHook>,
    groups: GroupOptions,
    clock: Arc<dyn Clock>,
    correct_clock: bool,
}

/// A server that is not running yet.
///
/// Every option has asynq's default unless it says otherwise.
#[must_use = "a server does nothing until it runs"]
pub struct Server {
    redis: Redis,
    routes: Routes,
    options: Options,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("redis", &self.redis)
            .field("queues", &self.options.queues)
            .field("concurrency", &self.options.concurrency)
            .finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Redis cannot be reached, or refuses what the server needs.
    #[error(transparent)]
    Redis(#[from] Error),
    /// A queue's name cannot be used.
    #[error(transparent)]
    Queue(#[from] OptionError),
    /// An option has a value that makes no sense.
    #[error("the server's option {option} is {value}; {rule}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it has to be.
        rule: &'static str,
    },
    /// The process cannot listen for signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[from] std::io::Error),
}

queue_core::debug_as_text!(ServerError);

impl Server {
    /// A server for the tasks that the router has handlers for, in the queue `default`.
    pub fn new<S: Clone + Send + Sync + 'static>(redis: Redis, router: Router<S>) -> Self {
        let options = Options {
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            queues: Vec::new(),
            strict: false,
            work: Work::default(),
            queue_concurrency: BTreeMap::new(),
            shutdown_timeout: Duration::from_secs(8),
            cancel_grace: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
            lease: Duration::from_secs(30),
            max_crashes: queue_core::crash::DEFAULT_LIMIT,
            reconcile: Duration::from_secs(300),
            unhandled: Unhandled::PutBack(Duration::from_secs(30)),
            max_result_bytes: MAX_RESULT_BYTES,
            on_error: None,
            health: None,
            start_check: true,
            observers: Observers::default(),
            span: Box::new(attempt::default_span),
            groups: GroupOptions::default(),
            clock: Arc::new(SystemClock),
            correct_clock: true,
        };
        Self { redis, routes: router.into_routes(), options }
    }

    /// Tasks to run at once. Defaults to the number of CPUs.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.options.concurrency = tasks;
        self
    }

    /// The queues to serve, with their weights: a queue of weight 6 is tried first 6 times as often as
    /// one of weight 1. Defaults to `default`, weight 1.
    pub fn queues<N: Into<String>>(mut self, queues: impl IntoIterator<Item = (N, u32)>) -> Self {
        self.options.queues = queues.into_iter().map(|(name, weight)| (name.into(), weight)).collect();
        self
    }

    /// Whether weights are strict priorities: a queue is served only while all heavier ones are empty.
    /// Defaults to `false`.
    pub fn strict_priority(mut self, strict: bool) -> Self {
        self.options.strict = strict;
        self
    }

    /// How many tasks of one of the queues this server runs at once, within its [`concurrency`](Self::concurrency). The
    /// queue's tasks beyond that stay where they are; they hold no slots, which go to the other queues. Defaults to no
    /// limit but the server's.
    ///
    /// The limit is that of this server: n servers run n times as many. [`Semaphore`](queue_redis::Semaphore) limits a
    /// whole fleet, but a task has to be taken before it can ask.
    pub fn queue_concurrency(mut self, queue: impl Into<String>, tasks: usize) -> Self {
        self.options.queue_concurrency.insert(queue.into(), tasks);
        self
    }

    /// How long a failed task waits for its next attempt, unless its type or queue says otherwise. Defaults to asynq's
    /// formula.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.options.work.all.retry_policy = Some(policy);
        self
    }

    /// How all tasks are worked, unless their type or queue says otherwise. Replaces an earlier
    /// [`retry_policy`](Self::retry_policy).
    pub fn work_options(mut self, options: WorkOptions) -> Self {
        self.options.work.all = options;
        self
    }

    /// How the tasks of one of the queues are worked, unless their type says otherwise
    /// ([`Router::options`](crate::Router::options)).
    pub fn queue_options(mut self, queue: impl Into<String>, options: WorkOptions) -> Self {
        self.options.work.queues.insert(queue.into(), options);
        self
    }

    /// How long running tasks may go on after a shutdown began; then they are put back without spending
    /// a retry. At most 365 days. Defaults to 8 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.options.shutdown_timeout = timeout;
        self
    }

    /// How long a handler that was told to stop may take to return; then its future is dropped. If it
    /// returns success in this time, the task counts as done. At most 365 days. Defaults to 1 s; asynq has none.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.options.cancel_grace = grace;
        self
    }

    /// How often empty queues are looked at when Redis cannot tell about new tasks by itself (client
    /// tracking, Redis 6 and later). Between 1 ms and 24 h. Defaults to 1 s, drawn between half and one and a half of it.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How long a task is reserved; renewed every sixth of it, and every 5 s at the least. A crashed
    /// server's tasks come back one lease and 7 s after its last renewal, or 30 s where a server still says that
    /// it works on them. Between 5 s and 24 h. Defaults to 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How many crashes of its workers a task may survive; with the next one it is archived, with the names of
    /// those that had it. Counted since an attempt last ended otherwise. A crash spends no retry (asynq's
    /// recoverers do spend one), but a task without any is archived at the first. Defaults to 5.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.options.max_crashes = crashes;
        self
    }

    /// How often the server looks whether its queues are in order, and puts right by itself what can be without
    /// losing anything: tasks in no list, active ones without a lease, groups and queues that are not listed, and
    /// the like (`queuectl doctor` finds these and more). Of the servers of a queue one does it at a time, and
    /// reads up to 2,000 tasks each time. Between 1 s and 24 h; zero switches it off. Defaults to 5 minutes.
    pub fn reconcile_interval(mut self, interval: Duration) -> Self {
        self.options.reconcile = interval;
        self
    }

    /// What happens to a task whose type no handler serves. Defaults to putting it back for 30 s.
    pub fn unhandled(mut self, choice: Unhandled) -> Self {
        self.options.unhandled = choice;
        self
    }

    /// The most bytes of a result that are kept. A task whose handler returns more goes to the archive, with the
    /// reason: its work is done, and doing it again would not help. Defaults to [`MAX_RESULT_BYTES`], 16 MiB;
    /// asynq has no limit.
    pub fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.options.max_result_bytes = bytes;
        self
    }

    /// Called for every attempt that failed, before anything is written. A panic in it is logged.
    pub fn on_error(mut self, hook: impl Fn(&Job, &Failure) + Send + Sync + 'static) -> Self {
        self.options.on_error = Some(Box::new(hook));
        self
    }

    /// Called every `interval` with whether Redis answers, and whether all parts of the server can do their work;
    /// asynq's interval is 15 s. While Redis answers and refuses (a replica, one that is full, one that cannot write to
    /// its disk), it is called with that error.
    pub fn health_check(
        mut self,
        interval: Duration,
        hook: impl Fn(Result<(), &Error>) + Send + Sync + 'static,
    ) -> Self {
        self.options.health = Some((interval, Box::new(hook)));
        self
    }

    /// Whether the server refuses to start on a Redis that cannot hold queues: too old a version, a replica, a
    /// user without the rights it needs, a memory policy that deletes tasks; see
    /// [`Redis::check`](queue_redis::Redis::check). With `false` it only says so in the log. Defaults to `true`.
    pub fn start_check(mut self, refuse: bool) -> Self {
        self.options.start_check = refuse;
        self
    }

    /// Called for whatever happens in the server that is worth counting, on the path of every task: it should
    /// return quickly. A panic in it is logged. May be given more than once. Without it, nothing is measured.
    ///
    /// With it, Redis is also asked since when each task was pending, which makes a take a little more
    /// expensive. The crate `queue-metrics` turns what is told into Prometheus metrics.
    pub fn observe(mut self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.options.observers.add(Box::new(observer));
        self
    }

    /// Makes the `tracing` span that an attempt runs in. Defaults to a span `process` of level `info` with the
    /// fields `task` (its id), `kind`, `queue` and `attempt` (from 1). If the span has a field `outcome`,
    /// `otel.status_code` or `otel.status_description`, it is filled in at the end. A panic in it is logged, and the
    /// attempt runs in the default one.
    pub fn span(mut self, make: impl Fn(&Job) -> tracing::Span + Send + Sync + 'static) -> Self {
        self.options.span = Box::new(make);
        self
    }

    /// How long a group has to be quiet before it is aggregated. Between 1 s and 365 days, rounded up to the second.
    /// Defaults to 1 minute.
    pub fn group_grace_period(mut self, period: Duration) -> Self {
        self.options.groups.grace_period = period;
        self
    }

    /// How long the oldest task of a group waits at the most, even if the group is never quiet. At most 365 days, rounded
    /// up to the second. Defaults to zero: for ever.
    pub fn group_max_delay(mut self, delay: Duration) -> Self {
        self.options.groups.max_delay = delay;
        self
    }

    /// How many tasks make a group full, so that it is aggregated at once, and how many are aggregated into
    /// one task at the most; up to 10,000. Defaults to 0: a group is never full, and up to 10,000 tasks become
    /// one.
    pub fn group_max_size(mut self, tasks: usize) -> Self {
        self.options.groups.max_size = tasks;
        self
    }

    /// How many groups to aggregate at once. Defaults to 3.
    pub fn group_concurrency(mut self, groups: usize) -> Self {
        self.options.groups.concurrency = groups;
        self
    }

    /// Called for every aggregation that failed, before its tasks are put back. A panic in it is logged.
    pub fn on_group_error(mut self, hook: impl Fn(&Aggregation, &Failure) + Send + Sync + 'static) -> Self {
        self.options.groups.on_error = Some(Box::new(hook));
        self
    }

    /// The clock that decides about leases and due times, for tests. It is not
    /// [corrected](Self::correct_clock). While it panics, time goes on from what it told last.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.options.clock = Arc::new(OwnClock::new(clock));
        self.options.correct_clock = false;
        self
    }

    /// Whether the server goes by Redis' clock when its own differs from that by more than a second, as it
    /// finds out at its start and every 5 s; in between it does not notice when its own is set. Defaults to `true`,
    /// except with a [`clock`](Self::clock) that was set before. A Go server always goes by its own.
    pub fn correct_clock(mut self, correct: bool) -> Self {
        self.options.correct_clock = correct;
        self
    }

    /// Runs until the process is told to end: TERM, INT or HUP drains and stops, a second one of them stops
    /// at once; TSTP stops taking tasks and goes on working. Told so before it has started, it ends without; and so does
    /// the next one, if it is told between a start that failed and that.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server as [`Handle::abort`] does: it takes no more tasks, and those in hand are put
    /// back, by the runtime, which has to live until then. To see the end, use [`start`](Self::start) and the [`Handle`].
    ///
    /// # Errors
    /// When the server cannot start (see [`start`](Self::start)), and nobody has told the process to end meanwhile.
    pub async fn run(self) -> Result<(), ServerError> {
        let mut signals = signals::Signals::listen()?;
        let mut quiet = false;
        let started = tokio::select! {
            biased;
            // Nothing runs by then, and the entry in the list of servers expires by itself.
            () = signals.stop_noting(&mut quiet) => None,
            started = self.start() => Some(started),
        };
        let handle = match started {
            Some(Ok(handle)) => Leash::new(handle),
            Some(Err(error)) if !signals.has_stop() => {
                signals.leave();
                return Err(error);
            }
            _ => {
                info!("told to end before the server had started");
                return Ok(());
            }
        };
        if quiet {
            handle.quiet();
        }
        while let signals::Signal::Quiet = signals.next().await {
            handle.quiet();
        }
        let shutdown = handle.shutdown();
        tokio::pin!(shutdown);
        tokio::select! {
            () = &mut shutdown => {}
            () = signals.stop() => {
                handle.inner.shared.stop_work();
                shutdown.await;
            }
        }
        Ok(())
    }

    /// Starts the server in the background. Tasks are taken as soon as this returns.
    ///
    /// # Errors
    /// When an option makes no sense, or Redis cannot be reached, refuses, or cannot hold queues (see
    /// [`start_check`](Self::start_check)).
    pub async fn start(self) -> Result<Handle, ServerError> {
        let Self { redis, routes, options } = self;
        let require = |ok: bool, option, value: String, rule| {
            if ok { Ok(()) } else { Err(ServerError::Option { option, value, rule }) }
        };
        require(options.concurrency > 0, "concurrency", options.concurrency.to_string(), "it must be at least 1")?;
        require(
            options.concurrency <= Slots::MAX,
            "concurrency",
            options.concurrency.to_string(),
            "it must be at most 100000",
        )?;
        let within = |option, value: Duration, range: RangeInclusive<Duration>, rule| {
            require(range.contains(&value), option, format!("{value:?}"), rule)
        };
        let (up_to_a_year, from_1ms) = (Duration::ZERO..=YEAR, Duration::from_millis(1));
        within("lease", options.lease, Duration::from_secs(5)..=DAY, "it must be between 5s and 24h")?;
        within("poll_interval", options.poll_interval, from_1ms..=DAY, "it must be between 1ms and 24h")?;
        if !options.reconcile.is_zero() {
            let rule = "it must be between 1s and 24h, or zero for never";
            within("reconcile_interval", options.reconcile, Duration::from_secs(1)..=DAY, rule)?;
        }
        let rule = "it must be at most 365 days";
        within("shutdown_timeout", options.shutdown_timeout, up_to_a_year.clone(), rule)?;
        within("cancel_grace", options.cancel_grace, up_to_a_year.clone(), rule)?;
        if let Unhandled::PutBack(delay) = options.unhandled {
            within("unhandled", delay, up_to_a_year.clone(), "a task must be put back for at most 365 days")?;
        }
        if let Some((interval, _)) = options.health {
            within("health_check", interval, from_1ms..=YEAR, "its interval must be between 1ms and 365 days")?;
        }
        let groups = &options.groups;
        let rule = "it must be between 1s and 365 days";
        within("group_grace_period", groups.grace_period, Duration::from_secs(1)..=YEAR, rule)?;
        within("group_max_delay", groups.max_delay, up_to_a_year, "it must be at most 365 days, or zero for ever")?;
        require(groups.max_size <= MAX_SET, "group_max_size", groups.max_size.to_string(), "it must be at most 10000")?;
        let sensible = (1..=Slots::MAX).contains(&groups.concurrency);
        let concurrency = groups.concurrency.to_string();
        require(sensible, "group_concurrency", concurrency, "it must be between 1 and 100000")?;
        let queues = Queues::new(&options.queues, options.strict, &options.queue_concurrency);
        for queue in queues.names() {
            check_existing_queue_name(queue)?;
        }
        for (queue, limit) in &options.queue_concurrency {
            let sensible = (1..=Slots::MAX).contains(limit);
            let value = format!("{limit} for {queue:?}");
            require(sensible, "queue_concurrency", value, "it must be between 1 and 100000")?;
        }
        let of_queues = options.queue_concurrency.keys().map(|queue| ("queue_concurrency", queue));
        for (option, queue) in of_queues.chain(options.work.queues.keys().map(|queue| ("queue_options", queue))) {
            let served = queues.names().any(|name| **name == **queue);
            require(
                served,
                option,
                format!("set for {queue:?}"),
                "it must be one of the queues that the server serves",
            )?;
        }
        let of_queues =
            options.work.queues.iter().map(|(queue, options)| (format!("zero for queue {queue:?}"), options));
        let of_types = routes.all_options().map(|(kind, options)| (format!("zero for {kind:?}"), options));
        let of_all = std::iter::once(("zero".to_owned(), &options.work.all));
        for (value, options) in of_all.chain(of_queues).chain(of_types) {
            require(!options.has_no_time(), "timeout", value, "it must be longer than that")?;
        }
        crate::panic::install_hook();
        if options.start_check {
            redis.require(Role::Worker).await?
        } else {
            redis.warn(Role::Worker).await?
        }
        redis.ping().await?;

        let (acks, ack_loop) = Acks::new();
        let shared = Arc::new_cyclic(|shared: &std::sync::Weak<Shared>| Shared {
            outage: Outage::new({
                let shared = shared.clone();
                move |error| {
                    if let Some(shared) = shared.upgrade() {
                        shared.tell_outage(error);
                    }
                }
            }),
            broker: Broker::new(redis).timed(!options.observers.is_empty()),
            slots: Slots::new(options.concurrency),
            groups: Groups::new(options.groups.concurrency),
            identity: Identity::new(options.clock.now_ns()),
            time: Time::new(options.clock.clone(), options.correct_clock),
            options,
            span_guard: Guard::default(),
            routes,
            queues,
            running: Running::default(),
            acks,
            one_by_one: OneByOne::default(),
            takes: AtomicU64::new(0),
            work: Told::default(),
            schedule: Told::default(),
            holdings: Holdings::default(),
            watch: tokio::sync::watch::channel(None).0,
            quiet: CancellationToken::new(),
            status: AtomicU8::new(Status::Active as u8),
            handlers: TaskTracker::new(),
            lookups: TaskTracker::new(),
        });
        shared.time.compare(shared.broker.redis()).await?;
        // The server is on the list before it takes its first task.
        heartbeat::beat(&shared, false).await?;
        if !shared.options.observers.is_empty() {
            let (server, concurrency, kinds) =
                (shared.identity.id(), shared.options.concurrency, shared.routes.kinds());
            shared.tell(|| Event::ServerStarted { server, concurrency, kinds: &kinds });
        }

        let stop = CancellationToken::new();
        let services = TaskTracker::new();
        let ack_stop = CancellationToken::new();
        let ack_loop = Arc::new(tokio::sync::Mutex::new(ack_loop));
        let (tell, told) = (shared.clone(), ack_stop.clone());
        let acks = supervise(&ack_stop, "reports", move || acks::run(tell.clone(), ack_loop.clone(), told.clone()));
        services.spawn(acks);
        services.spawn(supervise(&ack_stop, "leases", service(&shared, keeper::renew_leases)));
        services.spawn(supervise(&ack_stop, "heartbeat", service(&shared, heartbeat::run)));
        services.spawn(supervise(&stop, "listener", service(&shared, keeper::listen)));
        services.spawn(supervise(&stop, "forwarder", service(&shared, forwarder::run)));
        services.spawn(supervise(&stop, "recoverer", service(&shared, maintenance::recover)));
        services.spawn(supervise(&stop, "janitor", service(&shared, maintenance::clean_up)));
        services.spawn(supervise(&shared.groups.closing, "aggregator", service(&shared, groups::watch)));
        services.spawn(supervise(&stop, "lost aggregations", service(&shared, groups::reclaim)));
        services.spawn(supervise(&stop, "reconciler", service(&shared, reconciler::run)));
        services.spawn(supervise(&stop, "health check", service(&shared, heartbeat::check_health)));
        let processor = tokio::spawn(supervise(&stop, "processor", service(&shared, processor::run)));
        info!(
            server = shared.identity.id(),
            queues = ?shared.queues.names().collect::<Vec<_>>(),
            concurrency = shared.options.concurrency,
            redis = shared.broker.redis().target(),
            "server started"
        );
        let ending = tokio::sync::Mutex::new(Ending { processor: Some(processor), ended: false });
        Ok(Handle { inner: Arc::new(HandleInner { shared, stop, ack_stop, services, ending }) })
    }
}

/// A loop on what all parts share, to be started as often as need be.
fn service<F: Future<Output = ()>>(shared: &Arc<Shared>, run: fn(Arc<Shared>) -> F) -> impl Fn() -> F + use<F> {
    let shared = shared.clone();
    move || run(shared.clone())
}

/// Runs a loop until it ends or is told to stop; what it was waiting for is then dropped. One that panics
/// is started again: a server that looks alive but no longer recovers tasks would be worse.
fn supervise<F, S>(stop: &CancellationToken, name: &'static str, start: S) -> impl Future<Output = ()> + use<F, S>
where
    F: Future<Output = ()>,
    S: Fn() -> F,
{
    let stop = stop.clone();
    async move {
        while let Some(Err(panicked)) = stop.run_until_cancelled(Catch(Box::pin(start()))).await {
            error!(service = name, error = %panicked, "part of the server panicked; it is started again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
