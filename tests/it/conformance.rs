//! The testing kit's store obeys the same tests as Redis.

use std::process::Command;

/// Tests of what only a server of its own has: an address, a process that can be killed, statistics, users,
/// settings, streams that are read.
const OF_A_SERVER: [&str; 21] = [
    "the_health_hook_tells_when_redis_goes_and_comes",
    "a_report_overtaken_by_a_renewal",
    "scheduler::faults",
    "doctor::copies::undo_restores",
    "doctor::damage::a_list_that_stands_twice",
    "doctor::interrupted",
    "cluster::doctor",
    "idle::a_refused_question",
    "server::renewal",
    "server::leading",
    "a_server_whose_start_is_given_up",
    "a_full_redis_can_be_emptied",
    "what_is_done_is_written_down",
    "reports_that_travel_with_one_that_is_refused",
    "a_task_may_survive_fewer_crashes",
    "a_server_whose_listener_is_cut_off",
    "a_task_of_a_stopped_worker",
    "of_fifty_who_publish",
    "tasks_go_into_the_bin_and_back_in_short_calls",
    "an_operation_interrupts_no_task_of_another_queue",
    "a_removal_that_is_refused_half_way",
];

/// Tests that do something beside the removal of a queue. One relies on how two tasks of one thread take turns: it
/// lists the queue, and has lost if the removal ends before it enqueues. Two need a search through 300,000 keys,
/// each step of which the store makes as long as Redis makes the whole.
const BESIDE_A_REMOVAL: [&str; 1] = ["during_a_removal"];

/// Runs tests of this program anew, on the store. They are those that run on Redis anyway, compiled once.
#[test]
fn store_of_the_testing_kit_behaves_as_redis() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([
        "transitions::",
        "inspector::",
        "doctor::",
        "abandoned::",
        "races::",
        "server::",
        "scheduler::",
        "client::batch",
        "client::options",
        "client::publish",
        "client::unique",
    ]);
    // Most of them wait most of the time.
    again.args(["--test-threads", "8"]);
    OF_A_SERVER.iter().chain(&BESIDE_A_REMOVAL).for_each(|name| {
        again.args(["--skip", name]);
    });
    // Without programs: should one of them start a Redis after all, it fails.
    let output = again.env("QUEUE_TESTS_STORE", "memory").env("PATH", "").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = told.lines().filter(|line| line.ends_with(" ... ok")).count();
    assert!(passed > 150, "only {passed} tests were found:\n{told}");
}
