//! However it ends, the terminal is as it was.

use queue_core::RawTask;
use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::Fleet;
use crate::terminal::{self, Terminal};

async fn started(environment: &[(&str, &str)]) -> (Fleet, Terminal) {
    let fleet = Fleet::new().await;
    fleet.enqueue("one", RawTask::new("t").queue("mail")).await;
    let terminal = Terminal::start(fleet.url(), (80, 24), "", environment);
    (fleet, terminal)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_signals_end_the_dashboard_and_give_the_terminal_back() {
    if !terminal::is_there() {
        return;
    }
    let keys: [&[&str]; 4] = [&["q"], &["Escape"], &["C-c"], &["Enter", "?", "C-c"]];
    for keys in keys {
        let (_fleet, terminal) = started(&[]).await;
        terminal.wait_for(">mail");
        assert_eq!((terminal.variable("alternate_on"), terminal.variable("cursor_flag")), ("1".into(), "0".into()));
        terminal.press(keys);
        assert_eq!(terminal.ended(), 0, "{keys:?}");
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let (_fleet, terminal) = started(&[]).await;
        terminal.wait_for(">mail");
        let pid = i32::try_from(terminal.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        assert_eq!(terminal.ended(), code, "{signal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_panic_or_an_error_the_terminal_is_given_back_and_the_message_can_be_read() {
    // What makes it fail is not in a release.
    if !cfg!(debug_assertions) || !terminal::is_there() {
        return;
    }
    for (failure, code, message) in
        [("panic", 101, "the dashboard was told to panic"), ("error", 1, "queuectl: error: cannot use the terminal")]
    {
        let (_fleet, terminal) = started(&[("QUEUECTL_DASH_FAILS", failure), ("RUST_BACKTRACE", "0")]).await;
        assert_eq!(terminal.ended(), code);
        let screen = terminal.wait_for(message);
        assert!(!screen.iter().any(|line| line.contains("QUEUE ")), "{screen:#?}");
    }
}

#[tokio::test]
async fn the_dashboard_refuses_wrong_flags_and_a_pipe() {
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_queuectl"));
        let output = command.env_remove("REDIS_URL").args(arguments).output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (arguments, code, message) in [
        (&["dash", "--refresh", "249ms"][..], 2, "--refresh must be 250ms or more"),
        (&["dash", "--json"], 2, "--json is not for the dashboard"),
        (&["dash"], 1, "the dashboard needs a terminal"),
    ] {
        let (ended, said) = run(arguments).await;
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains(message), "{said}");
    }
}
