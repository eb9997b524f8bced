//! Which queue is tried next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use queue_core::limits::{MAX_JOINED, MIDDLE_PRIORITY};
use queue_core::options::check_existing_queue_name;
use queue_core::queue_name::base_of;
use tokio::sync::Notify;

use super::joins::{Joins, Member, Priorities};
use super::limit::{Limit, Place};
use super::round::Round;
use crate::work::of_pattern;

/// The queues of a server with their weights, heaviest first; behind them those that it has joined since.
#[derive(Debug)]
pub(super) struct Queues {
    /// The first `count` are set. Boxed, because most servers need few of them.
    queues: Box<[OnceLock<Box<Served>>]>,
    count: AtomicUsize,
    numbers: RwLock<HashMap<Arc<str>, usize>>,
    /// Who adds, one at a time.
    adding: Mutex<()>,
    /// So many are those that it was started for.
    started: usize,
    /// How many tasks of a queue, or of each queue that fits a pattern, may be in hand at once.
    most: BTreeMap<String, usize>,
    strict: bool,
    joins: Joins,
    /// Whether nothing is taken from any of them, until somebody says otherwise.
    held: AtomicBool,
    /// Signals when a queue has room again that had none when it was asked.
    pub(super) room: Arc<Notify>,
}

#[derive(Debug)]
struct Served {
    name: Arc<str>,
    /// The number of the queue whose family it belongs to: by that queue's weight it is served, and within its limit.
    base: usize,
    priority: u8,
    /// As the server was configured.
    configured: u32,
    /// As it is now; nothing is taken from a queue of weight 0.
    weight: AtomicU32,
    /// Whether the queue was there when it was looked last.
    is_there: AtomicBool,
    limit: Option<Arc<Limit>>,
}

impl Queues {
    /// Queues without weight are left out, as in asynq; of a queue named twice the larger weight counts;
    /// without any queue or pattern, `default` is served.
    pub(super) fn new(queues: &[(String, u32)], strict: bool, most: &BTreeMap<String, usize>) -> Self {
        Self::joining(queues, strict, most, Joins::default())
    }

    /// The same, of a server that joins others.
    pub(super) fn joining(
        queues: &[(String, u32)],
        strict: bool,
        most: &BTreeMap<String, usize>,
        joins: Joins,
    ) -> Self {
        let mut queues: Vec<(Arc<str>, u32)> = queues
            .iter()
            .filter(|(_, weight)| *weight > 0)
            .map(|(name, weight)| (name.as_str().into(), *weight))
            .collect();
        if queues.is_empty() && joins.patterns.is_empty() {
            queues.push((queue_core::keys::DEFAULT_QUEUE.into(), 1));
        }
        queues.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut seen = HashSet::new();
        queues.retain(|(name, _)| seen.insert(name.clone()));
        let space = queues.len() + MAX_JOINED;
        let all = Self {
            queues: (0..space).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
            numbers: RwLock::default(),
            adding: Mutex::default(),
            started: queues.len(),
            most: most.clone(),
            strict,
            joins,
            held: AtomicBool::new(false),
            room: Arc::new(Notify::new()),
        };
        for (name, weight) in queues {
            all.add_base(name, weight);
        }
        all
    }

    /// Only one at a time may add. Without space nothing is added.
    fn add(&self, served: Served) -> Option<usize> {
        let (number, name) = (self.count(), served.name.clone());
        self.queues.get(number)?.set(Box::new(served)).ok()?;
        self.numbers.write().unwrap_or_else(PoisonError::into_inner).insert(name, number);
        self.count.store(number + 1, Ordering::Release);
        Some(number)
    }

    /// Adds a queue that belongs to no family of another.
    fn add_base(&self, name: Arc<str>, weight: u32) -> Option<usize> {
        let of_patterns =
            || of_pattern(&self.most, &name).filter(|(pattern, _)| self.joins.patterns.contains_key(*pattern));
        let most = self.most.get(&*name).or_else(|| of_patterns().map(|(_, most)| most));
        let limit = most.map(|most| Limit::new(*most, self.room.clone()));
        self.add(Served {
            base: self.count(),
            priority: MIDDLE_PRIORITY,
            configured: weight,
            weight: AtomicU32::new(weight),
            is_there: AtomicBool::new(true),
            limit,
            name,
        })
    }

