//! What a server that is not running yet can be told.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use queue_core::exhausted::Exhausted;
use queue_core::outcome::Failure;
use queue_core::{Clock, RetryPolicy};
use queue_redis::Error;
use queue_redis::leader::Duty;

use super::own_clock::OwnClock;
use super::{Priorities, Server, Unhandled};
use crate::aggregate::Aggregation;
use crate::events::Event;
use crate::exhausted::OnExhausted;
use crate::job::Job;
use crate::work::WorkOptions;

impl Server {
    /// Tasks to run at once. Defaults to the number of CPUs.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        (self.options.concurrency, self.options.adaptive) = (tasks, None);
        self
    }

    /// Tasks to run at once, between these bounds, by what their attempts take; in the place of a fixed
    /// [`concurrency`](Self::concurrency), or the other way round. It begins with the lower one. While all slots are in hand
    /// and attempts are as fast as usual, it grows by a twentieth; where they become twice as slow, or more than one of
    /// twenty runs out of time or answers [`Failure::too_many`], it gives up a fifth. It decides once a second at the most,
    /// after a hundred attempts, or as many as there are slots if that is more. An operator's order counts before it.
    ///
    /// ```
    /// # fn server(server: queue_worker::Server) {
    /// server.adaptive_concurrency(4..=64);
    /// # }
    /// ```
    pub fn adaptive_concurrency(mut self, tasks: RangeInclusive<usize>) -> Self {
        self.options.concurrency = *tasks.start();
        self.options.adaptive = Some(tasks);
        self
    }

    /// The name by which operators know the server, and give it orders (`queuectl server quiet web-1`). Several servers may
    /// have the same; all of them go by what is ordered by name, also after a restart. The server takes the tasks that are
    /// [only](queue_core::TaskOptions::only) for this name, too. Up to 100 letters, digits, `.`, `_` and `-`. Defaults to none:
    /// then only its id tells it from others.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// A word that says what the server has or where it is, shown by tools beside its name; may be given more than once.
    /// The server takes the tasks that are for servers with [labels](queue_core::TaskOptions::label) of which it has all, too.
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

    /// Serves all queues whose names begin so, `tenant:*`, each with this weight: those that there are, and those that come
    /// while it runs, up to 1,000; one that is removed is left. May be given more than once; of several patterns that a name
    /// fits, the longest counts, and before them [`queues`](Self::queues). Without `queues`, `default` is not served, unless it fits.
    /// [`queue_concurrency`](Self::queue_concurrency) and [`queue_options`](Self::queue_options) take a pattern too, which then
    /// holds for each of its queues.
    ///
    /// ```
    /// # fn server(server: queue_worker::Server) {
    /// server.queue_pattern("tenant:*", 2).queue_concurrency("tenant:*", 5);
    /// # }
    /// ```
    pub fn queue_pattern(mut self, pattern: impl Into<String>, weight: u32) -> Self {
        self.options.patterns.insert(pattern.into(), weight);
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
    /// reason: its work is done, and doing it again would not help. Defaults to
    /// [`MAX_RESULT_BYTES`](super::MAX_RESULT_BYTES), 16 MiB; asynq has no limit.
    pub fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.options.max_result_bytes = bytes;
        self
    }

    /// Called for every attempt that failed, before anything is written. A panic in it is logged.
    pub fn on_error(mut self, hook: impl Fn(&Job, &Failure) + Send + Sync + 'static) -> Self {
        self.options.on_error = Some(Box::new(hook));
        self
    }

    /// Called for every task that this server gives up, with the error, before it is archived: its retries or its
    /// [budgets](queue_core::budget) are spent, its deadline is past, its handler has said so, or too many workers were lost over
    /// it. If somebody is killed then, or the archive is refused, it is called again, here or on another server. What an
    /// operator cancels or archives is not told. A panic in it is logged. It should not block: other tasks wait meanwhile. For
    /// what must happen whoever dies, there is [`TaskOptions::on_exhausted`](queue_core::TaskOptions::on_exhausted).
    pub fn on_exhausted(mut self, hook: impl Fn(&Exhausted) + Send + Sync + 'static) -> Self {
        self.options.on_exhausted = OnExhausted::new(hook);
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
}
