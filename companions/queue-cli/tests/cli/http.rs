//! `queuectl worker --http`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Bench, eventually};

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
struct Request {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A service that answers by the path of the request, and remembers what it was sent.
struct Service {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Paths of requests whose sender hung up before the answer.
    hung_up: Arc<Mutex<Vec<String>>>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = Self { port, requests: Arc::default(), hung_up: Arc::default() };
        let (requests, hung_up) = (service.requests.clone(), service.hung_up.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, requests.clone(), hung_up.clone()));
            }
        });
        service
    }

    fn rule(&self, task_type: &str, path: &str) -> String {
        format!("{task_type}=http://127.0.0.1:{}/{path}", self.port)
    }
}

async fn serve(mut stream: TcpStream, requests: Arc<Mutex<Vec<Request>>>, hung_up: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return;
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        bytes.drain(..end + 4);
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        break (head, length.unwrap_or(0_usize));
    };
    while bytes.len() < length {
        stream.read_buf(&mut bytes).await.unwrap();
    }
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(k, v)| (k.to_ascii_lowercase(), v.to_owned()));
    let request = Request { line: line.clone(), headers: headers.collect(), body: bytes };
    requests.lock().unwrap().push(request.clone());
    let path = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let answer = match path.as_str() {
        "hang" => {
            // Ends when the other side closes.
            let _ = stream.read(&mut [0; 16]).await;
            hung_up.lock().unwrap().push(path);
            return;
        }
        "close" => return,
        "lines" => {
            let cursor = request.headers.get("x-task-cursor").cloned();
            let _ = stream.write_all(&notes(&request.headers["x-task-type"], cursor.as_deref())).await;
            return;
        }
        "stuck" => {
            let _ = stream.write_all(b"HTTP/1.1 422 No\r\nContent-Length: 1000\r\n\r\nbecause").await;
            let _ = stream.read(&mut [0; 16]).await;
            return;
        }
        "endless" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
            return;
        }
        path => {
            let (status, header) = path.split_once('/').unwrap_or((path, ""));
            let header = header.replace("%20", " ");
            let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
            let body = format!("\n the body of {status} \n");
            format!(
                "HTTP/1.1 {status} Status\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
        }
    };
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// An answer of notes, by the type of the task.
fn notes(task_type: &str, cursor: Option<&str>) -> Vec<u8> {
    let body = match (task_type, cursor) {
        ("import", None) => {
            "{\"progress\": 40.7, \"note\": \"row 5\", \"checkpoint\": {\"row\": \"fünf\"}}\nnonsense\n\n{\"log\": \"moved\"}\n".to_owned()
        }
        ("import", Some(cursor)) => {
            format!("{{\"log\": \"goes on\"}}\n{{\"status\": 200, \"result\": {{\"b\":1, \"a\": {cursor}}}}}")
        }
        ("plain", _) => "{\"status\": 204}\n{\"status\": 500}\n".to_owned(),
        ("bad", _) => "{\"status\": 422, \"error\": \"no such image\"}\n".to_owned(),
        ("busy", _) => "{\"status\": 503, \"retry_after\": 3600}\n".to_owned(),
        ("text", _) => "{\"status\": \"422\", \"error\": {\"code\": 7}}\n".to_owned(),
        ("half", _) => "{\"status\": 503, \"retry_after\": 1800.5}\n".to_owned(),
        ("odd", _) => "{\"status\": 7}\n".to_owned(),
        _ => format!("{{\"status\": 200, \"result\": \"{}\"}}\n", "x".repeat(17 << 20)),
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: Application/x-ndjson; charset=utf-8\r\nConnection: close\r\n\r\n";
    [head.as_bytes(), body.as_bytes()].concat()
}

const ENDS: [TaskState; 3] = [TaskState::Completed, TaskState::Retry, TaskState::Archived];

#[tokio::test]
async fn a_service_gets_its_task_and_its_answer_is_the_result() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "200")]).await;
    bench.enqueue_task(RawTask::new("a:b").payload("{\"x\":1}").max_retry(7).header("k", "ü"), "json").await;
    let task = bench.wait_for("json", &ENDS).await;
    assert_eq!(task.result.as_deref(), Some(&b"\n the body of 200 \n"[..]), "{task:?}");
    let request = service.requests.lock().unwrap().pop().unwrap();
    assert_eq!((request.line.as_str(), &request.body[..]), ("POST /200 HTTP/1.1", &b"{\"x\":1}"[..]));
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-task-id", "json"),
        ("x-task-type", "a:b"),
        ("x-task-queue", "default"),
        ("x-task-retried", "0"),
        ("x-task-max-retry", "7"),
        ("x-task-headers", "{\"k\":\"\\u00fc\"}"),
    ] {
        assert_eq!(request.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(request.headers["x-task-deadline"].parse::<chrono::DateTime<Utc>>().is_ok());

    bench.enqueue_task(RawTask::new("a").payload(vec![0, 255]), "binary").await;
    bench.wait_for("binary", &ENDS).await;
    let request = service.requests.lock().unwrap().pop().unwrap();
    assert_eq!(
        (request.headers["content-type"].as_str(), &request.body[..]),
        ("application/octet-stream", &[0, 255][..])
    );
}

#[tokio::test]
async fn the_status_decides_what_happens() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let paths = [
        "201",
        "202/Retry-After: 9",
        "302/Retry-After: 9",
        "400",
        "403/Retry-After: 9",
        "404",
        "408",
        "422",
        "425",
        "429",
        "500",
        "503",
    ];
    let rules: Vec<String> = paths.iter().map(|path| service.rule(&path[..3], &path.replace(' ', "%20"))).collect();
    let arguments: Vec<&str> = rules.iter().flat_map(|rule| ["--http", rule]).collect();
    let _worker = bench.worker(&arguments).await;
    for path in paths {
        bench.enqueue(&path[..3], &path[..3]).await;
    }
    for (id, state, retried) in [
        ("201", TaskState::Completed, 0),
        ("202", TaskState::Completed, 0),
        ("302", TaskState::Retry, 1),
        ("400", TaskState::Archived, 0),
        ("403", TaskState::Retry, 0),
        ("404", TaskState::Archived, 0),
        ("408", TaskState::Retry, 1),
        ("422", TaskState::Archived, 0),
        ("425", TaskState::Retry, 1),
        ("429", TaskState::Retry, 0),
        ("500", TaskState::Retry, 1),
        ("503", TaskState::Retry, 1),
    ] {
        let task = bench.wait_for(id, &ENDS).await;
        assert_eq!((task.state, task.retried), (state, retried), "{id}");
        if id == "404" {
            assert_eq!(task.last_error.as_deref(), Some("HTTP 404 Not Found: the body of 404"));
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "302/Location:%20/else")]).await;
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &ENDS).await;
    assert_eq!((task.state, task.retried), (TaskState::Retry, 1));
    assert!(task.last_error.unwrap().contains("redirects are not followed"));
}

