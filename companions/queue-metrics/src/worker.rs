//! What the servers of this process do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::Registry;
use queue_redis::Redis;
use queue_worker::{CancelReason, End, Event};

use crate::families::{Families, REASONS, sound};
use crate::series::Series;
use crate::{calls, text};

/// Counts what servers do; clones count together.
///
/// Give [`observer`](Self::observer) to [`Server::observe`](queue_worker::Server::observe). Counting takes no lock that
/// attempts share.
///
/// Types that the router has a handler for by name count by themselves; of all others (those that a pattern or
/// nobody serves) the first 100, over all queues; the rest have the label `type="other"`. The series of a queue that a
/// server has joined by a pattern end with the queue.
#[derive(Clone)]
pub struct WorkerMetrics {
    inner: Arc<Inner>,
}

struct Inner {
    families: Families,
    series: Series,
    registry: Registry,
    /// The servers that cannot do their work because of Redis, and why. A std mutex: held to change one entry.
    away: Mutex<HashMap<String, String>>,
}

queue_core::debug_some!(WorkerMetrics);

impl Default for WorkerMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkerMetrics {
    /// Metrics that nobody has counted in yet, in a registry of their own.
    pub fn new() -> Self {
        Self::with_max_types(100)
    }

    /// The same, with another number of task types without a handler of their own that may count by
    /// themselves. Each costs some 40 time series.
    pub fn with_max_types(max_types: usize) -> Self {
        let (families, registry) = (Families::new(), Registry::new());
        sound("the metrics of workers", families.register(&registry));
        Self { inner: Arc::new(Inner { families, series: Series::new(max_types), registry, away: Mutex::default() }) }
    }

    /// What counts the events of a server.
    pub fn observer(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let metrics = self.clone();
        move |event| metrics.inner.count(event)
    }

    /// Counts and times the calls on this Redis, by whomever. For each handle on a Redis once: clones share
    /// it, and twice would count twice.
    pub fn watch_calls(&self, redis: &Redis) {
        let metrics = self.clone();
        redis.on_call(move |call| calls::count(&metrics.inner.families, call));
    }

    /// The registry that the metrics are in.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Adds the metrics to another registry, such as the program's own.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        self.inner.families.register(registry)
    }

    /// Why a server that is counted here cannot do its work: Redis is away, or refuses. `None` while all can.
    pub fn outage(&self) -> Option<String> {
        self.inner.away().values().next().cloned()
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        text(&self.inner.registry)
    }
}

impl Inner {
    fn away(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, event: &Event<'_>) {
        let families = &self.families;
        let slots = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        match *event {
            Event::ServerStarted { concurrency, types, .. } => {
                self.series.know(types);
                families.slots.add(slots(concurrency));
            }
            Event::ServerResized { before, concurrency, .. } => families.slots.add(slots(concurrency) - slots(before)),
            Event::ServerStopped { server, concurrency } => {
                self.away().remove(server);
                families.slots.sub(slots(concurrency));
            }
            Event::RedisAway { server, error } => drop(self.away().insert(server.to_owned(), error.to_string())),
            Event::RedisBack { server } => drop(self.away().remove(server)),
            Event::Taken { queue, tasks } => {
                self.series.queue(families, queue, |queue| queue.take.observe(tasks as f64));
            }
            Event::Started { job, waited, delay } => {
                self.series.of_type(families, job.queue(), job.task_type(), |queue, of_type| {
                    of_type.in_flight.inc();
                    queue.start_delay.observe(delay.as_secs_f64());
                    if let Some(waited) = waited {
                        of_type.wait.observe(waited.as_secs_f64());
                    }
                });
            }
            Event::Ended { job, end, took } => {
                self.series.of_type(families, job.queue(), job.task_type(), |_, of_type| {
                    of_type.in_flight.dec();
                    of_type.seconds.observe(took.as_secs_f64());
                    of_type.ended(end);
                });
                if end != End::LeaseLost {
                    families.reports_waiting.inc();
                }
                if let Some(reason) = job.cancel_reason() {
                    families.interruptions.with_label_values(&[job.queue(), reason_label(reason)]).inc();
                }
            }
            Event::Reported { queue, tasks, refused } => {
                families.reports_waiting.sub(slots(tasks));
                self.series.known_queue(queue, |queue| {
                    queue.report.observe(tasks as f64);
                    queue.refused.inc_by(refused as u64);
                });
            }
            Event::Recovered { queue, end, .. } => {
                families.recovered.with_label_values(&[queue, end.as_str()]).inc();
            }
            Event::Reconciled { queue, fault } => {
                families.reconciled.with_label_values(&[queue.unwrap_or_default(), fault]).inc();
            }
            Event::Forwarded { queue, tasks } => {
                self.series.queue(families, queue, |queue| queue.forwarded.inc_by(tasks));
            }
            Event::QueueLeft { queue } => self.series.forget(families, queue),
            Event::Unreadable { queue } => self.series.queue(families, queue, |queue| queue.unreadable.inc()),
            _ => {}
        }
    }
}

fn reason_label(reason: CancelReason) -> &'static str {
    let [deadline, canceled, lease_lost, shutdown] = REASONS;
    match reason {
        CancelReason::Deadline => deadline,
        CancelReason::Canceled => canceled,
        CancelReason::LeaseLost => lease_lost,
        CancelReason::Shutdown => shutdown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_fit_into_the_registry_of_a_program_once() {
        let (metrics, registry) = (WorkerMetrics::new(), Registry::new());
        metrics.register(&registry).unwrap();
        assert!(metrics.register(&registry).is_err());
        let started = Event::Unreadable { queue: "q\"\\\n" };
        metrics.observer()(&started);
        let line = "asynq_worker_unreadable_total{queue=\"q\\\"\\\\\\n\"} 1\n";
        assert!(text(&registry).contains(line), "{}", text(&registry));
        assert_eq!(text(&registry), metrics.text());
    }
}
