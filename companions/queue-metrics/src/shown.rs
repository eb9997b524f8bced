//! The metrics of queues: names, meanings, labels.

use std::time::Duration;

use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};
use queue_admin::{LimitInfo, QueueInfo};
use queue_core::TaskState;
use queue_core::forecast::{Drain, Forecast};
use queue_core::registry::LIMITS;

use crate::families::{QUEUE, counter, families, gauge, single, sound};

/// What a scrape learns about one queue.
pub(crate) struct Seen {
    pub(crate) info: QueueInfo,
    /// Estimated bytes in Redis, if that is known.
    pub(crate) memory: Option<u64>,
    /// How long the first scheduled or retried task has been due.
    pub(crate) overdue: Duration,
    /// The age of the oldest outcome of a batch's member that nobody has recorded.
    pub(crate) unrecorded: Duration,
}

families! {
    /// One scrape's values.
    Shown {
        // Go's, with its names, types and labels: gauges that are named as if they were counters, too.
        tasks: IntGaugeVec = gauge("asynq_tasks_enqueued_total", "Tasks in the queue by state", &["queue", "state"]),
        size: IntGaugeVec = gauge("asynq_queue_size", "Tasks in the queue, whatever their state", QUEUE),
        latency: GaugeVec = seconds("asynq_queue_latency_seconds", "How long the oldest pending task has waited", QUEUE),
        memory: IntGaugeVec = gauge(
            "asynq_queue_memory_usage_approx_bytes",
            "Memory that the queue takes in Redis, estimated from samples now and then",
            QUEUE,
        ),
        processed: IntCounterVec = counter("asynq_tasks_processed_total", "Tasks worked on, failures included", QUEUE),
        failed: IntCounterVec = counter("asynq_tasks_failed_total", "Tasks that failed", QUEUE),
        paused: IntGaugeVec = gauge("asynq_queue_paused_total", "1 while the queue is paused, else 0", QUEUE),
        // Ours.
        up: IntGaugeVec = gauge("asynq_queue_up", "1 if the queue could be asked at this scrape, else 0", QUEUE),
        aggregating: IntGaugeVec = gauge("asynq_queue_aggregating_tasks", "Tasks that wait in groups", QUEUE),
        groups: IntGaugeVec = gauge("asynq_queue_groups", "Groups that may hold tasks", QUEUE),
        overdue: GaugeVec = seconds(
            "asynq_queue_overdue_seconds",
            "How long the first scheduled or retried task has been due without becoming pending",
            QUEUE,
        ),
        unrecorded: GaugeVec = seconds(
            "asynq_flow_oldest_outcome_seconds",
            "Age of the oldest outcome of a member of a batch that nobody has recorded, 0 if there is none",
            QUEUE,
        ),
        lane_waiting: IntGaugeVec = gauge("asynq_lane_waiting", "Tasks that wait for room under the limit", LIMIT),
        lane_running: IntGaugeVec = gauge("asynq_lane_running", "Tasks that run under the cap of the limit", LIMIT),
        lane_parked: IntCounterVec = counter("asynq_lane_parked_total", "Tasks that met a full lane of the limit, and were parked", LIMIT),
        lane_too_many: IntCounterVec = counter(
            "asynq_lane_too_many_total",
            "Attempts that ended with somebody else's word that it was too much, by the limit that was named",
            LIMIT,
        ),
        lane_opened: IntCounterVec = counter(
            "asynq_lane_opened_total",
            "How often the breaker of the limit let nothing start of a key, because too much had failed",
            LIMIT,
        ),
        unaware: IntGaugeVec = gauge(
            "asynq_unaware_servers",
            "Servers of the queue that do not honour a feature which it uses",
            &["queue", "feature"],
        ),
        arrival_rate: GaugeVec = seconds(
            "asynq_queue_arrival_rate",
            "Attempts that became possible per second: new, due and retried tasks",
            QUEUE,
        ),
        service_rate: GaugeVec = seconds("asynq_queue_service_rate", "Attempts that ended per second", QUEUE),
        drain: GaugeVec = seconds(
            "asynq_queue_drain_seconds",
            "When the pending tasks will have started, if all goes on like this; +Inf for never",
            QUEUE,
        ),
        wanted_slots: IntGaugeVec = gauge(
            "asynq_queue_wanted_slots",
            "Slots with which the pending tasks start within a minute, and four fifths are busy afterwards",
            QUEUE,
        ),
        servers: IntGaugeVec = gauge("asynq_servers", "Servers that are alive, by status", &["status"]),
        // Without a value while the servers cannot be listed: that would be 0.
        slots: IntGaugeVec = gauge("asynq_server_slots", "Tasks that all servers together run at once", NONE),
        slots_busy: IntGaugeVec = gauge("asynq_server_slots_busy", "Tasks that all servers together are running", NONE),
        redis_up: IntGauge = single("asynq_redis_up", "1 if Redis answered this scrape, else 0"),
        scrape_seconds: Gauge = sound(
            "asynq_exporter_scrape_seconds",
            Gauge::new("asynq_exporter_scrape_seconds", "How long it took to ask Redis for this scrape"),
        ),
    }
}

const LIMIT: &[&str] = &["queue", "limit"];
/// The labels of a metric that has none.
pub(crate) const NONE: &[&str] = &[];

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
    /// Shows a queue.
    pub(crate) fn queue(&self, Seen { info, memory, overdue, unrecorded }: &Seen) {
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
        set_seconds(&self.unrecorded, *unrecorded);
    }

    /// Shows a queue that has limits, and how many of its servers know nothing of them, if that is known. Never by key: there may
    /// be any number.
    pub(crate) fn limits(&self, queue: &str, limits: &[LimitInfo], unaware: Option<usize>) {
        for info in limits {
            let limit = [queue, info.limit.name.as_str()];
            self.lane_waiting.with_label_values(&limit).set(whole(info.waiting));
            self.lane_running.with_label_values(&limit).set(whole(info.running));
            self.lane_parked.with_label_values(&limit).inc_by(info.parked);
            self.lane_too_many.with_label_values(&limit).inc_by(info.too_many);
            self.lane_opened.with_label_values(&limit).inc_by(info.opened);
        }
        if let Some(unaware) = unaware {
            self.unaware.with_label_values(&[queue, LIMITS]).set(whole(unaware as u64));
        }
    }

    /// Shows how fast a queue grows and shrinks. What is not known is missing.
    pub(crate) fn forecast(&self, queue: &str, told: &Forecast) {
        let queue = [queue];
        self.arrival_rate.with_label_values(&queue).set(told.arrival_rate);
        self.service_rate.with_label_values(&queue).set(told.service_rate);
        if told.drain != Drain::Unknown {
            self.drain.with_label_values(&queue).set(told.drain.seconds().unwrap_or(f64::INFINITY));
        }
        if let Some(slots) = told.wanted_slots {
            self.wanted_slots.with_label_values(&queue).set(whole(slots));
        }
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
