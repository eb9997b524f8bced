use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use queue_core::RawTask;
use queue_core::clock::UnixSecond;

use super::*;
use crate::spec::Zone;
use crate::{Entry, EntryProblem};

/// 2026-03-01 00:00:00 UTC, a Sunday.
const MIDNIGHT: i64 = 1_772_323_200;
const HOUR: i64 = 3_600;

fn entry(spec: &str) -> Entry {
    Entry::new(spec, RawTask::new("t")).name("e")
}

fn schedule(entry: &Entry) -> Schedule {
    entry.check(&Zone::UTC).unwrap()
}

fn ticks(steps: &[Step]) -> Vec<(&'static str, i64)> {
    let why = |why| match why {
        Why::Tick => "tick",
        Why::Missed => "missed",
        _ => "let go",
    };
    steps.iter().map(|step| (why(step.why), (step.tick - MIDNIGHT) / 60)).collect()
}

#[test]
fn a_tick_is_run_when_it_has_come() {
    let hourly = schedule(&entry("@hourly"));
    assert_eq!(hourly.plan(MIDNIGHT, MIDNIGHT + HOUR - 1), []);
    assert_eq!(ticks(&hourly.plan(MIDNIGHT, MIDNIGHT + HOUR)), [("tick", 60)]);
    assert_eq!(ticks(&hourly.plan(MIDNIGHT, MIDNIGHT + HOUR + 60)), [("tick", 60)], "a minute late is in time");
    assert_eq!(hourly.plan(MIDNIGHT + HOUR, MIDNIGHT + HOUR + 60), [], "it has been dealt with");
    assert_eq!(hourly.next_due(MIDNIGHT), Some(MIDNIGHT + HOUR));
}

#[test]
fn missed_ticks_follow_the_policy() {
    // Three and a half hours of nothing.
    let now = MIDNIGHT + 3 * HOUR + 1_800;
    let plan = |policy| ticks(&schedule(&entry("@hourly").missed(policy)).plan(MIDNIGHT, now));
    assert_eq!(plan(Missed::Skip), [("let go", 180)]);
    assert_eq!(plan(Missed::Last), [("let go", 120), ("missed", 180)]);
    assert_eq!(plan(Missed::All(2)), [("let go", 60), ("missed", 120), ("missed", 180)]);
    assert_eq!(plan(Missed::All(9)), [("missed", 60), ("missed", 120), ("missed", 180)]);
    let let_go = schedule(&entry("@hourly")).plan(MIDNIGHT, now);
    assert_eq!(let_go[0].why, Why::LetGo { from: MIDNIGHT + HOUR });
}

#[test]
fn a_tick_in_time_makes_up_for_missed_ones_when_one_run_is_wanted() {
    let now = MIDNIGHT + 3 * HOUR + 10;
    let plan = |policy| ticks(&schedule(&entry("@hourly").missed(policy)).plan(MIDNIGHT, now));
    assert_eq!(plan(Missed::Skip), [("let go", 120), ("tick", 180)]);
    assert_eq!(plan(Missed::Last), [("let go", 120), ("tick", 180)]);
    assert_eq!(plan(Missed::All(1)), [("let go", 60), ("missed", 120), ("tick", 180)]);
}

#[test]
fn years_of_missed_ticks_are_no_work() {
    let plan = |spec: &str, policy| schedule(&entry(spec).missed(policy)).plan(0, MIDNIGHT + 30);
    assert_eq!(plan("@every 1s", Missed::All(1_000)).len(), 1_000 + 1 + 6, "made up for, let go, in time");
    assert_eq!(ticks(&plan("* * * * *", Missed::Last)), [("let go", -1), ("tick", 0)]);
    let yearly = plan("@yearly", Missed::All(3));
    assert_eq!(yearly.iter().filter(|step| step.why == Why::Missed).count(), 3);
}

#[test]
fn all_schedulers_delay_a_tick_alike_and_never_beyond_the_next() {
    let jittery = schedule(&entry("*/5 * * * *").jitter(Duration::from_secs(3_600)));
    let mut delays = Vec::new();
    let mut tick = MIDNIGHT;
    for _ in 0..200 {
        let next = jittery.next_tick(tick).unwrap();
        let due = jittery.due_at(tick);
        assert!((tick..next).contains(&due), "{due}");
        delays.push(due - tick);
        tick = next;
    }
    assert!(delays.iter().max() > Some(&270) && delays.iter().min() < Some(&30), "{delays:?}");
    let again = schedule(&entry("*/5 * * * *").jitter(Duration::from_secs(3_600)));
    assert_eq!(again.due_at(MIDNIGHT), jittery.due_at(MIDNIGHT));
    let other = schedule(&entry("*/5 * * * *").jitter(Duration::from_secs(3_600)).name("other"));
    assert!((0..20).any(|n| other.due_at(MIDNIGHT + n * 300) != jittery.due_at(MIDNIGHT + n * 300)));
    // Versions that run side by side must agree on the value itself:
    // int.from_bytes(sha256(b"e:1772323200").digest()[:6], "big") % 300
    assert_eq!(jittery.due_at(MIDNIGHT) - MIDNIGHT, 175);
}

