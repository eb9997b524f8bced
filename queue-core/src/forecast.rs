//! How fast a queue grows and shrinks, and when it will be empty: a pure function of two looks or more.
//!
//! A look has only what asynq keeps, so that this works for Go's servers too. Nothing is stored.

use std::time::Duration;

/// How much of its slots a queue should use, so that a task seldom waits because tasks come unevenly.
const BUSY: f64 = 0.8;

/// A queue at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// Tasks that could start: pending ones, and scheduled and retried ones whose time is over.
    pub waiting: u64,
    /// Tasks that run.
    pub active: u64,
    /// Attempts that have ended since the queue was made, failed ones too (asynq's `processed`).
    pub processed: u64,
    /// Slots that it has or could have at once: its active tasks, and the free slots of the servers that serve it.
    pub slots: u64,
    /// Whether it is paused.
    pub is_paused: bool,
}

/// When the tasks that wait will have started, if all goes on as it did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drain {
    /// None waits.
    Empty,
    /// After this time.
    In(Duration),
    /// As many come as are worked, or more; or it is paused, or has no slots.
    Never,
    /// Nothing has ended while it was looked at, so that it is not known how long a task takes.
    Unknown,
}

impl Drain {
    /// Seconds, where that is a number.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Self::Empty => Some(0.0),
            Self::In(time) => Some(time.as_secs_f64()),
            Self::Never | Self::Unknown => None,
        }
    }
}

/// What follows from looks at a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Forecast {
    /// The last look.
    pub now: Look,
    /// How long it was looked at.
    pub over: Duration,
    /// Attempts that became possible, per second: new tasks, due ones and retries.
    pub arrival_rate: f64,
    /// Attempts that ended, per second.
    pub service_rate: f64,
    /// Seconds that an attempt takes, on average over all types; `None` where none has ended.
    pub run_time: Option<f64>,
    /// Attempts per second that the slots could end.
    pub capacity: Option<f64>,
    /// When it is empty.
    pub drain: Drain,
    /// How many slots it should have, so that what waits has started within the wanted time and four fifths of them are busy
    /// afterwards.
    pub wanted_slots: Option<u64>,
}

