//! The server: takes tasks, runs their handlers, and keeps the queues it serves moving.

mod acks;
mod aggregation;
mod aggregator;
pub(crate) mod attempt;
mod cancels;
mod crowd;
mod forwarder;
mod handle;
mod health_check;
mod heartbeater;
mod holdings;
mod identity;
mod janitor;
mod joiner;
mod lanes;
mod lease_extender;
mod limit;
mod one_by_one;
mod options;
mod own_clock;
mod pace;
mod processor;
mod queues;
mod reclaimer;
mod reconciler;
mod recoverer;
mod requeue;
mod running;
mod shared;
mod shutdown;
mod signals;
mod single_takes;
mod slots;
mod starts;
mod steering;
mod subscriber;
mod survey;
mod telling;
#[cfg(test)]
mod tests;
pub(crate) mod time;
mod told;
mod trouble;
pub(crate) mod upkeep;
mod wakeups;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use queue_core::event::Kind;
use queue_core::outcome::Failure;
use queue_core::{Clock, RetryPolicy};
use queue_redis::duties;
use queue_redis::flow::Recorder;
use queue_redis::leader::{Duty, Leader};
use queue_redis::service::{Outage, Service as _, Services};
use queue_redis::{Doctor, Error, Redis, Role, broker::Broker};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::acks::Acks;
use self::aggregation::{Aggregations, Means};
use self::aggregator::Aggregator;
use self::cancels::{CancelWatcher, Cancels};
use self::forwarder::Forwarder;
pub use self::handle::Handle;
use self::handle::{HandleInner, Leash};
use self::health_check::HealthCheck;
use self::heartbeater::Heartbeater;
use self::holdings::Holdings;
use self::identity::Identity;
use self::janitor::Janitor;
use self::joiner::Joiner;
use self::lease_extender::LeaseExtender;
use self::one_by_one::OneByOne;
use self::options::Options;
pub(crate) use self::options::default_span;
pub use self::options::{MAX_RESULT_BYTES, ServerError, Unhandled};
use self::own_clock::OwnClock;
use self::pace::Pace;
use self::processor::Processor;
pub use self::queues::Priorities;
use self::queues::Queues;
use self::reclaimer::Reclaimer;
use self::reconciler::Reconciler;
use self::recoverer::Recoverer;
use self::running::Running;
use self::shared::Shared;
use self::shutdown::Shutdown;
use self::slots::Slots;
use self::steering::Steering;
use self::subscriber::Subscriber;
use self::telling::{Audience, Teller};
use self::time::Time;
use self::trouble::Trouble;
use self::wakeups::Wakeups;
use crate::aggregate::Aggregation;
use crate::events::{Event, Observers};
use crate::job::Job;
use crate::log::info;
use crate::panic::Guard;
use crate::router::Router;
use crate::routes::Routes;
use crate::work::WorkOptions;

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

