//! The options of a scheduler.

use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::SCHEDULER_HEARTBEAT;
use queue_core::{Clock, SystemClock};
use queue_redis::{Redis, RedisClock};

use super::Scheduler;
use super::hooks::{ProblemHook, SyncProblem, TickHook, Ticked};
use crate::provider::{ConfigProvider, DynProvider};
use crate::spec::Zone;

pub(super) struct Options {
    pub(super) zone: Zone,
    pub(super) clock: Arc<dyn Clock>,
    /// The same clock, where it is corrected by Redis'.
    pub(super) corrected: Option<Arc<RedisClock>>,
    pub(super) poll_interval: Duration,
    pub(super) heartbeat_interval: Duration,
    pub(super) on_tick: Option<Arc<TickHook>>,
    pub(super) on_problem: Option<Arc<ProblemHook>>,
    pub(super) provider: Option<(Arc<dyn DynProvider>, Duration)>,
    pub(super) start_check: bool,
}

/// Options of a [`Scheduler`].
#[must_use = "it does nothing until it is built"]
pub struct SchedulerBuilder {
    redis: Redis,
    options: Options,
}

queue_core::debug_some!(SchedulerBuilder, redis);

impl SchedulerBuilder {
    /// The default options.
    pub(super) fn new(redis: Redis) -> Self {
        let clock = Arc::new(RedisClock::new(Arc::new(SystemClock)));
        let options = Options {
            zone: Zone::UTC,
            clock: clock.clone(),
            corrected: Some(clock),
            poll_interval: Duration::from_secs(1),
            heartbeat_interval: SCHEDULER_HEARTBEAT,
            on_tick: None,
            on_problem: None,
            provider: None,
            start_check: true,
        };
        Self { redis, options }
    }

    /// The time zone of entries that name none. Defaults to UTC, as in asynq.
    pub fn zone(mut self, zone: Zone) -> Self {
        self.options.zone = zone;
        self
    }

    /// The clock that says when a tick has come, for tests: it is not corrected. It must not be ahead of that of Redis
    /// by more than a minute. Defaults to this machine's, or Redis' where that differs by more than a second.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        (self.options.clock, self.options.corrected) = (clock, None);
        self
    }

    /// The same for a clock that is corrected as this machine's is by default: by Redis', with every heartbeat. In
    /// between, the scheduler does not notice when it is set.
    pub fn corrected_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        let clock = Arc::new(RedisClock::new(clock));
        (self.options.clock, self.options.corrected) = (clock.clone(), Some(clock));
        self
    }

    /// The longest time without a look at the clock, which somebody may set. Costs no call to Redis. Defaults to
    /// 1 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How often Redis is told what is carried, and asked what others have done. More than 10 s would let the
    /// entries drop out of Go's tools now and then. Defaults to 10 s, as in asynq.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.options.heartbeat_interval = interval;
        self
    }

    /// Called for every tick that this scheduler has dealt with or failed to. A panic in it is logged.
    pub fn on_tick(mut self, hook: impl Fn(&Ticked<'_>) + Send + Sync + 'static) -> Self {
        self.options.on_tick = Some(Arc::new(hook));
        self
    }

    /// Called for what is wrong with the entries of a provider, each time they are synced. A panic in it is
    /// logged. Defaults to a line in the log.
    pub fn on_problem(mut self, hook: impl Fn(&SyncProblem) + Send + Sync + 'static) -> Self {
        self.options.on_problem = Some(Arc::new(hook));
        self
    }

    /// Asks this provider for entries at the start, then every `interval`; asynq's is 3 minutes. Entries that
    /// are no longer among them are taken out of service, changed ones replaced.
    pub fn provider(mut self, provider: impl ConfigProvider, interval: Duration) -> Self {
        self.options.provider = Some((Arc::new(provider), interval.max(Duration::from_millis(1))));
        self
    }

    /// Whether the scheduler refuses to start on a Redis that cannot hold queues, or whose user lacks a right; see
    /// [`Redis::check`]. With `false` it only says so in the log. Defaults to `true`.
    pub fn start_check(mut self, refuse: bool) -> Self {
        self.options.start_check = refuse;
        self
    }

    /// The scheduler, which still has to be [started](Scheduler::start).
    pub fn build(self) -> Scheduler {
        Scheduler::built(self.redis, self.options)
    }
}
