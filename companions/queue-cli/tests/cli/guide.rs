//! The commands of README and documents are run as they stand there.

use queue_admin::Error;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use queue_core::TaskState;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::support::{Bench, finish, queuectl};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The code blocks of a document that are in this language, in their order.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let after = document.split(&start).skip(1);
    after.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// The block that has this in it.
#[track_caller]
fn block(document: &str, language: &str, part: &str) -> String {
    let found = blocks(document, language).into_iter().find(|block| block.contains(part));
    found.unwrap_or_else(|| panic!("no {language} block with {part:?}"))
}

/// A shell in the directory of the test, where `queuectl` and `redis-cli` are on this Redis.
fn shell(bench: &Bench, script: &str) -> Command {
    let tools = bench.path("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let cli = tools.join("redis-cli");
    let socket = bench.redis.socket().display();
    // Into a pipe it would write without the numbers and quotes that a terminal shows.
    std::fs::write(&cli, format!("#!/bin/sh\nPATH=$REST exec redis-cli --no-raw -s {socket} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&cli, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_queuectl")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([tools, built].into_iter().chain(std::env::split_paths(&rest))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).env("PATH", path).env("REST", rest).current_dir(bench.directory.path());
    shell.env("REDIS_URL", bench.redis.url()).env_remove("QUEUECTL_LOG").kill_on_drop(true);
    shell
}

async fn run(bench: &Bench, script: &str) -> String {
    finish(shell(bench, script), b"").await.ok()
}

/// A line without what is another one each time: widths, times, numbers of processes and runs.
fn lasting(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let quoted = word.trim_matches('"');
        let is_time = quoted.len() >= 10 && quoted.bytes().all(|byte| byte.is_ascii_digit());
        let is_owner =
            quoted.matches(':').count() == 3 && quoted.rsplit(':').next().is_some_and(|run| run.parse::<u64>().is_ok());
        match word {
            "ago" => drop(words.pop()),
            "now" => continue,
            _ if is_time => words.push("TIME"),
            _ if is_owner => words.push("OWNER"),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// Runs the commands of a `console` block, and compares what they say with what stands below them.
async fn assert_console(bench: &Bench, block: &str) {
    for command in block.split("$ ").skip(1) {
        let (command, expected) = command.split_once('\n').unwrap();
        let said = run(bench, command).await;
        let lines = |text: &str| text.lines().map(lasting).collect::<Vec<_>>();
        assert_eq!(lines(&said), lines(expected), "{command}");
    }
}

/// The arguments of each `queuectl …` in a text, up to what the shell does with it.
fn calls(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let mut calls = Vec::new();
    for line in text.lines() {
        for call in line.split("queuectl ").skip(1) {
            let call = call.split(" #").next().unwrap_or_default();
            // What is left open here is closed in another piece of the line.
            let words = shell_words::split(call).unwrap_or_default();
            let ends = |word: &String| ["|", "||", ">", ">>", "&", "…", "&&"].contains(&word.as_str());
            let words = words.into_iter().take_while(|word| !ends(word));
            calls.push(words.map(|word| word.trim_end_matches(')').to_owned()).collect());
        }
    }
    calls
}

/// README and documents.
fn documents() -> Vec<String> {
    let mut files = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        files.extend(name.ends_with(".md").then(|| format!("docs/{name}")));
    }
    files
}

/// What is between backticks in the sentences of a document.
fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// Commands in sentences have placeholders, and leave out what the sentence does not need: only what they name is checked.
#[tokio::test]
async fn every_command_and_option_that_a_sentence_of_the_documents_names_is_known() {
    let part_of_a_name = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
    let (mut helps, mut unknown, mut count) = (HashMap::new(), Vec::new(), 0);
    for file in documents().into_iter().chain(["CHANGELOG.md".to_owned()]) {
        let text = document(&file);
        let commands = quoted(&text).filter(|code| code.starts_with("queuectl ")).map(|code| code.replace('\n', " "));
        for words in commands.flat_map(|command| calls(&command)) {
            let names = words.iter().take_while(|word| !word.starts_with('-') && word.chars().all(part_of_a_name));
            let names: Vec<String> = names.cloned().collect();
            if !helps.contains_key(&names) {
                let mut command = queuectl();
                command.args(&names).arg("--help");
                helps.insert(names.clone(), finish(command, b"").await.stdout);
            }
            let known: HashSet<&str> = helps[&names].split(|c| !part_of_a_name(c)).collect();
            let options =
                words.iter().filter_map(|word| word.trim_start_matches('[').split(|c| !part_of_a_name(c)).next());
            let mut options = options.filter(|word| word.starts_with('-') && !word.ends_with('-'));
            // Of what is unknown there is no help.
            if known.len() < 2 || options.any(|option| !known.contains(option)) {
                unknown.push(format!("{file}: {}", words.join(" ")));
            }
            count += 1;
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(count > 100, "only {count} commands were found");
}

#[tokio::test]
async fn every_command_of_the_documents_is_understood() {
    let mut count = 0;
    for file in documents() {
        let text = document(&file);
        let commands = blocks(&text, "sh").into_iter().chain(
            blocks(&text, "console")
                .into_iter()
                .map(|block| block.lines().filter_map(|line| line.strip_prefix("$ ")).collect::<Vec<_>>().join("\n")),
        );
        for arguments in commands.flat_map(|block| calls(&block)) {
            // The help comes after what stands before it was understood.
            let mut command = queuectl();
            command.args(&arguments).arg("--help");
            let done = finish(command, b"").await;
            assert_eq!(done.code, Some(0), "{file}: {arguments:?}: {}", done.stderr);
            count += 1;
        }
    }
    assert!(count > 20, "only {count} commands were found");
}

#[tokio::test]
async fn every_command_of_the_containers_is_understood() {
    let compose = document("deploy/docker/compose.yml");
    let commands = compose.lines().filter_map(|line| line.trim().strip_prefix("command: "));
    let ours: Vec<&str> = commands.filter(|command| !command.starts_with("redis-server")).collect();
    assert_eq!(ours.len(), 4);
    for command in ours {
        let mut queuectl = queuectl();
        queuectl.args(shell_words::split(command).unwrap()).arg("--help");
        let done = finish(queuectl, b"").await;
        assert_eq!(done.code, Some(0), "{command}: {}", done.stderr);
    }
    // What the scheduler's service mounts is there.
    assert!(root().join("companions/queue-cli/scheduler.example.toml").exists());
}

#[tokio::test]
async fn the_worker_without_rust_does_what_the_document_shows() {
    let (bench, page) = (Bench::new().await, document("docs/shell.md"));
    let script = block(&page, "sh", "send-mail").replace("redis://127.0.0.1:6379", bench.redis.url());
    let (setup, worker) = script.split_once("queuectl worker ").unwrap();
    run(&bench, setup).await;
    let arguments = shell_words::split(worker).unwrap();
    let arguments: Vec<&str> = ["worker"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let _worker = bench.background(&arguments, "server started").await;
    until(&bench, "ada", TaskState::Completed).await;
    until(&bench, "nobody", TaskState::Archived).await;
    assert_console(&bench, &block(&page, "console", "sent, attempt 1")).await;
}

/// Waits until a task of the queue `mail` is in this state.
async fn until(bench: &Bench, id: &str, state: TaskState) {
    let end = async {
        while bench.inspector.task("mail", id).await.unwrap().state != state {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), end).await.unwrap();
}

#[tokio::test]
async fn redis_cli_shows_what_the_document_says() {
    let (bench, page) = (Bench::new().await, document("docs/start.md"));
    assert_console(&bench, &block(&page, "console", "HGETALL")).await;
    let _worker = bench.worker(&["--queue", "mail", "--exec", "*=sleep 600"]).await;
    until(&bench, "w7", TaskState::Active).await;
    assert_console(&bench, &block(&page, "console", "state owner")).await;
}

#[tokio::test]
async fn a_task_is_waited_for_as_the_document_says() {
    let (bench, cli) = (Bench::new().await, document("docs/cli.md"));
    let _worker = bench.worker(&["--exec", "report:build=sh -c 'echo built from $(cat)'"]).await;
    run(&bench, &block(&cli, "sh", "report:build")).await;
    assert_eq!(std::fs::read_to_string(bench.path("report")).unwrap(), "built from {\"month\":\"2026-10\"}");
}

#[tokio::test]
async fn a_batch_is_made_as_the_document_says() {
    let (bench, cli) = (Bench::new().await, document("docs/cli.md"));
    let _worker = bench.worker(&["--exec", "import:row=true", "--exec", "import:report=true"]).await;
    let said = run(&bench, &block(&cli, "sh", "batch create")).await;
    assert!(said.contains("succeeded: 3 of 3 members succeeded") && said.contains("import of November"), "{said}");
}

#[tokio::test]
async fn a_workflow_is_made_as_the_document_says() {
    let (bench, cli) = (Bench::new().await, document("docs/cli.md"));
    let _worker = bench.worker(&["--exec", "release:*=true"]).await;
    let said = run(&bench, &block(&cli, "sh", "workflow create")).await;
    assert!(said.contains("succeeded: 2 of 3 members succeeded, 1 skipped"), "{said}");
}

#[tokio::test]
async fn a_queue_is_moved_as_the_document_says() {
    let (old, new, cli) = (Bench::new().await, Bench::new().await, document("docs/cli.md"));
    run(&old, "queuectl enqueue t --queue mail --task-id moved").await;
    run(&old, &block(&cli, "sh", "--drain").replace("redis://new", new.redis.url())).await;
    assert_eq!(new.inspector.task("mail", "moved").await.unwrap().state, TaskState::Pending);
    assert!(!new.inspector.queue("mail").await.unwrap().paused);
    let gone = old.inspector.queue("mail").await;
    assert!(matches!(gone, Err(Error::QueueNotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn the_doctor_works_as_the_document_says() {
    let (bench, doctor) = (Bench::new().await, document("docs/doctor.md"));
    for queue in ["mail", "media"] {
        run(&bench, &format!("queuectl enqueue t --queue {queue}")).await;
    }
    bench.ask::<()>(&["SET", "asynq:{mail}:unique:t:x", "nobody"]).await;
    for line in block(&doctor, "sh", "--restore").lines() {
        let _ = finish(shell(&bench, line), b"").await;
        let is_there: bool = bench.ask(&["EXISTS", "asynq:{mail}:unique:t:x"]).await;
        assert_eq!(is_there, !line.contains("--dump"), "{line}");
    }
}
