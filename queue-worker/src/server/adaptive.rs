//! Moves the concurrency of a server between two bounds, by what its attempts take.
//!
//! All slots in hand and attempts as fast as usual: some more. Attempts much slower than usual, or told to go away: a
//! fifth fewer. Redis is not asked.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The fewest attempts that end between two decisions, so that chance does not decide: of twenty, the mean time may well
/// be half as much again. As many as there are slots, where that is more: what is seen has to have run at the
/// concurrency that is judged.
const FEWEST: usize = 100;
/// So much slower than usual, and there are too many at once.
const TOO_SLOW: f64 = 2.0;
/// Up to so much slower than usual, more may run.
const FAST_ENOUGH: f64 = 1.3;
/// Task types that are known at the same time; further ones count for all but their time.
const MOST_TYPES: usize = 200;

/// What a server with such bounds knows.
#[derive(Debug)]
pub(super) struct Adaptive {
    bounds: RangeInclusive<usize>,
    // A std mutex: held for a few instructions, once per attempt.
    seen: Mutex<Seen>,
}

/// What has ended since the last decision.
#[derive(Debug, Default)]
struct Seen {
    ends: usize,
    /// Attempts that ended while all slots, but for a tenth, were in hand.
    full: usize,
    /// Attempts that were told that it was too much, or ran out of time.
    refused: usize,
    types: HashMap<String, Type>,
    /// An operator's order counts, and nothing is decided.
    is_ordered: bool,
}

/// The attempts of one type that succeeded.
#[derive(Debug, Default)]
struct Type {
    count: usize,
    secs: f64,
    /// What one takes as a rule, in seconds, and where so many ran at once.
    usual: Option<(f64, usize)>,
}

/// How an attempt ended, as far as that tells of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Succeeded,
    /// It was told that it was too much, or ran out of time.
    Refused,
    /// It failed, and nobody knows whether that took as long as the work does.
    Other,
}