/// Judges a queue by looks at it, the oldest first; `within` is the time in which what waits should have started. `None` with
/// fewer than two looks at different times. Looks from before the queue was removed and made anew are left out.
///
/// ```
/// use std::time::Duration;
/// use queue_core::forecast::{Drain, Look, forecast};
///
/// // Ten a second come, twenty a second end, with twenty tasks at work all the time.
/// let look = |second: i64| Look {
///     at_ms: 1_000 * second, waiting: 300 - 10 * second as u64, active: 20, processed: 20 * second as u64, slots: 20,
///     is_paused: false,
/// };
/// let forecast = forecast(&[look(0), look(10)], Duration::from_secs(10)).unwrap();
/// assert_eq!((forecast.arrival_rate, forecast.service_rate, forecast.run_time), (10.0, 20.0, Some(1.0)));
/// assert_eq!(forecast.drain, Drain::In(Duration::from_secs(20)));
/// assert_eq!(forecast.wanted_slots, Some(33)); // 10 / s × 1 s / 0.8 for those to come, 200 × 1 s / 10 s for those that wait
/// ```
pub fn forecast(looks: &[Look], within: Duration) -> Option<Forecast> {
    // A counter that went back is another one.
    let anew = looks.windows(2).rposition(|two| two[1].processed < two[0].processed).map_or(0, |at| at + 1);
    let (looks, now) = (&looks[anew..], *looks.last()?);
    let first = looks.first()?;
    let seconds = now.at_ms.saturating_sub(first.at_ms) as f64 / 1_000.0;
    if seconds <= 0.0 {
        return None;
    }
    let inside = |look: &Look| look.waiting as f64 + look.active as f64;
    let service_rate = (now.processed - first.processed) as f64 / seconds;
    // Tasks that somebody deleted have not come either.
    let arrival_rate = (service_rate + (inside(&now) - inside(first)) / seconds).max(0.0);
    // Little's law.
    let mean_active = looks.iter().map(|look| look.active as f64).sum::<f64>() / looks.len() as f64;
    let run_time = (service_rate > 0.0 && mean_active > 0.0).then(|| mean_active / service_rate);
    let slots = if now.is_paused { 0 } else { now.slots };
    // Attempts that are too short to be seen at work use no slots worth counting; they were no slower than they were.
    let capacity = match run_time {
        _ if slots == 0 => Some(0.0),
        Some(run_time) => Some(slots as f64 / run_time),
        None => (service_rate > 0.0).then_some(service_rate),
    };
    let waiting = now.waiting as f64;
    let drain = match capacity {
        _ if now.waiting == 0 => Drain::Empty,
        None => Drain::Unknown,
        Some(capacity) if capacity <= arrival_rate => Drain::Never,
        Some(capacity) => {
            Duration::try_from_secs_f64(waiting / (capacity - arrival_rate)).map_or(Drain::Never, Drain::In)
        }
    };
    let within = within.as_secs_f64().max(0.001);
    let wanted = run_time.map(|run_time| arrival_rate * run_time / BUSY + waiting * run_time / within);
    // Figures like 32.999999999999996 are not meant to be 33 and a bit.
    let wanted_slots = wanted.map(|wanted| (wanted - 1e-9).ceil().max(0.0) as u64);
    let over = Duration::from_secs_f64(seconds);
    Some(Forecast { now, over, arrival_rate, service_rate, run_time, capacity, drain, wanted_slots })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn look(second: i64, waiting: u64, active: u64, processed: u64, slots: u64) -> Look {
        Look { at_ms: second * 1_000, waiting, active, processed, slots, is_paused: false }
    }

    #[test]
    fn a_queue_into_which_more_comes_than_goes_never_drains_and_says_what_it_needs() {
        // 30 a second come, 10 are worked by ten slots, a second each.
        let forecast = forecast(&[look(0, 0, 10, 0, 10), look(10, 200, 10, 100, 10)], MINUTE).unwrap();
        assert_eq!((forecast.arrival_rate, forecast.service_rate, forecast.capacity), (30.0, 10.0, Some(10.0)));
        assert_eq!(forecast.drain, Drain::Never);
        assert_eq!(forecast.wanted_slots, Some(41), "30 / 0.8 and 200 / 60");
    }

    #[test]
    fn free_slots_count_for_what_they_could_do() {
        // Two of ten slots are busy, a second each; nothing comes.
        let forecast = forecast(&[look(0, 60, 2, 0, 10), look(10, 40, 2, 20, 10)], MINUTE).unwrap();
        assert_eq!((forecast.arrival_rate, forecast.capacity), (0.0, Some(10.0)));
        assert_eq!(forecast.drain, Drain::In(Duration::from_secs(4)));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(forecast(&[], MINUTE), None);
        assert_eq!(forecast(&[look(0, 1, 0, 0, 1)], MINUTE), None);
        assert_eq!(forecast(&[look(5, 1, 0, 0, 1), look(5, 1, 0, 0, 1)], MINUTE), None);
        let long = forecast(&[look(0, 9, 2, 7, 2), look(10, 9, 2, 7, 2)], MINUTE).unwrap();
        assert_eq!((long.drain, long.wanted_slots, long.run_time), (Drain::Unknown, None, None));
        let empty = forecast(&[look(0, 0, 0, 7, 2), look(10, 0, 0, 7, 2)], MINUTE).unwrap();
        assert_eq!((empty.drain, empty.arrival_rate), (Drain::Empty, 0.0));
    }

    #[test]
    fn without_servers_or_while_it_is_paused_nothing_drains() {
        let looks = [look(0, 9, 0, 7, 0), look(10, 19, 0, 7, 0)];
        assert_eq!(forecast(&looks, MINUTE).unwrap().drain, Drain::Never);
        let looks = [look(0, 90, 2, 0, 9), Look { is_paused: true, ..look(10, 70, 2, 20, 9) }];
        assert_eq!(forecast(&looks, MINUTE).unwrap().drain, Drain::Never);
    }

    #[test]
    fn attempts_that_are_too_short_to_be_seen_are_counted_all_the_same() {
        let forecast = forecast(&[look(0, 1_000, 0, 0, 9), look(10, 500, 0, 500, 9)], MINUTE).unwrap();
        assert_eq!((forecast.run_time, forecast.capacity), (None, Some(50.0)));
        assert_eq!(forecast.drain, Drain::In(Duration::from_secs(10)));
    }

    #[test]
    fn a_queue_that_was_removed_begins_anew_and_deleted_tasks_do_not_come_backwards() {
        let looks = [look(0, 5, 0, 1_000, 1), look(10, 0, 0, 0, 1), look(20, 0, 1, 10, 1)];
        assert_eq!(forecast(&looks, MINUTE).unwrap().service_rate, 1.0);
        let deleted = forecast(&[look(0, 1_000, 1, 0, 1), look(10, 0, 1, 10, 1)], MINUTE).unwrap();
        assert_eq!((deleted.arrival_rate, deleted.drain), (0.0, Drain::Empty));
    }
}
