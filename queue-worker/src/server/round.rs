//! How free slots are shared out.

use std::collections::BTreeMap;
use std::sync::Arc;

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
            let mut weights = self.queues.shares_of(&self.open);
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

    pub(super) fn name(&self, queue: usize) -> &Arc<str> {
        self.queues.name(queue)
    }

    /// A queue had less than it was asked for.
    pub(super) fn close(&mut self, queue: usize) {
        self.open.retain(|open| *open != queue);
    }
}