impl Server {
    /// A server for the tasks that the router has handlers for, in the queue `default`.
    pub fn new<S: Clone + Send + Sync + 'static>(redis: Redis, router: Router<S>) -> Self {
        Self { redis, routes: router.into_routes(), options: Options::default() }
    }

    /// Tasks to run at once. Defaults to the number of CPUs.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.options.concurrency = tasks;
        self
    }

    /// The name by which operators know the server, and give it orders (`queuectl server quiet web-1`). Several servers may
    /// have the same; all of them go by what is ordered by name, also after a restart. Up to 100 letters, digits, `.`,
    /// `_` and `-`. Defaults to none: then only its id tells it from others.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// A word that says what the server has or where it is, shown by tools beside its name; may be given more than once.
    /// As a name is written.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options.labels.insert(label.into());
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

    /// Serves the [priorities](queue_core::TaskOptions::priority) of its queues as well, each of which is a queue that the
    /// server joins as soon as there is one. Weights, limits and options of a queue are those of all its priorities
    /// together. Defaults to none: the server leaves tasks with a priority to others.
    pub fn priorities(mut self, priorities: Priorities) -> Self {
        self.options.priorities = Some(priorities);
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

    /// How long running tasks may go on after a shutdown began; then they are requeued without spending
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

    /// What happens to a task whose type no handler serves. Defaults to snoozing it for 30 s.
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
        self.options.health = Some((interval, Arc::new(hook)));
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
    /// fields `task` (its id), `task_type`, `queue` and `attempt` (from 1). If the span has a field `outcome`,
    /// `otel.status_code` or `otel.status_description`, it is filled in at the end. A panic in it is logged, and the
    /// attempt runs in the default one.
    pub fn span(mut self, make: impl Fn(&Job) -> tracing::Span + Send + Sync + 'static) -> Self {
        self.options.span = Box::new(make);
        self
    }

    /// How long a group has to be quiet before it is aggregated. Between 1 s and 365 days, rounded up to the second.
    /// Defaults to 1 minute.
    pub fn group_grace_period(mut self, period: Duration) -> Self {
        self.options.groups.pace.grace_period = period;
        self
    }

    /// How long the oldest task of a group waits at the most, even if the group is never quiet. At most 365 days, rounded
    /// up to the second. Defaults to zero: for ever.
    pub fn group_max_delay(mut self, delay: Duration) -> Self {
        self.options.groups.pace.max_delay = delay;
        self
    }

    /// How many tasks make a group full, so that it is aggregated at once, and how many are aggregated into
    /// one task at the most; up to 10,000. Defaults to 0: a group is never full, and up to 10,000 tasks become
    /// one.
    pub fn group_max_size(mut self, tasks: usize) -> Self {
        self.options.groups.pace.max_size = tasks;
        self
    }

    /// How many groups to aggregate at once. Defaults to 3.
    pub fn group_concurrency(mut self, groups: usize) -> Self {
        self.options.groups.concurrency = groups;
        self
    }

    /// Called for every aggregation that failed, before its tasks go back into the group. A panic in it is logged.
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

    /// Has the leader of the fleet do this as well, when it is this server's turn to be it. A duty should be known to all
    /// servers: one that does not know it leaves the lead to others when it meets it.
    #[doc(hidden)]
    pub fn duty(mut self, duty: impl Duty) -> Self {
        self.options.duties.push(Arc::new(duty));
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
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    signals::Signal::Quiet => handle.quiet(),
                    signals::Signal::Stop => break,
                },
                // An operator has said so.
                () = handle.inner.shared.shutdown.closing.cancelled() => break,
            }
        }
        let shutdown = handle.shutdown();
        tokio::pin!(shutdown);
        tokio::select! {
            () = &mut shutdown => {}
            () = signals.stop() => {
                handle.inner.interrupt();
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
        let Self { redis, routes, mut options } = self;
        let limits = &options.queue_concurrency;
        let queues = Queues::with_priorities(&options.queues, options.strict, limits, options.priorities);
        options.check(&queues, &routes)?;
        crate::panic::install_hook();
        if options.start_check {
            redis.require(Role::Worker).await?
        } else {
            redis.warn(Role::Worker).await?
        }
        redis.ping().await?;

        let identity = Arc::new(Identity::new(options.clock.now_ns()));
        let observers = options.observers.clone();
        let outage = Outage::new({
            let (identity, observers) = (identity.clone(), observers.clone());
            move |error| tell_outage(&identity, &observers, error)
        });
        let time = Arc::new(Time::new(options.clock.clone(), options.correct_clock));
        time.compare(&redis).await?;
        let broker = Broker::new(redis).timed(!observers.is_empty());
        let (queues, running, wakeups) = (Arc::new(queues), Arc::<Running>::default(), Arc::<Wakeups>::default());
        let routes = Arc::new(routes.with_work(std::mem::take(&mut options.work)));
        let (shutdown, handlers) = (Shutdown::default(), TaskTracker::new());
        let slots = Slots::new(options.concurrency);
        let heartbeater = Heartbeater {
            broker: broker.clone(),
            time: time.clone(),
            identity: identity.clone(),
            queues: queues.clone(),
            slots: slots.clone(),
            running: running.clone(),
            shutdown: shutdown.clone(),
            beats: 0,
            was_idle: false,
        };
        if queues.joins() {
            queues.join(&broker.queue_names().await?);
        }
        // The server is on the list before it takes its first task.
        heartbeater.beat(false).await?;
        if !observers.is_empty() {
            let (server, concurrency, types) = (identity.id(), options.concurrency, routes.types());
            observers.tell(|| Event::ServerStarted { server, concurrency, types: &types });
        }

        let (intake, upkeep) = (Services::new(outage.clone()), Services::new(outage.clone()));
        let until_end = &shutdown.ended;
        let recorder = Recorder::new(broker.clone(), time.clock());
        upkeep.start(until_end, recorder.clone());
        let holdings = Arc::new(Holdings::new(broker.clone(), queues.clone(), wakeups.clone()));
        upkeep.start(until_end, heartbeater.clone());
        broker.feed().name(&identity.name());
        let mut audience = Audience { broker: broker.clone(), time: time.clone(), wakeups: wakeups.clone() };
        // Before anything happens that is to be told: what is recovered or forwarded at the start, too. If it fails, the loop looks again.
        let _ = audience.run_once().await;
        let (extended, lease) = (running.clone(), options.lease);
        if queues.joins() {
            let (queues, wakeups, heartbeater) = (queues.clone(), wakeups.clone(), heartbeater.clone());
            let joiner = Joiner { broker: broker.clone(), queues, wakeups, heartbeater, is_full: false };
            upkeep.start(until_end, joiner);
        }
        upkeep.start(until_end, LeaseExtender { broker: broker.clone(), time: time.clone(), running: extended, lease });
        let redis = broker.redis().clone();
        let has_size = options.groups.pace.max_size > 0;
        upkeep.start(
            until_end,
            Subscriber::new(redis.clone(), queues.clone(), running.clone(), wakeups.clone(), has_size),
        );
        upkeep.start(
            until_end,
            Forwarder::new(broker.clone(), time.clone(), queues.clone(), wakeups.clone(), observers.clone()),
        );
        upkeep.start(
            until_end,
            Recoverer::new(
                broker.clone(),
                time.clone(),
                holdings.clone(),
                routes.clone(),
                options.max_crashes,
                observers.clone(),
            ),
        );
        upkeep.start(until_end, Janitor::new(broker.clone(), time.clone(), holdings.clone()));
        upkeep.start(until_end, Reclaimer::new(broker.clone(), time.clone(), holdings.clone()));
        if !options.reconcile.is_zero() {
            let doctor = Doctor::with_clock(redis.clone(), time.clock());
            let (queues, identity, interval) = (queues.clone(), identity.clone(), options.reconcile);
            let reconciler = Reconciler::new(broker.clone(), doctor, queues, identity, interval, observers.clone());
            upkeep.start(until_end, reconciler);
        }
        let mut known = duties::standard(&broker, time.clock());
        known.append(&mut options.duties);
        let leader = Leader::new(broker.clone(), time.clock(), identity.id(), known.into());
        upkeep.start(until_end, leader.told(wakeups.watches(), wakeups.duties.clone()));
        let cancels = Arc::<Cancels>::default();
        let mut canceler = CancelWatcher {
            broker: broker.clone(),
            cancels: cancels.clone(),
            running: running.clone(),
            wakeups: wakeups.clone(),
        };
        // Before the first task is taken. If it fails, the loop tells.
        let _ = canceler.run_once().await;
        upkeep.start(until_end, canceler);
        upkeep.start(until_end, audience);
        upkeep.start(until_end, Teller { broker: broker.clone(), time: time.clone() });
        if let Some((interval, hook)) = options.health.clone() {
            upkeep.start(until_end, HealthCheck { redis, outage: outage.clone(), interval, hook });
        }

        let aggregating = Arc::new(Semaphore::new(options.groups.concurrency));
        let aggregations = Arc::new(Aggregations {
            means: Means {
                broker: broker.clone(),
                routes: routes.clone(),
                outage: outage.clone(),
                time: time.clone(),
                stop: shutdown.interrupting.clone(),
                cancel_grace: options.cancel_grace,
            },
            rules: options.groups.pace.rules(),
            retry_interval: options.groups.pace.check_interval(),
            on_error: options.groups.on_error.take(),
            observers,
            wakeups: wakeups.clone(),
            failing: Default::default(),
        });
        let (pace, permits) = (options.groups.pace, aggregating.clone());
        intake.start(&shutdown.closing, Aggregator::new(holdings, aggregations, pace, permits, handlers.clone()));

        let (acks, ack_loop) = Acks::new(Trouble::new(queues.clone(), wakeups.clone()));
        let shared = Arc::new(Shared {
            broker,
            slots,
            options,
            span_guard: Guard::default(),
            time,
            outage,
            routes,
            queues,
            identity,
            running,
            cancels,
            acks,
            one_by_one: OneByOne::default(),
            takes: AtomicU64::new(0),
            wakeups,
            told_of_limits: Default::default(),
            shutdown,
            handlers,
            pace: Pace::default(),
            lookups: TaskTracker::new(),
        });
        let acks = Arc::new(tokio::sync::Mutex::new(ack_loop));
        upkeep.start(&shared.shutdown.ended, acks::AckWriter { shared: shared.clone(), acks });
        let stop = CancellationToken::new();
        let mut steering = Steering::new(shared.clone(), heartbeater.clone(), stop.clone());
        // As for the canceler.
        let _ = steering.run_once().await;
        telling::of_server(&shared, Kind::ServerStarted);
        upkeep.start(&shared.shutdown.ended, steering);
        intake.start(&shared.shutdown.quiet, Processor { shared: shared.clone() });
        info!(
            server = shared.identity.id(),
            queues = ?shared.queues.names().collect::<Vec<_>>(),
            concurrency = shared.slots.total(),
            redis = shared.broker.redis().target(),
            "server started"
        );
        let ended = tokio::sync::Mutex::new(false);
        let until_end = shared.shutdown.ended.clone();
        let inner = HandleInner { shared, heartbeater, intake, upkeep, recorder, aggregating, ended };
        let handle = Handle { inner: Arc::new(inner) };
        let ordered = handle.clone();
        tokio::spawn(async move {
            if until_end.run_until_cancelled(stop.cancelled()).await.is_some() {
                ordered.shutdown().await;
            }
        });
        Ok(handle)
    }
}

fn tell_outage(identity: &Identity, observers: &Observers, error: Option<&Error>) {
    let server = identity.id();
    observers.tell(|| match error {
        Some(error) => Event::RedisAway { server, error },
        None => Event::RedisBack { server },
    });
}
