//! How free slots are shared out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::joins::Priorities;
use super::limit::Place;
use super::queues::Queues;

/// How free slots are shared out among queues that may have tasks. Each slot goes to a queue drawn by
/// weight, as each single take of asynq does; a queue that had less than its share, or that has no room for it, is left
/// out of the rest of the round.
#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) queues: &'a Queues,
    pub(super) open: Vec<usize>,
}

/// What one queue is asked for.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) queue: usize,
    pub(super) count: usize,
    /// As many, where the queue has a limit.
    pub(super) places: Vec<Place>,
}

impl Round<'_> {
    /// The next takes. Empty when no queue is left.
    pub(super) fn shares(&mut self, slots: usize) -> Vec<Share> {
        if !self.queues.has_limits() {
            return self.draw(slots).map(|(queue, count)| Share { queue, count, places: Vec::new() }).collect();
        }
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        let mut left = slots;
        // Each time around a queue is left out whose share was larger than its room, and the others get the rest.
        while left > 0 && !self.open.is_empty() {
            let drawn: Vec<_> = self.draw(left).collect();
            let mut is_full = false;
            for (queue, count) in drawn {
                let share = shares.entry(queue).or_insert(Share { queue, count: 0, places: Vec::new() });
                let mut given = count;
                if let Some(limit) = self.queues.limit(queue) {
                    let places = limit.take(count);
                    given = places.len();
                    share.places.extend(places);
                }
                share.count += given;
                left -= given;
                if given < count {
                    self.close(queue);
                    is_full = true;
                }
            }
            if !is_full {
                break;
            }
        }
        shares.into_values().filter(|share| share.count > 0).collect()
    }

    /// Queues, and how many of the slots each gets.
    fn draw(&self, slots: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let mut shares = vec![0; self.open.len()];
        if self.open.len() <= 1 {
            shares.fill(slots);
        } else {
            // Read once: somebody may change them meanwhile.
            let mut weights = self.weights();
            if self.queues.strict() {
                // All for the first, or for the family of the first.
                let base = self.queues.base(self.open[0]);
                for (weight, queue) in weights.iter_mut().zip(&self.open) {
                    *weight *= u64::from(self.queues.base(*queue) == base);
                }
            }
            let total: u64 = weights.iter().sum();
            for _ in 0..if total > 0 { slots } else { 0 } {
                let mut draw = fastrand::u64(0..total);
                let drawn = weights.iter().position(|weight| match draw.checked_sub(*weight) {
                    Some(rest) => {
                        draw = rest;
                        false
                    }
                    None => true,
                });
                shares[drawn.unwrap_or(0)] += 1;
            }
        }
        self.open.clone().into_iter().zip(shares).filter(|(_, share)| *share > 0)
    }

    /// What each queue weighs beside the others. A family weighs together what its base does.
    fn weights(&self) -> Vec<u64> {
        let Self { queues, open } = self;
        if !queues.joins() {
            return open.iter().map(|queue| u64::from(queues.weight(*queue))).collect();
        }
        let mut highest: HashMap<usize, u8> = HashMap::new();
        for queue in open {
            let highest = highest.entry(queues.base(*queue)).or_default();
            *highest = queues.priority(*queue).max(*highest);
        }
        let part = |queue: usize| match queues.priorities() {
            Some(Priorities::Strict) => u64::from(highest.get(&queues.base(queue)) == Some(&queues.priority(queue))),
            _ => 1 << queues.priority(queue),
        };
        let mut whole: HashMap<usize, u64> = HashMap::new();
        for queue in open {
            *whole.entry(queues.base(*queue)).or_default() += part(*queue);
        }
        // A weight has 32 bits, a part 10; so many more keep the product below 2^63.
        const SCALE: u64 = 1 << 20;
        let share = |queue: &usize| {
            let whole = whole.get(&queues.base(*queue)).map_or(1, |whole| *whole);
            u64::from(queues.weight(*queue)) * SCALE * part(*queue) / whole
        };
        open.iter().map(share).collect()
    }

    pub(super) fn name(&self, queue: usize) -> &Arc<str> {
        self.queues.name(queue)
    }

    /// A queue had less than it was asked for.
    pub(super) fn close(&mut self, queue: usize) {
        self.open.retain(|open| *open != queue);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::server::joins::Joins;
    use crate::server::queues::tests::{family, limited, queues};

    fn counts(shares: &[Share]) -> Vec<(usize, usize)> {
        shares.iter().map(|share| (share.queue, share.count)).collect()
    }

    fn new_round(queues: &Queues) -> Round<'_> {
        queues.round((0..queues.count()).collect())
    }

    #[test]
    fn shares_follow_the_weights_within_two_percent_over_100_000_tasks() {
        let queues = queues(&[("low", 1), ("default", 3), ("critical", 6)], false);
        let mut taken = [0_usize; 3];
        let mut total = 0;
        while total < 100_000 {
            for Share { queue, count, .. } in new_round(&queues).shares(50) {
                taken[queue] += count;
                total += count;
            }
        }
        for (queue, weight) in [(0, 0.6), (1, 0.3), (2, 0.1)] {
            let share = taken[queue] as f64 / total as f64;
            assert!((share - weight).abs() < 0.02, "{share} instead of {weight}");
        }
    }

    #[test]
    fn an_empty_queue_gives_its_slots_to_the_others() {
        let queues = queues(&[("a", 1_000), ("b", 1)], false);
        let mut round = new_round(&queues);
        round.close(0);
        assert_eq!(counts(&round.shares(10)), [(1, 10)]);
        round.close(1);
        assert!(round.shares(10).is_empty());
    }

    /// How many of so many slots each queue gets.
    fn taken(queues: &Queues, slots: usize) -> BTreeMap<String, usize> {
        let shares = new_round(queues).shares(slots);
        shares.into_iter().map(|share| (queues.name(share.queue).to_string(), share.count)).collect()
    }

    #[test]
    fn a_family_has_the_share_of_its_base_whatever_priorities_there_are() {
        let shares = taken(&family(false, Priorities::Weighted), 100_000);
        // 512, 32 and 1 of two thirds. A standard deviation of the largest is 154, of the smallest 11.
        for (queue, expected, deviation) in
            [("mail}p9", 62_630, 1_500), ("mail", 3_914, 600), ("mail}p0", 122, 110), ("news", 33_333, 1_500)]
        {
            assert!(shares[queue].abs_diff(expected) < deviation, "{queue}: {} for {expected}", shares[queue]);
        }
        let shares = taken(&family(false, Priorities::Strict), 100_000);
        assert_eq!(shares.keys().collect::<Vec<_>>(), ["mail}p9", "news"]);
        assert!(shares["news"].abs_diff(33_333) < 1_500);
        let shares = taken(&family(true, Priorities::Weighted), 10_000);
        assert!(!shares.contains_key("news") && shares["mail"] > 0, "{shares:?}");
        assert_eq!(taken(&family(true, Priorities::Strict), 10), BTreeMap::from([("mail}p9".to_owned(), 10)]));
    }

    #[test]
    fn what_is_for_this_server_comes_first_and_the_rest_is_not_kept_waiting() {
        let labels = ["gpu".to_owned(), "eu".to_owned()].into();
        let joins = Joins { name: Some("web-1".to_owned()), labels, ..Joins::default() };
        let weights = [("mail".to_owned(), 2), ("news".to_owned(), 1)];
        let queues = Queues::joining(&weights, false, &BTreeMap::new(), joins);
        assert!(queues.joins() && !Queues::new(&weights, false, &BTreeMap::new()).joins());
        let for_others = ["mail}p9", "mail}@web-2", "mail}#big", "mail}#big+gpu", "other}@web-1", "mail}x"];
        assert_eq!(queues.join(&for_others.map(str::to_owned)), (vec![], vec![], true));
        queues.join(&["mail}@web-1".to_owned()]);
        let shares = taken(&queues, 100_000);
        // 512 and 32 of two thirds. A standard deviation of the larger is 153.
        for (queue, expected) in [("mail}@web-1", 62_745), ("mail", 3_922), ("news", 33_333)] {
            assert!(shares[queue].abs_diff(expected) < 1_500, "{queue}: {} for {expected}", shares[queue]);
        }
        let labelled = ["mail}@web-1", "mail}#gpu", "mail}#eu+gpu", "news}#eu"].map(str::to_owned);
        assert_eq!(queues.join(&labelled).0.len(), 3);
    }

    #[test]
    fn weights_can_be_changed_and_taken_back() {
        let queues = queues(&[("a", 2), ("b", 1)], true);
        assert_eq!(counts(&new_round(&queues).shares(10)), [(0, 10)]);
        queues.weigh(&BTreeMap::from([("b".into(), 3)]));
        assert_eq!(counts(&new_round(&queues).shares(10)), [(1, 10)]);
        queues.weigh(&BTreeMap::from([("a".into(), 0)]));
        assert_eq!((queues.is_open(0), queues.is_open(1)), (false, true));
        queues.weigh(&BTreeMap::new());
        assert_eq!(queues.weights().map(|(_, weight)| weight).collect::<Vec<_>>(), [2, 1]);
        queues.hold(true);
        assert!(!queues.is_open(0));
    }

    #[test]
    fn queues_whose_weights_all_became_zero_are_asked_for_nothing() {
        let queues = queues(&[("a", 2), ("b", 1)], false);
        let mut round = new_round(&queues);
        queues.weigh(&BTreeMap::from([("a".into(), 0), ("b".into(), 0)]));
        assert!(round.shares(10).is_empty());
    }

    #[test]
    fn strict_priority_asks_the_heaviest_queue_for_everything() {
        let queues = queues(&[("low", 1), ("high", 2)], true);
        let mut round = new_round(&queues);
        assert_eq!(counts(&round.shares(10)), [(0, 10)]);
        assert_eq!(&**round.name(0), "high");
        round.close(0);
        let low = round.shares(10)[0].queue;
        assert_eq!(&**round.name(low), "low");
    }

    #[test]
    fn a_queue_at_its_limit_leaves_its_slots_to_the_others() {
        for strict in [false, true] {
            let queues = limited(&[("a", 1_000), ("b", 1)], strict, &[("a", 3)]);
            let mut round = new_round(&queues);
            let shares = round.shares(10);
            assert_eq!(counts(&shares), [(0, 3), (1, 7)], "strict: {strict}");
            assert_eq!((shares[0].places.len(), shares[1].places.len()), (3, 0));
            assert_eq!(counts(&new_round(&queues).shares(10)), [(1, 10)], "other takes are under way");
            assert!(!queues.has_room(0) && queues.has_room(1));
            drop(shares);
            assert!(queues.has_room(0), "what was not taken is given back");
        }
    }
}
