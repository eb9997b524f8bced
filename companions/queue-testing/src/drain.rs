//! Working the tasks of a test, one after another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::clock::secs_ceil;
use queue_core::crash::DEFAULT_LIMIT;
use queue_core::limits::GROUP_INTERVAL;
use queue_core::limits::LEASE_SECS;
use queue_core::outcome::Step;
use queue_core::{Clock as _, RetryPolicy, TaskInfo, TaskMessage, TaskState};
use queue_redis::{
    Error,
    broker::{Broker, Dequeued, GroupRules, Holding, MAX_BATCH, More, Report, Side, Taken, Verdict},
};
use queue_scheduler::Scheduler;
use queue_worker::inline::{Attempted, Inline};
use queue_worker::{End, Failure, Router, Unhandled, WorkOptions};

use crate::attempt::{AggregatedGroup, Attempt, Drained};
use crate::queue::TestQueue;

/// Attempts after which a drain gives up: a handler that enqueues its own task would never let it end.
const MOST: usize = 10_000;

/// How to drain.
#[derive(Debug, Clone)]
#[must_use]
pub struct Drain {
    queues: Option<Vec<String>>,
    work: WorkOptions,
    unhandled: Unhandled,
    max_crashes: u32,
    most: usize,
    grace_period: Duration,
    max_delay: Duration,
    max_size: usize,
    schedulers: Vec<Scheduler>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// All queues, with what a server has by default.
    pub fn new() -> Self {
        let unhandled = Unhandled::Snooze(Duration::from_secs(30));
        Self {
            queues: None,
            work: WorkOptions::new(),
            unhandled,
            max_crashes: DEFAULT_LIMIT,
            most: MOST,
            grace_period: Duration::from_secs(60),
            max_delay: Duration::ZERO,
            max_size: 0,
            schedulers: Vec::new(),
        }
    }

    /// Only these queues, the first ones first. Defaults to all there are, by name.
    pub fn queues<N: Into<String>>(mut self, queues: impl IntoIterator<Item = N>) -> Self {
        self.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// How long a failed task waits for its next attempt, unless the router says otherwise for its type. Defaults to
    /// asynq's formula.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.work = self.work.retry_policy(policy);
        self
    }

    /// What happens to a task whose type no handler serves. Defaults to snoozing it for 30 s. With
    /// [`Unhandled::Leave`], nothing is taken from a queue that has limits, as by a server.
    pub fn unhandled(mut self, choice: Unhandled) -> Self {
        self.unhandled = choice;
        self
    }

    /// How many crashes of its workers a task may survive. Defaults to 5, as with a server.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = crashes;
        self
    }

    /// How long a group has to be quiet before it is aggregated. Defaults to 1 minute, as with a server.
    pub fn group_grace_period(mut self, period: Duration) -> Self {
        self.grace_period = period;
        self
    }

    /// How long the oldest task of a group waits at the most. Defaults to zero: for ever.
    pub fn group_max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// How many tasks make a group full. Defaults to 0: a group is never full.
    pub fn group_max_size(mut self, tasks: usize) -> Self {
        self.max_size = tasks;
        self
    }

    /// Lets the ticks of this scheduler come, which need not have been started. Its ticks count from the first drain that
    /// names it.
    pub fn scheduler(mut self, scheduler: &Scheduler) -> Self {
        self.schedulers.push(scheduler.clone());
        self
    }

    /// Attempts after which it panics, because it would go on for ever. Defaults to 10,000.
    pub fn most(mut self, attempts: usize) -> Self {
        self.most = attempts;
        self
    }
}

