//! What a run can hardly be made to show.

mod flows;

use queue_core::TaskMessage;

use super::{Evidence, judge};
use crate::findings::Invariant;
use crate::fleet::{Process, Role};
use crate::happened::Happened;
use crate::history::History;
use crate::ledger::{Entry, Step};
use crate::listen::Heard;
use crate::name::{DIGEST, HEADER, Name, Plan};
use crate::plan::Kind;
use crate::snapshot::{Counters, Snapshot, Stored};

const WORKER: Option<Role> = Some(Role::Worker { lease_secs: 5, skew_secs: 0 });

fn name(plan: Plan) -> Name {
    Name { plan, queue: 0, producer: 0, number: 2 }
}

/// What is found when these processes have noted this; process 0 is the producer.
fn found(name: Name, steps: &[(u64, Step, u16)], faults: &[Happened], task: Option<Stored>) -> Vec<Invariant> {
    found_in(false, name, steps, faults, task)
}

/// The same, `mixed` in a fleet that has workers of Go too. The process ids begin at 100.
fn found_in(
    mixed: bool,
    name: Name,
    steps: &[(u64, Step, u16)],
    faults: &[Happened],
    task: Option<Stored>,
) -> Vec<Invariant> {
    found_and_heard(mixed, None, name, steps, faults, task)
}

/// The same, when a listener was told of a success at some time.
fn found_and_heard(
    mixed: bool,
    heard: Option<u64>,
    name: Name,
    steps: &[(u64, Step, u16)],
    faults: &[Happened],
    task: Option<Stored>,
) -> Vec<Invariant> {
    let entries =
        steps.iter().map(|(at, step, process)| Entry { task: name.key(), at: *at, step: *step, process: *process });
    let heard = Heard { succeeded: heard.iter().map(|at| (name.key(), *at)).collect(), ..Heard::default() };
    found_by(mixed, &heard, entries.collect(), faults, task)
}

/// The same of any number of tasks, which end in one way or another in the queue of the first.
fn found_by(
    mixed: bool,
    heard: &Heard,
    entries: Vec<Entry>,
    faults: &[Happened],
    task: Option<Stored>,
) -> Vec<Invariant> {
    found_and_exported(&[], mixed, heard, entries, faults, task)
}

