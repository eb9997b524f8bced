//! Numbers of members that this process was given.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::keep::lock;

/// So many ranges of a flow are remembered. The lowest are forgotten first: a failover loses what was given out last.
const MOST: usize = 1_000;

/// The numbers, by flow of a tree: ranges that do not meet, each from its first number to the one behind its last. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenOut(Arc<Mutex<HashMap<u32, BTreeMap<u32, u32>>>>);

impl GivenOut {
    /// Notes that Redis has given out these numbers of a flow; returns those that it had not given out before. A Redis that has gone back, as
    /// in a failover, gives out numbers again whose tasks may be there.
    pub(super) fn note(&self, flow: u32, numbers: Range<u32>) -> Vec<u32> {
        let mut flows = lock(&self.0);
        let ranges = flows.entry(flow).or_default();
        let is_new = |number: &u32| ranges.range(..=number).next_back().is_none_or(|(_, end)| end <= number);
        let new = numbers.clone().filter(is_new).collect();
        let Range { mut start, mut end } = numbers;
        while let Some((&first, &behind)) = ranges.range(..=end).next_back().filter(|(_, behind)| **behind >= start) {
            ranges.remove(&first);
            (start, end) = (start.min(first), end.max(behind));
        }
        ranges.insert(start, end);
        if ranges.len() > MOST {
            ranges.pop_first();
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(given: &GivenOut) -> Vec<(u32, u32)> {
        lock(&given.0)[&7].clone().into_iter().collect()
    }

    #[test]
    fn only_numbers_that_were_given_out_before_are_left_out() {
        let given = GivenOut::default();
        // Answers that come in another order than they were given.
        assert_eq!(given.note(7, 10..12), [10, 11]);
        assert_eq!(given.note(7, 0..3), [0, 1, 2]);
        assert_eq!(ranges(&given), [(0, 3), (10, 12)]);
        // Redis has gone back; in between, others had numbers.
        assert_eq!(given.note(7, 1..14), [3, 4, 5, 6, 7, 8, 9, 12, 13]);
        assert_eq!(ranges(&given), [(0, 14)]);
        assert_eq!(given.note(7, 14..16), [14, 15]);
        assert_eq!(given.note(7, 2..5), [0; 0]);
        assert_eq!(ranges(&given), [(0, 16)]);
        assert_eq!(given.note(8, 0..1), [0], "of another flow");
    }

    #[test]
    fn of_many_ranges_the_last_are_remembered() {
        let given = GivenOut::default();
        (0..3_000).for_each(|n| drop(given.note(7, 2 * n..2 * n + 1)));
        assert_eq!(ranges(&given).len(), MOST);
        assert_eq!(given.note(7, 5_996..6_000), [5_997, 5_999]);
    }
}
