//! Finds the tasks of our types among those that we leave to others, without looking at any of these twice.
//!
//! New tasks come in at the young end of the list of pending tasks, those that are put back at the old end, where others
//! take theirs too; and anybody may take some out of the middle. So there are no lasting positions, but a task that was
//! looked at and is none of ours never becomes one. A look reads the ids at both ends, and asks only about those that it
//! has not left there before. That is enough while few came in since the last look: then it knows most of the young end.
//! Otherwise, and at first, it passes through the list from the old end to the young one, a piece in each look, and finds
//! its place again, when positions have shifted, by the ids of the piece before.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use bytes::Bytes;
use queue_redis::broker::{IdRange, MAX_BATCH, Matched, Waiting};

/// How many ids a look reads at each end, and how many more a pass goes on.
const WINDOW: usize = MAX_BATCH;
/// How many ids of the piece before a piece begins with.
const OVERLAP: usize = WINDOW / 2;
/// How seldom the whole list is passed through again, for each task in it.
const PASS_FOR_EACH: Duration = Duration::from_millis(1);
/// How many neighbours show whether a place is the right one.
const NEIGHBOURS: usize = 8;
/// A pass that has further to go than this does not keep the young end waiting.
const FAR: usize = 10 * WINDOW;

/// Ids that a take looks at, and whether they are near the young end.
pub(super) type Among = (Vec<Bytes>, bool);

/// Ids, as their hashes: hundreds for each queue.
type Marks = HashSet<u64>;

/// What is known of the pending tasks of a queue.
#[derive(Debug, Default)]
pub(super) struct Survey {
    hasher: RandomState,
    /// Tasks of others at the young end, at the old end, and in the last piece of the pass.
    young: Marks,
    old: Marks,
    passed: Marks,
    /// Those that were found to be such since.
    left: Marks,
    /// How many tasks there were when the young end was known last.
    count: usize,
    pass: Option<Pass>,
    /// How far from the old end the next pass has to go: more were put back there than a look reads.
    owed: usize,
    begun: bool,
    doubted: bool,
    /// The old end was not known any more at some look: most likely others have taken much there, but as much may have been
    /// put back behind that.
    has_moved: bool,
    /// When a pass for that may begin.
    not_before: Option<Instant>,
    /// What the look that is under way reads.
    piece: Option<Piece>,
    /// What it has to ask about.
    open: VecDeque<Among>,
    /// What will be known when that is done.
    then: Option<Then>,
}

/// A way through the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    /// How many tasks at the old end are behind it.
    behind: usize,
    /// How many it goes through; `None` for all.
    end: Option<usize>,
}

/// A part of the list, counted from the old end.
#[derive(Debug, Clone, Copy)]
struct Piece {
    from: usize,
    length: usize,
}

#[derive(Debug)]
struct Then {
    /// What is at the ends; `None` where the young end was not asked about.
    young: Option<Vec<u64>>,
    old: Vec<u64>,
    passed: Option<Vec<u64>>,
    count: usize,
    pass: Option<Pass>,
    owed: usize,
}

impl Survey {
    /// What a look has to read.
    pub(super) fn ranges(&mut self) -> Vec<IdRange> {
        if !std::mem::replace(&mut self.begun, true) {
            self.pass = Some(Pass { behind: 0, end: None });
        }
        let signed = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.piece = self.pass.map(|pass| {
            let from = pass.behind.saturating_sub(OVERLAP);
            Piece { from, length: pass.behind + WINDOW - from }
        });
        let mut ranges = vec![(0, signed(WINDOW) - 1), (-signed(WINDOW), -1)];
        ranges.extend(self.piece.map(|piece| (-signed(piece.from + piece.length), -signed(piece.from) - 1)));
        ranges
    }