#[tokio::test]
async fn retry_after_is_honoured_and_spends_no_retry() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let now = SystemClock.now();
    let date = (now + Duration::from_secs(7_200)).format("%a, %d %b %Y %H:%M:%S GMT").to_string().replace(' ', "%20");
    let rules = [
        service.rule("secs", "429/Retry-After:%203600"),
        service.rule("date", &format!("503/Retry-After:%20{date}")),
        service.rule("failing", "500/Retry-After:%203600"),
        service.rule("never", "503/Retry-After:%20soon"),
    ];
    let arguments: Vec<&str> = rules.iter().flat_map(|rule| ["--http", rule]).collect();
    let _worker = bench.worker(&arguments).await;
    for (id, from, to, retried) in
        [("secs", 3_590, 3_700, 0), ("date", 7_190, 7_300, 0), ("failing", 3_590, 3_700, 0), ("never", 10, 100, 1)]
    {
        bench.enqueue(id, id).await;
        let task = bench.wait_for(id, &ENDS).await;
        let delay = (task.next_process_at.unwrap() - now).num_seconds();
        assert!((from..=to).contains(&delay), "{id}: {delay}");
        assert_eq!((task.state, task.retried), (TaskState::Retry, retried), "{id}");
    }
    // A task without retries, which was archived at the first such answer.
    bench.enqueue_task(RawTask::new("secs").max_retry(0), "last").await;
    assert_eq!(bench.wait_for("last", &ENDS).await.state, TaskState::Retry);
}

#[tokio::test]
async fn a_service_that_asks_for_no_wait_is_not_asked_again_and_again() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "429/Retry-After:%200")]).await;
    let before = SystemClock.now();
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &[TaskState::Retry]).await;
    assert!(task.next_process_at.unwrap() > before, "{task:?}");
}

#[tokio::test]
async fn headers_go_with_the_types_they_are_for_and_show_in_no_log() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    std::fs::write(bench.path("secret"), "# for the image service\nAuthorization: Bearer s3cr3t==\n\n").unwrap();
    let rules = [service.rule("image:*", "200"), service.rule("mail", "500")];
    let worker = bench
        .worker(&[
            "--http",
            &rules[0],
            "--http",
            &rules[1],
            "--http-header",
            "*=X-Fleet: one",
            "--http-header",
            "image:large=X-Fleet: two",
            "--http-header",
            "image:*=@secret",
            "--http-header",
            "*=content-type: text/plain",
        ])
        .await;
    for (task_type, fleet, authorization) in [
        ("image:small", "one", Some("Bearer s3cr3t==")),
        ("image:large", "two", Some("Bearer s3cr3t==")),
        ("mail", "one", None),
    ] {
        bench.enqueue(task_type, task_type).await;
        bench.wait_for(task_type, &ENDS).await;
        let request = service.requests.lock().unwrap().pop().unwrap();
        assert_eq!(request.headers.get("x-fleet").map(String::as_str), Some(fleet), "{task_type}");
        assert_eq!(request.headers.get("authorization").map(String::as_str), authorization, "{task_type}");
        assert_eq!(request.headers["content-type"], "text/plain");
    }
    assert!(!worker.all_lines().join("\n").contains("s3cr3t"));
}

