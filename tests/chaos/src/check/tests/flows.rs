//! Batches.

use super::{WORKER, stored};
use crate::batch::{Place, added_by};
use crate::check::{Evidence, judge};
use crate::findings::Invariant;
use crate::fleet::Role;
use crate::history::History;
use crate::ledger::{Entry, Step};
use crate::listen::Heard;
use crate::name::{Name, Plan};
use crate::snapshot::{Counters, Snapshot};

const ADDER: Name = Name { plan: Plan::Adder, queue: 0, producer: 0, number: 2 };

/// A batch of two members, or also an adder and what it adds (slow here), its callbacks, and what process 1 noted of them. Its maker was told that it is there.
fn found_of_batch(steps: &[(Plan, u64, Step)], dead: &[Plan], trees: &[&str]) -> Vec<Invariant> {
    found_of_batch_that(&[Plan::Plain, Plan::Doomed, Plan::AfterComplete, Plan::AfterAll], steps, dead, trees)
}

/// The same of one of which its maker was told that these are stored.
fn found_of_batch_that(told: &[Plan], steps: &[(Plan, u64, Step)], dead: &[Plan], trees: &[&str]) -> Vec<Invariant> {
    let place = Place { maker: 0, tree: 0, level: 0 };
    let name = |plan: Plan| match plan {
        Plan::Plain => Name { plan, queue: 0, producer: 0, number: 0 },
        Plan::Doomed => Name { plan, queue: 0, producer: 0, number: 1 },
        Plan::Adder => ADDER,
        Plan::Slow => Name { plan, ..added_by(ADDER)[0] },
        _ => place.callback(plan),
    };
    let all = [&[Plan::Plain, Plan::Doomed][..], &Plan::CALLBACKS].concat();
    let entry = |(plan, at, step): (Plan, u64, Step), process| Entry { task: name(plan).key(), at, step, process };
    let mut entries: Vec<Entry> = all.into_iter().map(|plan| entry((plan, 1, Step::Intent), 0)).collect();
    entries.extend(told.iter().map(|plan| entry((*plan, 2, Step::Stored), 0)));
    entries.extend(steps.iter().map(|step| entry(*step, 1)));
    let roles = vec![Some(Role::Batcher { rate: 1 }), WORKER];
    let history = History::of(entries, roles);
    let mut snapshot = Snapshot { trees: trees.iter().map(|tree| (*tree).to_owned()).collect(), ..Snapshot::default() };
    let failed = history.count(|step| matches!(step, Step::Failure | Step::Archive));
    let processed = history.count(|step| step == Step::Success) + failed;
    snapshot.counters[0] = Counters { processed, failed, processed_days: processed, failed_days: failed };
    for plan in dead {
        snapshot.tasks.insert((0, name(*plan).to_string()), stored(name(*plan), "archived", None));
    }
    let evidence = Evidence {
        history: &history,
        snapshot: &snapshot,
        happened: &[],
        mixed: false,
        max_crashes: 1,
        processes: &[],
        heard: &Heard::default(),
        exported_twice: &[],
    };
    judge(&evidence).0.invariants()
}

/// A run of a task that begins then and ends a moment later.
fn ran(plan: Plan, at: u64) -> [(Plan, u64, Step); 2] {
    let end = if plan == Plan::Doomed { Step::Archive } else { Step::Success };
    [(plan, at, Step::Start(0)), (plan, at + 1, end)]
}

#[test]
fn the_callbacks_of_a_batch_have_to_run_when_it_has_come_to_that_and_not_before() {
    let steps = |plans: &[(Plan, u64)]| plans.iter().flat_map(|(plan, at)| ran(*plan, *at)).collect::<Vec<_>>();
    let found = |plans: &[(Plan, u64)]| found_of_batch(&steps(plans), &[Plan::Doomed], &[]);
    let all = [
        (Plan::Plain, 10),
        (Plan::Doomed, 20),
        (Plan::AfterDeath, 30),
        (Plan::AfterComplete, 30),
        (Plan::AfterAll, 40),
    ];
    assert_eq!(found(&all), []);
    assert_eq!(found(&[&all[..], &[(Plan::AfterSuccess, 35)]].concat()), [Invariant::Callback], "one has died");
    assert_eq!(found(&[all[0], all[1], all[3], all[4]]), [Invariant::Callback], "nobody was told of the death");
    assert_eq!(found(&[all[0], all[1], all[2], all[4]]), [Invariant::Lost], "not all was attempted");
    assert_eq!(found(&all[..4]), [Invariant::Lost], "it never settled");
    let early = |plan, at| {
        let mut plans = all;
        plans.iter_mut().filter(|(known, _)| *known == plan).for_each(|(_, begun)| *begun = at);
        found(&plans)
    };
    assert_eq!(early(Plan::AfterComplete, 15), [Invariant::Callback]);
    assert_eq!(early(Plan::AfterAll, 30), [Invariant::Callback], "other callbacks ran");
    assert_eq!(early(Plan::AfterDeath, 5), [], "it may be anything that died first");
}

