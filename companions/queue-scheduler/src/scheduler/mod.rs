//! The scheduler: carries entries and enqueues their tasks when their ticks come.

mod builder;
mod carried;
mod heartbeat;
mod sync;
mod ticker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Clock as _, State, TaskInfo};
use queue_redis::log::{error, info};
use queue_redis::panic::catch;
use queue_redis::{Broker, EnqueueError, Error, Redis, Role, TickVerdict};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::builder::Options;
pub use self::builder::{SchedulerBuilder, SyncProblem, Ticked};
use self::carried::Entries;
use crate::entry::Entry;
use crate::problem::EntryError;
use crate::provider::BoxError;
use crate::schedule::{Schedule, Step};

/// How long a queue counts as listed after we listed it, as in the client.
const LISTED_FOR: Duration = Duration::from_secs(60);
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
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

/// What all parts of a scheduler share.
struct Shared {
    id: String,
    /// Where Go's tools look for its entries.
    key: String,
    broker: Broker,
    options: Options,
    /// A std mutex: it is held for a look or a change, never across an await.
    entries: Mutex<Entries>,
    /// The names that came from the provider; held while they are synced.
    managed: tokio::sync::Mutex<std::collections::BTreeSet<String>>,
    listed: Mutex<HashMap<String, tokio::time::Instant>>,
    /// Wakes the ticker when an entry has come or is known better.
    changed: Notify,
    /// Wakes the heartbeat when Redis has to be told about an entry.
    untold: Notify,
    stop: CancellationToken,
    services: TaskTracker,
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
        let schedule = entry.check(&self.shared.options.zone)?;
        let name = schedule.name.clone();
        self.shared.entries().put(schedule, replace).map_err(|problem| entry.error(problem))?;
        self.shared.untold.notify_one();
        Ok(name)
    }

    /// Takes an entry out of service. Its state and history stay in Redis for a while; if it is registered
    /// again, its ticks count from then.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn unregister(&self, name: &str) -> Result<(), EntryError> {
        if !self.shared.entries().remove(name) {
            return Err(carried::unknown(name));
        }
        self.shared.untold.notify_one();
        Ok(())
    }

    /// The names of the entries it carries, sorted.
    pub fn entries(&self) -> Vec<String> {
        self.shared.entries().carried.keys().cloned().collect()
    }

    /// Asks the provider for its entries now, for example because a file has changed.
    ///
    /// # Errors
    /// When the provider has no answer; then all stays as it is. What is wrong with single entries goes to the
    /// hook, or the log.
    pub async fn sync(&self) -> Result<(), SchedulerError> {
        sync::once(&self.shared).await.map_err(SchedulerError::Provider)
    }

    /// Starts in the background. When this returns, Redis has been told about the entries.
    ///
    /// # Errors
    /// When Redis cannot be reached or cannot hold queues (see [`start_check`](SchedulerBuilder::start_check)), the
    /// provider has no answer, or it was started before.
    pub async fn start(&self) -> Result<(), SchedulerError> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(SchedulerError::Started);
        }
        if std::mem::replace(&mut *shared.started.lock().unwrap_or_else(PoisonError::into_inner), true) {
            return Err(SchedulerError::Started);
        }
        let ready = async {
            let redis = shared.broker.redis();
            if shared.options.start_check {
                redis.require(Role::Scheduler).await?;
            } else {
                redis.warn(Role::Scheduler).await?;
            }
            redis.ping().await?;
            sync::once(shared).await.map_err(SchedulerError::Provider)
        };
        if let Err(error) = ready.await {
            *shared.started.lock().unwrap_or_else(PoisonError::into_inner) = false;
            return Err(error);
        }
        heartbeat::beat(shared).await;
        shared.services.spawn(ticker::run(shared.clone()));
        shared.services.spawn(heartbeat::run(shared.clone()));
        shared.services.spawn(sync::run(shared.clone()));
        let entries = shared.entries().carried.len();
        info!(scheduler = shared.id, entries, redis = shared.broker.redis().target(), "scheduler started");
        Ok(())
    }

    /// Deals once with the ticks that are due, here and now and without having been started: what a testing kit is built
    /// on. Returns when the next tick is due.
    ///
    /// # Errors
    /// When the provider has no answer. A tick that failed is dealt with by the next call.
    #[doc(hidden)]
    pub async fn tick(&self) -> Result<Option<DateTime<Utc>>, SchedulerError> {
        let shared = &self.shared;
        sync::once(shared).await.map_err(SchedulerError::Provider)?;
        if shared.entries().has_untold() {
            heartbeat::beat(shared).await;
        }
        let now_ns = shared.options.clock.now_ns();
        let due = shared.entries().due_or_resting(now_ns);
        for (schedule, version) in due {
            ticker::deal(shared, schedule, version).await;
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
        let shared = &self.shared;
        let first = !shared.stop.is_cancelled();
        shared.stop.cancel();
        shared.services.close();
        shared.services.wait().await;
        if first {
            if tokio::time::timeout(LAST_WORDS, heartbeat::clear(shared)).await.is_err() {
                info!(scheduler = shared.id, "Redis does not answer; the entries drop off the list by themselves");
            }
            info!(scheduler = shared.id, "scheduler stopped");
        }
    }
}

impl Shared {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Nothing panics while it is held; a poisoned lock is still consistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a queue, so that tools can see it (rule R7).
    async fn list(&self, queue: &str) -> Result<(), Error> {
        let now = tokio::time::Instant::now();
        let listed = || self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed().get(queue).is_some_and(|at| now - *at < LISTED_FOR) {
            return Ok(());
        }
        self.broker.publish_queue(queue).await?;
        listed().insert(queue.to_owned(), now);
        Ok(())
    }

    /// Calls the hook about a tick.
    fn tell(&self, schedule: &Schedule, step: Step, outcome: Result<TickVerdict, &EnqueueError>) {
        let Some(hook) = &self.options.on_tick else { return };
        let Ok(task) = schedule.compose(step.tick, self.options.clock.now_ns()) else { return };
        let state = match task.placement {
            queue_core::options::Placement::Pending => State::Pending,
            queue_core::options::Placement::Scheduled { .. } => State::Scheduled,
            queue_core::options::Placement::Aggregating => State::Aggregating,
        };
        let ticked = Ticked {
            entry: &schedule.name,
            tick: DateTime::from_timestamp(step.tick, 0).unwrap_or_default(),
            why: step.why,
            task: TaskInfo::new(task.message, state),
            outcome,
        };
        guarded("tick", || hook(&ticked));
    }

    /// Tells what is wrong with the entries of the provider.
    fn complain(&self, problem: &SyncProblem) {
        match &self.options.on_problem {
            Some(hook) => guarded("problem", || hook(problem)),
            None => error!(%problem, "a periodic entry cannot be used"),
        }
    }
}

/// A hook that panics must not end the scheduler (W40).
fn guarded(what: &'static str, hook: impl FnOnce()) {
    if let Err(error) = catch(hook) {
        error!(hook = what, %error, "a hook of the scheduler panicked");
    }
}
