//! The harness can fail: whatever is done behind its back, it finds.

use std::process::{Command, Output};

fn run(more: &[&str]) -> Output {
    let small = ["run", "--seed", "1", "--faults", "0", "--tasks", "300", "--rate", "300", "--skew-secs", "0"];
    let small = small.into_iter().chain(["--max-crashes", "0"]);
    Command::new(env!("CARGO_BIN_EXE_queue-chaos")).args(small).args(more).output().unwrap()
}

#[track_caller]
fn assert_finds(tamper: &str, what: &str) {
    let patience = match tamper {
        // What waits for ever is not waited for,
        "stick" => "15",
        // nor are groups of the worker that was killed, which others take over after two minutes.
        "budget" => "75",
        _ => "300",
    };
    let output = run(&["--tamper", tamper, "--patience-secs", patience]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let findings = text.split("## Findings").nth(1).unwrap_or_default();
    assert!(findings.contains(&format!("* {what}: ")), "{text}");
}

#[test]
fn nothing_is_found_where_nothing_was_done() {
    let output = run(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_task_that_was_deleted_is_found() {
    assert_finds("lose", "lost");
}

#[test]
fn a_task_that_never_comes_to_its_end_is_found() {
    assert_finds("stick", "stuck");
}

#[test]
fn a_task_that_runs_twice_for_no_reason_is_found() {
    assert_finds("repeat", "ran again needlessly");
}

#[test]
fn a_task_that_kills_its_worker_and_is_given_up_at_the_wrong_time_is_found() {
    assert_finds("budget", "crash budget");
}

#[test]
fn a_limit_that_nobody_goes_by_is_found() {
    assert_finds("unlimit", "over the limit");
}

#[test]
fn a_task_in_two_places_is_found() {
    assert_finds("double", "in two places");
}

#[test]
fn a_hash_without_a_place_is_found() {
    assert_finds("orphan", "orphan key");
}

#[test]
fn a_lock_that_nobody_has_is_found() {
    assert_finds("lock", "leaked lock");
}

#[test]
fn a_counter_that_is_off_by_one_is_found() {
    assert_finds("count", "counter");
}