#[test]
fn a_batch_in_which_nothing_died_succeeds_once_and_leaves_nothing() {
    let found = |plans: &[(Plan, u64)], trees: &[&str]| {
        let steps: Vec<_> = plans.iter().flat_map(|(plan, at)| ran(*plan, *at)).collect();
        // Here the second member succeeds, whatever its plan.
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(plan, at, step)| (plan, at, if step == Step::Archive { Step::Success } else { step }))
            .collect();
        found_of_batch(&steps, &[], trees)
            .into_iter()
            .filter(|found| *found != Invariant::Lost && *found != Invariant::Counter)
            .collect::<Vec<_>>()
    };
    let all = [
        (Plan::Plain, 10),
        (Plan::Doomed, 20),
        (Plan::AfterComplete, 30),
        (Plan::AfterSuccess, 40),
        (Plan::AfterAll, 50),
    ];
    assert_eq!(found(&all, &[]), []);
    assert_eq!(found(&[all[0], all[1], all[2], all[4]], &[]), [Invariant::Callback], "no success");
    assert_eq!(
        found(&[all[0], all[1], all[2], (Plan::AfterSuccess, 15), all[4]], &[]),
        [Invariant::Callback],
        "too early"
    );
    assert_eq!(found(&[&all[..], &[(Plan::AfterDeath, 35)]].concat(), &[]), [Invariant::Callback], "nothing has died");
    assert_eq!(found(&all, &["t0-0"]), [Invariant::OrphanKey], "it was to be forgotten");
    assert_eq!(found(&all, &["t9-9"]), [Invariant::OrphanKey], "nobody has made it");
}

#[test]
fn a_batch_whose_adder_came_again_late_or_only_at_go_may_have_had_a_death() {
    let begun = [(Plan::Adder, 10, Step::Start(0)), (Plan::Adder, 11, Step::Failure)];
    let ended = |at| {
        let adder = [(Plan::Adder, at, Step::Start(1)), (Plan::Adder, at + 1, Step::Success)];
        let doomed = [(Plan::Doomed, 10, Step::Start(0)), (Plan::Doomed, 11, Step::Success)];
        let callbacks = [ran(Plan::AfterDeath, 20), ran(Plan::AfterComplete, at + 2), ran(Plan::AfterAll, at + 6)];
        [&begun[..], &adder, &doomed, &ran(Plan::Plain, 10), &callbacks.concat()].concat()
    };
    let found = |at, more: &[(Plan, u64, Step)]| found_of_batch(&[&ended(at)[..], more].concat(), &[], &[]);
    let minute = 60_000_000_000;
    let success = |at| ran(Plan::AfterSuccess, at + 4);
    let of_batch = |found: Vec<Invariant>| found.contains(&Invariant::Callback);
    assert!(!of_batch(found(2 * minute, &success(2 * minute))), "what it adds may have counted as lost for a while");
    assert!(of_batch(found(minute / 2, &success(minute / 2))), "so soon nobody gives it up");
    assert!(of_batch(found(2 * minute, &[])), "nothing is missing in the end");
    let announced = [(Plan::Slow, 10, Step::Intent)];
    assert!(!of_batch(found(minute / 2, &announced)), "what it was to add is not there");
}

#[test]
fn a_batch_that_nobody_has_committed_is_abandoned_after_half_an_hour() {
    let found = |settled| {
        let callbacks = [(Plan::AfterDeath, 30), (Plan::AfterAll, settled)];
        let begun = [(Plan::Plain, 10), (Plan::Doomed, 10)].into_iter().chain(callbacks);
        let steps: Vec<_> =
            begun.flat_map(|(plan, at)| [(plan, at, Step::Start(0)), (plan, at + 1, Step::Success)]).collect();
        found_of_batch_that(&[Plan::Plain, Plan::Doomed], &steps, &[], &[]).contains(&Invariant::Callback)
    };
    assert!(found(40), "nothing has died");
    assert!(!found(31 * 60_000_000_000));
}