impl Adaptive {
    pub(super) fn new(bounds: RangeInclusive<usize>) -> Self {
        Self { bounds, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt has ended while so many tasks were in hand, itself among them.
    pub(super) fn ended(&self, task_type: &str, took: Duration, sign: Sign, in_hand: usize, slots: usize) {
        let mut seen = self.seen();
        seen.ends += 1;
        seen.full += usize::from(in_hand * 10 >= slots * 9);
        seen.refused += usize::from(sign == Sign::Refused);
        if sign != Sign::Succeeded {
            return;
        }
        if !seen.types.contains_key(task_type) {
            if seen.types.len() >= MOST_TYPES {
                return;
            }
            seen.types.insert(task_type.to_owned(), Type::default());
        }
        if let Some(one) = seen.types.get_mut(task_type) {
            one.count += 1;
            one.secs += took.as_secs_f64();
        }
    }

    /// How many tasks are to run at once, where so many do: by the order of an operator, if there is one.
    pub(super) fn heed(&self, order: Option<usize>, slots: usize) -> usize {
        self.seen().is_ordered = order.is_some();
        order.unwrap_or_else(|| slots.clamp(*self.bounds.start(), *self.bounds.end()))
    }

    /// Decides how many run from now on and has that done, if enough has ended since the last time.
    pub(super) fn decide(&self, slots: usize, resize: impl FnOnce(usize)) {
        let mut seen = self.seen();
        if seen.ends < FEWEST.max(slots) {
            return;
        }
        let next = seen.judge(slots).clamp(*self.bounds.start(), *self.bounds.end());
        // An order that comes now waits for the lock, and is the last to be done.
        if !seen.is_ordered {
            resize(next);
        }
    }
}

impl Seen {
    /// How many should run at once by what was seen, where so many did; forgets that.
    fn judge(&mut self, slots: usize) -> usize {
        let (mut took, mut usual) = (0.0, 0.0);
        for one in self.types.values_mut() {
            took += one.secs;
            usual += one.count as f64 * one.learn(slots);
        }
        if self.types.len() >= MOST_TYPES {
            // Others have their turn.
            self.types.clear();
        }
        let [ends, full, refused] = [&mut self.ends, &mut self.full, &mut self.refused].map(std::mem::take);
        let slower = if usual > 0.0 { took / usual } else { 1.0 };
        if refused * 20 > ends || slower > TOO_SLOW {
            slots - (slots / 5).max(1).min(slots)
        } else if full * 2 >= ends && slower < FAST_ENOUGH {
            slots + (slots / 20).max(1)
        } else {
            slots
        }
    }
}

impl Type {
    /// What one took as a rule until now, in seconds; learns from what was seen where so many ran at once.
    ///
    /// What is faster counts for a quarter. What is slower counts for a twentieth, and only if no more ran than when it
    /// was fast: else the slowness may be our own doing, and would become the rule step by step, up to the upper bound.
    fn learn(&mut self, slots: usize) -> f64 {
        let (count, secs) = (std::mem::take(&mut self.count), std::mem::take(&mut self.secs));
        if count == 0 {
            return 0.0;
        }
        let mean = secs / count as f64;
        let (usual, at) = *self.usual.get_or_insert((mean, slots));
        // Of a few that were of this type, little is learnt.
        let step = (mean - usual) * (count as f64 / FEWEST as f64).min(1.0);
        if mean <= usual {
            self.usual = Some((usual + step / 4.0, slots));
        } else if slots <= at {
            self.usual = Some((usual + step / 20.0, at));
        }
        usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A server whose attempts take what `work` says for so many at once. All slots are in hand, as long as there are
    /// no more than `waiting` tasks.
    struct Fleet {
        adaptive: Adaptive,
        slots: usize,
        waiting: usize,
        random: u64,
    }

    impl Fleet {
        fn new(bounds: RangeInclusive<usize>) -> Self {
            let slots = *bounds.start();
            Self { adaptive: Adaptive::new(bounds), slots, waiting: usize::MAX, random: 42 }
        }

        /// Any length, 1 on average.
        fn exponential(&mut self) -> f64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            -(((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln()
        }

        fn ended(&self, took: Duration, sign: Sign) {
            self.adaptive.ended("job", took, sign, self.slots.min(self.waiting), self.slots);
        }

        fn decide(&mut self) {
            let mut next = self.slots;
            self.adaptive.decide(self.slots, |slots| next = slots);
            self.slots = next;
        }

        /// So many decisions, with attempts of this length, as it is for so many slots.
        fn run(&mut self, decisions: usize, mut work: impl FnMut(&mut Self, usize) -> Duration) -> Vec<usize> {
            let mut slots = Vec::new();
            for _ in 0..decisions {
                let running = self.slots.min(self.waiting);
                for _ in 0..FEWEST.max(self.slots) {
                    let took = work(self, running);
                    self.ended(took, Sign::Succeeded);
                }
                self.decide();
                slots.push(self.slots);
            }
            slots
        }
    }

    #[test]
    fn it_grows_while_all_slots_are_in_hand_and_no_further_than_it_may() {
        let mut fleet = Fleet::new(2..=30);
        let grown = fleet.run(40, |_, _| 10 * MS);
        assert_eq!((&grown[..3], grown[39]), (&[3, 4, 5][..], 30));
        // What is not needed is not taken back: it costs nothing.
        let mut fleet = Fleet::new(2..=30);
        fleet.waiting = 6;
        assert_eq!(fleet.run(40, |_, _| 10 * MS)[39], 7, "six are never 90 % of seven");
    }

    /// Eight places, for which the attempts queue up: a database, or the CPUs.
    #[test]
    fn it_stops_growing_where_attempts_become_slower() {
        let queued = |slots: usize| (10 * MS).mul_f64(slots.max(8) as f64 / 8.0);
        let mut fleet = Fleet::new(1..=200);
        let slots = fleet.run(1_000, |_, slots| queued(slots));
        assert!(slots[20..].iter().all(|slots| *slots == 11), "{slots:?}");
        let mut fleet = Fleet::new(1..=200);
        let slots = fleet.run(1_000, |fleet, slots| queued(slots).mul_f64(fleet.exponential()));
        assert!(slots[100..].iter().all(|slots| (8..=20).contains(slots)), "{slots:?}");
    }

    #[test]
    fn attempts_of_very_different_lengths_are_not_mistaken_for_slow_ones() {
        let mut fleet = Fleet::new(4..=100);
        let slots = fleet.run(200, |fleet, _| (100 * MS).mul_f64(fleet.exponential()));
        assert_eq!(slots[199], 100, "{slots:?}");
    }

    #[test]
    fn what_becomes_slow_costs_a_fifth_each_time_and_comes_back_when_it_is_fast_again() {
        let mut fleet = Fleet::new(4..=50);
        assert_eq!(fleet.run(60, |_, _| 10 * MS)[59], 50);
        assert_eq!(fleet.run(3, |_, _| 100 * MS), [40, 32, 26]);
        assert!(fleet.run(30, |_, _| 100 * MS).into_iter().all(|slots| slots >= 4), "not below what it may");
        assert!(fleet.slots < 15, "{}", fleet.slots);
        assert_eq!(fleet.run(60, |_, _| 10 * MS)[59], 50);
    }

    #[test]
    fn what_is_refused_or_runs_out_of_time_makes_it_less_and_an_error_does_not() {
        for (sign, refused, expected) in
            [(Sign::Refused, 6, 16), (Sign::Refused, 5, 21), (Sign::Other, 100, 21), (Sign::Succeeded, 100, 21)]
        {
            let mut fleet = Fleet::new(20..=100);
            fleet.adaptive = Adaptive::new(1..=100);
            (0..refused).for_each(|_| fleet.ended(MS, sign));
            (refused..100).for_each(|_| fleet.ended(10 * MS, Sign::Succeeded));
            fleet.decide();
            assert_eq!(fleet.slots, expected, "{refused} of 100 {sign:?}");
        }
    }

    #[test]
    fn another_mix_of_types_is_not_slower_work() {
        let adaptive = Adaptive::new(1..=100);
        let mut slots = 10;
        for long in [5, 95, 25, 75] {
            let types = (0..100).map(|n| if n < long { ("long", 1_000 * MS) } else { ("short", MS) });
            types.for_each(|(kind, took)| adaptive.ended(kind, took, Sign::Succeeded, 10, 10));
            adaptive.decide(10, |next| slots = next);
            assert_eq!(slots, 11, "{long} long ones");
        }
    }

    #[test]
    fn too_little_is_no_reason_and_an_order_counts() {
        let mut fleet = Fleet::new(130..=300);
        (0..129).for_each(|_| fleet.ended(MS, Sign::Succeeded));
        fleet.decide();
        assert_eq!(fleet.slots, 130, "not each slot has had an attempt");
        fleet.ended(MS, Sign::Succeeded);
        fleet.decide();
        assert_eq!(fleet.slots, 136);
        assert_eq!((fleet.adaptive.heed(Some(7), 136), fleet.run(5, |_, _| MS)[4]), (7, 136));
        assert_eq!(fleet.adaptive.heed(None, 7), 130, "it goes on within its bounds");
        assert_eq!(fleet.run(1, |_, _| MS), [142]);
    }

    #[test]
    fn any_number_of_types_takes_bounded_memory() {
        let adaptive = Adaptive::new(1..=100);
        for n in 0..10 * MOST_TYPES {
            adaptive.ended(&n.to_string(), MS, Sign::Succeeded, 10, 10);
            assert!(adaptive.seen().types.len() <= MOST_TYPES);
        }
        adaptive.decide(10, |next| assert_eq!(next, 11));
        assert!(adaptive.seen().types.is_empty());
    }
}
