//! The metrics of queues: names, meanings, labels.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use queue_admin::QueueInfo;
use queue_core::TaskState;

use crate::families::{counter, gauge, single, sound};

/// What a scrape learns about one queue.
pub(crate) struct Seen {
    pub(crate) info: QueueInfo,
    /// Estimated bytes in Redis, if that is known.
    pub(crate) memory: Option<u64>,
    /// How long the first scheduled or retried task has been due.
    pub(crate) overdue: Duration,
}

/// One scrape's values, in a registry of their own.
pub(crate) struct Shown {
    pub(crate) registry: Registry,
    // Go's, with its names, types and labels: gauges that are named as if they were counters, too.
    tasks: IntGaugeVec,
    size: IntGaugeVec,
    latency: GaugeVec,
    memory: IntGaugeVec,
    processed: IntCounterVec,
    failed: IntCounterVec,
    paused: IntGaugeVec,
    // Ours.
    up: IntGaugeVec,
    aggregating: IntGaugeVec,
    groups: IntGaugeVec,
    overdue: GaugeVec,
    pub(crate) servers: IntGaugeVec,
    pub(crate) slots: IntGauge,
    pub(crate) slots_busy: IntGauge,
    pub(crate) redis_up: IntGauge,
    pub(crate) scrape_seconds: Gauge,
}

/// The states that Go's exporter shows.
const SHOWN_BY_GO: [TaskState; 6] = [
    TaskState::Active,
    TaskState::Pending,
    TaskState::Scheduled,
    TaskState::Retry,
    TaskState::Archived,
    TaskState::Completed,
];

impl Shown {
    pub(crate) fn new() -> Self {
        const QUEUE: &[&str] = &["queue"];
        let shown = Self {
            registry: Registry::new(),
            tasks: gauge("asynq_tasks_enqueued_total", "Tasks in the queue by state", &["queue", "state"]),
            size: gauge("asynq_queue_size", "Tasks in the queue, whatever their state", QUEUE),
            latency: seconds("asynq_queue_latency_seconds", "How long the oldest pending task has waited", QUEUE),
            memory: gauge(
                "asynq_queue_memory_usage_approx_bytes",
                "Memory that the queue takes in Redis, estimated from samples now and then",
                QUEUE,
            ),
            processed: counter("asynq_tasks_processed_total", "Tasks worked on, failures included", QUEUE),
            failed: counter("asynq_tasks_failed_total", "Tasks that failed", QUEUE),
            paused: gauge("asynq_queue_paused_total", "1 while the queue is paused, else 0", QUEUE),
            up: gauge("asynq_queue_up", "1 if the queue could be asked at this scrape, else 0", QUEUE),
            aggregating: gauge("asynq_queue_aggregating_tasks", "Tasks that wait in groups", QUEUE),
            groups: gauge("asynq_queue_groups", "Groups that may hold tasks", QUEUE),
            overdue: seconds(
                "asynq_queue_overdue_seconds",
                "How long the first scheduled or retried task has been due without becoming pending",
                QUEUE,
            ),
            servers: gauge("asynq_servers", "Servers that are alive, by status", &["status"]),
            slots: single("asynq_server_slots", "Tasks that all servers together run at once"),
            slots_busy: single("asynq_server_slots_busy", "Tasks that all servers together are running"),
            redis_up: single("asynq_redis_up", "1 if Redis answered this scrape, else 0"),
            scrape_seconds: sound(
                "asynq_exporter_scrape_seconds",
                Gauge::new("asynq_exporter_scrape_seconds", "How long it took to ask Redis for this scrape"),
            ),
        };
        sound("the metrics of queues", shown.all().into_iter().try_for_each(|one| shown.registry.register(one)));
        shown
    }

    pub(crate) fn all(&self) -> [Box<dyn Collector>; 16] {
        [
            Box::new(self.tasks.clone()),
            Box::new(self.size.clone()),
            Box::new(self.latency.clone()),
            Box::new(self.memory.clone()),
            Box::new(self.processed.clone()),
            Box::new(self.failed.clone()),
            Box::new(self.paused.clone()),
            Box::new(self.up.clone()),
            Box::new(self.aggregating.clone()),
            Box::new(self.groups.clone()),
            Box::new(self.overdue.clone()),
            Box::new(self.servers.clone()),
            Box::new(self.slots.clone()),
            Box::new(self.slots_busy.clone()),
            Box::new(self.redis_up.clone()),
            Box::new(self.scrape_seconds.clone()),
        ]
    }

    /// Shows a queue.
    pub(crate) fn queue(&self, Seen { info, memory, overdue }: &Seen) {
        let queue = [info.name.as_str()];
        let set = |gauge: &IntGaugeVec, count: u64| gauge.with_label_values(&queue).set(whole(count));
        let set_seconds = |gauge: &GaugeVec, time: Duration| gauge.with_label_values(&queue).set(time.as_secs_f64());
        for state in SHOWN_BY_GO {
            self.tasks.with_label_values(&[&info.name, &state.to_string()]).set(whole(info.count(state)));
        }
        set(&self.size, info.size());
        set_seconds(&self.latency, info.latency);
        if let Some(bytes) = memory {
            set(&self.memory, *bytes);
        }
        self.processed.with_label_values(&queue).inc_by(info.processed_total);
        self.failed.with_label_values(&queue).inc_by(info.failed_total);
        set(&self.paused, info.paused.into());
        set(&self.up, 1);
        set(&self.aggregating, info.aggregating);
        set(&self.groups, info.groups);
        set_seconds(&self.overdue, *overdue);
    }

    /// Shows a queue that cannot be asked.
    pub(crate) fn queue_is_down(&self, queue: &str) {
        self.up.with_label_values(&[queue]).set(0);
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    sound(name, GaugeVec::new(Opts::new(name, help), labels))
}