#[test]
fn ticks_begin_and_end_when_told() {
    let at = |secs: i64| UNIX_EPOCH + Duration::from_secs(secs as u64);
    let limited = entry("@every 90m").starts(at(MIDNIGHT + 60)).ends(at(MIDNIGHT + 60 + 5_400));
    assert_eq!(
        limited.ticks(&Zone::UTC, UnixSecond(0), 9).unwrap(),
        [MIDNIGHT + 60, MIDNIGHT + 60 + 5_400].map(UnixSecond)
    );
    let limited = entry("0 * * * *").starts(at(MIDNIGHT)).ends(at(MIDNIGHT + HOUR));
    assert_eq!(limited.ticks(&Zone::UTC, UnixSecond(0), 9).unwrap(), [MIDNIGHT, MIDNIGHT + HOUR].map(UnixSecond));
    assert_eq!(schedule(&limited).next_due(MIDNIGHT + HOUR), None);
}

#[test]
fn entries_that_make_no_sense_are_refused_by_name() {
    let problem = |entry: Entry| entry.check(&Zone::UTC).unwrap_err().problem;
    let text = |entry: Entry| entry.check(&Zone::UTC).unwrap_err().to_string();
    for name in ["", "a b", "a/b", "é", "{x}", &"x".repeat(201)] {
        assert!(matches!(problem(entry("@daily").name(name)), EntryProblem::Name(_)), "{name}");
    }
    assert_eq!(
        text(entry("0 25 * * *").origin("cron.toml:7")),
        "cron.toml:7: entry \"e\": spec \"0 25 * * *\": hour \"25\": 25 is not in 0-23"
    );
    assert!(matches!(problem(entry("@daily").zone("Mars")), EntryProblem::Zone(_)));
    assert!(matches!(problem(entry("TZ=UTC @daily").zone("UTC")), EntryProblem::TwoZones(_)));
    assert!(matches!(problem(Entry::new("@daily", RawTask::new(" "))), EntryProblem::Option(_)));
    assert_eq!(problem(Entry::new("@daily", RawTask::new("t").task_id("x"))), EntryProblem::TaskId);
    assert!(text(entry("@daily").missed(Missed::All(0))).contains("missed is all:0; it must be from 1 to 1000"));
    assert!(text(entry("@daily").max_runs(0)).contains("max_runs is 0"));
    assert!(text(entry("@daily").starts(UNIX_EPOCH + Duration::from_secs(5)).ends(UNIX_EPOCH)).contains("ends"));
    assert!(text(Entry::broken("b", "line 3: no spec")).contains("entry \"b\": line 3: no spec"));
}

#[test]
fn an_entry_without_a_name_has_the_digest_that_go_gives_it() {
    let task = RawTask::new("t").payload("p").queue("low").max_retry(3);
    let schedule = Entry::new("@every 30s", task).check(&Zone::UTC).unwrap();
    // printf '@every 30stpMaxRetry(3)Queue("low")' | sha256sum
    assert_eq!(schedule.name, "efc5a8ddcb79e183f6d92cbdbda679fba876d1755f902c507cb3c8ab0721c990");
    assert_eq!(schedule.task_id(7), format!("{}:7", schedule.name));
}

proptest! {
    #[test]
    fn a_plan_rises_deals_with_all_that_is_due_and_repeats_nothing(
        spec in prop_oneof![Just("* * * * *"), Just("*/7 3-5 * * *"), Just("@hourly"), Just("@every 20s"), Just("0 0 1 * *")],
        missed in prop_oneof![Just(Missed::Skip), Just(Missed::Last), (1_u32..50).prop_map(Missed::All)],
        jitter in 0_u64..600,
        since in 0_i64..40_000,
    ) {
        let schedule = schedule(&entry(spec).missed(missed).jitter(Duration::from_secs(jitter)));
        let now = MIDNIGHT + since;
        let steps = schedule.plan(MIDNIGHT, now);
        prop_assert!(steps.windows(2).all(|pair| pair[0].tick < pair[1].tick), "{steps:?}");
        let all = std::iter::successors(schedule.next_tick(MIDNIGHT), |tick| schedule.next_tick(*tick));
        let due: Vec<i64> = all.take_while(|tick| schedule.due_at(*tick) <= now).collect();
        prop_assert_eq!(steps.last().map(|step| step.tick), due.last().copied());
        // What is let go, made up for and run, together, is what was due.
        let run: Vec<i64> = steps.iter().filter(|step| !matches!(step.why, Why::LetGo { .. })).map(|s| s.tick).collect();
        let let_go = steps.iter().find(|step| matches!(step.why, Why::LetGo { .. })).map_or(MIDNIGHT, |step| step.tick);
        let expected: Vec<i64> = due.iter().copied().filter(|tick| *tick > let_go).collect();
        prop_assert_eq!(run, expected);
        let last = due.last().copied().unwrap_or(MIDNIGHT);
        prop_assert_eq!(schedule.plan(last, now), []);
    }
}
