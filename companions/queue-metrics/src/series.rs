//! Where each queue and task type counts: found without a lock, and bounded in number.
//!
//! A label with a value per task type must not grow with what anybody puts into a queue. So types that the
//! server has a handler for by name always count by themselves; of the others only the first few do, and
//! the rest count together.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use prometheus::{Histogram, IntCounter, IntGauge};
use queue_worker::End;

use crate::families::Families;

/// The label of types that have no series of their own.
pub(crate) const OTHER: &str = "other";

/// Longest value of a label `type`, in bytes; what is longer is cut.
const LONGEST_TYPE: usize = 100;

/// What is counted of one type in one queue.
pub(crate) struct TypeSeries {
    ends: [IntCounter; End::ALL.len()],
    pub(crate) seconds: Histogram,
    pub(crate) wait: Histogram,
    pub(crate) in_flight: IntGauge,
}

impl TypeSeries {
    fn new(families: &Families, queue: &str, task_type: &str) -> Self {
        let labels = [queue, task_type];
        Self {
            ends: End::ALL.map(|end| families.attempts.with_label_values(&[queue, task_type, end.as_str()])),
            seconds: families.attempt_seconds.with_label_values(&labels),
            wait: families.wait_seconds.with_label_values(&labels),
            in_flight: families.in_flight.with_label_values(&labels),
        }
    }

    pub(crate) fn ended(&self, end: End) {
        if let Some(at) = End::ALL.iter().position(|one| *one == end) {
            self.ends[at].inc();
        }
    }
}

/// What is counted of one queue.
pub(crate) struct QueueSeries {
    types: ArcSwap<HashMap<Box<str>, Arc<TypeSeries>>>,
    pub(crate) start_delay: Histogram,
    pub(crate) take: Histogram,
    pub(crate) report: Histogram,
    pub(crate) refused: IntCounter,
    pub(crate) forwarded: IntCounter,
    pub(crate) unreadable: IntCounter,
}

impl QueueSeries {
    fn new(families: &Families, queue: &str) -> Self {
        let labels = [queue];
        Self {
            types: ArcSwap::default(),
            start_delay: families.start_delay_seconds.with_label_values(&labels),
            take: families.take_tasks.with_label_values(&labels),
            report: families.report_tasks.with_label_values(&labels),
            refused: families.refused.with_label_values(&labels),
            forwarded: families.forwarded.with_label_values(&labels),
            unreadable: families.unreadable.with_label_values(&labels),
        }
    }
}

/// All series of a process.
pub(crate) struct Series {
    /// Maps are replaced as a whole when something is added, so that looking takes no lock.
    queues: ArcSwap<HashMap<Box<str>, Arc<QueueSeries>>>,
    /// Held while something is added.
    growth: Mutex<Growth>,
}

struct Growth {
    /// Types that always count by themselves.
    known: HashSet<Box<str>>,
    /// How many series of other types may still be added.
    left: usize,
}

impl Series {
    pub(crate) fn new(max_types: usize) -> Self {
        Self { queues: ArcSwap::default(), growth: Mutex::new(Growth { known: HashSet::new(), left: max_types }) }
    }

    /// Types that are to count by themselves.
    pub(crate) fn know(&self, types: &[String]) {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        growth.known.extend(types.iter().map(|task_type| task_type.as_str().into()));
    }

    /// Looks up a queue and counts on it.
    pub(crate) fn queue(&self, families: &Families, name: &str, count: impl FnOnce(&QueueSeries)) {
        if let Some(queue) = self.queues.load().get(name) {
            return count(queue);
        }
        count(&self.add_queue(families, name));
    }

    /// Looks up a type in a queue and counts on both.
    pub(crate) fn of_type(
        &self,
        families: &Families,
        queue_name: &str,
        task_type: &str,
        count: impl FnOnce(&QueueSeries, &TypeSeries),
    ) {
        self.queue(families, queue_name, |queue| {
            if let Some(series) = queue.types.load().get(task_type) {
                return count(queue, series);
            }
            count(queue, &self.add_type(families, queue_name, queue, task_type));
        });
    }

    fn add_queue(&self, families: &Families, name: &str) -> Arc<QueueSeries> {
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues.load();
        if let Some(queue) = queues.get(name) {
            return queue.clone();
        }
        let queue = Arc::new(QueueSeries::new(families, name));
        let mut grown = HashMap::clone(&queues);
        grown.insert(name.into(), queue.clone());
        self.queues.store(Arc::new(grown));
        queue
    }

    fn add_type(&self, families: &Families, queue_name: &str, queue: &QueueSeries, task_type: &str) -> Arc<TypeSeries> {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let types = queue.types.load();
        if let Some(series) = types.get(task_type) {
            return series.clone();
        }
        let is_known = growth.known.contains(task_type);
        let name = if is_known || growth.left > 0 { task_type } else { OTHER };
        if let Some(series) = types.get(name) {
            return series.clone();
        }
        if !is_known && name != OTHER {
            growth.left -= 1;
        }
        let label = &name[..name.floor_char_boundary(LONGEST_TYPE)];
        let series = Arc::new(TypeSeries::new(families, queue_name, label));
        let mut grown = HashMap::clone(&types);
        grown.insert(name.into(), series.clone());
        queue.types.store(Arc::new(grown));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(families: &Families) -> Vec<String> {
        use prometheus::core::Collector as _;
        let gathered = families.in_flight.collect();
        let labels = gathered[0].get_metric().iter().map(|metric| {
            let values = metric.get_label().iter().map(|label| label.value());
            values.collect::<Vec<_>>().join("/")
        });
        let mut labels: Vec<String> = labels.collect();
        labels.sort();
        labels
    }

    #[test]
    fn a_million_types_make_no_more_series_than_allowed_and_known_ones_always_count() {
        let (families, series) = (Families::new(), Series::new(2));
        for number in 0..1_000_000 {
            series.of_type(&families, "q", &format!("type-{number}"), |_, series| series.in_flight.inc());
        }
        series.know(&["email:send".to_owned()]);
        series.of_type(&families, "q", "email:send", |_, series| series.in_flight.inc());
        series.of_type(&families, "p", "new", |_, series| series.in_flight.inc());
        assert_eq!(types(&families), ["p/other", "q/email:send", "q/other", "q/type-0", "q/type-1"]);
        assert_eq!(families.in_flight.with_label_values(&["q", OTHER]).get(), 999_998);
    }

    #[test]
    fn long_types_are_cut_at_a_character() {
        let (families, series) = (Families::new(), Series::new(2));
        series.of_type(&families, "q", &"ü".repeat(1_000), |_, series| series.in_flight.inc());
        assert_eq!(types(&families), [format!("q/{}", "ü".repeat(50))]);
    }

    #[test]
    fn threads_that_meet_count_on_the_same_series() {
        let (families, series) = (Families::new(), Series::new(100));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..1_000 {
                        let task_type = format!("type-{}", number % 50);
                        series.of_type(&families, "q", &task_type, |_, series| series.in_flight.inc());
                    }
                });
            }
        });
        assert_eq!(types(&families).len(), 50);
        assert_eq!(families.in_flight.with_label_values(&["q", "type-7"]).get(), 80);
    }
}