impl TestQueue {
    /// Works all tasks that are due, one after another, also those that handlers enqueue meanwhile, and
    /// returns what became of each. The clock stands still: what fails waits for its next attempt. Groups that are ready
    /// are aggregated, if the router has an aggregator for them, and a scheduler's ticks come
    /// ([`Drain::scheduler`]). What a limit holds back waits until it has room.
    ///
    /// Each task goes its real way: it is taken, run by the router with layers and extractors, and its
    /// outcome is written. Tasks of workers that went silent are recovered, and those whose retention has ended
    /// are deleted, as a server would do it.
    ///
    /// # Panics
    /// When the store refuses, or it does not come to an end.
    pub async fn drain<S: Clone + Send + Sync + 'static>(&self, router: Router<S>) -> Drained {
        self.drain_with(router, Drain::new()).await
    }

    /// [`drain`](Self::drain) with options.
    ///
    /// # Panics
    /// As [`drain`](Self::drain).
    pub async fn drain_with<S: Clone + Send + Sync + 'static>(&self, router: Router<S>, options: Drain) -> Drained {
        self.work(router, options, self.now()).await
    }

    /// Lets time pass, and works every task when it becomes due: scheduled ones, the next attempts of those that fail,
    /// groups, and the ticks of a scheduler. The clock is moved from one due time to the next, and in the end stands `time` later
    /// than before.
    ///
    /// # Panics
    /// As [`drain`](Self::drain).
    pub async fn drain_for<S: Clone + Send + Sync + 'static>(&self, time: Duration, router: Router<S>) -> Drained {
        self.drain_for_with(time, router, Drain::new()).await
    }

    /// [`drain_for`](Self::drain_for) with options.
    ///
    /// # Panics
    /// As [`drain`](Self::drain).
    pub async fn drain_for_with<S: Clone + Send + Sync + 'static>(
        &self,
        time: Duration,
        router: Router<S>,
        options: Drain,
    ) -> Drained {
        let end = self.now() + time;
        let drained = self.work(router, options, end).await;
        self.advance_to(end);
        drained
    }

    async fn work<S>(&self, router: Router<S>, options: Drain, end: DateTime<Utc>) -> Drained
    where
        S: Clone + Send + Sync + 'static,
    {
        let inline = Inline::new(router, self.broker(), options.work.clone(), Arc::new(self.clock()));
        let inline = inline.unhandled(options.unhandled).max_crashes(options.max_crashes);
        let (drained, failing) = Default::default();
        let mut worker = Worker { queue: self, broker: self.broker(), inline, options, drained, failing, lanes: None };
        match worker.until(end).await {
            Ok(()) => worker.drained,
            Err(error) => panic!("cannot drain the queues: {error}"),
        }
    }
}

struct Worker<'a> {
    queue: &'a TestQueue,
    broker: Broker,
    inline: Inline,
    options: Drain,
    drained: Drained,
    /// Groups whose aggregation failed, how often in a row, and the Unix second before which it is not tried again.
    failing: HashMap<(Arc<str>, String), (u32, i64)>,
    /// The Unix second at which a limit lets the next task start, as far as the last takes have told.
    lanes: Option<i64>,
}

