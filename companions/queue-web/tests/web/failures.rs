//! What fails, grouped by its cause; and Redis itself.

use std::time::Duration;

use axum::http::StatusCode;
use queue_admin::Role;
use queue_core::{RawTask, TaskState};
use queue_web::{Identity, Redact, Web};
use queue_worker::{Failure, Job, Router, Server};
use serde_json::{Value, json};

use crate::browser::{Window, is_there};
use crate::support::{Place, QUEUE, Served, Site, task, wait_for};
use crate::texts::TEXTS;

/// Has tasks fail with their payloads as errors: those whose id begins with `r` are retried in an hour, the others archived.
async fn fail(place: &Place, queue: &str, tasks: &[(&str, &str)]) {
    place.put(tasks.iter().map(|(id, error)| task(id).queue(queue).payload((*error).to_owned()))).await;
    let work = async |job: Job| {
        let error = String::from_utf8_lossy(job.payload()).into_owned();
        match job.id().starts_with('r') {
            true => Err::<(), _>(Failure::retry_in(Duration::from_secs(3_600), error)),
            false => Err(Failure::archive(error)),
        }
    };
    let server = Server::new(place.redis.clone(), Router::new(()).route("email:", work));
    let server = server.queues([(queue, 1)]).start().await.unwrap();
    wait_for("all have failed", async || {
        let info = place.inspector.queue(queue).await.unwrap();
        (info.pending + info.active == 0).then_some(())
    })
    .await;
    server.shutdown().await;
}

const REFUSED: [(&str, &str); 4] = [
    ("r1", "order 17: dial tcp 10.0.0.7:25: connection refused"),
    ("a1", "order 18: dial tcp 10.0.0.9:25: connection refused"),
    ("a2", "order 19: dial tcp 10.0.0.9:25: connection refused\nsecond line"),
    ("a3", "status 503"),
];

