//! Metrics over HTTP: `queuectl exporter`, and `queuectl worker --metrics-addr`.

use queue_core::{RawTask, TaskState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Bench;

/// The address in a log line of ours.
fn address(line: &str) -> String {
    let (_, rest) = line.split_once("address=\"").unwrap_or_else(|| panic!("{line}"));
    rest.split('"').next().unwrap().to_owned()
}

/// The status code and the body.
async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|other| other == line)
}

#[tokio::test]
async fn an_exporter_serves_the_queues_until_it_is_told_to_end() {
    let bench = Bench::new().await;
    bench.client.enqueue(RawTask::new("t").queue("mail")).await.unwrap();
    let exporter = bench.background(&["exporter", "--addr", "127.0.0.1:0"], "metrics are served").await;
    let address = address(&exporter.wait_for_line("metrics are served").await);
    let (code, text) = get(&address, "/metrics").await;
    assert_eq!(code, "200");
    assert!(has(&text, r#"asynq_tasks_enqueued_total{queue="mail",state="pending"} 1"#), "{text}");
    assert!(has(&text, "# TYPE asynq_tasks_enqueued_total gauge"), "{text}");
    assert_eq!(get(&address, "/healthz").await, ("200".to_owned(), "ok\n".to_owned()));
    assert_eq!(exporter.stop().await.0, Some(0));
}

#[tokio::test]
async fn a_worker_serves_what_it_has_done() {
    let bench = Bench::new().await;
    let worker = bench.worker(&["--exec", "t=true", "--metrics-addr", "127.0.0.1:0"]).await;
    let address = address(&worker.wait_for_line("metrics are served").await);
    for id in ["a", "b"] {
        bench.enqueue("t", id).await;
        bench.wait_for(id, &[TaskState::Completed]).await;
    }
    let (_, text) = get(&address, "/metrics").await;
    let done = r#"asynq_worker_attempts_total{outcome="succeeded",queue="default",type="t"} 2"#;
    assert!(has(&text, done), "{text}");
    assert!(has(&text, "asynq_worker_slots 8"), "{text}");
    assert!(text.contains(r#"asynq_redis_call_seconds_count{operation="complete"}"#), "{text}");
    assert_eq!(get(&address, "/healthz").await.0, "200");
    assert_eq!(worker.stop().await.0, Some(0));
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_says_so() {
    let bench = Bench::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, command) in
        [("--addr", &["exporter"][..]), ("--metrics-addr", &["worker", "--exec", "t=true", "--concurrency", "1"][..])]
    {
        let arguments = [command, &[flag, address.as_str()][..]].concat();
        let error = bench.run(&arguments).await.failed(1);
        let expected = format!("queuectl: error: {flag}: cannot listen for HTTP on {address}: ");
        let last = error.lines().last().unwrap();
        assert!(last.starts_with(&expected) && last.contains("choose another port"), "{error}");
    }
}
