//! `queuectl web`, and filters as text.

use queue_core::RawTask;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::{Bench, Done};
use crate::terminal::Terminal;

async fn words(bench: &Bench, line: &str) -> Done {
    bench.run(&line.split(' ').collect::<Vec<_>>()).await
}

/// Asks for a path: the status code and the body.
async fn get(address: &str, path: &str, more: &str) -> (String, String) {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

/// Starts it; the address that it prints, and the process.
async fn start(bench: &Bench, more: &[&str]) -> (String, tokio::process::Child) {
    let mut command = bench.command();
    command.arg("web").args(more).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (lines.next_line().await.unwrap().unwrap(), child)
}

#[tokio::test]
async fn the_dashboard_prints_its_address_and_ends_with_a_signal() {
    let bench = Bench::new().await;
    bench.client.enqueue(RawTask::new("t").queue("mail")).await.unwrap();
    let (address, mut child) = start(&bench, &["--addr", "127.0.0.1:0"]).await;
    assert!(address.starts_with("http://127.0.0.1:") && !address.contains(":0/"), "{address}");
    let (code, body) = get(&address, "/api/v1/queues", "").await;
    assert_eq!(code, "200");
    assert!(body.contains(r#""queue":"mail""#), "{body}");
    let (code, page) = get(&address, "/", "").await;
    assert!(code == "200" && page.contains("<main"), "{page}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn the_dashboard_listens_to_others_only_with_tokens_or_by_name() {
    let bench = Bench::new().await;
    let refused = words(&bench, "web --addr 0.0.0.0:0").await.failed(2);
    assert!(refused.contains("--tokens") && refused.contains("--insecure-no-auth"), "{refused}");
    words(&bench, "web --addr nowhere").await.failed(2);
    let refused = words(&bench, "web --insecure-no-auth --tokens /none").await.failed(2);
    assert!(refused.contains("--insecure-no-auth' cannot be used with '--tokens"), "{refused}");
    // A token needs no Redis, and its line makes a file.
    let made = words(&bench, "web token ada --role operator").await;
    let token = made.stdout.trim().to_owned();
    assert!(made.stderr.contains("\nada:operator:") && !made.stderr.contains(&token), "{}", made.stderr);
    // What `2>> tokens` makes.
    let bob = words(&bench, "web token bob --role viewer").await.stderr;
    std::fs::write(bench.directory.path().join("tokens"), made.stderr + &bob).unwrap();
    let (address, mut child) = start(&bench, &["--addr", "0.0.0.0:0", "--tokens", "tokens", "--read-only"]).await;
    let address = address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(get(&address, "/api/v1/me", "").await.0, "401");
    let (code, me) = get(&address, "/api/v1/me", &format!("authorization: Bearer {token}\r\n")).await;
    assert!(code == "200" && me.contains(r#""name":"ada""#) && me.contains(r#""read_only":true"#), "{me}");
    child.kill().await.unwrap();
    std::fs::write(bench.directory.path().join("tokens"), "ada:root:x\n").unwrap();
    let refused = words(&bench, "web --tokens tokens").await.failed(1);
    assert!(refused.contains("line 1"), "{refused}");
}

#[tokio::test]
async fn the_dashboard_listens_on_a_unix_socket() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("web.sock");
    let (address, mut child) = start(&bench, &["--addr", &format!("unix:{}", path.display())]).await;
    assert_eq!(address, format!("unix:{}", path.display()));
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn a_filter_can_be_said_in_one_text() {
    let bench = Bench::new().await;
    for (id, payload) in [("a", r#"{"n":1}"#), ("b", r#"{"n":2}"#), ("c", "two words")] {
        bench.client.enqueue(RawTask::new("t:x").task_id(id).payload(payload)).await.unwrap();
    }
    let found = async |filter: &str| -> Vec<String> {
        let json =
            bench.run(&["task", "ls", "-q", "default", "-s", "pending", "--json", "--filter", filter]).await.json();
        json.as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(found("type:t:* -payload.n:1").await, ["b", "c"]);
    assert_eq!(found("\"two words\"").await, ["c"]);
    let refused = bench.run(&["task", "ls", "-q", "default", "-s", "pending", "--filter", "stat:x"]).await.failed(2);
    assert!(refused.contains("the conditions are"), "{refused}");
    bench.run(&["task", "ls", "-q", "default", "-s", "pending", "--filter", "state:retry"]).await.failed(2);
    let done =
        bench.run(&["task", "delete", "-q", "default", "-s", "pending", "--filter", "payload.n:2", "--yes"]).await.ok();
    assert_eq!(done, "1 task is deleted\n");
}

/// The table of actions names commands that there are.
#[tokio::test]
async fn every_action_of_the_table_has_its_command() {
    let bench = Bench::new().await;
    for info in queue_admin::Action::all() {
        let help = words(&bench, &format!("{} --help", info.command)).await.ok();
        let command = info.command.split(" --").next().unwrap();
        assert!(help.contains(&format!("queuectl {command}")), "{}: {help}", info.name);
    }
}

#[tokio::test]
async fn people_have_lines_of_a_file_that_are_made_of_their_passwords() {
    let bench = Bench::new().await;
    let make = ["web", "hash-password", "ada", "--role", "admin"];
    // On a pipe, the first line; on a terminal, twice, and it is not shown.
    let line = bench.run_with(&make, b"correct horse\r\nmore\n").await.ok();
    assert!(line.starts_with("ada:admin:$argon2id$v=19$") && line.ends_with('\n') && !line.contains("horse"), "{line}");
    let json =
        bench.run_with(&["web", "hash-password", "ada", "--role", "admin", "--json"], b"correct horse").await.json();
    assert!(json["line"].as_str().unwrap().starts_with("ada:admin:$argon2id$"), "{json}");
    let typed = async |second: &str| {
        let mut command = bench.command();
        command.args(make);
        let mut terminal = Terminal::run(command);
        terminal.wait_for("Password: ").await;
        terminal.type_in("staple batt\n");
        terminal.wait_for("Once more: ").await;
        terminal.type_in(&format!("{second}\n"));
        terminal.end().await
    };
    let (code, seen) = typed("staple batt").await;
    assert!(code == Some(0) && seen.contains("ada:admin:$argon2id$") && !seen.contains("staple"), "{code:?} {seen}");
    let (code, seen) = typed("staple butt").await;
    assert!(code == Some(2) && seen.contains("these are two passwords") && !seen.contains("staple"), "{code:?} {seen}");
    for (input, name) in
        [("short\n", "ada"), ("", "ada"), ("correct horse", "a:b"), ("correct horse", "#a"), ("correct horse", " a")]
    {
        bench.run_with(&["web", "hash-password", name, "--role", "admin"], input.as_bytes()).await.failed(2);
    }
    std::fs::write(bench.path("users"), format!("# people\n{line}")).unwrap();
    let (address, mut child) = start(&bench, &["--addr", "0.0.0.0:0", "--users", "users"]).await;
    let address = address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(get(&address, "/api/v1/me", "").await.0, "401");
    assert_eq!(get(&address, "/", "").await.0, "200");
    let body = r#"{"name":"ada","password":"correct horse"}"#;
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST /login HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let cookie = answer.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap();
    let (code, me) = get(&address, "/api/v1/me", &format!("cookie: {cookie}\r\n")).await;
    assert!(code == "200" && me.contains(r#""name":"ada""#), "{me}");
    child.kill().await.unwrap();
    let hash = line.trim().rsplit('$').next().unwrap().to_owned();
    std::fs::write(bench.path("users"), format!("{line}eve:root:{hash}\n")).unwrap();
    let refused = words(&bench, "web --users users").await.failed(1);
    assert!(refused.contains("--users: users: line 2: no such role") && !refused.contains(&hash), "{refused}");
}

/// What it asks is compared with asynqmon in tests/interop.
#[tokio::test]
async fn a_prometheus_has_an_address_whose_password_is_told_to_nobody() {
    let bench = Bench::new().await;
    for url in ["prometheus:9090", "ftp://u:secret@host", "http://u:secret@host/?a=b", "http://u:secret@["] {
        let refused = words(&bench, &format!("web --prometheus {url}")).await.failed(2);
        assert!(refused.contains("http or https"), "{refused}");
    }
    // Nobody listens there.
    let url = "http://u:secret@127.0.0.1:1/";
    let (address, mut child) = start(&bench, &["--addr", "127.0.0.1:0", "--prometheus", url]).await;
    let (code, body) = get(&address, "/api/metrics", "").await;
    assert!(code == "502" && body.contains("Prometheus cannot be asked") && !body.contains("secret"), "{code} {body}");
    child.kill().await.unwrap();
}