    /// Goes by which queues there are, and returns the numbers of those that are served from now on, and of those that
    /// are no longer. `false` where there was no space for all of them.
    pub(super) fn join(&self, names: &[String]) -> (Vec<usize>, Vec<usize>, bool) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // A queue of a family is served with its base, also where nothing was ever put into the base.
        let mut wanted: BTreeMap<&str, Member<'_>> = BTreeMap::new();
        for (name, member) in names.iter().filter_map(|name| Some((name.as_str(), self.joins.member(name)?))) {
            let is_base_served = self.number(member.base).is_some_and(|base| !self.is_joined(base));
            if is_base_served || self.joins.weight_of(member.base).is_some() {
                wanted.insert(member.base, Member { priority: MIDDLE_PRIORITY, ..member });
                wanted.insert(name, member);
            }
        }
        let is_gone = |number: &usize| self.is_joined(*number) && !wanted.contains_key(&**self.name(*number));
        let left = (0..self.count()).filter(is_gone);
        let left = left.filter(|number| self.served(*number).is_there.swap(false, Ordering::Relaxed)).collect();
        let (mut joined, mut all) = (Vec::new(), true);
        // Bases come before the others of their families.
        for (name, Member { base, priority }) in wanted {
            if let Some(number) = self.number(name) {
                if !self.served(number).is_there.swap(true, Ordering::Relaxed) {
                    joined.push(number);
                }
                continue;
            }
            let number = match self.number(base) {
                None => self.joins.weight_of(name).and_then(|weight| self.add_base(name.into(), weight)),
                Some(base) => self.add(Served {
                    name: name.into(),
                    base,
                    priority,
                    configured: 0,
                    weight: AtomicU32::new(0),
                    is_there: AtomicBool::new(true),
                    limit: self.served(base).limit.clone(),
                }),
            };
            all &= number.is_some();
            joined.extend(number);
        }
        (joined, left, all)
    }

    /// The number of a queue that an operator wants to have served, and whether it is new. Its weight is 0.
    pub(super) fn serve(&self, name: &str) -> Result<(usize, bool), &'static str> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if base_of(name) != name {
            return Err("it is served with the queue that it belongs to, and by its weight");
        }
        if let Some(number) = self.number(name) {
            return Ok((number, false));
        }
        check_existing_queue_name(name).map_err(|_| "no queue can have this name")?;
        let number = self.add_base(name.into(), self.joins.weight_of(name).unwrap_or(0));
        number.map(|number| (number, true)).ok_or("the server has joined as many queues as it can")
    }

    /// Whether a queue is served as long as it is there: it belongs to a family, or fits a pattern.
    fn is_joined(&self, number: usize) -> bool {
        let served = self.served(number);
        served.base != number || number >= self.started && self.joins.weight_of(&served.name).is_some()
    }

    /// Whether it joins queues while it runs.
    pub(super) fn joins(&self) -> bool {
        self.joins.any()
    }

    /// Whether there are limits to how many tasks of a queue are in hand at once.
    pub(super) fn has_limits(&self) -> bool {
        !self.most.is_empty()
    }

    /// The number of the queue by whose weight a queue is served.
    pub(super) fn base(&self, queue: usize) -> usize {
        self.served(queue).base
    }

    fn served(&self, number: usize) -> &Served {
        // Whoever has a number has it from here, after the queue was set.
        self.queues[number].get().unwrap_or_else(|| unreachable!("queue {number} was never added"))
    }

    fn all(&self) -> impl Iterator<Item = &Served> {
        self.queues[..self.count()].iter().filter_map(|served| served.get().map(|served| &**served))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all().map(|served| &served.name)
    }

    /// Gives queues other weights, and all that are not named those that they were configured with.
    pub(super) fn weigh(&self, weights: &BTreeMap<Arc<str>, u32>) {
        for served in self.all() {
            let weight = weights.get(&served.name).copied().unwrap_or(served.configured);
            served.weight.store(weight, Ordering::Relaxed);
        }
    }

    /// Whether nothing would ever be taken.
    pub(super) fn are_weightless(&self) -> bool {
        self.joins.patterns.is_empty() && self.weights().all(|(_, weight)| weight == 0)
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

    pub(super) fn weight(&self, queue: usize) -> u32 {
        self.weight_of(self.served(queue))
    }

    fn weight_of(&self, served: &Served) -> u32 {
        let is_there = served.is_there.load(Ordering::Relaxed);
        if is_there { self.served(served.base).weight.load(Ordering::Relaxed) } else { 0 }
    }

    pub(super) fn limit(&self, queue: usize) -> Option<&Arc<Limit>> {
        self.served(queue).limit.as_ref()
    }

    /// Whether a task may be taken from a queue. If not, [`room`](Self::room) tells when one may again.
    pub(super) fn has_room(&self, queue: usize) -> bool {
        self.limit(queue).is_none_or(Limit::has_room)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// How often is asked again although Redis tells about changes, a net below the net: with many queues so seldom that
    /// their nine keys take one command for a thousand queues every 15 s.
    pub(super) fn safety_interval(&self) -> Duration {
        const FEW: usize = 100;
        Duration::from_secs(if self.count() > FEW { 9 * 15 } else { 15 })
    }

    /// A queue is known by its place among the names.
    pub(super) fn name(&self, number: usize) -> &Arc<str> {
        &self.served(number).name
    }

    /// `None` where the queue is not served.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// All queues; the weight of those that nothing is taken from is 0.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.all().map(|served| (&served.name, self.weight_of(served)))
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

    pub(super) fn priority(&self, queue: usize) -> u8 {
        self.served(queue).priority
    }

    /// How the queues of a family share what their base gets.
    pub(super) fn priorities(&self) -> Option<Priorities> {
        self.joins.priorities
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

#[cfg(test)]
pub(in crate::server) mod tests {
    use super::*;

    pub(in crate::server) fn queues(weights: &[(&str, u32)], strict: bool) -> Queues {
        limited(weights, strict, &[])
    }

    pub(in crate::server) fn limited(weights: &[(&str, u32)], strict: bool, limits: &[(&str, usize)]) -> Queues {
        let weights: Vec<_> = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        let limits = limits.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect();
        Queues::new(&weights, strict, &limits)
    }

    pub(in crate::server) fn family(strict: bool, priorities: Priorities) -> Queues {
        let weights = [("mail".to_owned(), 2), ("news".to_owned(), 1)];
        let joins = Joins { priorities: Some(priorities), ..Joins::default() };
        let queues = Queues::joining(&weights, strict, &BTreeMap::new(), joins);
        let there = ["mail", "news", "mail}p9", "mail}p0", "other}p9", "mail}@web-1", "mail}x"];
        let (joined, _, all) = queues.join(&there.map(str::to_owned));
        let mut names: Vec<_> = joined.iter().map(|queue| &**queues.name(*queue)).collect();
        names.sort_unstable();
        assert_eq!((names, all), (vec!["mail}p0", "mail}p9"], true));
        queues
    }

    #[test]
    fn the_weight_of_a_base_is_that_of_its_family() {
        let queues = family(false, Priorities::Strict);
        queues.weigh(&BTreeMap::from([("mail".into(), 0)]));
        let weights = |queues: &Queues| queues.weights().map(|(name, weight)| (name.to_string(), weight)).collect();
        let expected = [("mail", 0), ("mail}p0", 0), ("mail}p9", 0), ("news", 1)];
        let found: BTreeMap<String, u32> = weights(&queues);
        assert_eq!(found, expected.map(|(name, weight)| (name.to_owned(), weight)).into());
        queues.weigh(&BTreeMap::new());
        // One that is gone is served no more, and again when it is back.
        let [high, low] = ["mail}p9", "mail}p0"].map(|name| queues.number(name).unwrap());
        assert_eq!(queues.join(&["mail}p0".to_owned()]), (vec![], vec![high], true));
        assert_eq!(queues.join(&["mail}p0".to_owned()]), (vec![], vec![], true), "it was left before");
        assert!(!queues.is_open(high) && queues.is_open(low));
        assert_eq!(queues.join(&["mail}p9".to_owned()]), (vec![high], vec![low], true));
        assert!(queues.is_open(high) && !queues.is_open(low));
    }

    fn names(queues: &[&str]) -> Vec<String> {
        queues.iter().map(|name| (*name).to_owned()).collect()
    }

    fn served(queues: &Queues) -> BTreeMap<String, u32> {
        queues.weights().filter(|(_, weight)| *weight > 0).map(|(name, weight)| (name.to_string(), weight)).collect()
    }

    fn weights(of: &[(&str, u32)]) -> BTreeMap<String, u32> {
        of.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
    }

    #[test]
    fn queues_that_fit_a_pattern_are_joined_and_left() {
        let joins = Joins { patterns: weights(&[("tenant:*", 2), ("tenant:a*", 3)]), ..Joins::default() };
        let most = [("tenant:*", 1), ("mail", 5)].map(|(name, most)| (name.to_owned(), most)).into();
        let queues = Queues::joining(&[("tenant:x".to_owned(), 7)], false, &most, joins.clone());
        let (joined, _, all) =
            queues.join(&names(&["tenant:a", "tenant:b", "tenant:x", "mail", "tenant:b}p9", "tenant"]));
        assert_eq!((joined.len(), all), (2, true));
        assert_eq!(served(&queues), weights(&[("tenant:a", 3), ("tenant:b", 2), ("tenant:x", 7)]));
        let [a, b] = ["tenant:a", "tenant:b"].map(|name| queues.number(name).unwrap());
        let place = queues.place("tenant:a").unwrap();
        assert_eq!((place.len(), queues.has_room(a), queues.has_room(b)), (1, false, true), "each has its own limit");
        assert_eq!(queues.join(&names(&["tenant:b"])), (vec![], vec![a], true));
        assert_eq!(served(&queues), weights(&[("tenant:b", 2), ("tenant:x", 7)]), "the server was started for x");
        assert_eq!(queues.join(&names(&["tenant:a", "tenant:b"])), (vec![a], vec![], true));
        queues.weigh(&BTreeMap::from([("tenant:a".into(), 9)]));
        assert_eq!(served(&queues), weights(&[("tenant:a", 9), ("tenant:b", 2), ("tenant:x", 7)]));
        let empty = Queues::joining(&[], false, &BTreeMap::new(), joins);
        assert!(empty.count() == 0 && !empty.are_weightless(), "the default queue does not fit");
        let nothing = names(&["", " ", "}x", "tenant"]);
        let all = Joins { patterns: weights(&[("*", 1)]), ..Joins::default() };
        let all = Queues::joining(&[], false, &BTreeMap::new(), all);
        assert_eq!((all.join(&nothing).0.len(), served(&all)), (1, weights(&[("tenant", 1)])));
    }

    #[test]
    fn a_family_of_a_queue_that_fits_a_pattern_is_served_with_it() {
        let joins = Joins {
            priorities: Some(Priorities::Weighted),
            name: Some("web-1".to_owned()),
            patterns: weights(&[("tenant:*", 2)]),
            ..Joins::default()
        };
        let queues = Queues::joining(&[], false, &BTreeMap::new(), joins);
        let (joined, ..) = queues.join(&names(&["tenant:a}p9", "tenant:b}@web-1", "tenant:c}@web-2", "tenant:d"]));
        let expected = ["tenant:a", "tenant:a}p9", "tenant:b", "tenant:b}@web-1", "tenant:d"];
        assert_eq!(joined.len(), expected.len());
        assert_eq!(served(&queues), weights(&expected.map(|name| (name, 2))));
        let family = ["tenant:a", "tenant:a}p9"].map(|name| queues.number(name).unwrap());
        assert_eq!(family.map(|queue| queues.base(queue)), [family[0]; 2]);
    }

    #[test]
    fn an_operator_may_have_other_queues_served() {
        let queues = queues(&[("a", 2)], false);
        let (number, is_new) = queues.serve("b").unwrap();
        assert_eq!((queues.serve("b"), is_new), (Ok((number, false)), true));
        assert_eq!(served(&queues), weights(&[("a", 2)]), "until it is weighed");
        queues.weigh(&BTreeMap::from([("b".into(), 3)]));
        assert_eq!(served(&queues), weights(&[("a", 2), ("b", 3)]));
        assert_eq!(queues.join(&[]), (vec![], vec![], true));
        assert_eq!(served(&queues), weights(&[("a", 2), ("b", 3)]), "whether there is such a queue or not");
        queues.weigh(&BTreeMap::new());
        assert_eq!(served(&queues), weights(&[("a", 2)]));
        for refused in ["a}p9", "", "}x"] {
            assert!(queues.serve(refused).is_err(), "{refused}");
        }
        for n in 1..MAX_JOINED {
            assert!(queues.serve(&format!("q{n}")).is_ok());
        }
        assert!(queues.serve("one more").is_err());
    }

    #[test]
    fn there_is_an_end_of_joining() {
        let bases: Vec<(String, u32)> = (0..200).map(|n| (format!("q{n}"), 1)).collect();
        let joins = Joins { priorities: Some(Priorities::Weighted), ..Joins::default() };
        let queues = Queues::joining(&bases, false, &BTreeMap::new(), joins);
        let levels = bases.iter().flat_map(|(name, _)| [0, 1, 2, 3, 9].map(|level| format!("{name}}}p{level}")));
        let (joined, _, all) = queues.join(&levels.clone().collect::<Vec<_>>());
        assert_eq!((joined.len(), all), (MAX_JOINED, true));
        let (joined, _, all) = queues.join(&levels.chain(["q7}p7".to_owned()]).collect::<Vec<_>>());
        assert_eq!((joined.len(), all, queues.count()), (0, false, 200 + MAX_JOINED));
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
