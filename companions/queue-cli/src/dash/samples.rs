//! What the sparklines show: how fast each queue was worked while somebody looked.

use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};
use queue_admin::QueueInfo;

/// Samples kept of a queue: enough for the widest sparkline.
const KEPT: usize = 240;

/// The course of all queues, since the dashboard was started.
#[derive(Debug, Default)]
pub(super) struct Samples {
    queues: HashMap<String, Course>,
}

/// The course of one queue, oldest sample first.
#[derive(Debug, Default)]
pub(super) struct Course {
    last: Option<Reading>,
    /// Tasks finished per second, failures included.
    pub(super) processed: VecDeque<f64>,
    /// Failures per second.
    pub(super) failed: VecDeque<f64>,
    /// Seconds that the oldest pending task has waited.
    pub(super) latency: VecDeque<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: DateTime<Utc>,
    processed: u64,
    failed: u64,
}

impl Samples {
    /// Takes a look at all queues there are; those that are gone are forgotten.
    pub(super) fn record<'a>(&mut self, queues: impl Iterator<Item = &'a QueueInfo> + Clone) {
        self.queues.retain(|name, _| queues.clone().any(|queue| queue.name == *name));
        for queue in queues {
            self.record_one(queue);
        }
    }

    /// Takes a look at one queue and leaves the others as they are.
    pub(super) fn record_one(&mut self, queue: &QueueInfo) {
        self.queues.entry(queue.name.clone()).or_default().record(queue);
    }

    /// The course of a queue, if it was seen.
    pub(super) fn of(&self, queue: &str) -> Option<&Course> {
        self.queues.get(queue)
    }
}

impl Course {
    fn record(&mut self, queue: &QueueInfo) {
        let reading = Reading { at: queue.timestamp, processed: queue.processed_total, failed: queue.failed_total };
        if let Some(last) = self.last {
            let seconds = (reading.at - last.at).as_seconds_f64();
            // Two looks within a moment would make noise of a single task.
            if seconds < 0.05 {
                return;
            }
            // A counter that went down is that of a queue which was removed and made anew.
            push(&mut self.processed, reading.processed.saturating_sub(last.processed) as f64 / seconds);
            push(&mut self.failed, reading.failed.saturating_sub(last.failed) as f64 / seconds);
        }
        push(&mut self.latency, queue.latency.as_secs_f64());
        self.last = Some(reading);
    }
}

fn push(samples: &mut VecDeque<f64>, sample: f64) {
    if samples.len() == KEPT {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The last samples as a line of bars, as high as the highest of them; blank on the left where there are none.
pub(super) fn spark(samples: &VecDeque<f64>, cells: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = samples.len().min(cells);
    let highest = samples.iter().skip(samples.len() - shown).copied().fold(0.0, f64::max);
    let bar = |sample: &f64| {
        // The lowest bar is for nothing at all, so that a little can be told from it.
        let height =
            if *sample <= 0.0 || highest <= 0.0 { 0 } else { ((sample / highest * 7.0).ceil() as usize).max(1) };
        BARS[height.min(7)]
    };
    let blanks = std::iter::repeat_n(' ', cells - shown);
    blanks.chain(samples.iter().skip(samples.len() - shown).map(bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_is_as_high_as_its_highest_sample_and_shows_the_last_ones() {
        let samples = |values: &[f64]| values.iter().copied().collect::<VecDeque<f64>>();
        assert_eq!(spark(&samples(&[0.0, 1.0, 50.0, 100.0]), 6), "  ▁▂▅█");
        assert_eq!(spark(&samples(&[100.0, 1.0, 2.0]), 2), "▅█");
        assert_eq!((spark(&samples(&[0.0, 0.0]), 2), spark(&samples(&[]), 2)), ("▁▁".into(), "  ".into()));
        assert_eq!(spark(&samples(&[1.0]), 0), "");
    }
}
