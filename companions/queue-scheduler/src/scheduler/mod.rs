//! The scheduler: carries entries and enqueues their tasks when their ticks come.

mod builder;
mod carried;
mod heartbeater;
mod hooks;
mod syncer;
mod ticker;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::Clock as _;
use queue_redis::log::info;
use queue_redis::service::{Outage, Services};
use queue_redis::{Error, Redis, Role, broker::Broker};
use tokio_util::sync::CancellationToken;

use self::builder::Options;
pub use self::builder::SchedulerBuilder;
use self::carried::Shared;
use self::heartbeater::Heartbeater;
pub use self::hooks::{SyncProblem, Ticked};
use self::syncer::Syncer;
use self::ticker::Ticker;
use crate::entry::Entry;
use crate::problem::EntryError;
use crate::provider::BoxError;
use crate::spec::Zone;

/// How long a shutdown waits for Redis.
const LAST_WORDS: Duration = Duration::from_secs(8);

/// Why a scheduler did not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// Redis cannot be reached, or cannot hold queues.
    #[error(transparent)]
    Redis(#[from] Error),
    /// The provider has no answer.
    #[error("the provider of entries failed: {0}")]
    Provider(#[source] BoxError),
    /// It was started or shut down before.
    #[error("the scheduler was started or shut down before; make another one")]
    Started,
    /// The process cannot listen for signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[from] std::io::Error),
}

queue_core::debug_as_text!(SchedulerError);

/// Enqueues tasks periodically; clones are the same scheduler. Dropping it leaves it running.
///
/// Any number of schedulers may carry the same entries, in any processes: each tick of each entry is enqueued
/// once. What they know about an entry (the last tick, whether it is paused) is in Redis, under its name.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use queue_core::RawTask;
/// use queue_redis::Redis;
/// use queue_scheduler::{Entry, Scheduler};
///
/// let scheduler = Scheduler::new(Redis::connect("redis://127.0.0.1:6379").await?);
/// let report = RawTask::new("report:build").queue("reports");
/// scheduler.register(Entry::new("0 9 * * mon-fri", report).name("morning-report").zone("Europe/Berlin"))?;
/// scheduler.run().await?; // until SIGTERM or Ctrl-C
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Scheduler {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

struct Inner {
    id: Arc<str>,
    redis: Redis,
    zone: Zone,
    start_check: bool,
    shared: Arc<Shared>,
    ticker: Ticker,
    heartbeater: Heartbeater,
    /// `None` without a provider.
    syncer: Option<Syncer>,
    services: Services,
    stop: CancellationToken,
    started: Mutex<bool>,
}

impl Scheduler {
    /// A scheduler with the default options and no entries yet.
    pub fn new(redis: Redis) -> Self {
        Self::builder(redis).build()
    }

    /// A scheduler whose options can be set.
    pub fn builder(redis: Redis) -> SchedulerBuilder {
        SchedulerBuilder::new(redis)
    }

    fn built(redis: Redis, options: Options) -> Self {
        let host = hostname::get().ok().and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty());
        let host = host.unwrap_or_else(|| "unknown-host".to_owned());
        let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        let (broker, shared, stop) = (Broker::new(redis.clone()), Arc::<Shared>::default(), CancellationToken::new());
        let ticker = Ticker {
            broker: broker.clone(),
            clock: options.clock.clone(),
            poll_interval: options.poll_interval,
            on_tick: options.on_tick,
            shared: shared.clone(),
            stop: stop.clone(),
        };
        let heartbeater = Heartbeater {
            id: id.clone(),
            key: queue_core::keys::scheduler_entries(&host, std::process::id(), &id).into(),
            broker,
            clock: options.clock,
            corrected: options.corrected,
            interval: options.heartbeat_interval,
            shared: shared.clone(),
        };
        let syncer = options.provider.map(|(provider, interval)| Syncer {
            id: id.clone(),
            provider,
            interval,
            zone: options.zone.clone(),
            on_problem: options.on_problem,
            shared: shared.clone(),
            managed: Arc::default(),
        });
        let inner = Inner {
            id,
            redis,
            zone: options.zone,
            start_check: options.start_check,
            shared,
            ticker,
            heartbeater,
            syncer,
            services: Services::new(Outage::new(|_| {})),
            stop,
            started: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes an entry up, before or after the start, and returns its name. Its ticks count from the first time
    /// that any scheduler takes it up.
    ///
    /// # Errors
    /// When the entry cannot be used, or there is one of this name.
    pub fn register(&self, entry: Entry) -> Result<String, EntryError> {
        self.put(&entry, false)
    }

    /// Replaces the entry of this name. When its spec changes, its ticks count from now.
    ///
    /// # Errors
    /// When the entry cannot be used, or there is none of this name; then nothing changes.
    pub fn update(&self, entry: Entry) -> Result<String, EntryError> {
        self.put(&entry, true)
    }

    fn put(&self, entry: &Entry, replace: bool) -> Result<String, EntryError> {
        let schedule = entry.check(&self.inner.zone)?;
        let name = schedule.name.clone();
        self.inner.shared.entries().put(schedule, replace).map_err(|problem| entry.error(problem))?;
        self.inner.shared.untold.notify_one();
        Ok(name)
    }

    /// Takes an entry out of service. Its state and history stay in Redis for a while; if it is registered
    /// again, its ticks count from then.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn unregister(&self, name: &str) -> Result<(), EntryError> {
        if !self.inner.shared.entries().remove(name) {
            return Err(carried::unknown(name));
        }
        self.inner.shared.untold.notify_one();
        Ok(())
    }

    /// The names of the entries it carries, sorted.
    pub fn entries(&self) -> Vec<String> {
        self.inner.shared.entries().carried.keys().cloned().collect()
    }

    /// Asks the provider for its entries now, for example because a file has changed.
    ///
    /// # Errors
    /// When the provider has no answer; then all stays as it is. What is wrong with single entries goes to the
    /// hook, or the log.
    pub async fn sync(&self) -> Result<(), SchedulerError> {
        let Some(syncer) = &self.inner.syncer else { return Ok(()) };
        syncer.sync().await.map_err(SchedulerError::Provider)
    }

    /// Starts in the background. When this returns, Redis has been told about the entries.
    ///
    /// # Errors
    /// When Redis cannot be reached or cannot hold queues (see [`start_check`](SchedulerBuilder::start_check)), the
    /// provider has no answer, or it was started before.
    pub async fn start(&self) -> Result<(), SchedulerError> {
        let Inner { id, redis, shared, services, stop, started, .. } = &*self.inner;
        let started = |now| std::mem::replace(&mut *started.lock().unwrap_or_else(PoisonError::into_inner), now);
        if stop.is_cancelled() || started(true) {
            return Err(SchedulerError::Started);
        }
        let ready = async {
            if self.inner.start_check {
                redis.require(Role::Scheduler).await?;
            } else {
                redis.warn(Role::Scheduler).await?;
            }
            redis.ping().await?;
            self.sync().await
        };
        if let Err(error) = ready.await {
            started(false);
            return Err(error);
        }
        self.tell_entries().await;
        services.start(stop, self.inner.ticker.clone());
        services.start(stop, self.inner.heartbeater.clone());
        if let Some(syncer) = self.inner.syncer.clone() {
            services.start(stop, syncer);
        }
        let entries = shared.entries().carried.len();
        info!(scheduler = &**id, entries, redis = redis.target(), "scheduler started");
        Ok(())
    }

    async fn tell_entries(&self) {
        // Boxed: the compiler gives up on futures that are nested too deeply, and users nest this one in theirs.
        if Box::pin(self.inner.heartbeater.beat()).await.is_err() {
            // The heartbeater tries again, and tells.
            self.inner.shared.untold.notify_one();
        }
    }

    /// Deals once with the ticks that are due, here and now and without having been started: what a testing kit is built
    /// on. Returns when the next tick is due.
    ///
    /// # Errors
    /// When the provider has no answer. A tick that failed is dealt with by the next call.
    #[doc(hidden)]
    pub async fn tick(&self) -> Result<Option<DateTime<Utc>>, SchedulerError> {
        let Inner { shared, ticker, .. } = &*self.inner;
        self.sync().await?;
        if shared.entries().has_untold() {
            self.tell_entries().await;
        }
        let now_ns = ticker.clock.now_ns();
        let due = shared.entries().due_or_resting(now_ns);
        for (schedule, version) in due {
            Box::pin(ticker.deal(schedule, version)).await;
        }
        Ok(shared.entries().next_after(now_ns).and_then(|secs| DateTime::from_timestamp(secs, 0)))
    }

    /// Runs until the process is told to end by TERM, INT or HUP.
    ///
    /// # Errors
    /// As [`start`](Self::start), or when the process cannot listen for signals.
    pub async fn run(&self) -> Result<(), SchedulerError> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        self.start().await?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        self.shutdown().await;
        Ok(())
    }

    /// Stops: ends what it does about the present ticks, and takes its entries off the list. What is known about
    /// them stays in Redis, so that the next start catches up. Calling it again waits for the same end.
    pub async fn shutdown(&self) {
        let Inner { id, heartbeater, services, stop, .. } = &*self.inner;
        let first = !stop.is_cancelled();
        stop.cancel();
        services.ended().await;
        if first {
            if tokio::time::timeout(LAST_WORDS, heartbeater.clear()).await.is_err() {
                info!(scheduler = &**id, "Redis does not answer; the entries drop off the list by themselves");
            }
            info!(scheduler = &**id, "scheduler stopped");
        }
    }
}

#[cfg(test)]
mod tests;
