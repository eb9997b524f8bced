//! The metrics of workers: names, meanings, labels, buckets.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Result as Registered};

/// From a millisecond to an hour: tasks are of all kinds.
const TASK_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0];
/// Starting a handler is a matter of microseconds, unless the runtime is busy.
const DELAY_SECONDS: &[f64] = &[0.0001, 0.001, 0.01, 0.1, 1.0, 10.0];
/// A local Redis answers within a millisecond; calls give up after 5 s.
const CALL_SECONDS: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
/// No call carries more than 100.
const BATCH_TASKS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// The metrics of something: each field has its type and its definition, and stands here alone.
macro_rules! families {
    ($(#[$about:meta])* $name:ident { $($field:ident: $type:ty = $definition:expr,)* }) => {
        $(#[$about])*
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl $name {
            pub(crate) fn new() -> Self {
                Self { $($field: $definition,)* }
            }

            pub(crate) fn all(&self) -> Vec<Box<dyn prometheus::core::Collector>> {
                vec![$(Box::new(self.$field.clone()),)*]
            }

            pub(crate) fn register(&self, registry: &prometheus::Registry) -> prometheus::Result<()> {
                self.all().into_iter().try_for_each(|family| registry.register(family))
            }
        }
    };
}
#[cfg(feature = "queues")]
pub(crate) use families;

const TYPE: &[&str] = &["queue", "type"];
pub(crate) const QUEUE: &[&str] = &["queue"];
/// Why an attempt was interrupted: the values of the label `reason`.
pub(crate) const REASONS: [&str; 4] = ["deadline", "canceled", "lease_lost", "shutdown"];

families! {
    /// What workers do.
    Families {
        attempts: IntCounterVec = counter(
            "asynq_worker_attempts_total",
            "Attempts that ended, by what becomes of the task",
            &["queue", "type", "outcome"],
        ),
        attempt_seconds: HistogramVec = histogram(
            "asynq_worker_attempt_seconds",
            "How long attempts ran, whatever their outcome",
            TYPE,
            TASK_SECONDS,
        ),
        wait_seconds: HistogramVec = histogram(
            "asynq_worker_wait_seconds",
            "How long tasks were pending before their attempt started",
            TYPE,
            TASK_SECONDS,
        ),
        in_flight: IntGaugeVec = gauge("asynq_worker_in_flight", "Attempts that are running", TYPE),
        start_delay_seconds: HistogramVec = histogram(
            "asynq_worker_start_delay_seconds",
            "From Redis' answer to the start of the attempt",
            QUEUE,
            DELAY_SECONDS,
        ),
        interruptions: IntCounterVec = counter(
            "asynq_worker_interruptions_total",
            "Attempts that were told to stop before they had ended",
            &["queue", "reason"],
        ),
        take_tasks: HistogramVec = histogram("asynq_worker_take_tasks", "Tasks in each take that gave any", QUEUE, BATCH_TASKS),
        report_tasks: HistogramVec = histogram(
            "asynq_worker_report_tasks",
            "Attempts reported on by each call",
            QUEUE,
            BATCH_TASKS,
        ),
        refused: IntCounterVec = counter(
            "asynq_worker_reports_refused_total",
            "Attempts whose report was refused: the task was deleted, or recovered by another server",
            QUEUE,
        ),
        recovered: IntCounterVec = counter(
            "asynq_worker_recovered_total",
            "Tasks taken over from servers that went silent, by what becomes of them",
            &["queue", "outcome"],
        ),
        reconciled: IntCounterVec = counter(
            "asynq_worker_reconciled_total",
            "What was not in order and was put right, by what it was",
            &["queue", "fault"],
        ),
        forwarded: IntCounterVec = counter(
            "asynq_worker_forwarded_total",
            "Scheduled and retried tasks that were made pending",
            QUEUE,
        ),
        unreadable: IntCounterVec = counter("asynq_worker_unreadable_total", "Tasks archived because nobody can read them", QUEUE),
        slots: IntGauge = single("asynq_worker_slots", "Tasks that the servers of this process run at once"),
        reports_waiting: IntGauge = single("asynq_worker_reports_waiting", "Attempts that ended and are not reported yet"),
        call_seconds: HistogramVec = histogram(
            "asynq_redis_call_seconds",
            "How long calls to Redis took, failed ones included",
            &["operation"],
            CALL_SECONDS,
        ),
        call_errors: IntCounterVec = counter(
            "asynq_redis_call_errors_total",
            "Calls to Redis that failed, by why",
            &["operation", "reason"],
        ),
    }
}

/// Definitions are constants: one that does not hold is a mistake of ours, found by every test.
pub(crate) fn sound<T>(name: &str, definition: Registered<T>) -> T {
    definition.unwrap_or_else(|error| panic!("the definition of {name}: {error}"))
}

pub(crate) fn counter(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    sound(name, IntCounterVec::new(Opts::new(name, help), labels))
}

pub(crate) fn gauge(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    sound(name, IntGaugeVec::new(Opts::new(name, help), labels))
}

pub(crate) fn single(name: &str, help: &str) -> IntGauge {
    sound(name, IntGauge::new(name, help))
}

fn histogram(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    sound(name, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
}