/// The same, when an export had this twice.
fn found_and_exported(
    exported_twice: &[String],
    mixed: bool,
    heard: &Heard,
    entries: Vec<Entry>,
    faults: &[Happened],
    task: Option<Stored>,
) -> Vec<Invariant> {
    let name = Name::of_key(entries[0].task);
    let roles = [Some(Role::Producer { rate: 1 }), WORKER, WORKER, WORKER, mixed.then_some(Role::GoWorker)];
    let processes: Vec<Process> = roles
        .iter()
        .zip(0..)
        .filter_map(|(role, number)| {
            Some(Process {
                number,
                slot: Some(usize::from(number)),
                role: (*role)?,
                ledger: "none".into(),
                pid: 100 + u32::from(number),
            })
        })
        .collect();
    let history = History::of(entries, roles.to_vec());
    let mut snapshot = Snapshot::default();
    // As many as were counted if each end was, and each crash.
    let crashes = if name.plan == Plan::Poison { history.count(|step| matches!(step, Step::Start(_))) } else { 0 };
    let failed = history.count(|step| matches!(step, Step::Failure | Step::Archive)) + crashes;
    let processed = history.count(|step| step == Step::Success) + failed;
    snapshot.counters[0] = Counters { processed, failed, processed_days: processed, failed_days: failed };
    if let Some(task) = task {
        snapshot.tasks.insert((0, "id".to_owned()), task);
    }
    let evidence = Evidence {
        history: &history,
        snapshot: &snapshot,
        happened: faults,
        mixed,
        max_crashes: 1,
        processes: &processes,
        heard,
        exported_twice,
    };
    judge(&evidence).0.invariants()
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
fn a_task_is_enqueued_again_only_after_it_was_done_and_before_its_producer_was_answered() {
    let cut = [Happened { kind: Kind::Cut, process: Some(0), from: 2, to: 3 }];
    let found_of = |plan, done: u64, answered: u64| {
        let steps = [
            (1, Step::Intent, 0),
            (answered, Step::Stored, 0),
            (3, Step::Start(0), 1),
            (done, Step::Success, 1),
            (9, Step::Start(0), 2),
            (10, Step::Success, 2),
        ];
        found(name(plan), &steps, &cut, None)
    };
    let crowded = [Happened { kind: Kind::MaxClients, process: None, from: 2, to: 3 }];
    let steps = [
        (1, Step::Intent, 0),
        (8, Step::Stored, 0),
        (3, Step::Start(0), 1),
        (4, Step::Success, 1),
        (9, Step::Start(0), 2),
        (10, Step::Success, 2),
    ];
    assert_eq!(found(name(Plan::Plain), &steps, &crowded, None), []);
    let found = |done, answered| found_of(Plan::Plain, done, answered);
    assert_eq!(found(4, 8), []);
    assert_eq!(found(8, 4), [Invariant::NeedlessRun]);
    assert_eq!(found(20, 30), [Invariant::NeedlessRun]);
    let of_group = found_of(Plan::Grouped, 8, 4);
    assert!(
        !of_group.contains(&Invariant::NeedlessRun),
        "its digest was made before the answer, and waited: {of_group:?}"
    );
}

#[test]
fn a_member_of_a_group_is_exported_twice_only_if_its_producer_may_have_lost_the_answer() {
    let found = |plan, faults: &[Happened]| {
        let steps = [(1, Step::Intent, 0), (4, Step::Stored, 0), (5, Step::Start(0), 1), (6, Step::Success, 1)];
        let entry = |(at, step, process)| Entry { task: name(plan).key(), at, step, process };
        let twice = [format!("{}: 2 times", name(plan))];
        let found = found_and_exported(&twice, false, &Heard::default(), steps.map(entry).to_vec(), faults, None);
        found.contains(&Invariant::ExportedTwice)
    };
    let lost = [Happened { kind: Kind::LoseAnswers, process: Some(0), from: 2, to: 3 }];
    assert!(found(Plan::Grouped, &[]));
    assert!(!found(Plan::Grouped, &lost));
    assert!(found(Plan::Plain, &lost), "no digest has it");
}

#[test]
fn a_worker_of_go_may_take_a_task_under_a_lease_from_before_it_stood_still() {
    let found = |process, to| {
        let fault = [Happened { kind: Kind::Zombie, process: Some(process), from: 1, to }];
        let second = 2_000_000_000;
        let steps = after(&[
            (second, Step::Start(0), process),
            (second + 1, Step::Success, process),
            (second + 2, Step::Start(1), 2),
            (second + 3, Step::Success, 2),
        ]);
        found_in(true, name(Plan::Plain), &steps, &fault, None).contains(&Invariant::NeedlessRun)
    };
    assert!(!found(4, 1_500_000_000));
    assert!(found(4, 500_000_000), "it had time to begin");
    assert!(found(1, 1_500_000_000), "ours look at the lease before they begin");
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
fn a_worker_that_stood_still_before_the_handler_may_begin_what_another_has_done() {
    let name = name(Plan::Kept);
    let runs = [(9, Step::Start(0), 2), (10, Step::Success, 2), (51, Step::Start(0), 1), (52, Step::Success, 1)];
    let found = |process, from, result| {
        let zombie = [Happened { kind: Kind::Zombie, process: Some(process), from, to: 50 }];
        found(name, &after(&runs), &zombie, Some(stored(name, "completed", Some(result))))
    };
    assert_eq!(found(1, 4, "2 9"), []);
    assert_eq!(found(1, 4, "1 51"), [Invariant::NotFenced]);
    assert!(found(1, 11, "1 51").contains(&Invariant::NeedlessRun), "the other had ended before it stood still");
    assert!(found(3, 4, "1 51").contains(&Invariant::NeedlessRun), "it was another process");
}

#[test]
fn a_worker_that_stood_still_may_also_have_taken_the_task_of_one_that_was_killed() {
    let name = name(Plan::Kept);
    let zombie = Happened { kind: Kind::Zombie, process: Some(1), from: 4, to: 50 };
    let killed = Happened { kind: Kind::KillWorker, process: Some(2), from: 11, to: 12 };
    let runs = [(9, Step::Start(0), 2), (10, Step::Success, 2), (51, Step::Start(0), 1), (52, Step::Success, 1)];
    let found =
        |faults: &[Happened], result| found(name, &after(&runs), faults, Some(stored(name, "completed", Some(result))));
    assert_eq!(found(&[zombie, killed], "1 51"), []);
    assert_eq!(found(&[zombie, killed], "2 9"), []);
    assert_eq!(found(&[killed], "2 9"), [Invariant::NotFenced], "it never stood still, and so took it last");
    assert_eq!(found(&[zombie, killed], "3 9"), [Invariant::NotFenced]);
}

#[test]
fn a_broadcast_that_a_server_did_not_run_or_that_another_one_ran_is_found() {
    let name = name(Plan::Everywhere);
    let ran = |process: u16| [(3, Step::Start(0), process), (4, Step::Success, process)];
    let chosen = [(1, Step::Intent, 0), (2, Step::Chosen(0b110), 0), (2, Step::Stored, 0)];
    let found = |rest: &[(u64, Step, u16)]| found(name, &[&chosen, rest].concat(), &[], None);
    assert_eq!(found(&[ran(1), ran(2)].concat()), []);
    assert_eq!(found(&ran(1)), [Invariant::Lost]);
    assert_eq!(found(&[ran(1), ran(2), ran(3)].concat()), [Invariant::Phantom]);
    let again = [(5, Step::Start(0), 2), (6, Step::Success, 2)];
    assert_eq!(found(&[&ran(1)[..], &ran(2), &again].concat()), [Invariant::NeedlessRun]);
    // Who was chosen is not known if nobody was told.
    let found = |steps: &[(u64, Step, u16)]| found_in(false, name, steps, &[], None);
    assert_eq!(found(&[&chosen[..1], &ran(1)].concat()), []);
}

/// A task under a limit; those with the same parity have the same key.
fn limited(queue: u8, number: u32) -> Name {
    Name { plan: Plan::Limited, queue, producer: 0, number }
}

/// What is found in one lane, when its tasks have run on these processes from and until these times.
fn found_in_lane(queue: u8, runs: &[(u64, u64, u16)], faults: &[Happened]) -> Vec<Invariant> {
    let of_task = |(number, (from, to, process)): (u32, &(u64, u64, u16))| {
        let steps = [
            (2 * u64::from(number) + 1, Step::Intent, 0),
            (2 * u64::from(number) + 2, Step::Stored, 0),
            (*from, Step::Start(0), *process),
            (*to, Step::Success, *process),
        ];
        let key = limited(queue, 2 * number + 2).key();
        steps.map(|(at, step, process)| Entry { task: key, at, step, process })
    };
    found_by(false, &Heard::default(), (0..).zip(runs).flat_map(of_task).collect(), faults, None)
}

#[test]
fn more_tasks_of_a_key_at_once_than_its_limit_allows_are_found() {
    let killed = [Happened { kind: Kind::KillWorker, process: Some(1), from: 25, to: 26 }];
    let fine = [(20, 30, 1), (21, 31, 2), (30, 40, 3)];
    let over = [(20, 30, 1), (21, 31, 2), (29, 40, 3)];
    assert_eq!(found_in_lane(0, &fine, &[]), []);
    assert_eq!(found_in_lane(0, &over, &[]), [Invariant::OverLimit]);
    assert_eq!(found_in_lane(0, &over, &killed), [], "its slot may be free from the kill on");
    let dead_later = [Happened { from: 30, ..killed[0] }];
    assert_eq!(found_in_lane(0, &over, &dead_later), [Invariant::OverLimit]);
    assert_eq!(found_in_lane(1, &fine, &[]), [Invariant::OverLimit], "the second queue has a cap of one");
}

#[test]
fn a_task_that_overtakes_another_one_of_its_key_is_found() {
    assert_eq!(found_in_lane(2, &[(20, 30, 1), (30, 40, 2)], &[]), []);
    assert_eq!(found_in_lane(2, &[(30, 40, 1), (20, 30, 2)], &[]), [Invariant::OutOfOrder]);
    assert_eq!(found_in_lane(1, &[(30, 40, 1), (20, 30, 2)], &[]), [], "the second queue has no order");
    // It was not stored when the second one was about to be.
    assert_eq!(found_in_lane(2, &[(30, 40, 1), (3, 20, 2)], &[]), [Invariant::OutOfOrder]);
}

#[test]
fn a_task_that_ends_otherwise_than_planned_or_too_early_is_found() {
    let archived = Some(stored(name(Plan::Plain), "archived", None));
    let ran = after(&[(3, Step::Start(0), 1), (4, Step::Success, 1)]);
    assert_eq!(found(name(Plan::Plain), &ran, &[], archived), [Invariant::WrongEnd]);
    assert_eq!(found(name(Plan::Scheduled), &ran, &[], None), [Invariant::Early]);
}

#[test]
fn a_member_that_could_not_add_until_its_retries_were_spent_is_rightly_in_the_archive() {
    let adder = name(Plan::Adder);
    let failing = |runs| {
        let run = |n| [(3 + 2 * u64::from(n), Step::Start(n), 1), (4 + 2 * u64::from(n), Step::Failure, 1)];
        after(&(0..runs).flat_map(run).collect::<Vec<_>>())
    };
    let is_wrong = |runs, error: &str| {
        let mut task = stored(adder, "archived", None);
        let message = task.message.as_mut().unwrap();
        (message.retry, message.retried, message.error_msg) = (2, 2, error.to_owned());
        found(adder, &failing(runs), &[], Some(task)).contains(&Invariant::WrongEnd)
    };
    assert!(!is_wrong(3, "Redis refused ZADD: OOM"));
    assert!(is_wrong(2, "Redis refused ZADD: OOM"), "too early");
    assert!(is_wrong(3, "panic: no reason to"));
}

/// A task that killed processes 1 and 2, as it is in the archive.
fn poison(holders: &[u32], crashes: usize, retried: i32) -> Stored {
    given_up(name(Plan::Poison), holders, crashes, retried)
}

fn given_up(name: Name, holders: &[u32], crashes: usize, retried: i32) -> Stored {
    let held: Vec<String> = holders.iter().map(|pid| format!("h:{pid}:u until 2026-11-22T00:00:00Z")).collect();
    let mut task = stored(name, "archived", None);
    if let Some(message) = &mut task.message {
        let held = held.join(", ");
        message.error_msg =
            format!("asynq: task lease expired; given up after {crashes} crashes, it was held by {held}");
        message.retried = retried;
    }
    task
}

/// A digest of these members that was given up.
fn digest(members: &[Name], holders: &[u32], crashes: usize) -> Stored {
    let mut task = given_up(name(Plan::Plain), holders, crashes, 0);
    if let Some(message) = &mut task.message {
        let members: Vec<String> = members.iter().map(Name::to_string).collect();
        message.headers.clear();
        message.r#type = DIGEST.to_owned();
        message.payload = members.join(" ").into();
    }
    task
}

#[test]
fn the_members_of_a_digest_that_was_given_up_are_in_it_and_no_other_task_of_a_group_may_be_missing() {
    let kill = |fault: Happened| Happened { kind: Kind::KillWorker, ..fault };
    let killed: Vec<_> = deaths(&[1, 2]).into_iter().map(kill).collect();
    let member = name(Plan::Grouped);
    let found = |task| found(member, &ENQUEUED, &killed, task);
    assert_eq!(found(Some(digest(&[member], &[101, 102], 2))), []);
    assert_eq!(found(None), [Invariant::Lost]);
    let other = Name { number: 3, ..member };
    assert_eq!(found(Some(digest(&[other], &[101, 102], 2))), [Invariant::Lost], "it is in no digest");
    let elsewhere = Name { queue: 1, ..member };
    assert_eq!(found(Some(digest(&[elsewhere], &[101, 102], 2))), [Invariant::Lost], "groups are of one queue");
}

#[test]
fn a_digest_that_was_given_up_needs_workers_that_lost_it_and_a_budget_that_is_spent() {
    let kill = |fault: Happened| Happened { kind: Kind::KillWorker, ..fault };
    let killed: Vec<_> = deaths(&[1, 2]).into_iter().map(kill).collect();
    let member = name(Plan::Grouped);
    let found = |holders: &[u32], crashes| found(member, &ENQUEUED, &killed, Some(digest(&[member], holders, crashes)));
    assert_eq!(found(&[101, 103], 2), [Invariant::WrongEnd], "nothing had happened to process 3");
    assert_eq!(found(&[101], 1), [Invariant::Budget], "too early");
    let mut failed = digest(&[member], &[101, 102], 2);
    if let Some(message) = &mut failed.message {
        "panic: no reason to".clone_into(&mut message.error_msg);
    }
    let found = self::found(member, &ENQUEUED, &killed, Some(failed));
    assert_eq!(found, [Invariant::Lost, Invariant::WrongEnd], "its handler has no reason to fail");
}

fn deaths(processes: &[u16]) -> Vec<Happened> {
    let death = |process: &u16| {
        let at = 10 * u64::from(*process);
        Happened { kind: Kind::Poison, process: Some(*process), from: at, to: at + 2 }
    };
    processes.iter().map(death).collect()
}

#[test]
fn a_task_that_kills_its_workers_has_to_be_given_up_in_time_and_with_their_names() {
    let runs = after(&[(11, Step::Start(0), 1), (21, Step::Start(0), 2)]);
    let found = |task| found(name(Plan::Poison), &runs, &deaths(&[1, 2]), task);
    assert_eq!(found(Some(poison(&[101, 102], 2, 0))), []);
    assert_eq!(found(Some(poison(&[101, 102], 2, 1))), [Invariant::RetrySpent]);
    assert_eq!(found(Some(poison(&[101, 102], 3, 0))), [Invariant::Budget], "too late");
    assert_eq!(found(Some(poison(&[101], 1, 0))), [Invariant::Budget], "too early");
    assert_eq!(found(Some(poison(&[101, 103], 2, 0))), [Invariant::Budget], "process 2 is not named");
    assert_eq!(found(Some(poison(&[101, 999], 2, 0))), [Invariant::Budget], "nobody has that number");
    assert_eq!(found(None), [Invariant::Lost]);
    assert_eq!(found(Some(stored(name(Plan::Poison), "completed", Some("2 21")))), [Invariant::WrongEnd]);
    let mut silent = poison(&[], 0, 0);
    if let Some(message) = &mut silent.message {
        "asynq: task lease expired".clone_into(&mut message.error_msg);
    }
    assert_eq!(found(Some(silent)), [Invariant::Budget], "no names at all");
}

#[test]
fn a_task_that_kills_its_workers_must_not_run_once_more() {
    let runs = after(&[(11, Step::Start(0), 1), (21, Step::Start(0), 2), (31, Step::Start(0), 3)]);
    let found = |task| found(name(Plan::Poison), &runs, &deaths(&[1, 2, 3]), task);
    assert_eq!(found(Some(poison(&[101, 102], 2, 0))), [Invariant::Budget]);
}

#[test]
fn a_task_is_given_up_with_workers_that_lost_their_tasks_even_if_none_had_begun_it() {
    let found = |killed: &[u16], holders: &[u32], crashes| {
        let kill = |fault: Happened| Happened { kind: Kind::KillWorker, ..fault };
        let faults: Vec<_> = deaths(killed).into_iter().map(kill).collect();
        let name = name(Plan::Plain);
        found(name, &ENQUEUED, &faults, Some(given_up(name, holders, crashes, 0)))
    };
    assert_eq!(found(&[1, 2], &[101, 102], 2), []);
    assert_eq!(found(&[1], &[101, 102], 2), [Invariant::WrongEnd], "nothing had happened to process 2");
    assert_eq!(found(&[1, 2], &[101, 999], 2), [Invariant::WrongEnd], "nobody has that number");
    assert_eq!(found(&[1, 2], &[101, 102], 3), [Invariant::Budget], "too late");
}

#[test]
fn who_had_poison_and_did_not_begin_needs_another_reason_to_crash() {
    let runs = after(&[(11, Step::Start(0), 1)]);
    let found = |faults: &[Happened]| {
        let faults = [&deaths(&[1]), faults].concat();
        found(name(Plan::Poison), &runs, &faults, Some(poison(&[101, 102], 2, 0)))
    };
    assert_eq!(found(&[]), [Invariant::Budget]);
    assert_eq!(found(&[Happened { kind: Kind::KillWorker, process: Some(2), from: 20, to: 22 }]), []);
}

#[test]
fn go_spends_retries_on_crashes_and_archives_when_none_are_left() {
    let runs = after(&[(11, Step::Start(0), 1), (21, Step::Start(3), 2)]);
    let found = |retried| {
        let mut task = poison(&[], 0, retried);
        if let Some(message) = &mut task.message {
            "asynq: task lease expired".clone_into(&mut message.error_msg);
        }
        found_in(true, name(Plan::Poison), &runs, &deaths(&[1, 2]), Some(task))
    };
    assert_eq!(found(3), []);
    assert_eq!(found(2), [Invariant::Budget]);
    let by_ours = |holders: &[u32]| {
        let task = poison(holders, 2, 1);
        found_in(true, name(Plan::Poison), &runs, &deaths(&[1, 2]), Some(task))
    };
    assert_eq!(by_ours(&[101, 102]), []);
    assert_eq!(by_ours(&[101, 999]), [Invariant::Budget]);
}

#[test]
fn a_task_in_a_mixed_fleet_runs_as_often_as_both_budgets_allow_and_not_once_more() {
    let runs = |times: u64| {
        let first = [(11, Step::Start(0), 1)];
        let rest = (1..times).map(|n| (20 + n, Step::Start(0), 2));
        after(&first.into_iter().chain(rest).collect::<Vec<_>>())
    };
    let dead = [deaths(&[1])[0], Happened { kind: Kind::Poison, process: Some(2), from: 20, to: 30 }];
    let by_ours = |times| found_in(true, name(Plan::Poison), &runs(times), &dead, Some(poison(&[101, 102], 2, 1)));
    assert_eq!(by_ours(3), []);
    assert_eq!(by_ours(4), [Invariant::Budget]);
    let by_go = |times| {
        let mut task = poison(&[], 0, 3);
        if let Some(message) = &mut task.message {
            "asynq: task lease expired".clone_into(&mut message.error_msg);
        }
        found_in(true, name(Plan::Poison), &runs(times), &dead, Some(task))
    };
    assert_eq!(by_go(5), []);
    assert_eq!(by_go(6), [Invariant::Budget]);
}

#[test]
fn a_worker_that_is_killed_by_nobody_is_found() {
    let ran = after(&[(11, Step::Start(0), 1), (12, Step::Success, 1)]);
    assert_eq!(found(name(Plan::Plain), &ran, &deaths(&[1]), None), [Invariant::Fallen]);
}

#[test]
fn a_task_that_begins_after_its_cancellation_was_confirmed_is_found() {
    let unwanted = name(Plan::Unwanted);
    let archived = || Some(stored(unwanted, "archived", None));
    let done = [(3, Step::Asked, 0), (4, Step::Cancelled, 0)];
    assert_eq!(found(unwanted, &after(&done), &[], archived()), []);
    let late = after(&[done[0], done[1], (5, Step::Start(0), 1), (6, Step::Archive, 1)]);
    assert_eq!(found(unwanted, &late, &[], archived()), [Invariant::NotCancelled]);
    let deleted = after(&[done[0], (5, Step::Start(0), 1), (6, Step::Success, 1)]);
    assert_eq!(found(unwanted, &deleted, &[], None), [], "a handler that succeeds all the same has succeeded");
    assert_eq!(found(unwanted, &after(&done), &[], None), [Invariant::Lost]);
    assert_eq!(found(unwanted, &ENQUEUED, &[], archived()), [Invariant::WrongEnd]);
}

#[test]
fn a_run_that_does_not_go_on_from_a_stored_checkpoint_is_found() {
    let careful = name(Plan::Careful);
    let killed = [Happened { kind: Kind::KillWorker, process: Some(1), from: 6, to: 7 }];
    let runs = |from| {
        let first = [(3, Step::Start(0), 1), (4, Step::From(0), 1), (5, Step::Kept(2), 1)];
        let second = [(8, Step::Start(0), 2), (9, Step::From(from), 2), (10, Step::Success, 2)];
        found(careful, &after(&[&first[..], &second].concat()), &killed, None)
    };
    assert_eq!((runs(2), runs(3)), (vec![], vec![]));
    assert_eq!(runs(1), [Invariant::Checkpoint]);
}

#[test]
fn news_of_a_success_that_had_not_come_is_found() {
    let steps = after(&[(3, Step::Start(0), 1), (5, Step::Success, 1)]);
    let heard = |at| found_and_heard(false, Some(at), name(Plan::Plain), &steps, &[], None);
    assert_eq!(heard(6), []);
    assert_eq!(heard(4), [Invariant::FalseNews]);
}
