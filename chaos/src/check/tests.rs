//! What a run can hardly be made to show.

use queue_core::TaskMessage;

use super::{Evidence, judge};
use crate::faults::Happened;
use crate::findings::Invariant;
use crate::fleet::Role;
use crate::history::History;
use crate::ledger::{Entry, Step};
use crate::name::{HEADER, Name, Plan};
use crate::plan::Kind;
use crate::snapshot::{Counters, Snapshot, Stored};

const WORKER: Option<Role> = Some(Role::Worker { lease_secs: 5, skew_secs: 0 });

fn name(plan: Plan) -> Name {
    Name { plan, queue: 0, producer: 0, number: 2 }
}

/// What is found when these processes have noted this; process 0 is the producer.
fn found(name: Name, steps: &[(u64, Step, u16)], faults: &[Happened], task: Option<Stored>) -> Vec<Invariant> {
    let entries =
        steps.iter().map(|(at, step, process)| Entry { task: name.key(), at: *at, step: *step, process: *process });
    let history = History::of(entries.collect(), vec![Some(Role::Producer { rate: 1 }), WORKER, WORKER]);
    let mut snapshot = Snapshot::default();
    // As many as were counted if each end was.
    let failed = history.count(|step| matches!(step, Step::Failure | Step::Archive));
    let processed = history.count(|step| step == Step::Success) + failed;
    snapshot.counters[0] = Counters { processed, failed, processed_days: processed, failed_days: failed };
    if let Some(task) = task {
        snapshot.tasks.insert((0, "id".to_owned()), task);
    }
    judge(&Evidence { history: &history, snapshot: &snapshot, happened: faults, mixed: false }).0.invariants()
}

fn stored(name: Name, state: &str, result: Option<&str>) -> Stored {
    let headers = [(HEADER.to_owned(), name.to_string())].into();
    let message = TaskMessage { headers, ..TaskMessage::default() };
    let places = vec![state.to_owned()];
    Stored { state: state.to_owned(), message: Some(message), result: result.map(str::to_owned), places }
}

const ENQUEUED: [(u64, Step, u16); 2] = [(1, Step::Intent, 0), (2, Step::Stored, 0)];

fn after(rest: &[(u64, Step, u16)]) -> Vec<(u64, Step, u16)> {
    [&ENQUEUED, rest].concat()
}

#[test]
fn a_task_that_ran_although_it_was_refused_is_found() {
    let steps = [(1, Step::Intent, 0), (2, Step::Refused, 0), (3, Step::Start(0), 1), (4, Step::Success, 1)];
    assert_eq!(found(name(Plan::Plain), &steps, &[], None), [Invariant::Phantom]);
    assert_eq!(found(name(Plan::Plain), &steps[..2], &[], None), []);
}

#[test]
fn a_task_that_nobody_acknowledged_may_be_there_or_not() {
    let steps = [(1, Step::Intent, 0), (2, Step::Unknown, 0), (3, Step::Start(0), 1), (4, Step::Success, 1)];
    assert_eq!(found(name(Plan::Plain), &steps, &[], None), []);
    assert_eq!(found(name(Plan::Plain), &steps[..2], &[], None), []);
    // But if it has begun, it has to end.
    assert_eq!(found(name(Plan::Plain), &steps[..3], &[], None), [Invariant::Lost, Invariant::Counter]);
}

#[test]
fn a_second_run_needs_a_fault_that_met_the_first_worker() {
    let steps = after(&[(3, Step::Start(0), 1), (9, Step::Start(0), 2), (10, Step::Success, 2)]);
    let fault = |kind, process, from| Happened { kind, process, from, to: from + 1 };
    let found = |faults: &[Happened]| found(name(Plan::Plain), &steps, faults, None);
    assert_eq!(found(&[]), [Invariant::NeedlessRun]);
    assert_eq!(found(&[fault(Kind::KillWorker, Some(1), 5)]), []);
    assert_eq!(found(&[fault(Kind::KillWorker, Some(2), 5)]), [Invariant::NeedlessRun]);
    assert_eq!(found(&[fault(Kind::KillWorker, Some(1), 10)]), [Invariant::NeedlessRun]);
    // A connection that is cut, or a Redis that is away for a moment, takes no task from a worker.
    assert_eq!(found(&[fault(Kind::Cut, Some(1), 5)]), [Invariant::NeedlessRun]);
    assert_eq!(found(&[fault(Kind::CrashRedis, None, 5)]), [Invariant::NeedlessRun]);
}

#[test]
fn a_retry_that_a_crash_has_spent_is_found() {
    let killed = [Happened { kind: Kind::KillWorker, process: Some(1), from: 4, to: 5 }];
    let steps = after(&[(3, Step::Start(0), 1), (9, Step::Start(1), 2), (10, Step::Success, 2)]);
    assert!(found(name(Plan::Plain), &steps, &killed, None).contains(&Invariant::RetrySpent));
}

#[test]
fn the_result_of_a_worker_that_had_lost_the_task_is_found() {
    let name = name(Plan::Kept);
    let zombie = [Happened { kind: Kind::Zombie, process: Some(1), from: 4, to: 50 }];
    let runs = [(3, Step::Start(0), 1), (9, Step::Start(0), 2), (10, Step::Success, 2), (51, Step::Success, 1)];
    let found = |result| found(name, &after(&runs), &zombie, Some(stored(name, "completed", Some(result))));
    assert_eq!(found("2 9"), []);
    assert_eq!(found("1 3"), [Invariant::NotFenced]);
}

#[test]
fn a_task_that_ends_otherwise_than_planned_or_too_early_is_found() {
    let archived = Some(stored(name(Plan::Plain), "archived", None));
    let ran = after(&[(3, Step::Start(0), 1), (4, Step::Success, 1)]);
    assert_eq!(found(name(Plan::Plain), &ran, &[], archived), [Invariant::WrongEnd]);
    assert_eq!(found(name(Plan::Scheduled), &ran, &[], None), [Invariant::Early]);
}