    /// Has the next look ask again about what was left at the ends: a net below the net.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.doubted = true;
        if self.has_moved && self.pass.is_none() && self.not_before.is_none_or(|at| at <= now) {
            self.has_moved = false;
            self.passed.clear();
            self.pass = Some(Pass { behind: 0, end: None });
            let count = u32::try_from(self.count).unwrap_or(u32::MAX);
            self.not_before = now.checked_add(PASS_FOR_EACH.saturating_mul(count));
        }
    }

    fn mark(&self, id: &Bytes) -> u64 {
        self.hasher.hash_one(&id[..])
    }

    fn marks(&self, ids: &[Bytes]) -> Vec<u64> {
        ids.iter().map(|id| self.mark(id)).collect()
    }

    fn is_known(&self, mark: u64) -> bool {
        [&self.young, &self.old, &self.passed, &self.left].iter().any(|marks| marks.contains(&mark))
    }

    /// Where in a piece, youngest first, those begin that the pass has behind it. One of them alone may have been taken
    /// and come in again.
    fn place(&self, piece: &[u64]) -> Option<usize> {
        let is_passed = |mark: &u64| self.passed.contains(mark);
        (0..piece.len()).find(|place| {
            let here = &piece[*place..piece.len().min(place + NEIGHBOURS)];
            is_passed(&here[0]) && 2 * here.iter().filter(|mark| is_passed(mark)).count() >= here.len()
        })
    }

    /// Goes by what a look has read.
    pub(super) fn see(&mut self, waiting: Waiting) {
        let Waiting { count, is_paused, ids } = waiting;
        let mut ids = ids.into_iter();
        let (young, old) = (ids.next().unwrap_or_default(), ids.next().unwrap_or_default());
        let piece = self.piece.take().zip(ids.next());
        let doubted = std::mem::take(&mut self.doubted);
        self.open.clear();
        self.then = None;
        if is_paused {
            return;
        }
        let (young_marks, old_marks) = (self.marks(&young), self.marks(&old));
        if young.len() < WINDOW {
            // That is all there is.
            if doubted {
                self.young.clear();
                self.old.clear();
                self.passed.clear();
            }
            self.ask_about(&young, false);
            self.then =
                Some(Then { young: Some(young_marks), old: old_marks, passed: None, count, pass: None, owed: 0 });
            self.go_on();
            return;
        }
        self.has_moved |=
            !self.old.is_empty() && 2 * old_marks.iter().filter(|mark| self.old.contains(mark)).count() < WINDOW;
        let known = young_marks.iter().filter(|mark| self.young.contains(mark)).count();
        // Then the number of tasks tells how many were put back.
        let is_counted = 2 * known >= WINDOW;
        let mut is_young_end_near = is_counted;
        let (mut pass, mut owed) = (self.pass, self.owed);
        if is_counted {
            let new = young_marks.iter().filter(|mark| !self.is_known(**mark)).count();
            let requeued = count.saturating_sub(self.count + new);
            if requeued > WINDOW {
                // What a pass goes through at the old end lies behind these now.
                owed = owed.max(pass.and_then(|pass| pass.end).unwrap_or(0)) + requeued;
            }
        }
        if pass.is_none() {
            if !is_young_end_near {
                // Everything up to the former young end was looked at; from there on it is new.
                self.passed = self.young.clone();
                pass = Some(Pass { behind: if self.passed.is_empty() { 0 } else { self.count }, end: None });
            } else if owed > 0 {
                pass = Some(Pass { behind: 0, end: Some(std::mem::take(&mut owed)) });
            }
        }
        if doubted {
            self.young.clear();
            self.old.clear();
        }
        self.ask_about(&old, false);
        let mut passed = None;
        if let (Some(Pass { behind, end }), Some((piece, ids))) = (pass, piece) {
            let marks = self.marks(&ids);
            let place = self.place(&marks);
            if !is_counted && behind > 0 && place == Some(0) && ids.len() == piece.length {
                // All of it was passed: so many were put back that the look at the old end may not reach the last of them.
                pass = Some(Pass { behind: 0, end });
            } else if behind == 0 || place.is_some() {
                let fresh = if behind == 0 { ids.len() } else { place.unwrap_or(0) };
                self.ask_about(&ids[..fresh], 2 * behind > count);
                let behind = piece.from + ids.len();
                let is_over = ids.len() < piece.length || end.is_some_and(|end| behind >= end);
                is_young_end_near |= is_over && end.is_none();
                is_young_end_near |= end.is_none() && count > behind + FAR;
                passed = Some(marks);
                pass = Some(Pass { behind, end }).filter(|_| !is_over);
            } else {
                // So many were taken at the old end. What is looked for is nearer to it.
                pass = Some(Pass { behind: behind.min(count).saturating_sub(WINDOW), end });
            }
        }
        if is_young_end_near {
            self.ask_about(&young, true);
        }
        let young = Some(young_marks).filter(|_| is_young_end_near);
        self.then = Some(Then { young, old: old_marks, passed, count, pass, owed });
        self.go_on();
    }

    /// Asks about those of these ids, youngest first, that are not known; of each once.
    fn ask_about(&mut self, ids: &[Bytes], are_young: bool) {
        let asked: HashSet<Bytes> = self.open.iter().flat_map(|(ids, _)| ids.iter().cloned()).collect();
        let unknown = |id: &&Bytes| !asked.contains(*id) && !self.is_known(self.mark(id));
        let unknown: Vec<Bytes> = ids.iter().rev().filter(unknown).cloned().collect();
        for ids in unknown.chunks(WINDOW) {
            self.open.push_back((ids.to_vec(), are_young));
        }
    }

    /// The ids to ask about next, oldest first, and whether they are near the young end.
    pub(super) fn next(&self) -> Option<&Among> {
        self.open.front()
    }

    /// What became of the first of these ids.
    pub(super) fn answered(&mut self, verdicts: &[Matched]) {
        let Some((mut ids, are_young)) = self.open.pop_front() else { return };
        let mut taken = 0;
        let rest = ids.split_off(verdicts.len().min(ids.len()));
        for (id, verdict) in ids.iter().zip(verdicts) {
            match verdict {
                Matched::Left => drop(self.left.insert(self.mark(id))),
                Matched::Taken => taken += 1,
                Matched::Gone => {}
            }
        }
        // The look may never come to its end.
        self.count = self.count.saturating_sub(taken);
        if let Some(then) = &mut self.then {
            then.count = then.count.saturating_sub(taken);
            // At the young end none of those that are behind was taken.
            if let Some(pass) = then.pass.as_mut().filter(|_| !are_young) {
                pass.behind = pass.behind.saturating_sub(taken);
            }
        }
        if !rest.is_empty() {
            self.open.push_front((rest, are_young));
        }
        self.go_on();
    }

    /// When all is answered, that is what is known.
    fn go_on(&mut self) {
        if !self.open.is_empty() {
            return;
        }
        let Some(then) = self.then.take() else { return };
        let known = |marks: Vec<u64>| marks.into_iter().filter(|mark| self.is_known(*mark)).collect::<Marks>();
        let young = then.young.map(known);
        let (old, passed) = (known(then.old), then.passed.map(known));
        (self.pass, self.owed) = (then.pass, then.owed);
        if let Some(young) = young {
            (self.young, self.count) = (young, then.count);
        }
        self.old = old;
        self.left.clear();
        match passed {
            Some(passed) => self.passed = passed,
            None if self.pass.is_none() => self.passed.clear(),
            None => {}
        }
    }

    /// Whether the next look goes on with a pass.
    pub(super) fn is_under_way(&self) -> bool {
        self.pass.is_some() || self.owed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of pending tasks, the youngest first, of which those that begin with `o` are ours.
    #[derive(Default)]
    struct List {
        ids: VecDeque<String>,
        next: usize,
        /// Tasks that the survey asked about.
        asked: usize,
        looks: usize,
    }

    impl List {
        fn new_id(&mut self, is_ours: bool) -> String {
            self.next += 1;
            format!("{}{}", if is_ours { "o" } else { "f" }, self.next)
        }

        fn push(&mut self, is_ours: bool) {
            let id = self.new_id(is_ours);
            self.ids.push_front(id);
        }

        fn requeue(&mut self, is_ours: bool) {
            let id = self.new_id(is_ours);
            self.ids.push_back(id);
        }

        fn ours(&self) -> usize {
            self.ids.iter().filter(|id| id.starts_with('o')).count()
        }

        fn range(&self, (from, to): IdRange) -> Vec<Bytes> {
            let size = self.ids.len() as i64;
            let at = |index: i64| if index < 0 { index + size } else { index };
            let (from, to) = (at(from).max(0), at(to).min(size - 1));
            (from..=to).map(|at| Bytes::from(self.ids[at as usize].clone())).collect()
        }

        fn look(&mut self, survey: &mut Survey) {
            self.looks += 1;
            let ranges = survey.ranges();
            let ids = ranges.into_iter().map(|range| self.range(range)).collect();
            survey.see(Waiting { count: self.ids.len(), is_paused: false, ids });
        }

        /// Takes up to so many of those that the last look has found, and says how many.
        fn take(&mut self, survey: &mut Survey, most: usize) -> usize {
            let mut taken = 0;
            while let Some((ids, _)) = survey.next().cloned() {
                let mut verdicts = Vec::new();
                for id in &ids {
                    if taken == most {
                        break;
                    }
                    self.asked += 1;
                    let id = std::str::from_utf8(id).unwrap();
                    let place = self.ids.iter().position(|other| other == id);
                    verdicts.push(match place {
                        None => Matched::Gone,
                        Some(place) if id.starts_with('o') => {
                            self.ids.remove(place);
                            taken += 1;
                            Matched::Taken
                        }
                        Some(_) => Matched::Left,
                    });
                }
                survey.answered(&verdicts);
                if taken == most {
                    break;
                }
            }
            taken
        }

        /// Looks and takes until nothing is under way.
        fn settle(&mut self, survey: &mut Survey) {
            loop {
                self.look(survey);
                if self.take(survey, usize::MAX) == 0 && !survey.is_under_way() {
                    return;
                }
            }
        }
    }

    fn list_of_others(count: usize) -> List {
        let mut list = List::default();
        (0..count).for_each(|_| list.push(false));
        list
    }

    #[test]
    fn a_pass_asks_about_each_task_once_and_a_new_one_costs_one_question() {
        let (mut list, mut survey) = (list_of_others(10_000), Survey::default());
        list.settle(&mut survey);
        assert!((10_000..10_400).contains(&list.asked), "{}", list.asked);
        (list.asked, list.looks) = (0, 0);
        for _ in 0..1_000 {
            list.push(false);
            list.look(&mut survey);
            list.take(&mut survey, 1);
        }
        assert_eq!((list.asked, list.looks), (1_000, 1_000));
    }

    #[test]
    fn a_task_that_others_take_at_the_old_end_costs_one_question() {
        let (mut list, mut survey) = (list_of_others(10_000), Survey::default());
        list.settle(&mut survey);
        list.asked = 0;
        for _ in 0..1_000 {
            list.ids.pop_back();
            list.look(&mut survey);
            list.take(&mut survey, 1);
        }
        assert!(list.asked <= 1_000, "{}", list.asked);
        assert!(!survey.is_under_way());
    }

    #[test]
    fn handled_tasks_are_taken_in_their_order_although_slots_are_few() {
        let (mut list, mut survey) = (List::default(), Survey::default());
        (0..2_000).for_each(|n| list.push(n % 3 == 0));
        let expected: Vec<String> = list.ids.iter().rev().filter(|id| id.starts_with('o')).cloned().collect();
        let mut order = Vec::new();
        while list.ours() > 0 {
            let before: Vec<String> = list.ids.iter().cloned().collect();
            if survey.next().is_none() {
                list.look(&mut survey);
            }
            // Of those at the young end, which do not wait for a long pass, none is taken here: there is one slot.
            list.take(&mut survey, 1);
            order.extend(before.into_iter().filter(|id| !list.ids.contains(id)));
        }
        let inversions = order.windows(2).filter(|pair| {
            expected.iter().position(|id| *id == pair[0]) > expected.iter().position(|id| *id == pair[1])
        });
        assert!(inversions.count() <= 5, "{order:?}");
    }

    #[test]
    fn a_burst_is_passed_through_from_where_the_young_end_was() {
        let (mut list, mut survey) = (list_of_others(10_000), Survey::default());
        list.settle(&mut survey);
        (list.asked, list.looks) = (0, 0);
        (0..1_000).for_each(|n| list.push(n == 500));
        // Others have taken some meanwhile.
        (0..300).for_each(|_| drop(list.ids.pop_back()));
        list.settle(&mut survey);
        assert_eq!(list.ours(), 0);
        assert!(list.asked < 1_600, "{}", list.asked);
    }

    #[test]
    fn survey_finds_a_requeued_task_behind_other_requeued_ones() {
        let (mut list, mut survey) = (list_of_others(10_000), Survey::default());
        list.settle(&mut survey);
        list.requeue(true);
        (0..1_000).for_each(|_| list.requeue(false));
        list.settle(&mut survey);
        assert_eq!(list.ours(), 0);
    }

    #[test]
    fn tasks_put_back_while_a_pass_is_under_way_are_passed_through_too() {
        for (looks, is_first) in (0..6).flat_map(|looks| [(looks, true), (looks, false)]) {
            let (mut list, mut survey) = (list_of_others(300), Survey::default());
            if !is_first {
                list.settle(&mut survey);
            }
            for _ in 0..2 {
                list.requeue(true);
                (0..WINDOW + 20).for_each(|_| list.requeue(false));
                for _ in 0..looks {
                    list.look(&mut survey);
                    list.take(&mut survey, 1);
                }
            }
            list.settle(&mut survey);
            assert_eq!(list.ours(), 0, "after {looks} looks, in the first pass: {is_first}");
        }
    }

    #[test]
    fn tasks_put_back_are_counted_although_the_look_before_did_not_end() {
        let (mut list, mut survey) = (list_of_others(300), Survey::default());
        list.settle(&mut survey);
        (0..60).for_each(|_| list.requeue(true));
        (0..200).for_each(|_| list.requeue(false));
        for _ in 0..3 {
            list.look(&mut survey);
            assert_eq!(list.take(&mut survey, 60), 0);
        }
        // What is asked about at the young end is not answered any more.
        list.push(false);
        list.look(&mut survey);
        assert_eq!(list.take(&mut survey, 60), 60);
        assert!(survey.next().is_some());
        list.requeue(true);
        (0..WINDOW + 20).for_each(|_| list.requeue(false));
        list.settle(&mut survey);
        assert_eq!(list.ours(), 0);
    }

    #[test]
    fn a_handled_task_that_comes_back_is_taken_again() {
        let (mut list, mut survey) = (list_of_others(500), Survey::default());
        list.push(true);
        list.settle(&mut survey);
        let id = format!("o{}", list.next);
        for from_tail in [true, false] {
            if from_tail {
                list.ids.push_back(id.clone())
            } else {
                list.ids.push_front(id.clone())
            }
            list.settle(&mut survey);
            assert_eq!(list.ours(), 0);
        }
    }

    /// Whatever happens between looks, ours are found when it is quiet; and the questions stay few.
    #[test]
    fn handled_tasks_are_found_whatever_others_do_meanwhile() {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut list, mut survey) = (list_of_others(random.usize(..3_000)), Survey::default());
            let mut changes = list.ids.len();
            for _ in 0..random.usize(..200) {
                let what = random.u8(..6);
                // What is put back and taken away in masses between two looks takes the net to be found.
                let is_mass = random.u8(..20) == 0 && (what < 3 || seed % 2 == 1);
                let many = random.usize(..if is_mass { 400 } else { 4 });
                changes += many;
                match what {
                    0 => (0..many).for_each(|_| list.push(true)),
                    1 | 2 => (0..many).for_each(|_| list.push(false)),
                    3 => (0..many).for_each(|_| list.requeue(random.bool())),
                    4 => (0..many).for_each(|_| drop(list.ids.pop_back())),
                    _ => {
                        for _ in 0..many.min(list.ids.len()) {
                            let place = random.usize(..list.ids.len());
                            list.ids.remove(place);
                        }
                    }
                }
                if random.bool() {
                    list.look(&mut survey);
                    list.take(&mut survey, random.usize(..5));
                }
            }
            list.settle(&mut survey);
            if seed % 2 == 1 {
                survey.doubt(Instant::now() + Duration::from_secs(1_000));
                list.settle(&mut survey);
                changes += list.ids.len();
            }
            assert_eq!(list.ours(), 0, "seed {seed}");
            assert!(list.asked < 5 * changes + 2_000, "seed {seed}: {} questions for {changes} changes", list.asked);
        }
    }
}
