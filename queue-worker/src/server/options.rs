//! What a server is told about its work, and whether that makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use queue_core::limits::{GROUP_INTERVAL, LEASE_SECS, MAX_CONCURRENCY};
use queue_core::options::{OptionError, check_existing_queue_name};
use queue_core::outcome::Failure;
use queue_core::registry::is_name;
use queue_core::{Clock, SystemClock};
use queue_redis::leader::Duty;
use queue_redis::{
    Error,
    broker::{GroupRules, MAX_SET},
};
use tracing::{Span, info_span};

use super::joins::Priorities;
use super::queues::Queues;
use crate::aggregate::Aggregation;
use crate::events::Observers;
use crate::exhausted::OnExhausted;
use crate::job::Job;
use crate::routes::Routes;
use crate::work::{Work, of_pattern};

/// What happens to a task whose type no handler serves.
///
/// asynq lets such a task fail, so that a fleet in which a server lacks a handler burns the task's
/// retries. Here no choice but [`Fail`](Self::Fail) spends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unhandled {
    /// Snooze it: it is taken again, perhaps by another server, after this long. The default, with
    /// 30 s.
    Snooze(Duration),
    /// Leave it where it is: only tasks that have a handler are taken. Costs Redis a look at the type of
    /// each waiting task. Nothing is taken from a queue that has limits, which the log says.
    Leave,
    /// Let it fail, as asynq does.
    Fail,
    /// Archive it.
    Archive,
}

pub use queue_core::limits::MAX_RESULT_BYTES;

/// The longest lease, and the longest pause between looks.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest of all other times. Whoever means "for ever" has it, and no sum of two overflows.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) type ErrorHook = dyn Fn(&Job, &Failure) + Send + Sync;
pub(super) type SpanHook = dyn Fn(&Job) -> tracing::Span + Send + Sync;
pub(super) type HealthHook = dyn Fn(Result<(), &Error>) + Send + Sync;

pub(super) struct Options {
    pub(super) name: Option<String>,
    pub(super) labels: BTreeSet<String>,
    pub(super) concurrency: usize,
    /// Between which bounds it moves.
    pub(super) adaptive: Option<RangeInclusive<usize>>,
    pub(super) queues: Vec<(String, u32)>,
    /// What the names of queues that are joined begin with, followed by `*`, and their weights.
    pub(super) patterns: BTreeMap<String, u32>,
    pub(super) strict: bool,
    pub(super) priorities: Option<Priorities>,
    pub(super) work: Work,
    /// How many tasks of a queue may run at once.
    pub(super) queue_concurrency: BTreeMap<String, usize>,
    pub(super) shutdown_timeout: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) poll_interval: Duration,
    pub(super) lease: Duration,
    pub(super) max_crashes: u32,
    pub(super) reconcile: Duration,
    pub(super) unhandled: Unhandled,
    pub(super) max_result_bytes: usize,
    pub(super) on_error: Option<Box<ErrorHook>>,
    pub(super) on_exhausted: OnExhausted,
    pub(super) health: Option<(Duration, Arc<HealthHook>)>,
    pub(super) duties: Vec<Arc<dyn Duty>>,
    pub(super) start_check: bool,
    pub(super) observers: Observers,
    pub(super) span: Box<SpanHook>,
    pub(super) groups: GroupOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) correct_clock: bool,
}

/// Longest pause between two looks at all groups, where the next that will be ready are known.
const LONGEST_CHECK: Duration = Duration::from_secs(60);

/// What the options of a server say about groups.
pub(super) struct GroupOptions {
    pub(super) pace: GroupPace,
    pub(super) concurrency: usize,
    pub(super) on_error: Option<Box<GroupErrorHook>>,
}

pub(super) type GroupErrorHook = dyn Fn(&Aggregation, &Failure) + Send + Sync;

/// When groups are aggregated.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupPace {
    pub(super) grace_period: Duration,
    pub(super) max_delay: Duration,
    pub(super) max_size: usize,
}

impl GroupPace {
    pub(super) fn rules(self) -> GroupRules {
        GroupRules::new(self.grace_period, self.max_delay, self.max_size)
    }

    /// How long the groups of a queue need not be looked at again: one that is new, or that a task joins, is not ready
    /// before, unless it is full.
    pub(super) fn look_interval(self) -> Duration {
        if self.max_size > 0 {
            return self.check_interval();
        }
        let delay = Some(self.max_delay).filter(|delay| !delay.is_zero()).unwrap_or(Duration::MAX);
        self.grace_period.min(delay).min(LONGEST_CHECK)
    }

    /// What part of the time looks may take that come of changes.
    pub(super) fn looks_one_in(self) -> u32 {
        if self.max_size > 0 { 9 } else { 99 }
    }

    pub(super) fn check_interval(self) -> Duration {
        GROUP_INTERVAL.min(self.grace_period)
    }
}

/// The span of an attempt unless the user makes another.
pub(crate) fn default_span(job: &Job) -> Span {
    info_span!("process", task = job.id(), task_type = job.task_type(), queue = job.queue(), attempt = job.attempt())
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            adaptive: None,
            name: None,
            labels: BTreeSet::new(),
            queues: Vec::new(),
            patterns: BTreeMap::new(),
            strict: false,
            priorities: None,
            work: Work::default(),
            queue_concurrency: BTreeMap::new(),
            shutdown_timeout: Duration::from_secs(8),
            cancel_grace: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
            lease: Duration::from_secs(LEASE_SECS.unsigned_abs()),
            max_crashes: queue_core::crash::DEFAULT_LIMIT,
            reconcile: Duration::from_secs(300),
            unhandled: Unhandled::Snooze(Duration::from_secs(30)),
            max_result_bytes: MAX_RESULT_BYTES,
            on_error: None,
            on_exhausted: OnExhausted::default(),
            health: None,
            duties: Vec::new(),
            start_check: true,
            observers: Observers::default(),
            span: Box::new(default_span),
            groups: GroupOptions {
                pace: GroupPace { grace_period: Duration::from_secs(60), max_delay: Duration::ZERO, max_size: 0 },
                concurrency: 3,
                on_error: None,
            },
            clock: Arc::new(SystemClock),
            correct_clock: true,
        }
    }
}

