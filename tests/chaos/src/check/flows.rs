//! Judges batches: which callbacks have run, and when, beside what became of the members.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Evidence;
use super::runs::takes_tasks_away;
use crate::batch::{Place, is_added};
use crate::findings::{Findings, Invariant};
use crate::fleet::Role;
use crate::happened::Happened;
use crate::history::Story;
use crate::ledger::Step;
use crate::name::{Name, Plan};
use crate::snapshot::Stored;

/// A member or a callback.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// When it began first.
    begun: u64,
    /// When its first attempt ended, if nobody took the task away meanwhile: a crash is an attempt too.
    attempted: Option<u64>,
    /// When it first ended, in whichever way; and when it first succeeded.
    ended: Option<u64>,
    succeeded: Option<u64>,
    is_dead: bool,
}

#[derive(Debug, Default)]
struct Batch {
    members: Vec<(Name, Seen)>,
    /// Those that its maker meant to be in it.
    meant: Vec<Name>,
    /// When it was begun to be made.
    begun: u64,
    callbacks: HashMap<Plan, Seen>,
    /// Its maker was told that it is there, with all its members.
    is_made: bool,
    /// An adder came again after so long that its members may have been given up meanwhile.
    is_late: bool,
    /// An adder was refused half-way, and a worker of Go, which adds nothing, has ended it.
    is_unsure: bool,
}

/// So long after its number was given out, a member without a task may count as lost, in nanoseconds.
const GIVEN_UP: u64 = 60_000_000_000;

/// So long after it was begun, a batch that nobody has committed may be abandoned, which is no success, in nanoseconds.
const ABANDONED: u64 = 30 * 60_000_000_000;

/// The batches of a run.
#[derive(Debug, Default)]
pub(super) struct Batches(BTreeMap<Place, Batch>);

/// Whether a task belongs to a batch.
pub(super) fn is_of_batch(evidence: &Evidence<'_>, story: &Story) -> bool {
    matches!(evidence.history.roles.get(usize::from(story.name.producer)), Some(Some(Role::Batcher { .. })))
}

/// Whether a task was added to a batch by a member of it.
pub(super) fn is_added_to_batch(evidence: &Evidence<'_>, story: &Story) -> bool {
    is_of_batch(evidence, story) && is_added(story.name)
}

impl Batches {
    /// Takes note of a task, whether it exists or only was meant to.
    pub(super) fn add(&mut self, story: &Story, here: &[&Stored]) {
        let batch = self.0.entry(Place::of(story.name)).or_default();
        let is_stored = matches!(story.answer, Some((_, Step::Stored)));
        batch.begun = if batch.begun == 0 { story.intent } else { batch.begun.min(story.intent) };
        batch.is_made |= story.name.plan == Plan::AfterAll && is_stored;
        let is_dead = here.iter().any(|task| task.state == "archived");
        if !Plan::CALLBACKS.contains(&story.name.plan) && !is_added(story.name) {
            batch.meant.push(story.name);
        }
        if story.attempts.is_empty() && !is_dead {
            batch.is_unsure |= is_added(story.name) && !is_stored;
            return;
        }
        if story.name.plan == Plan::Adder
            && let [first, .., last] = &story.attempts[..]
        {
            batch.is_late |= last.at - first.at > GIVEN_UP;
        }
        let is_first_end = |end: &u64| story.attempts.get(1).is_none_or(|second| *end <= second.at);
        let ends = || story.attempts.iter().filter_map(|attempt| attempt.end);
        let seen = Seen {
            begun: story.attempts.first().map_or(0, |attempt| attempt.at),
            attempted: story.attempts.first().and_then(|attempt| attempt.end).map(|(at, _)| at).filter(is_first_end),
            ended: ends().map(|(at, _)| at).min(),
            succeeded: ends().filter(|(_, step)| *step == Step::Success).map(|(at, _)| at).min(),
            is_dead,
        };
        if Plan::CALLBACKS.contains(&story.name.plan) {
            batch.callbacks.insert(story.name.plan, seen);
        } else {
            batch.members.push((story.name, seen));
        }
    }

