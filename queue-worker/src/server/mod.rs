//! The server: takes tasks, runs their handlers, and keeps the queues it serves moving.

mod acks;
mod adapter;
mod adaptive;
mod aggregation;
mod aggregator;
pub(crate) mod attempt;
mod builder;
pub(crate) mod cancels;
mod crowd;
mod forwarder;
mod handle;
mod health_check;
mod heartbeater;
mod holdings;
mod identity;
mod janitor;
mod joiner;
mod joins;
mod lanes;
mod lease_extender;
mod limit;
mod look;
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
mod round;
mod running;
mod shared;
mod shutdown;
mod signals;
mod single_takes;
mod slots;
mod sorter;
mod starts;
mod steering;
mod subscriber;
mod survey;
mod taker;
mod telling;
#[cfg(test)]
mod tests;
pub(crate) mod time;
mod told;
mod trouble;
pub(crate) mod upkeep;
mod wakeups;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use queue_core::Clock;
use queue_core::event::Kind;
use queue_redis::duties;
use queue_redis::flow::Recorder;
use queue_redis::leader::Leader;
use queue_redis::service::{Outage, Service as _, Services};
use queue_redis::{Doctor, Error, Redis, Role, broker::Broker};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::acks::Acks;
use self::adapter::Adapter;
use self::adaptive::Adaptive;
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
use self::joins::Joins;
pub use self::joins::Priorities;
use self::lease_extender::LeaseExtender;
use self::one_by_one::OneByOne;
use self::options::Options;
pub(crate) use self::options::default_span;
pub use self::options::{MAX_RESULT_BYTES, ServerError, Unhandled};
use self::pace::Pace;
use self::processor::Processor;
use self::queues::Queues;
use self::reclaimer::Reclaimer;
use self::reconciler::Reconciler;
use self::recoverer::Recoverer;
use self::running::Running;
use self::shared::Shared;
use self::shutdown::{Begun, Shutdown};
use self::slots::Slots;
use self::steering::Steering;
use self::subscriber::Subscriber;
use self::telling::{Audience, Teller};
use self::time::Time;
use self::trouble::Trouble;
use self::wakeups::Wakeups;
use crate::events::{Event, Observers};
use crate::log::info;
use crate::panic::Guard;
use crate::router::Router;
use crate::routes::Routes;

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

    /// Runs until the process is told to end: TERM, INT or HUP drains and stops, a second one of them stops
    /// at once; TSTP stops taking tasks and goes on working. Told so before it has started, it ends without; and so does
    /// the next one, if it is told between a start that failed and that.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server as [`Handle::abort`] does: it takes no more tasks, and those in hand are put
    /// back, by the runtime, which has to live until then. To see the end, use [`start`](Self::start) and the [`Handle`].
    ///
    /// # Errors
    /// When the server cannot start (see [`start`](Self::start)), and nobody has told the process to end meanwhile;
    /// [`ServerError::Unwritten`].
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
            Some(Ok(handle)) => Leash(handle),
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
        match handle.inner.has_unwritten.load(Ordering::Acquire) {
            true => Err(ServerError::Unwritten),
            false => Ok(()),
        }
    }

    /// Starts the server in the background. Tasks are taken as soon as this returns.
    ///
    /// # Errors
    /// When an option makes no sense, or Redis cannot be reached, refuses, or cannot hold queues (see
    /// [`start_check`](Self::start_check)).
    pub async fn start(self) -> Result<Handle, ServerError> {
        let Self { redis, routes, mut options } = self;
        let limits = &options.queue_concurrency;
        let joins = Joins {
            priorities: options.priorities,
            name: options.name.clone(),
            labels: options.labels.clone(),
            patterns: options.patterns.clone(),
        };
        let queues = Queues::joining(&options.queues, options.strict, limits, joins);
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
        let mut work = std::mem::take(&mut options.work);
        (work.patterns, work.queues) =
            work.queues.into_iter().partition(|(queue, _)| options.patterns.contains_key(queue));
        let routes = Arc::new(routes.with_work(work));
        let (shutdown, handlers) = (Shutdown::default(), TaskTracker::new());
        let begun = Begun::new(&shutdown);
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
        broker.feed().serve(&identity.name());
        let mut audience = Audience { broker: broker.clone(), time: time.clone(), wakeups: wakeups.clone() };
        // Before anything happens that is to be told: what is recovered or forwarded at the start, too. If it fails, the loop looks again.
        let _ = audience.run_once().await;
        let (extended, lease) = (running.clone(), options.lease);
        if queues.joins() {
            let (queues, wakeups, heartbeater) = (queues.clone(), wakeups.clone(), heartbeater.clone());
            let joiner = Joiner {
                broker: broker.clone(),
                queues,
                wakeups,
                heartbeater,
                observers: observers.clone(),
                is_full: false,
                asked_for: HashSet::new(),
            };
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
                options.on_exhausted.clone(),
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
            adaptive: options.adaptive.clone().map(Adaptive::new),
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
        if shared.adaptive.is_some() {
            upkeep.start(&shared.shutdown.ended, Adapter { shared: shared.clone() });
        }
        intake.start(&shared.shutdown.quiet, Processor { shared: shared.clone() });
        info!(
            server = shared.identity.id(),
            queues = ?shared.queues.names().collect::<Vec<_>>(),
            concurrency = shared.slots.total(),
            redis = shared.broker.redis().target(),
            "server started"
        );
        let until_end = shared.shutdown.ended.clone();
        let inner = HandleInner {
            shared,
            heartbeater,
            intake,
            upkeep,
            recorder,
            aggregating,
            is_ending: AtomicBool::default(),
            has_unwritten: AtomicBool::default(),
            over: CancellationToken::new(),
            runtime: tokio::runtime::Handle::current(),
        };
        let handle = Handle { inner: Arc::new(inner) };
        begun.started();
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