impl Options {
    /// Whether a server can work like this.
    pub(super) fn check(&self, queues: &Queues, routes: &Routes) -> Result<(), ServerError> {
        let require = |ok: bool, option, value: String, rule| {
            if ok { Ok(()) } else { Err(ServerError::Option { option, value, rule }) }
        };
        require(self.concurrency > 0, "concurrency", self.concurrency.to_string(), "it must be at least 1")?;
        require(
            self.concurrency <= MAX_CONCURRENCY,
            "concurrency",
            self.concurrency.to_string(),
            "it must be at most 100000",
        )?;
        if let Some(bounds) = &self.adaptive {
            let sensible = !bounds.is_empty() && *bounds.end() <= MAX_CONCURRENCY;
            let rule = "its bounds must be at most 100000, the lower one first";
            require(sensible, "adaptive_concurrency", format!("{bounds:?}"), rule)?;
        }
        for (option, name) in
            self.name.iter().map(|name| ("name", name)).chain(self.labels.iter().map(|l| ("label", l)))
        {
            let rule = "it must be 1 to 100 letters, digits, '.', '_' and '-'";
            require(is_name(name), option, format!("{name:?}"), rule)?;
        }
        let within = |option, value: Duration, range: RangeInclusive<Duration>, rule| {
            require(range.contains(&value), option, format!("{value:?}"), rule)
        };
        let (up_to_a_year, from_1ms) = (Duration::ZERO..=YEAR, Duration::from_millis(1));
        within("lease", self.lease, Duration::from_secs(5)..=DAY, "it must be between 5s and 24h")?;
        within("poll_interval", self.poll_interval, from_1ms..=DAY, "it must be between 1ms and 24h")?;
        if !self.reconcile.is_zero() {
            let rule = "it must be between 1s and 24h, or zero for never";
            within("reconcile_interval", self.reconcile, Duration::from_secs(1)..=DAY, rule)?;
        }
        let rule = "it must be at most 365 days";
        within("shutdown_timeout", self.shutdown_timeout, up_to_a_year.clone(), rule)?;
        within("cancel_grace", self.cancel_grace, up_to_a_year.clone(), rule)?;
        if let Unhandled::Snooze(delay) = self.unhandled {
            within("unhandled", delay, up_to_a_year.clone(), "a task must be snoozed for at most 365 days")?;
        }
        if let Some((interval, _)) = self.health {
            within("health_check", interval, from_1ms..=YEAR, "its interval must be between 1ms and 365 days")?;
        }
        let GroupPace { grace_period, max_delay, max_size } = self.groups.pace;
        let rule = "it must be between 1s and 365 days";
        within("group_grace_period", grace_period, Duration::from_secs(1)..=YEAR, rule)?;
        within("group_max_delay", max_delay, up_to_a_year, "it must be at most 365 days, or zero for ever")?;
        require(max_size <= MAX_SET, "group_max_size", max_size.to_string(), "it must be at most 10000")?;
        let sensible = (1..=MAX_CONCURRENCY).contains(&self.groups.concurrency);
        let concurrency = self.groups.concurrency.to_string();
        require(sensible, "group_concurrency", concurrency, "it must be between 1 and 100000")?;
        for queue in queues.names() {
            check_existing_queue_name(queue)?;
        }
        for (pattern, weight) in &self.patterns {
            let sensible = pattern.strip_suffix('*').is_some_and(|beginning| !beginning.contains('*')) && *weight > 0;
            let rule = "it must be the beginning of names followed by '*', with a weight above zero";
            require(sensible, "queue_pattern", format!("{pattern:?} with weight {weight}"), rule)?;
        }
        for (queue, limit) in &self.queue_concurrency {
            let sensible = (1..=MAX_CONCURRENCY).contains(limit);
            let value = format!("{limit} for {queue:?}");
            require(sensible, "queue_concurrency", value, "it must be between 1 and 100000")?;
        }
        let of_queues = self.queue_concurrency.keys().map(|queue| ("queue_concurrency", queue));
        for (option, queue) in of_queues.chain(self.work.queues.keys().map(|queue| ("queue_options", queue))) {
            let served = queues.names().any(|name| **name == **queue) || of_pattern(&self.patterns, queue).is_some();
            require(
                served,
                option,
                format!("set for {queue:?}"),
                "it must be one of the queues or patterns that the server serves",
            )?;
        }
        let of_queues = self.work.queues.iter().map(|(queue, options)| (format!("zero for queue {queue:?}"), options));
        let of_types = routes.all_options().map(|(task_type, options)| (format!("zero for {task_type:?}"), options));
        let of_all = std::iter::once(("zero".to_owned(), &self.work.all));
        for (value, options) in of_all.chain(of_queues).chain(of_types) {
            require(!options.has_no_time(), "timeout", value, "it must be longer than that")?;
        }
        Ok(())
    }
}

/// Why a server did not start, or did not end well.
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
    /// The server has ended, and could not write what became of some tasks.
    #[error(
        "the server has ended, and Redis was not told what became of some tasks; they come back when their leases end"
    )]
    Unwritten,
    /// The process cannot listen for signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[from] std::io::Error),
}

queue_core::debug_as_text!(ServerError);