async fn complete(site: &Site, query: &str) -> Value {
    wait_for("all is looked at", async || {
        let told = site.get(&format!("/failures{query}")).await.json();
        (told["running"] == false && told["partial"] == false).then_some(told)
    })
    .await
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_is_named_to_whom_may_see_it() {
    let place = Place::start().await;
    fail(&place, QUEUE, &REFUSED).await;
    place.command::<i64>("SADD asynq:queues broken").await;
    place.command::<String>("SET asynq:{broken}:retry nothing").await;
    let told = complete(&place.open(), "").await;
    assert_eq!((&told["items"][0]["tasks"], &told["unreadable"][0]["queue"]), (&json!(3), &json!("broken")));
    assert!(told["unreadable"][0]["detail"].as_str().unwrap().contains("WRONGTYPE"), "{told}");
    let bob = Identity::new("bob", Role::Operator).queues([QUEUE]);
    let bob = Site(Web::builder(place.redis.clone()).identify(move |_| Some(bob.clone())).build());
    assert_eq!(complete(&bob, "").await["unreadable"], json!([]));
}

#[tokio::test]
async fn failures_of_one_cause_are_a_group_which_can_be_run_as_a_whole() {
    let place = Place::start().await;
    place.furnish().await;
    place.command::<i64>("LREM asynq:{mail}:pending 0 pending").await;
    fail(&place, QUEUE, &REFUSED).await;
    fail(&place, "vault", &[("v1", "order 99: dial tcp [::1]:25: connection refused")]).await;
    let site = place.open();
    let told = complete(&site, "").await;
    assert_eq!(
        (&told["groups"], &told["looked_at"], &told["of"], &told["without_error"]),
        (&json!(2), &json!(6), &json!(6), &json!(1))
    );
    let group = &told["items"][0];
    assert_eq!(group["pattern"], "order <n>: dial tcp <address>: connection refused");
    assert_eq!((&group["tasks"], &group["retry"], &group["archived"]), (&json!(4), &json!(1), &json!(3)));
    assert_eq!(
        group["queues"],
        json!([{ "queue": "mail", "retry": 1, "archived": 2 }, { "queue": "vault", "retry": 0, "archived": 1 }])
    );
    assert_eq!(group["samples"].as_array().unwrap().len(), 3);
    let fingerprint = group["fingerprint"].as_str().unwrap();

    // Who sees one queue sees what is in it.
    let bob = Site(
        Web::builder(place.redis.clone())
            .identify(|_| Some(Identity::new("bob", Role::Operator).queues([QUEUE])))
            .build(),
    );
    let seen = complete(&bob, "").await;
    assert_eq!((&seen["items"][0]["tasks"], &seen["looked_at"]), (&json!(3), &json!(5)));
    assert!(!seen.to_string().contains("vault") && !seen.to_string().contains("v1\""), "{seen}");
    assert_eq!(bob.get("/failures?queue=vault").await.status, StatusCode::NOT_FOUND);
    let one = bob.get(&format!("/failures/{fingerprint}")).await;
    assert!(one.status.is_success() && !one.text.contains("vault"), "{one:?}");
    assert_eq!(complete(&site, "?queue=vault").await["items"][0]["tasks"], 1);

    // The same filter chooses its tasks, wherever there are filters.
    let found = site.get(&format!("/tasks?queue={QUEUE}&q=fingerprint:{fingerprint}")).await.json();
    let mut ids: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a1", "a2", "r1"]);
    let wish = format!(r#"{{"action":"run","filter":"state:archived fingerprint:{fingerprint}"}}"#);
    assert_eq!(site.send("POST", &format!("/queues/{QUEUE}/bulk"), &wish).await.json()["changed"], 2);
    assert_eq!(place.state("a1").await, Some(TaskState::Pending));
    assert_eq!(place.state("a3").await, Some(TaskState::Archived));
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.get("/failures?again").await;
    assert_eq!(complete(&site, "").await["items"][0]["tasks"], 2);

    for (path, status, code) in [
        ("/failures/v1-000000000000", StatusCode::NOT_FOUND, "failure-not-found"),
        ("/failures/seven", StatusCode::BAD_REQUEST, "invalid-value"),
        ("/failures?queue=none", StatusCode::NOT_FOUND, "queue-not-found"),
    ] {
        let told = site.get(path).await;
        assert_eq!((told.status, told.code().as_str()), (status, code), "{path}");
    }
}

#[tokio::test]
async fn a_group_is_chosen_also_where_errors_must_not_be_searched() {
    let place = Place::start().await;
    fail(&place, QUEUE, &REFUSED).await;
    let rules = Redact::from_toml("[payload]\n'email:*' = ['*']").unwrap();
    let site = Site(Web::builder(place.redis.clone()).redact(rules).build());
    let told = complete(&site, "").await;
    let filter = format!("fingerprint:{}", told["items"][0]["fingerprint"].as_str().unwrap());
    let found = site.get(&format!("/tasks?queue={QUEUE}&q={filter}")).await;
    assert_eq!(found.json()["items"].as_array().unwrap().len(), 3);
    assert_eq!(site.get(&format!("/tasks?queue={QUEUE}&q=error:order")).await.code(), "redacted");
}

#[tokio::test]
async fn more_than_one_step_is_gone_through_and_nothing_is_counted_twice() {
    let place = Place::start().await;
    place.put((0..450).map(|n| task(&format!("t{n}")))).await;
    let all = queue_admin::Filter::new().state(TaskState::Pending);
    place.inspector.archive_all(QUEUE, &all, |_| {}).await.unwrap();
    let told = complete(&place.open(), "").await;
    assert_eq!((&told["looked_at"], &told["of"], &told["without_error"]), (&json!(450), &json!(450), &json!(450)));
}

#[tokio::test]
async fn redis_itself_is_told_of_with_advice_to_those_who_see_all_queues() {
    let place = Place::start().await;
    let told = place.open().get("/redis").await.json();
    assert!(told["server"].as_str().unwrap().contains('.'), "{told}");
    let faults: Vec<&str> =
        told["findings"].as_array().unwrap().iter().map(|it| it["fault"].as_str().unwrap()).collect();
    assert_eq!(faults.contains(&"not-persistent"), told["facts"]["persistence"]["aof_enabled"] == "0", "{told}");
    assert!(told["advice"].as_array().unwrap().iter().any(|it| it["seen"] == "maxmemory is not set"), "{told}");
    assert_eq!(told["facts"]["memory"]["maxmemory"], "0");
    assert!(told["round_trips"]["longest_us"].as_u64() >= told["round_trips"]["median_us"].as_u64());
    let bob = place.of(Identity::new("bob", Role::Admin).queues([QUEUE]));
    for path in ["/api/v1/redis", "/api/redis_info"] {
        assert_eq!(bob.ask("GET", path, &[], "").await.status, StatusCode::FORBIDDEN, "{path}");
    }
    // Where INFO is refused, the rest is told.
    place.command::<String>("ACL SETUSER poor on >pw ~* &* +@all -info").await;
    let url = format!("{}?user=poor&pass=pw", place.server.url());
    let poor = queue_redis::Redis::lazy(&url, queue_redis::RedisOptions::default()).unwrap();
    let told = Site(Web::builder(poor).build()).get("/redis").await;
    assert!(told.status.is_success(), "{told:?}");
    assert_eq!(told.json()["facts"], json!({}));
    assert!(told.json()["findings"].to_string().contains("INFO was refused"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_looked_at_and_run_in_a_browser_and_its_texts_are_only_text() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    fail(&place, QUEUE, &REFUSED).await;
    let hostile: Vec<(String, String)> =
        TEXTS.iter().enumerate().map(|(n, text)| (format!("x{n}"), format!("bad {text}"))).collect();
    let hostile: Vec<(&str, &str)> = hostile.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect();
    fail(&place, QUEUE, &hostile).await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), true).await;
    window.go(&format!("{}failures", served.address)).await;
    window.has("order <n>: dial tcp <address>: connection refused").await;
    assert_eq!(window.script("return document.querySelectorAll('main img, main script').length").await, 0);
    window.click("main tbody a").await;
    window.has("1 in retry, 2 archived").await;
    window.has("a2").await;
    window.click("main a[href*='state=archived']").await;
    window.has("Found 2").await;
    window.browser.back().await.unwrap();
    window.has("1 in retry, 2 archived").await;
    window.click("main tbody tr:nth-child(2) [data-many=run]").await;
    window.has("Run 2 tasks?").await;
    window.click("dialog button[value=yes]").await;
    window.has("2 tasks made pending").await;
    assert_eq!(place.state("a1").await, Some(TaskState::Pending));
    // Else the question is still about what was archived, too.
    window.has("1: 1 in retry, 0 archived").await;
    // The whole cause, wherever its tasks are.
    window.click("main > div > div > .bar [data-many=delete]").await;
    window.has("Delete 1 tasks?").await;
    window.has("state:retry fingerprint:").await;
    window.click("dialog button[value=yes]").await;
    window.has("1 tasks deleted").await;
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_means_harm_is_only_text_among_failures() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    let work = async |_: Job| Err::<(), _>(Failure::archive(TEXTS[0]));
    for text in TEXTS {
        place.put([RawTask::new(text).queue(QUEUE)]).await;
    }
    let server =
        Server::new(place.redis.clone(), Router::new(()).fallback(work)).queues([(QUEUE, 1)]).start().await.unwrap();
    wait_for("all have failed", async || {
        (place.inspector.queue(QUEUE).await.unwrap().archived == TEXTS.len() as u64).then_some(())
    })
    .await;
    server.shutdown().await;
    let served = Served::start(&place.open().0).await;
    let window = Window::open((1_200, 900), false).await;
    window.go(&format!("{}failures", served.address)).await;
    window.has(&format!("{} groups", TEXTS.len())).await;
    window.click("main tbody a").await;
    window.has("Those that failed last").await;
    assert_eq!(window.script("return document.title").await, "Queues");
    assert_eq!(window.faults(&served.address).await, [""; 0]);
    window.close().await;
    served.end().await;
}
