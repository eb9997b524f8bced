//! What became of the queues from scrape to scrape.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use queue_core::forecast::{Forecast, Look, forecast};

/// How far back is looked. Of scrapes that are farther apart, two count.
const WINDOW: Duration = Duration::from_secs(60);
/// In which time what waits should have started, where slots are wanted for that.
const WITHIN: Duration = Duration::from_secs(60);
/// Looks kept of a queue.
const MOST: usize = 120;

/// The last looks at each queue.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// A std mutex: held to add a look.
    looks: Mutex<BTreeMap<String, VecDeque<Look>>>,
}

impl Rates {
    /// Adds a look at each queue, forgets those that are gone, and tells of each what is known.
    pub(crate) fn see(&self, seen: BTreeMap<String, Look>) -> Vec<(String, Forecast)> {
        let mut known = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|queue, _| seen.contains_key(queue));
        let window_ms = i64::try_from(WINDOW.as_millis()).unwrap_or(i64::MAX);
        let told = seen.into_iter().filter_map(|(queue, look)| {
            let looks = known.entry(queue.clone()).or_default();
            looks.push_back(look);
            while looks.len() > MOST || looks.get(1).is_some_and(|second| look.at_ms - second.at_ms >= window_ms) {
                looks.pop_front();
            }
            Some((queue, forecast(looks.make_contiguous(), WITHIN)?))
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minute_or_of_the_last_two_scrapes() {
        let rates = Rates::default();
        let see = |second: i64, processed: u64| {
            let look = Look { at_ms: 1_000 * second, processed, ..Look::default() };
            rates.see([("q".to_owned(), look)].into()).first().map(|(_, told)| told.service_rate)
        };
        assert_eq!(see(0, 0), None);
        assert_eq!(see(15, 30), Some(2.0));
        assert_eq!(see(60, 300), Some(5.0), "since the first");
        assert_eq!(see(75, 360), Some(5.5), "since the second");
        assert_eq!(see(1_075, 1_360), Some(1.0), "since the last");
        rates.see(BTreeMap::new());
        assert_eq!(see(1_090, 1_360), None, "the queue was gone meanwhile");
    }
}