#[tokio::test]
async fn an_unreachable_service_is_retried_without_telling_the_password() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused = format!("refused=http://user:secret@127.0.0.1:{unused}/");
    let _worker = bench.worker(&["--http", &refused, "--http", &service.rule("closed", "close")]).await;
    for id in ["refused", "closed"] {
        bench.enqueue(id, id).await;
        let task = bench.wait_for(id, &ENDS).await;
        let error = task.last_error.unwrap_or_default();
        assert_eq!((task.state, task.retried), (TaskState::Retry, 1), "{error}");
        assert!(!error.contains("secret") && !error.is_empty(), "{error}");
    }
    let error = bench.task("refused").await.last_error.unwrap();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn cancel_hangs_up() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "hang")]).await;
    bench.enqueue("a", "id").await;
    eventually("the request arrives", || !service.requests.lock().unwrap().is_empty()).await;
    bench.run(&["task", "cancel", "--attempt", "id"]).await.ok();
    let task = bench.wait_for("id", &ENDS).await;
    assert_eq!((task.state, task.last_error.as_deref()), (TaskState::Retry, Some("context canceled")));
    eventually("the service sees it", || !service.hung_up.lock().unwrap().is_empty()).await;
}

#[tokio::test]
async fn an_answer_without_end_is_archived() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "endless")]).await;
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &ENDS).await;
    assert_eq!(task.state, TaskState::Archived);
    assert!(task.last_error.unwrap().contains("longer than 16 MiB"));
    // Nobody would keep it.
    bench.client.enqueue(RawTask::new("a").task_id("not kept")).await.unwrap();
    loop {
        let queue = bench.inspector.queue("default").await.unwrap();
        assert_eq!(queue.failed_total, 1, "it failed");
        if queue.processed_total == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_service_tells_how_far_it_is_and_goes_on_from_its_checkpoint() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let worker = bench.worker(&["--http", &service.rule("*", "lines"), "--notes", "--retry-delay", "0s"]).await;
    bench.enqueue("import", "id").await;
    // The first answer broke off: it had no line with a status.
    let task = bench.wait_for("id", &[TaskState::Completed]).await;
    assert_eq!(task.retried, 1);
    let result = r#"{"b":1, "a": {"row":"f\u00fcnf"}}"#;
    assert_eq!(task.result.as_deref(), Some(result.as_bytes()));
    let progress = task.progress.unwrap();
    assert_eq!((progress.percent, &*progress.note), (40, "row 5"));
    let requests = service.requests.lock().unwrap().clone();
    assert!(requests.iter().all(|request| request.headers["accept"].starts_with("application/x-ndjson")));
    worker.wait_for_line("a line of the service's answer was not heeded").await;
    let json = bench.run(&["task", "show", "-q", "default", "-i", "id", "--log", "--json"]).await.json();
    assert_eq!((&json["log"][0]["text"], &json["log"][1]["text"]), (&"moved".into(), &"goes on".into()));
}

#[tokio::test]
async fn the_status_of_the_last_line_is_that_of_the_answer() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "lines"), "--notes"]).await;
    for (id, state, retried, error) in [
        ("plain", TaskState::Completed, 0, None),
        ("bad", TaskState::Archived, 0, Some("HTTP 422 Unprocessable Entity: no such image")),
        ("busy", TaskState::Retry, 0, Some("HTTP 503 Service Unavailable")),
        ("text", TaskState::Archived, 0, Some("HTTP 422 Unprocessable Entity: {\"code\":7}")),
        ("half", TaskState::Retry, 0, Some("HTTP 503 Service Unavailable")),
        ("odd", TaskState::Retry, 1, Some("the service told the status 7")),
        (
            "large",
            TaskState::Archived,
            0,
            Some(
                "the service succeeded, but its answer is longer than 16 MiB; let it store that elsewhere and answer where",
            ),
        ),
    ] {
        bench.enqueue(id, id).await;
        let task = bench.wait_for(id, &ENDS).await;
        assert_eq!((task.state, task.retried, task.last_error.as_deref()), (state, retried, error), "{id}");
    }
}

#[tokio::test]
async fn a_refusal_counts_although_its_reason_never_comes_to_an_end() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "stuck")]).await;
    bench.enqueue("a", "id").await;
    let task = bench.wait_for("id", &ENDS).await;
    assert_eq!((task.state, task.retried), (TaskState::Archived, 0), "{task:?}");
}

#[tokio::test]
async fn without_notes_lines_are_a_result_like_any_other() {
    let (bench, service) = (Bench::new().await, Service::start().await);
    let _worker = bench.worker(&["--http", &service.rule("*", "lines")]).await;
    bench.enqueue("bad", "id").await;
    let task = bench.wait_for("id", &ENDS).await;
    assert_eq!(task.result.as_deref(), Some(&b"{\"status\": 422, \"error\": \"no such image\"}\n"[..]));
    assert_eq!(service.requests.lock().unwrap()[0].headers["accept"], "*/*");
}
