//! People who log in on a page.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use fantoccini::Locator;
use futures_util::StreamExt as _;
use queue_admin::Role;
use queue_core::TaskState;
use queue_web::{Tokens, Users, Web, new_token, new_user};
use serde_json::json;
use tower::ServiceExt as _;

use crate::browser::{Window, is_there};
use crate::support::{Place, QUEUE, Site, Told, task, wait_for};
use crate::texts::TEXTS;

const PASSWORD: &str = "correct horse";

pub(crate) fn users() -> Users {
    let bob = new_user("bob", Role::Viewer, "battery staple").unwrap();
    Users::parse(&format!("{}\n{bob}:other*", new_user("ada", Role::Operator, PASSWORD).unwrap())).unwrap()
}

fn site(place: &Place) -> Site {
    Site(Web::builder(place.redis.clone()).users(users()).build())
}

async fn enter(site: &Site, name: &str, password: &str, headers: &[(&str, &str)]) -> Told {
    let body = json!({ "name": name, "password": password }).to_string();
    site.ask("POST", "/login", headers, body).await
}

/// What a browser sends back of the cookie of an answer.
fn cookie(told: &Told) -> String {
    let set = told.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn whoever_has_logged_in_may_do_what_the_file_says_until_the_logout() {
    let place = Place::start().await;
    place.furnish().await;
    let site = site(&place);
    // The pages are for everybody, since there is nothing in them; what they show is not.
    for path in ["/", "/tasks", "/assets/x/app.js", "/healthz"] {
        assert_eq!(site.ask("GET", path, &[], "").await.status, StatusCode::OK, "{path}");
    }
    for (method, path, _) in place.open().routes().await {
        let told = site.send(&method, &path.replace(['{', '}'], ""), "{}").await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{path}");
        // A browser would ask for a name and a password by itself.
        assert_eq!(
            (told.headers["www-authenticate"].to_str().unwrap(), &told.json()["login"]),
            ("Bearer realm=\"queue\"", &json!(true))
        );
    }
    for path in ["/api/queues", "/api/v1/events"] {
        assert_eq!(site.ask("GET", path, &[], "").await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    for (name, password) in [("ada", "battery staple"), ("eve", PASSWORD), ("ada", ""), ("", "")] {
        let told = enter(&site, name, password, &[]).await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{name}");
        assert!(!told.headers.contains_key("set-cookie") && told.json().get("login").is_none());
    }
    let told = enter(&site, "ada", PASSWORD, &[("origin", "http://localhost"), ("host", "localhost")]).await;
    assert_eq!(told.status, StatusCode::NO_CONTENT, "{told:?}");
    let set = told.headers["set-cookie"].to_str().unwrap();
    let (value, attributes) = set.split_once("; ").unwrap();
    assert_eq!((value.len(), attributes), ("queue-session=".len() + 43, "HttpOnly; SameSite=Strict"), "{set}");
    assert_eq!(told.headers["cache-control"], "no-store");
    let ada = cookie(&told);
    let with = [("cookie", ada.as_str()), ("sec-fetch-site", "same-origin")];
    let me = site.ask("GET", "/api/v1/me", &with, "").await.json();
    assert_eq!((&me["name"], &me["role"], &me["session"]), (&json!("ada"), &json!("operator"), &json!(true)));
    assert_eq!(site.ask("GET", "/api/queues", &with, "").await.json()["queues"][0]["queue"], QUEUE);
    let run = format!("/api/v1/queues/{QUEUE}/tasks/scheduled/run");
    // Another page has the browser send the cookie: SameSite stops it there, and the origin here.
    for foreign in
        [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.example.com")]
    {
        let told = site.ask("POST", &run, &[("cookie", &ada), foreign], "").await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "cross-origin"), "{foreign:?}");
        for path in ["/login", "/logout"] {
            let told = site
                .ask(
                    "POST",
                    path,
                    &[("cookie", &ada), foreign],
                    json!({ "name": "bob", "password": "battery staple" }).to_string(),
                )
                .await;
            assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "cross-origin"), "{path}");
        }
    }
    assert_eq!(place.state("scheduled").await, Some(TaskState::Scheduled));
    assert_eq!(site.ask("POST", &run, &with, "").await.status, StatusCode::OK);
    assert_eq!(place.state("scheduled").await, Some(TaskState::Pending));
    let told = site.ask("DELETE", &format!("/api/v1/queues/{QUEUE}/tasks/pending"), &with, "").await;
    assert_eq!((told.status, &told.json()["permission"]), (StatusCode::FORBIDDEN, &json!("delete")));
    let audit = place.open().get("/audit").await.json();
    assert_eq!(
        (&audit["items"][0]["actor"], &audit["items"][0]["role"]),
        (&json!("ada"), &json!("operator")),
        "{audit}"
    );
    // Bob sees his queues alone. By https, the cookie is for https alone.
    let told = enter(
        &site,
        "bob",
        "battery staple",
        &[("origin", "https://tasks.example.com"), ("host", "tasks.example.com")],
    )
    .await;
    assert!(told.headers["set-cookie"].to_str().unwrap().ends_with("; HttpOnly; SameSite=Strict; Secure"), "{told:?}");
    let bob = cookie(&told);
    assert_eq!(site.ask("GET", "/api/v1/queues", &[("cookie", &bob)], "").await.json()["total"], 0);
    let told = site.ask("POST", "/logout", &with, "").await;
    assert_eq!(told.status, StatusCode::NO_CONTENT);
    assert!(
        told.headers["set-cookie"].to_str().unwrap().starts_with("queue-session=;")
            && told.headers["set-cookie"].to_str().unwrap().ends_with("Max-Age=0")
    );
    assert_eq!(site.ask("GET", "/api/v1/me", &with, "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(site.ask("GET", "/api/v1/me", &[("cookie", &bob)], "").await.json()["name"], "bob");
    // Whoever logs in again is in no session of before.
    let again = cookie(&enter(&site, "bob", "battery staple", &[("cookie", &bob)]).await);
    assert_eq!(site.ask("GET", "/api/v1/me", &[("cookie", &bob)], "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(site.ask("GET", "/api/v1/me", &[("cookie", &again)], "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn programs_have_tokens_beside_the_people_and_passwords_are_for_the_page() {
    let place = Place::start().await;
    let (token, line) = new_token("robot", Role::Viewer);
    let web = Web::builder(place.redis.clone()).users(users()).tokens(Tokens::parse(&line).unwrap()).build();
    let site = Site(web);
    let asked = async |value: &str| site.ask("GET", "/api/v1/me", &[("authorization", value)], "").await;
    let me = asked(&format!("Bearer {token}")).await.json();
    assert_eq!((&me["name"], &me["session"]), (&json!("robot"), &json!(false)));
    assert_eq!(asked(&format!("Bearer {PASSWORD}")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(enter(&site, "robot", &token, &[]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(enter(&site, "ada", PASSWORD, &[]).await.status, StatusCode::NO_CONTENT);
    // Where nobody logs in on a page, there is no such address.
    let told = place.open().ask("POST", "/login", &[], "{}").await;
    assert_eq!(told.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_is_sent_to_the_login_does_no_harm_and_is_not_repeated() {
    let place = Place::start().await;
    let site = site(&place);
    for body in [
        format!("{{\"name\":\"ada\",\"password\":\"{PASSWORD}"),
        format!("{{\"name\":\"ada\",\"password\":\"{PASSWORD}\",\"more\":1}}"),
        format!("{{\"name\":{{\"{PASSWORD}\":1}}}}"),
        format!("name=ada&password={PASSWORD}"),
        "[".repeat(10_000),
        String::new(),
        json!({ "name": "ada", "password": "x".repeat(1_025) }).to_string(),
        json!({ "name": "x".repeat(1_025), "password": PASSWORD }).to_string(),
    ] {
        let told = site.ask("POST", "/login", &[], body.clone()).await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::BAD_REQUEST, "invalid-request"), "{body}");
        assert!(!told.text.contains(PASSWORD), "{told:?}");
    }
    let told = site.ask("POST", "/login", &[], "x".repeat(20_000)).await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "too-large"));
    // The longest that is looked at fits, however it is written.
    let longest: String = "\\u0001".repeat(1_024);
    let told = site.ask("POST", "/login", &[], format!("{{\"name\":\"{longest}\",\"password\":\"{longest}\"}}")).await;
    assert_eq!(told.status, StatusCode::UNAUTHORIZED);
    for text in TEXTS {
        let told = enter(&site, text, &format!("{text}\0"), &[]).await;
        assert_eq!(
            (told.status, told.json()["detail"].as_str()),
            (StatusCode::UNAUTHORIZED, Some("the name or the password is wrong")),
            "{text}"
        );
    }
    for path in ["/login", "/logout"] {
        assert_eq!(site.ask("GET", path, &[], "").await.status, StatusCode::METHOD_NOT_ALLOWED, "a link does nothing");
    }
    let at_once = site.ask("POST", "/logout", &[("cookie", "queue-session=x; queue-session=\"; ; =")], "").await;
    assert_eq!(at_once.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn whoever_guesses_passwords_has_to_wait_and_shuts_nobody_out() {
    let place = Place::start().await;
    let web = site(&place).0;
    let from = async |address: &str, name: &str, password: &str| {
        let peer: SocketAddr = address.parse().unwrap();
        let body = json!({ "name": name, "password": password }).to_string();
        let request = Request::builder()
            .method("POST")
            .uri("/login")
            .extension(ConnectInfo(peer))
            .body(axum::body::Body::from(body));
        web.router().oneshot(request.unwrap()).await.unwrap()
    };
    let mut answers = Vec::new();
    for n in 0..12 {
        answers.push(from("10.0.0.1:1", "ada", &format!("guess-{n}")).await.status().as_u16());
    }
    assert_eq!((&answers[..10], answers[11]), (&[401; 10][..], 429));
    // Not even with the right one, so that nobody learns that it is; but from elsewhere, and with another name.
    let refused = from("10.0.0.1:2", "ada", PASSWORD).await;
    assert_eq!(
        (refused.status(), refused.headers()["retry-after"].to_str().unwrap()),
        (StatusCode::TOO_MANY_REQUESTS, "6")
    );
    assert_eq!(from("10.0.0.2:1", "ada", PASSWORD).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(from("10.0.0.1:1", "bob", "battery staple").await.status(), StatusCode::NO_CONTENT);
    // And it is over by itself.
    wait_for("there is room for an attempt", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        (from("10.0.0.1:1", "ada", PASSWORD).await.status() == StatusCode::NO_CONTENT).then_some(())
    })
    .await;
}

#[tokio::test]
async fn behind_a_proxy_attempts_are_counted_by_whom_it_was_asked() {
    let place = Place::start().await;
    let web = Web::builder(place.redis.clone()).users(users()).proxies(1).build();
    let from = async |said: &str| {
        let request = Request::builder()
            .method("POST")
            .uri("/login")
            .header("x-forwarded-for", said)
            .extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1))))
            .body(axum::body::Body::from(json!({ "name": "ada", "password": "guess" }).to_string()));
        web.router().oneshot(request.unwrap()).await.unwrap().status().as_u16()
    };
    for n in 0..10 {
        assert_eq!(from(&format!("10.9.9.{n}, 203.0.113.7")).await, 401);
    }
    assert_eq!(from("10.9.9.99, 203.0.113.7").await, 429, "what the sender says himself counts for nothing");
    assert_eq!(from("203.0.113.8").await, 401, "somebody else");
}

#[tokio::test]
async fn a_stream_ends_with_its_session() {
    let place = Place::start().await;
    place.furnish().await;
    let site = site(&place);
    let ada = cookie(&enter(&site, "ada", PASSWORD, &[]).await);
    let other = cookie(&enter(&site, "ada", PASSWORD, &[]).await);
    let mut streams = Vec::new();
    for cookie in [&ada, &other] {
        let request = Request::builder().uri("/api/v1/events").header("cookie", cookie).body(axum::body::Body::empty());
        let response = site.0.router().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        streams.push(response.into_body().into_data_stream());
    }
    let next = async |stream: &mut axum::body::BodyDataStream| {
        tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("something in 20 s")
    };
    for stream in &mut streams {
        assert!(next(stream).await.is_some() && next(stream).await.is_some());
    }
    site.ask("POST", "/logout", &[("cookie", &ada)], "").await;
    assert!(next(&mut streams[0]).await.is_none(), "nothing more is told after the logout");
    assert!(next(&mut streams[1]).await.is_some(), "the other session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_logs_in_on_a_page_below_a_path_changes_a_queue_and_logs_out() {
    if !is_there() {
        return;
    }
    let place = Place::start().await;
    place.put([task("a"), task("b").queue("other")]).await;
    let web = site(&place);
    let router = axum::Router::new().nest_service("/x/y", web.0.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/x/y/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let window = Window::open((1_200, 900), false).await;
    let fill = async |name: &str, password: &str| {
        for (field, value) in [("name", name), ("password", password)] {
            let field = window.browser.find(Locator::Css(&format!("form input[name={field}]"))).await.unwrap();
            field.clear().await.unwrap();
            field.send_keys(value).await.unwrap();
        }
        window.click("form button").await;
    };
    window.go(&format!("{address}queue?queue={QUEUE}")).await;
    window.has("Log in").await;
    assert_eq!(window.script("return document.activeElement.name").await, "name");
    assert!(!window.text().await.contains(QUEUE), "nothing is told before");
    fill("ada", "wrong").await;
    window.has("the name or the password is wrong").await;
    assert_eq!(window.script("return document.activeElement.name").await, "password");
    assert_eq!(window.faults(&address).await, [""; 0]);
    fill("ada", PASSWORD).await;
    window.has("Queue mail").await;
    window.has("ada, operator").await;
    assert_eq!(window.script("return document.cookie").await, "", "no script reads it");
    window.click("[data-action='queue.pause']").await;
    window.click("dialog button[value=yes]").await;
    wait_for("it is paused", async || place.inspector.queue(QUEUE).await.unwrap().paused.then_some(())).await;
    window.go(&format!("{address}servers")).await;
    window.has("No server is running").await;
    assert_eq!(window.faults(&address).await, [""; 0]);
    window.click("header button").await;
    window.has("Log in").await;
    window.go(&address).await;
    window.has("Log in").await;
    // Somebody else at the same browser is shown nothing of it.
    fill("bob", "battery staple").await;
    window.has("1 queues, as of").await;
    assert!(!window.text().await.contains(QUEUE));
    // The session ends while the page is open, at another tab for example.
    let left = window.script("return (async () => (await fetch('./logout', { method: 'POST' })).status)()").await;
    assert_eq!(left, 204);
    window.has("Log in").await;
    assert!(!window.text().await.contains("other"));
    assert_eq!(window.faults(&address).await, [""; 0]);
    // So with the page of events, which has a stream of its own.
    fill("bob", "battery staple").await;
    window.has("1 queues, as of").await;
    window.go(&format!("{address}events")).await;
    window.has("0 events heard").await;
    window.script("return (async () => (await fetch('./logout', { method: 'POST' })).status)()").await;
    window.has("Log in").await;
    // And nothing goes on asking in vain, which would be told above the form.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!window.text().await.contains("does not answer"));
    window.close().await;
    serving.abort();
}
