//! What the routes answer.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::StatusCode;
use queue_admin::{OperationSpec, Pace, Role, Verb, Work};
use queue_core::TaskState;
use queue_core::limit::{Limit, LimitKey};
use queue_redis::{Redis, RedisOptions};
use queue_web::{Identity, Web};
use queue_worker::{Failure, Job, Router, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Place, QUEUE, Served, Site, task, wait_for};

/// What is wrong with a value that should have this schema; the first fault. Objects have no field that the schema lacks.
fn fault(value: &Value, schema: &Value, all: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return fault(value, &all[name.rsplit('/').next().unwrap()], all, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let faults: Vec<String> = choices.iter().filter_map(|choice| fault(value, choice, all, at)).collect();
        return (faults.len() == choices.len()).then(|| faults.join(" / "));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |name: &Value| name == kind || (name == "number" && kind == "integer");
    let is_right = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(fits),
        name => fits(name),
    };
    if !is_right {
        return Some(format!("{at} is {kind}, not {}", schema["type"]));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        return items.iter().find_map(|item| fault(item, schema, all, &format!("{at}[]")));
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else { return None };
    let missing =
        schema["required"].as_array().into_iter().flatten().find(|name| !fields.contains_key(name.as_str().unwrap()));
    if let Some(missing) = missing {
        return Some(format!("{at} has no {missing}"));
    }
    fields.iter().find_map(|(name, field)| match known.get(name) {
        Some(schema) => fault(field, schema, all, &format!("{at}.{name}")),
        None => Some(format!("{at}.{name} is in no schema")),
    })
}

#[tokio::test]
async fn answers_have_the_form_that_the_description_promises() {
    let place = Place::start().await;
    place.release().await;
    place.furnish().await;
    place.put([task("binary").payload(vec![0xff, 0]), task("kept").retention(Duration::from_secs(60))]).await;
    place.admin().change_task(Verb::Run, QUEUE, "archived").await.unwrap();
    let limit = Limit::new("rate", LimitKey::Type).rate(5, Duration::from_secs(1)).concurrency(2).task_type("t*");
    place.admin().set_limit(QUEUE, limit).await.unwrap();
    place.put([task("binned")]).await;
    let binned = OperationSpec::of_ids(Work::Delete, QUEUE, vec!["binned".to_owned()]);
    let binned = place.admin().start_operation(binned, None).await.unwrap().id;
    place.inspector.run_operation(&binned, Pace::Full, |_| {}).await.unwrap();
    let site = place.open();
    let document = site.get("/openapi.json").await.json();
    let schemas = &document["components"]["schemas"];
    let new = r#"{"type":"t","payload":{"n":1}}"#;
    let bulk = r#"{"action":"run","filter":"state:scheduled","dry_run":true}"#;
    let (mut seen, mut problems) = (0, 0);
    for (method, path, _) in &site.routes().await {
        let filled = path.replace("{queue}", QUEUE).replace("{id}", "scheduled").replace("{entry}", "none");
        let filled = filled.replace("{batch}", "release").replace("{node}", "approve");
        let filled = filled.replace("{limit}", "rate").replace("{key}", "t1").replace("{operation}", &binned);
        // Of the member of the batch that has died.
        let filled = filled.replace("{fingerprint}", "v1-3e49784f165b");
        let filled = if path == "/tasks" { format!("/tasks?queue={QUEUE}") } else { filled };
        let body = match path.as_str() {
            "/queues/{queue}/bulk" => bulk,
            "/batches" => r#"{"tasks":[{"type":"t"}]}"#,
            "/batches/{batch}/cancel" | "/batches/{batch}/retry" => r#"{"dry_run":true}"#,
            "/batches/{batch}/resolve" => r#"{"all":true,"dry_run":true}"#,
            "/queues/{queue}/limits/{limit}" => r#"{"key":"type","rate":5,"per":1000,"concurrency":2,"types":["t*"]}"#,
            "/queues/{queue}/limits/{limit}/keys/{key}" => r#"{"paused":true}"#,
            "/batches/{batch}/signals/{node}" => r#"{"payload":{"by":"ada"}}"#,
            "/operations" => r#"{"action":"run","queues":["mail"],"filter":"state:scheduled","dry_run":true}"#,
            "/operations/{operation}" => r#"{"state":"cancelled"}"#,
            _ => new,
        };
        // Nothing is taken away before it was looked at.
        if method == "DELETE"
            && (path == "/queues/{queue}" || path.ends_with("{id}") || path.contains("limits") || path.contains("bin"))
        {
            continue;
        }
        let told = site.send(method, &filled, body).await;
        let responses = &document["paths"][path][method.to_lowercase()]["responses"];
        let Some((_, response)) =
            responses.as_object().unwrap().iter().find(|(status, _)| **status == told.status.as_str())
        else {
            problems += 1;
            assert_eq!(told.headers["content-type"], "application/problem+json", "{method} {path}: {told:?}");
            assert_eq!(
                fault(&told.json(), &schemas["Problem"], schemas, "problem")
                    .filter(|fault| !fault.contains("in no schema")),
                None
            );
            continue;
        };
        let Some(schema) = response["content"]["application/json"].get("schema") else { continue };
        assert_eq!(fault(&told.json(), schema, schemas, path), None, "{method} {path}: {}", told.text);
        seen += 1;
    }
    assert!(seen >= 20 && problems < 12, "{seen} answers, {problems} problems");
}

/// In words of JSON, and not in those of the library that reads it.
#[tokio::test]
async fn a_value_of_a_wrong_type_is_named_with_what_it_is_and_what_it_must_be() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.open();
    let q = |rest: &str| format!("/queues/{QUEUE}{rest}");
    for (method, path, body, field, detail) in [
        ("POST", q("/tasks"), r#"{"type":5}"#, "task", "`type` is the number 5; it must be a text"),
        ("POST", q("/tasks"), "[]", "task", "it is a list; it must be an object"),
        ("POST", q("/bulk"), r#"{"action":true,"filter":"x"}"#, "action", "`action` is true; it must be a text"),
        (
            "PUT",
            q("/limits/x"),
            r#"{"key":"type","concurrency":"5"}"#,
            "concurrency",
            "`concurrency` is the text \"5\"; it must be a whole number from 0 to 4294967295",
        ),
        (
            "PUT",
            q("/limits/x"),
            r#"{"key":"type","types":["a",{}]}"#,
            "types[1]",
            "`types[1]` is an object; it must be a text",
        ),
        (
            "POST",
            "/operations".to_owned(),
            r#"{"action":"stop"}"#,
            "action",
            "`action` is \"stop\"; it must be one of `run`",
        ),
    ] {
        let told = site.send(method, &path, body).await;
        let problem = told.json();
        assert_eq!((told.code().as_str(), &problem["field"]), ("invalid-value", &json!(field)), "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{body}: {problem}");
    }
    let told = site.send("POST", "/operations", "5").await;
    assert_eq!(told.code(), "invalid-request");
    assert!(told.text.contains("the body is the number 5; it must be an object"), "{told:?}");
}

#[tokio::test]
async fn each_error_is_a_problem_with_its_code() {
    let place = Place::start().await;
    place.furnish().await;
    place.put([task("old"), task("other").queue("low")]).await;
    let site = place.open();
    let q = |rest: &str| format!("/queues/{QUEUE}{rest}");
    for (method, path, body, status, code) in [
        ("GET", "/nothing".to_owned(), "", 404, "no-route"),
        ("PATCH", q(""), "", 405, "method-not-allowed"),
        ("GET", "/queues/none".to_owned(), "", 404, "queue-not-found"),
        ("GET", "/tasks".to_owned(), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&limit=0"), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&limit=201"), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&state=done"), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&q=stat:x"), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&order=up"), "", 400, "invalid-value"),
        ("GET", format!("/tasks?queue={QUEUE}&cursor=x"), "", 400, "invalid-cursor"),
        ("GET", format!("/tasks?queue={QUEUE}&page=2"), "", 400, "invalid-value"),
        ("GET", "/tasks?queue=%ff".to_owned(), "", 400, "invalid-request"),
        ("GET", q("/tasks/none"), "", 404, "task-not-found"),
        ("GET", q("/tasks/none?wait=1s"), "", 404, "task-not-found"),
        ("GET", q("/tasks/pending?wait=soon"), "", 400, "invalid-value"),
        ("GET", q("/tasks/none/attempts"), "", 404, "task-not-found"),
        ("GET", q("/tasks/none/log"), "", 404, "task-not-found"),
        ("GET", q("/tasks/pending/result"), "", 404, "result-not-found"),
        ("POST", q("/tasks/none/run"), "", 404, "task-not-found"),
        ("POST", q("/tasks/pending/run"), "", 409, "wrong-state"),
        ("POST", q("/tasks/archived/archive"), "", 409, "wrong-state"),
        ("POST", q("/tasks/none/cancel"), "", 404, "task-not-found"),
        ("POST", q("/tasks/pending/interrupt"), "", 409, "wrong-state"),
        ("PUT", q("/tasks/scheduled/payload"), "x", 428, "version-needed"),
        ("DELETE", q(""), "", 409, "queue-not-empty"),
        ("POST", q("/tasks"), "{", 400, "invalid-value"),
        ("POST", q("/tasks"), r#"{"type":"t","queue":"low"}"#, 400, "invalid-value"),
        ("POST", q("/tasks"), r#"{"type":"t","task_id":"pending"}"#, 409, "task-id-taken"),
        ("POST", q("/bulk"), "{", 400, "invalid-request"),
        ("POST", q("/bulk"), r#"{"action":"run","filter":""}"#, 400, "invalid-value"),
        ("POST", q("/bulk"), r#"{"action":"stop","filter":"state:retry"}"#, 400, "invalid-value"),
        ("POST", q("/bulk"), r#"{"action":"run","filter":"state:pending"}"#, 409, "wrong-state"),
        ("POST", q("/bulk"), r#"{"action":"delete","filter":"state:pending","at_most":1}"#, 409, "limit-reached"),
        ("GET", "/cron/none".to_owned(), "", 404, "entry-not-found"),
        ("POST", "/cron/none/run".to_owned(), "", 404, "entry-not-found"),
        ("GET", "/servers/none".to_owned(), "", 404, "server-not-found"),
        ("GET", q("/limits/none/lanes"), "", 404, "limit-not-found"),
        ("DELETE", q("/limits/none"), "", 404, "limit-not-found"),
        ("GET", "/operations/none".to_owned(), "", 404, "operation-not-found"),
        ("PATCH", "/operations/none".to_owned(), r#"{"state":"done"}"#, 400, "invalid-value"),
        ("POST", "/operations".to_owned(), r#"{"action":"stop"}"#, 400, "invalid-value"),
        ("POST", "/operations".to_owned(), r#"{"action":"run","queues":["mail"]}"#, 400, "invalid-value"),
        (
            "POST",
            "/operations".to_owned(),
            r#"{"action":"run","queues":["none"],"filter":"state:retry"}"#,
            404,
            "queue-not-found",
        ),
        ("POST", "/operations".to_owned(), r#"{"action":"restore","operation":"none"}"#, 404, "operation-not-found"),
        ("GET", "/bin/none".to_owned(), "", 404, "operation-not-found"),
        ("PUT", q("/limits/none/keys/x"), "", 404, "limit-not-found"),
        ("PUT", q("/limits/x"), r#"{"key":"type"}"#, 400, "invalid-limit"),
        ("PUT", q("/limits/x"), r#"{"key":"type","rate":5}"#, 400, "invalid-value"),
        ("PUT", q("/limits/x"), r#"{"key":"type","concurency":5}"#, 400, "invalid-request"),
        ("GET", "/feed?kind=done".to_owned(), "", 400, "invalid-value"),
        ("GET", "/batches/none".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches/a%20b".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches/none/members".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches/none/tree".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches/none/nodes".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches/none/explain".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/batches?state=done".to_owned(), "", 400, "invalid-value"),
        ("GET", "/batches?cursor=x".to_owned(), "", 400, "invalid-cursor"),
        ("GET", "/batches/none/members?state=doomed".to_owned(), "", 400, "invalid-value"),
        ("POST", "/batches/none/cancel".to_owned(), "", 404, "batch-not-found"),
        ("POST", "/batches/none/retry".to_owned(), "", 404, "batch-not-found"),
        ("POST", "/batches/none/cancel".to_owned(), r#"{"dry":true}"#, 400, "invalid-request"),
        ("POST", "/batches/none/resolve".to_owned(), r#"{"all":true}"#, 404, "batch-not-found"),
        ("POST", "/batches/none/resolve".to_owned(), "", 400, "invalid-value"),
        ("POST", "/batches/none/resolve".to_owned(), r#"{"all":true,"members":["x"]}"#, 400, "invalid-value"),
        ("POST", "/batches/none/signals/x".to_owned(), "", 404, "batch-not-found"),
        ("POST", "/batches/none/nodes/x/rerun".to_owned(), "", 404, "batch-not-found"),
        ("GET", "/audit?cursor=x".to_owned(), "", 400, "invalid-cursor"),
    ] {
        let told = site.send(method, &path, body).await;
        assert_eq!(
            (told.status.as_u16(), told.code().as_str()),
            (status, code),
            "{method} {path} {body}: {}",
            told.text
        );
        let problem = told.json();
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&json!(status), &json!(format!("urn:queue:problem:{code}")))
        );
        assert_eq!(told.headers["content-type"], "application/problem+json");
    }
    let told = site.ask("POST", &format!("/api/v1{}", q("/tasks")), &[("content-type", "text/plain")], "x").await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media"));
    let told = site.send("POST", &q("/tasks"), &"x".repeat(9 << 20)).await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "too-large"));
    // A key of another type costs its queue, not the others.
    place.command::<i64>("DEL asynq:{low}:pending").await;
    place.command::<String>("SET asynq:{low}:pending x").await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let told = site.get("/queues").await.json();
    let row = |name: &str| told["items"].as_array().unwrap().iter().find(|row| row["queue"] == name).unwrap().clone();
    assert!(row("low")["error"].is_string() && row(QUEUE)["error"].is_null(), "{told}");
    let told = site.get("/tasks?queue=low").await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::BAD_GATEWAY, "redis-refused"), "{told:?}");
    // Without the right to write down who acts, nothing is done.
    place.command::<String>("SET asynq:x:audit x").await;
    let told = site.send("POST", &q("/tasks/old/archive"), "").await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::BAD_GATEWAY, "audit-refused"), "{told:?}");
    assert_eq!(place.state("old").await, Some(TaskState::Pending));
    // That all of it is refused does not mean that Redis is away.
    place.command::<i64>("DEL asynq:queues").await;
    place.command::<String>("SET asynq:queues x").await;
    let told = place.open().get("/overview").await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::BAD_GATEWAY, "redis-refused"), "{told:?}");
}

/// The answer was that Redis is away, on the overview too.
#[tokio::test]
async fn a_pool_that_is_in_use_is_no_redis_that_is_away() {
    let place = Place::start().await;
    place.furnish().await;
    let options =
        RedisOptions { pool_size: 1, response_timeout: Duration::from_millis(500), ..RedisOptions::default() };
    let redis = Redis::lazy(place.server.url(), options).unwrap();
    let site = Site(Web::builder(redis.clone()).build());
    let held = redis.pooled().await.unwrap();
    for path in [&format!("/queues/{QUEUE}"), "/overview"] {
        let told = site.get(path).await;
        assert_eq!((told.status, &*told.code()), (StatusCode::SERVICE_UNAVAILABLE, "busy"), "{told:?}");
        assert_eq!(told.headers["retry-after"], "2");
    }
    drop(held);
    assert_eq!(site.get(&format!("/queues/{QUEUE}")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_failed_and_what_was_written_down_are_told() {
    let place = Place::start().await;
    place.furnish().await;
    let work = async |job: Job| {
        job.log("connected\nread 3 rows");
        Err::<(), _>(Failure::archive("no route").traced("0: dial"))
    };
    let server = Server::new(place.redis.clone(), Router::new(()).route("email:", work));
    let server = server.queues([(QUEUE, 1)]).start().await.unwrap();
    let state = async || (place.state("pending").await == Some(TaskState::Archived)).then_some(());
    crate::support::wait_for("it has failed", state).await;
    server.shutdown().await;
    let site = place.open();
    let schemas = site.get("/openapi.json").await.json()["components"]["schemas"].clone();
    let path = format!("/queues/{QUEUE}/tasks/pending");
    let told = site.get(&format!("{path}/attempts")).await.json();
    assert_eq!(fault(&told, &schemas["Attempts"], &schemas, "attempts"), None, "{told}");
    let only = &told["items"][0];
    assert_eq!(told["failed"], 1);
    assert_eq!((&only["end"], &only["error"]), (&json!("archived"), &json!("no route")));
    assert_eq!(only["backtrace"], "0: dial");
    let told = site.get(&format!("{path}/log")).await.json();
    assert_eq!(fault(&told, &schemas["TaskLog"], &schemas, "log"), None, "{told}");
    let lines: Vec<_> = told["items"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!((lines, &told["left_out"]), (vec!["connected", "read 3 rows"], &json!(0)));
    let none = site.get(&format!("/queues/{QUEUE}/tasks/scheduled/attempts")).await.json();
    assert_eq!(none, json!({ "failed": 0, "items": [] }));
}

#[tokio::test]
async fn tasks_are_changed_one_by_one_and_that_is_written_down() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.of(Identity::new("ada", Role::Admin));
    let path = format!("/queues/{QUEUE}/tasks");
    for (method, task, state) in [
        ("archive", "pending", Some(TaskState::Archived)),
        ("run", "scheduled", Some(TaskState::Pending)),
        ("run", "archived", Some(TaskState::Pending)),
        ("run", "aggregating", Some(TaskState::Pending)),
    ] {
        let told = site.send("POST", &format!("{path}/{task}/{method}"), "").await;
        assert_eq!(told.json()["changed"], true, "{told:?}");
        assert_eq!(place.state(task).await, state);
    }
    assert!(site.send("DELETE", &format!("{path}/scheduled"), "").await.status.is_success());
    assert_eq!(place.state("scheduled").await, None);
    let paused = site.send("PUT", &format!("/queues/{QUEUE}/pause"), "").await.json();
    assert_eq!(paused, json!({ "queue": QUEUE, "paused": true, "changed": true, "exists": true }));
    let audit = site.get("/audit").await.json();
    let told: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["actor"].as_str().unwrap()))
        .collect();
    let actions = ["queue.pause", "task.delete", "task.run", "task.run", "task.run", "task.archive"];
    assert_eq!(told, actions.map(|action| (action, "ada")));
    assert!(audit["items"].as_array().unwrap().iter().all(|entry| entry["outcome"] == "done" && entry["via"] == "web"));
}

#[tokio::test]
async fn a_payload_is_replaced_only_over_the_version_that_was_seen() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.open();
    let path = format!("/api/v1/queues/{QUEUE}/tasks/scheduled");
    let seen = site.ask("GET", &path, &[], "").await;
    let tag = seen.headers["etag"].to_str().unwrap().to_owned();
    let again = site.ask("GET", &path, &[("if-none-match", &tag)], "").await;
    assert_eq!((again.status, again.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let put = async |tag: &str| site.ask("PUT", &format!("{path}/payload"), &[("if-match", tag)], "new").await;
    assert_eq!(put(&tag).await.status, StatusCode::OK);
    let late = put(&tag).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::PRECONDITION_FAILED, "changed-meanwhile"));
    assert_eq!(site.ask("GET", &format!("{path}/payload"), &[], "").await.text, "new");
    let gone = site.ask("DELETE", &path, &[("if-match", &tag)], "").await;
    assert_eq!(gone.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(place.state("scheduled").await, Some(TaskState::Scheduled));
}

#[tokio::test]
async fn tasks_are_enqueued_alone_and_by_lines_and_a_key_makes_that_once() {
    let place = Place::start().await;
    let site = place.of(Identity::new("shop", Role::Admin));
    let path = format!("/api/v1/queues/{QUEUE}/tasks");
    let body = r#"{"type":"email:send","payload":{"big":12345678901234567890123,"n":1.10},"in":"1h","headers":{"tenant":"7"}}"#;
    for _ in 0..2 {
        let told = site.ask("POST", &path, &[("idempotency-key", "\"order-7\"")], body).await;
        assert_eq!(told.status, StatusCode::CREATED, "{told:?}");
        assert_eq!(
            (told.json()["id"].as_str(), told.headers["location"].to_str().unwrap()),
            (Some("order-7"), "tasks/order-7")
        );
    }
    let task = place.inspector.task(QUEUE, "order-7").await.unwrap();
    assert_eq!(task.payload, r#"{"big":12345678901234567890123,"n":1.10}"#);
    assert_eq!((task.state, task.headers["x-enqueued-by"].as_str()), (TaskState::Scheduled, "shop"));
    let other = site.ask("POST", &path, &[("idempotency-key", "order-7")], r#"{"type":"other"}"#).await;
    assert_eq!((other.status, other.code().as_str()), (StatusCode::CONFLICT, "task-id-taken"));
    // A task with a priority is in another queue of the family.
    for _ in 0..2 {
        let told = site.ask("POST", &path, &[("idempotency-key", "order-8")], r#"{"type":"t","priority":9}"#).await;
        let location = told.headers["location"].to_str().unwrap();
        assert_eq!((told.status, location), (StatusCode::CREATED, &*format!("../{QUEUE}%7Dp9/tasks/order-8")));
    }
    assert_eq!(site.get(&format!("/queues/{QUEUE}%7Dp9/tasks/order-8")).await.status, StatusCode::OK);
    // One of the same id that cannot be read, in a queue of others.
    place.command::<i64>("HSET asynq:{vault}:t:order-7 msg nonsense state pending").await;
    place.command::<i64>("SADD asynq:queues vault").await;
    let found = site.get("/tasks/order-7").await;
    assert_eq!((found.status, found.json()["items"].as_array().unwrap().len()), (StatusCode::OK, 1), "{found:?}");
    let confined = place.of(Identity::new("bob", Role::Viewer).queues([QUEUE]));
    place.command::<i64>("HSET asynq:{vault}:t:hidden msg nonsense state pending").await;
    assert_eq!(confined.get("/tasks/hidden").await.json(), json!({ "items": [] }));

    let lines =
        "{\"type\":\"a\"}\n\n{\"type\":\"b\",\"task_id\":\"mine\"}\nnonsense\n{\"type\":\"c\",\"task_id\":\"mine\"}\n";
    let kind = [("content-type", "application/x-ndjson"), ("idempotency-key", "k")];
    let told = site.ask("POST", &path, &kind, lines).await.json();
    let outcomes: Vec<(&str, i64)> = told["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["outcome"].as_str().unwrap(), item["line"].as_i64().unwrap()))
        .collect();
    assert_eq!(outcomes, [("enqueued", 1), ("enqueued", 3), ("refused", 4), ("refused", 5)], "{told}");
    assert_eq!(
        (&told["enqueued"], &told["items"][0]["id"], &told["items"][3]["code"]),
        (&json!(2), &json!("k-1"), &json!("task-id-taken"))
    );
    let again = site.ask("POST", &path, &kind, lines).await.json();
    assert_eq!(again["enqueued"], 2, "the same tasks are found: {again}");
    assert_eq!(place.inspector.queue(QUEUE).await.unwrap().size(), 3);
    let many = "{\"type\":\"a\"}\n".repeat(1_001);
    assert_eq!(site.ask("POST", &path, &kind, many).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_end_of_a_task_is_waited_for() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.open();
    let path = format!("/queues/{QUEUE}/tasks/pending?wait=30s");
    let waiting = site.get(&path);
    let ending = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        place.inspector.change_task(Verb::Archive, QUEUE, "pending", "ann").await.unwrap();
    };
    let (told, ()) = tokio::join!(waiting, ending);
    assert_eq!((&told.json()["outcome"], &told.json()["task"]["state"]), (&json!("archived"), &json!("archived")));
    let told = site.get(&format!("/queues/{QUEUE}/tasks/scheduled?wait=50ms")).await.json();
    assert_eq!(told["outcome"], "timeout");
}

/// What was only told to servers is forgotten where none listens.
#[tokio::test]
async fn a_task_is_cancelled_for_good_and_the_answer_says_how_far_that_is() {
    let place = Place::start().await;
    place.limit().await;
    place.put([task("waits"), task("many-1")]).await;
    let site = place.open();
    let cancel = async |id: &str| site.send("POST", &format!("/queues/{QUEUE}/tasks/{id}/cancel"), "").await.json();
    let told = |id: &str, changed: bool, outcome: &str| json!({ "action": "cancel", "queue": QUEUE, "id": id, "changed": changed, "outcome": outcome, "server": null });
    assert_eq!(cancel("waits").await, told("waits", true, "done"));
    assert_eq!(place.state("waits").await, Some(TaskState::Archived));
    assert_eq!(cancel("waits").await, told("waits", false, "ended"));
    assert_eq!(cancel("a1").await, told("a1", true, "recorded"), "it runs, and nobody listens");
    let interrupt = site.send("POST", &format!("/queues/{QUEUE}/tasks/g1/interrupt"), "").await.json();
    assert_eq!(interrupt, json!({ "action": "interrupt", "queue": QUEUE, "id": "g1", "changed": false }));
    let all = r#"{"action":"cancel","filter":"state:active"}"#;
    let told = site.send("POST", &format!("/queues/{QUEUE}/bulk"), all).await.json();
    assert_eq!((&told["matched"], &told["changed"]), (&json!(2), &json!(2)));
    let records: Vec<String> = place.command("HKEYS asynq:x:cancels").await;
    assert_eq!(BTreeSet::from_iter(records), BTreeSet::from([format!("a1 {QUEUE}"), format!("g1 {QUEUE}")]));
}

async fn ids(site: &Site, query: &str) -> (Vec<String>, Vec<Value>) {
    let (mut ids, mut answers, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let told = site.get(&format!("/tasks?queue={QUEUE}&{query}&cursor={cursor}")).await;
        assert_eq!(told.status, StatusCode::OK, "{told:?}");
        let answer = told.json();
        ids.extend(answer["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        cursor = answer["next"].as_str().unwrap_or_default().to_owned();
        answers.push(answer);
        if cursor.is_empty() {
            return (ids, answers);
        }
    }
}

#[tokio::test]
async fn a_search_is_honest_about_how_much_it_has_looked_at() {
    let place = Place::start().await;
    place.put((0..1_500).map(|n| task(&format!("t{n}")).payload(format!(r#"{{"odd":{}}}"#, n % 500 == 499)))).await;
    let site = place.open();
    let (all, answers) = ids(&site, "state=pending&limit=200").await;
    assert_eq!(all, (0..1_500).map(|n| format!("t{n}")).collect::<Vec<_>>());
    assert!(answers.iter().all(|answer| answer["total"] == 1_500));
    let (found, answers) = ids(&site, "q=state:pending+payload.odd:true").await;
    assert_eq!(found, ["t499", "t999", "t1499"]);
    let last = answers.last().unwrap();
    assert_eq!(last["searched"], json!({ "looked_at": 1_500, "of": 1_500, "complete": true }));
    assert!(answers.iter().all(|answer| answer["total"].is_null()));
    // Bulk: the dry run counts, and changes nothing.
    let bulk = format!("/queues/{QUEUE}/bulk");
    let wish = |dry: bool| {
        format!(r#"{{"action":"archive","filter":"state:pending payload.odd:true","dry_run":{dry},"at_most":3}}"#)
    };
    assert_eq!(site.send("POST", &bulk, &wish(true)).await.json()["matched"], 3);
    assert_eq!(place.inspector.queue(QUEUE).await.unwrap().archived, 0);
    assert_eq!(site.send("POST", &bulk, &wish(false)).await.json()["changed"], 3);
    assert_eq!(place.inspector.queue(QUEUE).await.unwrap().archived, 3);
}

#[tokio::test]
async fn an_operation_is_asked_for_watched_and_undone() {
    let place = Place::start().await;
    place.put((0..250).map(|n| task(&format!("t{n}")))).await;
    let site = place.open();
    let wish = |more: &str| format!(r#"{{"action":"delete","queues":["{QUEUE}"],"filter":"state:pending"{more}}}"#);
    let dry = site.send("POST", "/operations", &wish(r#","dry_run":true"#)).await.json();
    assert_eq!((&dry["matched"], &dry["by_queue"][QUEUE]), (&json!(250), &json!(250)));
    assert_eq!(site.get("/operations").await.json()["items"], json!([]));
    let ended = async |id: &str| {
        wait_for("the operation ends", async || {
            let told = site.get(&format!("/operations/{id}")).await.json();
            told["ended_at"].is_string().then_some(told)
        })
        .await
    };
    let key = [("idempotency-key", "once"), ("content-type", "application/json")];
    let begun = site.ask("POST", "/api/v1/operations", &key, wish(r#","at_most":275,"reason":"a test""#)).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    let done = ended(&id).await;
    assert_eq!((&done["state"], &done["changed"], &done["reason"]), (&json!("done"), &json!(250), &json!("a test")));
    let again = site.ask("POST", "/api/v1/operations", &key, wish(r#","at_most":275,"reason":"a test""#)).await;
    assert_eq!(again.json()["id"], *id);
    let other = site.ask("POST", "/api/v1/operations", &key, wish("")).await;
    assert_eq!((other.status.as_u16(), other.code().as_str()), (422, "key-reused"));
    let overview = wait_for("it is on the overview", async || {
        let overview = site.get("/overview").await.json();
        (overview["operations"] != json!([])).then_some(overview)
    })
    .await;
    assert_eq!(overview["operations"][0]["id"], *id);
    let bin = site.get(&format!("/bin/{id}?limit=2")).await.json();
    assert_eq!((&bin["tasks"][QUEUE], bin["items"].as_array().unwrap().len()), (&json!(250), 2));
    assert_eq!(bin["items"][0]["state"], "pending");
    assert_eq!((&bin["total"], &bin["searched"]["complete"]), (&json!(250), &json!(false)));
    let next = bin["next"].as_str().unwrap();
    let second = site.get(&format!("/bin/{id}?limit=200&cursor={next}")).await.json();
    assert_eq!((second["items"].as_array().unwrap().len(), &second["items"][0]["id"]), (200, &json!("t247")));
    let found = site.get(&format!("/bin/{id}?q=t24&state=pending")).await.json();
    assert_eq!((found["items"].as_array().unwrap().len(), &found["total"]), (11, &json!(null)));
    assert_eq!(site.get(&format!("/bin/{id}?q=t24&cursor={next}")).await.code(), "invalid-cursor");
    let one = format!(r#"{{"action":"restore","operation":"{id}","ids":["t7"]}}"#);
    let one = site.send("POST", "/operations", &one).await.json();
    assert_eq!((&ended(one["id"].as_str().unwrap()).await["changed"], &one["queues"]), (&json!(1), &json!([QUEUE])));
    let restore = format!(r#"{{"action":"restore","operation":"{id}"}}"#);
    let restore = site.send("POST", "/operations", &restore).await.json();
    assert_eq!(ended(restore["id"].as_str().unwrap()).await["changed"], 249);
    assert_eq!(place.inspector.queue(QUEUE).await.unwrap().pending, 250);
    assert_eq!(site.get(&format!("/bin/{id}")).await.code(), "bin-not-found");
    let told = site.send("PATCH", &format!("/operations/{id}"), r#"{"state":"paused"}"#).await;
    assert_eq!((told.code().as_str(), &told.json()["state"]), ("wrong-state", &json!("done")));
}

/// More of them than a process has connections, and than it carries out at once of others.
#[tokio::test]
async fn operations_that_wait_because_of_their_rate_hold_up_nothing() {
    let place = Place::start().await;
    place.put((0..50).map(|n| task(&format!("t{n}")))).await;
    let site = place.open();
    let wish = |rate: &str| format!(r#"{{"action":"archive","queues":["{QUEUE}"],"filter":"state:pending"{rate}}}"#);
    for _ in 0..10 {
        let begun = site.send("POST", "/operations", &wish(r#","rate":"1/1h""#)).await;
        assert_eq!((begun.status.as_u16(), &begun.json()["rate"]), (202, &json!("1/1h")), "{begun:?}");
    }
    wait_for("each has changed a task and waits", async || {
        let told = site.get("/operations").await.json();
        told["items"].as_array().unwrap().iter().all(|it| it["changed"] == 1 && it["state"] == "running").then_some(())
    })
    .await;
    let other = site.send("POST", "/operations", &wish("")).await.json();
    let done = wait_for("the other one ends", async || {
        let told = site.get(&format!("/operations/{}", other["id"].as_str().unwrap())).await.json();
        told["ended_at"].is_string().then_some(told)
    })
    .await;
    assert_eq!((&done["state"], &done["changed"]), (&json!("done"), &json!(40)));
    for rate in ["5", "0/s", "1/never"] {
        let refused = site.send("POST", "/operations", &wish(&format!(r#","rate":"{rate}""#))).await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (400, "invalid-value"), "{refused:?}");
        assert!(refused.text.contains("such as 100/1m"), "{refused:?}");
    }
}

/// What a dashboard has begun that was killed, the next one ends.
#[tokio::test]
async fn a_dashboard_goes_on_with_what_another_process_has_left() {
    let place = Place::start().await;
    place.put((0..50).map(|n| task(&format!("t{n}")))).await;
    let spec = OperationSpec::new(Work::Delete, QUEUE, &"state:pending".parse().unwrap());
    let id = place.admin().start_operation(spec, None).await.unwrap().id;
    let running = [("state", "running".to_owned())];
    let broker = queue_redis::broker::Broker::new(place.redis.clone());
    broker.write_operation(&id, "somebody who has died", true, &running).await.unwrap();
    place.command::<i64>(&format!("DEL asynq:x:op:{{{id}}}:lease")).await;
    let served = Served::start(&place.open().0).await;
    wait_for("it is done", async || {
        let operation = place.inspector.operation(&id).await.unwrap();
        (operation.ended_at.is_some() && operation.changed == 50).then_some(())
    })
    .await;
    served.end().await;
}

#[tokio::test]
async fn the_doctor_examines_on_demand() {
    let place = Place::start().await;
    place.furnish().await;
    place.command::<i64>("LPUSH asynq:{mail}:pending nobody").await;
    let site = place.open();
    assert!(site.get("/doctor").await.json()["started"].is_null());
    assert_eq!(site.send("POST", "/doctor", "").await.status, StatusCode::OK);
    let report = crate::support::wait_for("the examination ends", async || {
        let report = site.get("/doctor").await.json();
        (report["running"] == false).then_some(report)
    })
    .await;
    let found = report["items"].as_array().unwrap().iter().find(|finding| finding["subject"] == "nobody");
    assert!(found.is_some_and(|finding| finding["mendable"] == true), "{report}");
}

#[tokio::test]
async fn it_works_below_any_path_and_says_what_a_browser_may_do() {
    let place = Place::start().await;
    place.furnish().await;
    let web = place.open().0;
    let under = |path: &'static str| axum::Router::new().nest_service(path, web.router());
    for (router, begin) in [(under("/a"), "/a"), (under("/a/b"), "/a/b"), (web.router(), "")] {
        let get = async |path: String| {
            let request = axum::http::Request::builder()
                .uri(path)
                .header("host", "localhost")
                .body(axum::body::Body::empty())
                .unwrap();
            tower::ServiceExt::oneshot(router.clone(), request).await.unwrap()
        };
        if !begin.is_empty() {
            let told = get(begin.to_owned()).await;
            assert!(told.status().is_redirection(), "{begin}: {told:?}");
            let last = begin.rsplit('/').next().unwrap();
            assert_eq!(told.headers()["location"], format!("./{last}/"));
        }
        for page in ["/", "/queue?queue=mail", "/tasks", "/settings"] {
            let told = get(format!("{begin}{page}")).await;
            assert_eq!(told.status(), StatusCode::OK, "{begin}{page}");
            let policy = told.headers()["content-security-policy"].to_str().unwrap();
            assert!(
                policy.contains("default-src 'none'")
                    && policy.contains("require-trusted-types-for 'script'")
                    && !policy.contains("unsafe")
            );
            assert_eq!(told.headers()["x-content-type-options"], "nosniff");
        }
        assert_eq!(get(format!("{begin}/api/v1/queues")).await.status(), StatusCode::OK);
        assert_eq!(get(format!("{begin}/nothing")).await.status(), StatusCode::NOT_FOUND);
    }
}

/// Each took 8 MiB, and 30 s where it did not come.
#[tokio::test]
async fn the_body_of_a_request_that_only_looks_is_not_read() {
    let place = Place::start().await;
    place.furnish().await;
    let served = Served::start(&place.open().0).await;
    let queues = format!("/api/v1/queues/{QUEUE}");
    let head = |length: usize| format!("GET {queues} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    let address = served.address.trim_start_matches("http://").trim_end_matches('/').to_owned();
    // One that has come is no request of its own.
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let smuggled = head(0);
    stream.write_all(format!("{}{smuggled}", head(smuggled.len())).as_bytes()).await.unwrap();
    let next = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(next.as_bytes()).await.unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).await.unwrap();
    assert_eq!((told.matches("HTTP/1.1 200").count(), told.matches("\"archived\"").count()), (2, 1), "{told}");
    assert!(told.ends_with("ok\n"), "{told}");
    // One that does not come is not waited for.
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(head(8 << 20).as_bytes()).await.unwrap();
    let answer = async {
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.map(|_| begin)
    };
    let begin = tokio::time::timeout(Duration::from_secs(10), answer).await.expect("an answer");
    assert_eq!(&begin.unwrap(), b"HTTP/1.1 200");
    drop(stream);
    served.end().await;
}