    /// Returns how many batches there were, and how many of them had a death. Broadcasts are batches that nobody has made
    /// as such.
    pub(super) fn judge(
        &self,
        evidence: &Evidence<'_>,
        broadcasts: &HashSet<String>,
        findings: &mut Findings,
    ) -> (u64, u64) {
        // From the inmost level outwards: whether it went well, and when all of it was over.
        let mut inner: Option<(Place, Outcome)> = None;
        let mut dead = 0;
        for (place, batch) in self.0.iter().rev() {
            let child = inner
                .take()
                .filter(|(of, _)| (of.maker, of.tree, of.level) == (place.maker, place.tree, place.level + 1));
            let outcome = judge(evidence, *place, batch, child.map(|(_, outcome)| outcome), findings);
            dead += u64::from(!outcome.is_well);
            inner = Some((*place, outcome));
        }
        // Whether the maker of a tree was told that one of its batches is there.
        let mut roots: HashMap<String, bool> = HashMap::new();
        for (place, batch) in &self.0 {
            *roots.entry(place.root()).or_default() |= batch.is_made;
        }
        for root in &evidence.snapshot.trees {
            match roots.get(root) {
                Some(true) => {
                    findings.add(Invariant::OrphanKey, format!("batch {root} is over, or should be, and has keys"));
                }
                Some(false) => {}
                None if broadcasts.contains(root) => {}
                None => findings.add(Invariant::OrphanKey, format!("nobody has made batch {root}")),
            }
        }
        (self.0.len() as u64, dead)
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    is_well: bool,
    /// Whether each of its members ran, or its maker was told that all are there.
    is_whole: bool,
    /// Whether something of it may have counted as lost for a while.
    is_late: bool,
    /// Whether something of it may count as lost for good.
    is_unsure: bool,
    /// When the last of it ended, callbacks included.
    over: u64,
}

fn judge(
    evidence: &Evidence<'_>,
    place: Place,
    batch: &Batch,
    child: Option<Outcome>,
    findings: &mut Findings,
) -> Outcome {
    let name = format!("level {} of batch {}", place.level, place.root());
    let callback = |plan| batch.callbacks.get(&plan);
    let [success, complete, death, settled] = Plan::CALLBACKS.map(callback);
    let is_dead = |seen: Option<&Seen>| seen.is_some_and(|seen| seen.is_dead);
    let dead: Vec<&Name> = batch.members.iter().filter(|(_, seen)| seen.is_dead).map(|(name, _)| name).collect();
    // An archived callback can have begun nowhere: its workers died with it in their hands.
    let all_well = dead.is_empty() && !is_dead(complete) && child.is_none_or(|child| child.is_well);
    // Who dies while it makes a batch leaves numbers without tasks. After a minute these count as removed.
    let has_run = |name: &Name| batch.members.iter().any(|(member, _)| member == name);
    let may_be_abandoned = settled.is_none_or(|settled| settled.begun > batch.begun + ABANDONED);
    let is_whole = (batch.is_made || !may_be_abandoned && batch.meant.iter().all(has_run))
        && child.is_none_or(|child| child.is_whole);
    let mut wrong = |what: String| findings.add(Invariant::Callback, format!("{name}: {what}: {batch:?}"));
    if success.is_some() && !(all_well && batch.members.iter().all(|(_, seen)| seen.succeeded.is_some())) {
        wrong(format!("the callback of its success ran, and {dead:?} had died, or its child"));
    }
    let is_unsure = batch.is_unsure || child.is_some_and(|child| child.is_unsure);
    if batch.is_made && all_well && success.is_none() && !is_unsure {
        wrong("all went well, and the callback of its success did not run".to_owned());
    }
    let has_death = !all_well || is_dead(success);
    let is_late = is_unsure || batch.is_late || child.is_some_and(|child| child.is_late);
    if death.is_some() && !has_death && is_whole && !is_late {
        wrong("the callback of a death ran, and nothing had died".to_owned());
    }
    if batch.is_made && has_death && death.is_none() {
        wrong(format!("{dead:?}, or its child, had died, and no callback ran"));
    }

    if place.is_chain() {
        judge_chain(batch, success.is_some(), &mut wrong);
    }

    // Whose end has to come before whose start.
    let last = |ends: &dyn Fn(&Seen) -> Option<u64>| {
        batch.members.iter().filter_map(|(_, seen)| ends(seen)).max().unwrap_or(0)
    };
    let inside = child.map_or(0, |child| child.over);
    let end = |seen: Option<&Seen>| seen.and_then(|seen| seen.ended).unwrap_or(0);
    let all_succeeded = last(&|seen| seen.succeeded).max(inside).max(end(complete));
    let all_ended = last(&|seen| seen.succeeded.or(seen.ended)).max(inside);
    let callbacks_ended = end(success).max(end(complete)).max(end(death));
    let mut order = |what: &str, seen: Option<&Seen>, after: u64| {
        if seen.is_some_and(|seen| seen.begun > 0 && seen.begun < after) {
            findings.add(Invariant::Callback, format!("{name}: the callback of {what} began too early: {batch:?}"));
        }
    };
    // An adder that is tried again adds when all were attempted.
    let attempted =
        batch.members.iter().filter(|(name, _)| !is_added(*name)).filter_map(|(_, seen)| seen.attempted).max();
    // Who takes a member and dies before its handler begins has attempted it, and nobody has seen that.
    let taken = |fault: &Happened| {
        takes_tasks_away(fault.kind)
            && fault.to >= batch.begun
            && complete.is_some_and(|complete| fault.from <= complete.begun)
    };
    if !evidence.happened.iter().any(taken) {
        order("all attempted", complete, attempted.unwrap_or(0));
    }
    order("success", success, all_succeeded);
    order("all settled", settled, all_ended.max(callbacks_ended));
    let is_well = all_well && !is_dead(success) && !is_dead(settled);
    Outcome { is_well, is_whole, is_late, is_unsure, over: all_ended.max(callbacks_ended).max(end(settled)) }
}

/// The members of a chain begin in the order of their numbers, each after the success of the one before it.
fn judge_chain(batch: &Batch, has_succeeded: bool, wrong: &mut impl FnMut(String)) {
    let mut meant = batch.meant.clone();
    meant.sort_by_key(|name| name.number);
    let seen = |name: &Name| batch.members.iter().find(|(member, _)| member == name).map(|(_, seen)| seen);
    for pair in meant.windows(2) {
        let (Some(next), before) = (seen(&pair[1]), seen(&pair[0])) else { continue };
        let succeeded = before.and_then(|before| before.succeeded);
        if next.begun > 0 && succeeded.is_none_or(|at| next.begun < at) {
            wrong(format!("{} began before {} had succeeded", pair[1], pair[0]));
        }
    }
    if has_succeeded && meant.iter().any(|name| seen(name).is_none()) {
        wrong("the callback of its success ran, and a node had not run".to_owned());
    }
}
