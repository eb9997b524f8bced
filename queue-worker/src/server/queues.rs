//! Which queue is tried next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::limit::{Limit, Place};

/// The queues of a server with their weights, heaviest first.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Served>,
    numbers: HashMap<Arc<str>, usize>,
    /// Of those of the queues that have one, in the same order; empty when none has.
    limits: Vec<Option<Arc<Limit>>>,
    strict: bool,
    /// Whether nothing is taken from any of them, until somebody says otherwise.
    held: AtomicBool,
    /// Signals when a queue has room again that had none when it was asked.
    pub(super) room: Arc<Notify>,
}

#[derive(Debug)]
struct Served {
    name: Arc<str>,
    /// As the server was configured.
    configured: u32,
    /// As it is now; nothing is taken from a queue of weight 0.
    weight: AtomicU32,
}

impl Queues {
    /// Queues without weight are left out, as in asynq; of a queue named twice the larger weight counts;
    /// without any queue, `default` is served.
    pub(super) fn new(queues: &[(String, u32)], strict: bool, most: &BTreeMap<String, usize>) -> Self {
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
        let numbers = queues.iter().enumerate().map(|(number, (name, _))| (name.clone(), number)).collect();
        let room = Arc::new(Notify::new());
        let limit = |name: &Arc<str>| most.get(&**name).map(|most| Limit::new(*most, room.clone()));
        let served = |(name, weight)| Served { name, configured: weight, weight: AtomicU32::new(weight) };
        let limits = if most.is_empty() { Vec::new() } else { queues.iter().map(|(name, _)| limit(name)).collect() };
        let queues = queues.into_iter().map(served).collect();
        Self { queues, numbers, limits, strict, held: AtomicBool::new(false), room }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queues.iter().map(|served| &served.name)
    }

    /// Gives queues other weights, and all that are not named those that they were configured with.
    pub(super) fn weigh(&self, weights: &BTreeMap<Arc<str>, u32>) {
        for served in &self.queues {
            let weight = weights.get(&served.name).copied().unwrap_or(served.configured);
            served.weight.store(weight, Ordering::Relaxed);
        }
    }

    /// Whether nothing is to be taken from any of them.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    pub(super) fn are_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Whether tasks are to be taken from a queue.
    pub(super) fn is_open(&self, queue: usize) -> bool {
        self.weight(queue) > 0 && !self.are_held()
    }

    fn weight(&self, queue: usize) -> u32 {
        self.queues[queue].weight.load(Ordering::Relaxed)
    }

    fn limit(&self, queue: usize) -> Option<&Arc<Limit>> {
        self.limits.get(queue)?.as_ref()
    }

    /// Whether a task may be taken from a queue. If not, [`room`](Self::room) tells when one may again.
    pub(super) fn has_room(&self, queue: usize) -> bool {
        self.limit(queue).is_none_or(Limit::has_room)
    }

    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// How often is asked again although Redis tells about changes, a net below the net: with many queues so seldom that
    /// their nine keys take one command for a thousand queues every 15 s.
    pub(super) fn safety_interval(&self) -> Duration {
        const FEW: usize = 100;
        Duration::from_secs(if self.count() > FEW { 9 * 15 } else { 15 })
    }

    /// A queue is known by its place among the names.
    pub(super) fn name(&self, number: usize) -> &Arc<str> {
        &self.queues[number].name
    }

    /// `None` where the queue is not served.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    pub(super) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.queues.iter().map(|served| (&served.name, served.weight.load(Ordering::Relaxed)))
    }

    pub(super) fn strict(&self) -> bool {
        self.strict
    }

    /// A place for a task of this queue, where it has a limit; none where there is no room.
    pub(super) fn place(&self, name: &str) -> Option<Vec<Place>> {
        let limit = self.number(name).and_then(|queue| self.limit(queue));
        let places = limit.map(|limit| limit.take(1)).unwrap_or_default();
        (limit.is_none() || !places.is_empty()).then_some(places)
    }

    /// A round of takes from these queues, the heaviest first.
    pub(super) fn round(&self, mut open: Vec<usize>) -> Round<'_> {
        if self.strict {
            // Weights can be changed.
            open.sort_by_key(|queue| std::cmp::Reverse(self.weight(*queue)));
        }
        Round { queues: self, open }
    }
}

/// How free slots are shared out among queues that may have tasks. Each slot goes to a queue drawn by
/// weight, as each single take of asynq does; a queue that had less than its share, or that has no room for it, is left
/// out of the rest of the round.
#[derive(Debug)]
pub(super) struct Round<'a> {
    queues: &'a Queues,
    open: Vec<usize>,
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
        if self.queues.limits.is_empty() {
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
        if self.queues.strict || shares.len() <= 1 {
            if let Some(first) = shares.first_mut() {
                *first = slots;
            }
        } else {
            // Read once: somebody may change them meanwhile.
            let weights: Vec<u64> = self.open.iter().map(|queue| u64::from(self.queues.weight(*queue))).collect();
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
    use super::*;

    fn queues(weights: &[(&str, u32)], strict: bool) -> Queues {
        limited(weights, strict, &[])
    }

    fn limited(weights: &[(&str, u32)], strict: bool, limits: &[(&str, usize)]) -> Queues {
        let weights: Vec<_> = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        let limits = limits.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect();
        Queues::new(&weights, strict, &limits)
    }

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
