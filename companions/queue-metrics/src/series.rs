//! Where each queue and task type counts: found without a lock, and bounded in number.
//!
//! A label with a value per task type must not grow with what anybody puts into a queue. So types that the
//! server has a handler for by name always count by themselves; of the others only the first few do, and
//! the rest count together. The series of a queue go when the queue does.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use prometheus::{Histogram, IntCounter, IntGauge};
use queue_redis::Fault;
use queue_worker::End;

use crate::families::{Families, REASONS};

/// The label of types that have no series of their own.
pub(crate) const OTHER: &str = "other";

/// Longest value of a label `type`, in bytes; what is longer is cut.
const LONGEST_TYPE: usize = 100;

/// What is counted of one type in one queue.
pub(crate) struct TypeSeries {
    label: Box<str>,
    /// Whether it is one of those that may be added.
    is_added: bool,
    ends: [IntCounter; End::ALL.len()],
    pub(crate) seconds: Histogram,
    pub(crate) wait: Histogram,
    pub(crate) in_flight: IntGauge,
}

impl TypeSeries {
    fn new(families: &Families, queue: &str, label: &str, is_added: bool) -> Self {
        let labels = [queue, label];
        Self {
            label: label.into(),
            is_added,
            ends: End::ALL.map(|end| families.attempts.with_label_values(&[queue, label, end.as_str()])),
            seconds: families.attempt_seconds.with_label_values(&labels),
            wait: families.wait_seconds.with_label_values(&labels),
            in_flight: families.in_flight.with_label_values(&labels),
        }
    }

    /// Removes all of it. What fails to be removed was not there.
    fn forget(&self, families: &Families, queue: &str) {
        let labels = [queue, &self.label];
        for end in End::ALL {
            let _ = families.attempts.remove_label_values(&[queue, &self.label, end.as_str()]);
        }
        for histogram in [&families.attempt_seconds, &families.wait_seconds] {
            let _ = histogram.remove_label_values(&labels);
        }
        let _ = families.in_flight.remove_label_values(&labels);
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

    /// Removes all of it. What fails to be removed was not there.
    fn forget(families: &Families, queue: &str) {
        for histogram in [&families.start_delay_seconds, &families.take_tasks, &families.report_tasks] {
            let _ = histogram.remove_label_values(&[queue]);
        }
        for counter in [&families.refused, &families.forwarded, &families.unreadable] {
            let _ = counter.remove_label_values(&[queue]);
        }
        let ends = End::ALL.map(End::as_str);
        let faults: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
        let others: [(_, &[&str]); 3] =
            [(&families.interruptions, &REASONS), (&families.recovered, &ends), (&families.reconciled, &faults)];
        for (counter, values) in others {
            for value in values {
                let _ = counter.remove_label_values(&[queue, value]);
            }
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

    /// Counts on a queue that was counted on before. One that is gone stays forgotten.
    pub(crate) fn known_queue(&self, name: &str, count: impl FnOnce(&QueueSeries)) {
        if let Some(queue) = self.queues.load().get(name) {
            count(queue);
        }
    }

    /// Forgets the series of a queue that is gone, unless something of it still runs.
    pub(crate) fn forget(&self, families: &Families, name: &str) {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queues = HashMap::clone(&self.queues.load());
        if let Some(queue) = queues.remove(name) {
            let types = queue.types.load();
            if types.values().any(|series| series.in_flight.get() > 0) {
                return;
            }
            self.queues.store(Arc::new(queues));
            growth.left += types.values().filter(|series| series.is_added).count();
            types.values().for_each(|series| series.forget(families, name));
        }
        QueueSeries::forget(families, name);
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
        let is_added = !is_known && name != OTHER;
        if is_added {
            growth.left -= 1;
        }
        let label = &name[..name.floor_char_boundary(LONGEST_TYPE)];
        let series = Arc::new(TypeSeries::new(families, queue_name, label, is_added));
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

    /// Every series of a worker, by name and labels.
    fn all(families: &Families) -> Vec<String> {
        let gathered: Vec<_> = families.all().iter().flat_map(|family| family.collect()).collect();
        let series = gathered.iter().flat_map(|family| family.get_metric().iter().map(move |metric| (family, metric)));
        let mut series: Vec<String> =
            series.map(|(family, metric)| format!("{} {:?}", family.name(), metric.get_label())).collect();
        series.sort();
        series
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
    fn a_queue_that_is_gone_leaves_no_series_and_makes_room_for_other_types() {
        let (families, series) = (Families::new(), Series::new(1));
        let count = |queue: &str, task_type: &str| {
            series.of_type(&families, queue, task_type, |_, series| series.ended(End::Succeeded));
        };
        count("kept", "t");
        let before = all(&families);
        series.know(&["known".to_owned()]);
        for _ in 0..2 {
            count("gone", "known");
            count("gone", &"ü".repeat(1_000));
            families.interruptions.with_label_values(&["gone", REASONS[3]]).inc();
            families.recovered.with_label_values(&["gone", End::Archived.as_str()]).inc();
            families.reconciled.with_label_values(&["gone", Fault::ALL[0].as_str()]).inc();
            assert!(all(&families).len() > before.len() + 20);
            series.forget(&families, "gone");
            series.known_queue("gone", |queue| queue.refused.inc());
            assert_eq!(all(&families), before);
        }
        series.forget(&families, "kept");
        count("new", "u");
        assert_eq!(types(&families), ["new/u"], "the place of the other is free");
    }

    #[test]
    fn a_queue_of_which_something_runs_is_not_forgotten() {
        let (families, series) = (Families::new(), Series::new(1));
        series.of_type(&families, "q", "t", |_, series| series.in_flight.inc());
        series.forget(&families, "q");
        series.of_type(&families, "q", "t", |_, series| series.in_flight.dec());
        assert_eq!(families.in_flight.with_label_values(&["q", "t"]).get(), 0);
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
