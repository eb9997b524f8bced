//! Which queue is tried next.

use std::collections::HashSet;
use std::sync::Arc;

/// The queues of a server with their weights, heaviest first.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<(Arc<str>, u32)>,
    strict: bool,
}

impl Queues {
    /// Queues without weight are left out, as in asynq; of a queue named twice the larger weight counts;
    /// without any queue, `default` is served.
    pub(super) fn new(queues: &[(String, u32)], strict: bool) -> Self {
        let mut queues: Vec<(Arc<str>, u32)> = queues
            .iter()
            .filter(|(_, weight)| *weight > 0)
            .map(|(name, weight)| (name.as_str().into(), *weight))
            .collect();
        if queues.is_empty() {
            queues.push((queue_core::keys::DEFAULT_QUEUE.into(), 1));
        }
        queues.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut seen = HashSet::new();
        queues.retain(|(name, _)| seen.insert(name.clone()));
        Self { queues, strict }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queues.iter().map(|(name, _)| name)
    }

    pub(super) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.queues.iter().map(|(name, weight)| (name, *weight))
    }

    pub(super) fn strict(&self) -> bool {
        self.strict
    }

    /// A round of takes for all queues.
    pub(super) fn round(&self) -> Round<'_> {
        Round { queues: self, open: (0..self.queues.len()).collect() }
    }
}

/// How free slots are shared out among queues that may have tasks. Each slot goes to a queue drawn by
/// weight, as each single take of asynq does; a queue that had less than its share is left out of the
/// rest of the round.
#[derive(Debug)]
pub(super) struct Round<'a> {
    queues: &'a Queues,
    open: Vec<usize>,
}

impl Round<'_> {
    /// The next takes: queues and how many tasks to ask each for. Empty when no queue is left.
    pub(super) fn shares(&self, slots: usize) -> Vec<(usize, usize)> {
        if self.queues.strict || self.open.len() <= 1 {
            return self.open.first().map(|queue| (*queue, slots)).into_iter().collect();
        }
        let weight = |queue: usize| u64::from(self.queues.queues[queue].1);
        let total: u64 = self.open.iter().map(|queue| weight(*queue)).sum();
        let mut shares = vec![0; self.open.len()];
        for _ in 0..slots {
            let mut draw = fastrand::u64(0..total);
            let drawn = self.open.iter().position(|queue| match draw.checked_sub(weight(*queue)) {
                Some(rest) => {
                    draw = rest;
                    false
                }
                None => true,
            });
            shares[drawn.unwrap_or(0)] += 1;
        }
        self.open.iter().copied().zip(shares).filter(|(_, share)| *share > 0).collect()
    }

    pub(super) fn name(&self, queue: usize) -> &Arc<str> {
        &self.queues.queues[queue].0
    }

    /// A queue had less than it was asked for.
    pub(super) fn close(&mut self, queue: usize) {
        self.open.retain(|open| *open != queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(weights: &[(&str, u32)], strict: bool) -> Queues {
        let weights: Vec<_> = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        Queues::new(&weights, strict)
    }

    #[test]
    fn shares_follow_the_weights_within_two_percent_over_100_000_tasks() {
        let queues = queues(&[("low", 1), ("default", 3), ("critical", 6)], false);
        let mut taken = [0_usize; 3];
        let mut total = 0;
        while total < 100_000 {
            for (queue, share) in queues.round().shares(50) {
                taken[queue] += share;
                total += share;
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
        let mut round = queues.round();
        round.close(0);
        assert_eq!(round.shares(10), [(1, 10)]);
        round.close(1);
        assert!(round.shares(10).is_empty());
    }

    #[test]
    fn strict_priority_asks_the_heaviest_queue_for_everything() {
        let queues = queues(&[("low", 1), ("high", 2)], true);
        let mut round = queues.round();
        assert_eq!(round.shares(10), [(0, 10)]);
        assert_eq!(&**round.name(0), "high");
        round.close(0);
        assert_eq!(&**round.name(round.shares(10)[0].0), "low");
    }

    #[test]
    fn a_queue_named_twice_is_served_once() {
        let queues = queues(&[("a", 5), ("b", 3), ("a", 1)], false);
        assert_eq!(queues.weights().map(|(name, weight)| (&**name, weight)).collect::<Vec<_>>(), [("a", 5), ("b", 3)]);
    }

    #[test]
    fn queues_without_weight_are_not_served() {
        assert_eq!(queues(&[("a", 0)], false).names().map(|name| &**name).collect::<Vec<_>>(), ["default"]);
    }
}