impl Worker<'_> {
    async fn until(&mut self, end: DateTime<Utc>) -> Result<(), Error> {
        loop {
            let next = self.prepare().await?;
            if self.one().await? {
                continue;
            }
            let next = [next, self.lanes].into_iter().flatten().min();
            match next.and_then(|due| DateTime::from_timestamp(due, 0)).filter(|due| *due <= end) {
                Some(due) if due > self.queue.now() => self.queue.advance_to(due),
                _ => return Ok(()),
            }
        }
    }

    async fn names(&self) -> Result<Vec<String>, Error> {
        match &self.options.queues {
            Some(queues) => Ok(queues.clone()),
            None => {
                Ok(self.queue.inspector().queues().await.unwrap_or_else(|error| panic!("no list of queues: {error}")))
            }
        }
    }

    /// What a server and a scheduler do beside working; returns the Unix second at which the next task is due.
    async fn prepare(&mut self) -> Result<Option<i64>, Error> {
        let now = self.queue.clock().now_secs();
        let mut next: Option<i64> = None;
        for scheduler in &self.options.schedulers {
            let due = scheduler.tick().await.unwrap_or_else(|error| panic!("cannot enqueue periodic tasks: {error}"));
            next = [next, due.map(|due| due.timestamp())].into_iter().flatten().min();
        }
        let names = self.names().await?;
        let due = self.inline.look_after(&names).await?;
        next = [next, due].into_iter().flatten().min();
        for name in names {
            let due = self.aggregate(&name.into(), now).await?;
            next = [next, due].into_iter().flatten().min();
        }
        Ok(next)
    }

    /// Aggregates the groups that are ready; returns the Unix second at which the next one is.
    async fn aggregate(&mut self, queue: &Arc<str>, now: i64) -> Result<Option<i64>, Error> {
        let Drain { grace_period, max_delay, max_size, .. } = self.options;
        let rules = GroupRules::new(grace_period, max_delay, max_size);
        let found = self.broker.list_ready_groups(queue, rules, now).await?;
        let mut next = found.next;
        for group in found.ready.into_iter().filter(|group| self.inline.aggregates(queue, group)) {
            let key = (queue.clone(), group);
            let (failures, not_before) = self.failing.get(&key).copied().unwrap_or_default();
            if not_before > now {
                next = Some(next.map_or(not_before, |next| next.min(not_before)));
                continue;
            }
            let Some(aggregated) = self.inline.aggregate(queue, &key.1, rules).await else { continue };
            let error = aggregated.as_ref().err().map(ToString::to_string);
            self.drained.groups.push(AggregatedGroup { queue: queue.to_string(), group: key.1.clone(), error });
            self.check_end();
            match aggregated {
                Ok(()) => drop(self.failing.remove(&key)),
                Err(failure) => {
                    let pause = match failure {
                        Failure::RetryIn(delay, _) | Failure::Snooze(Some(delay), _) => secs_ceil(delay),
                        // A server tries again at least every two minutes; in a year of a test that would be no end.
                        _ => GROUP_INTERVAL.as_secs().cast_signed().saturating_mul(1 << failures.min(40)),
                    };
                    let again = now.saturating_add(pause.max(1));
                    next = Some(next.map_or(again, |next| next.min(again)));
                    self.failing.insert(key, (failures + 1, again));
                }
            }
        }
        Ok(next)
    }

    /// Works one task; whether there was one.
    async fn one(&mut self) -> Result<bool, Error> {
        self.lanes = None;
        for name in self.names().await? {
            if let Some(taken) = self.take(&name.into()).await? {
                self.run(taken).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn take(&mut self, queue: &Arc<str>) -> Result<Option<Taken>, Error> {
        let expires = self.queue.clock().now_secs() + LEASE_SECS;
        if self.options.unhandled == Unhandled::Leave {
            return self.take_ours(queue, expires).await;
        }
        loop {
            let token = new_token();
            let dequeued = self.broker.dequeue(queue, 1, &token, expires).await?;
            let (more, is_unsorted, look_at_ms) = match &dequeued {
                Dequeued::Limited { more, is_unsorted, look_at_ms, .. } => (*more, *is_unsorted, *look_at_ms),
                _ => (More::Nothing, false, None),
            };
            while is_unsorted && self.broker.park_unsorted(queue).await? {}
            let taken = dequeued.into_tasks().into_iter().next();
            if taken.is_some() || more != More::Now {
                let look_at = look_at_ms.map(|ms| ms.saturating_add(999).div_euclid(1_000));
                self.lanes = [self.lanes, look_at].into_iter().flatten().min();
                return Ok(taken);
            }
        }
    }

    /// The first task that there is a handler for. The others stay where they are, a piece of the list after the other.
    async fn take_ours(&self, queue: &Arc<str>, expires: i64) -> Result<Option<Taken>, Error> {
        if self.broker.which_hold(&[queue], Holding::Limits).await?.contains(&true) {
            return Ok(None);
        }
        for piece in 0_i64.. {
            let last = -1 - piece * MAX_BATCH as i64;
            let waiting = self.broker.waiting(queue, &[(last + 1 - MAX_BATCH as i64, last)]).await?;
            let ids: Vec<_> = waiting.ids.into_iter().flatten().rev().collect();
            if ids.is_empty() {
                break;
            }
            let matching = self.inline.matching(ids);
            let (taken, _) = self.broker.dequeue_matching(queue, 1, &new_token(), expires, &matching).await?;
            if let Some(taken) = taken.into_tasks().into_iter().next() {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    async fn run(&mut self, taken: Taken) -> Result<(), Error> {
        let clock = self.queue.clock();
        let delivery = match taken {
            Taken::Task(delivery) => delivery,
            Taken::Ghost(_) => return Ok(()),
            Taken::Poisoned(run, raw, reason) => {
                let task = TaskMessage { id: run.id.clone(), queue: run.queue.to_string(), ..TaskMessage::default() };
                let report = Report::by_owner(run, &TaskMessage::default(), Side::Youngest);
                self.broker.archive(&report, &raw, clock.now_secs()).await?;
                let (task, error) = (TaskInfo::new(task, TaskState::Active), Some(reason.to_string()));
                self.note(Attempt { task, end: End::Archived, result: None, error, next: None });
                return Ok(());
            }
        };
        let task = TaskInfo::new(delivery.message.clone(), TaskState::Active);
        let attempted = self.inline.attempt(delivery).await;
        let mut attempt = describe(task, &attempted);
        match self.inline.report(&attempted).await? {
            Verdict::Applied | Verdict::AlreadyApplied => {}
            Verdict::Lost | Verdict::Gone => attempt.end = End::LeaseLost,
        }
        self.note(attempt);
        Ok(())
    }

    fn note(&mut self, attempt: Attempt) {
        self.drained.attempts.push(attempt);
        self.check_end();
    }

    /// Fails when it goes on for too long.
    fn check_end(&self) {
        let Drained { attempts, groups } = &self.drained;
        let made = attempts.len() + groups.len();
        let last = Drained {
            attempts: attempts[attempts.len().saturating_sub(5)..].to_vec(),
            groups: groups[groups.len().saturating_sub(5)..].to_vec(),
        };
        assert!(
            made < self.options.most,
            "{made} attempts were made, and there is still work: does a handler enqueue its own task? Has a task no handler, so that it is put off for half a minute again and again? The last ones:\n{last}",
        );
    }
}

fn new_token() -> Arc<str> {
    format!("drain:{}", fastrand::u64(..)).into()
}

/// What the test gets to see of an attempt.
pub(crate) fn describe(task: TaskInfo, attempted: &Attempted) -> Attempt {
    let next = match &attempted.step {
        Some(Step::Retry { at, .. }) => DateTime::from_timestamp(*at, 0),
        _ => None,
    };
    let (result, error) = (attempted.result.clone(), attempted.error.clone());
    Attempt { task, end: attempted.end, result, error, next }
}
