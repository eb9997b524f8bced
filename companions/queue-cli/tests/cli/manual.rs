//! `queuectl completions` and `man`: they need no Redis.

use crate::support::{Bench, finish, queuectl};

const COMMANDS: [&str; 13] = [
    "enqueue",
    "worker",
    "queue",
    "task",
    "group",
    "server",
    "cron",
    "scheduler",
    "dash",
    "stats",
    "export",
    "import",
    "completions",
];

async fn run(arguments: &[&str]) -> crate::support::Done {
    let mut command = queuectl();
    command.args(arguments).env("REDIS_URL", "redis://127.0.0.1:1");
    finish(command, b"").await
}

#[tokio::test]
async fn completions_know_the_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).await.ok();
        for word in COMMANDS.into_iter().chain(["wait", "inspect", "retention", "max-retry"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    run(&["completions", "tcsh"]).await.failed(2);
    run(&["completions"]).await.failed(2);
}

#[tokio::test]
async fn the_bash_script_completes_a_command() {
    let bench = Bench::new().await;
    let script = run(&["completions", "bash"]).await.ok();
    std::fs::write(bench.path("completions"), script).unwrap();
    let mut bash = tokio::process::Command::new("bash");
    bash.current_dir(bench.directory.path()).args([
        "--norc",
        "-c",
        "source completions; COMP_WORDS=(queuectl ta); COMP_CWORD=1; _queuectl queuectl ta queuectl; echo ${COMPREPLY[@]}",
    ]);
    assert_eq!(finish(bash, b"").await.ok(), "task\n");
}

#[tokio::test]
async fn the_manual_has_a_page_for_each_command() {
    let page = run(&["man"]).await.ok();
    assert!(page.contains(".TH queuectl 1") && page.contains("asynq"), "{page}");
    let bench = Bench::new().await;
    let directory = bench.path("new/man");
    run(&["man", "--out", directory.to_str().unwrap()]).await.ok();
    for name in COMMANDS.into_iter().chain(["task-wait", "task-deleteall", "queue-remove", "task-ls"]) {
        let page = std::fs::read_to_string(directory.join(format!("queuectl-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(std::fs::read_to_string(directory.join("queuectl-task-wait.1")).unwrap().contains("Exit codes"));
    assert!(!directory.join("queuectl-help.1").exists());
    let refused = run(&["man", "--out", "/dev/null/x"]).await.failed(1);
    assert!(refused.contains("cannot write the manual into /dev/null/x"), "{refused}");
}

#[tokio::test]
async fn the_version_is_a_command_too() {
    let version = run(&["version"]).await.ok();
    assert_eq!(version, run(&["--version"]).await.ok());
    assert!(version.starts_with("queuectl 0."));
}
