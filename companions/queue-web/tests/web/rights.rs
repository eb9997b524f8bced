//! Who may do what.

use axum::http::StatusCode;
use base64::Engine as _;
use queue_admin::Role;
use queue_web::{Identity, Redact, Tokens, Web, new_token};
use queue_worker::{Failure, Job, Router, Server};

use crate::support::{Place, QUEUE, Site, task, wait_for};

/// What each role may do, said once more.
fn may(role: Role, permission: &str) -> bool {
    match role {
        Role::Viewer => permission == "view",
        Role::Operator => ["view", "run", "archive", "cancel", "pause", "cron"].contains(&permission),
        Role::Admin => true,
    }
}

/// What each change needs, said once more.
const CHANGES: [(&str, &str, &str); 31] = [
    ("DELETE", "/queues/{queue}", "remove"),
    ("PUT", "/queues/{queue}/pause", "pause"),
    ("DELETE", "/queues/{queue}/pause", "pause"),
    ("POST", "/queues/{queue}/bulk", "the action's"),
    ("POST", "/queues/{queue}/tasks", "enqueue"),
    ("DELETE", "/queues/{queue}/tasks/{id}", "delete"),
    ("POST", "/queues/{queue}/tasks/{id}/run", "run"),
    ("POST", "/queues/{queue}/tasks/{id}/archive", "archive"),
    ("POST", "/queues/{queue}/tasks/{id}/cancel", "cancel"),
    ("POST", "/queues/{queue}/tasks/{id}/interrupt", "cancel"),
    ("PUT", "/queues/{queue}/tasks/{id}/payload", "update"),
    ("PUT", "/cron/{entry}/pause", "cron"),
    ("DELETE", "/cron/{entry}/pause", "cron"),
    ("POST", "/cron/{entry}/run", "cron"),
    ("DELETE", "/cron/{entry}", "remove"),
    ("DELETE", "/queues/{queue}/limits", "pause"),
    ("PUT", "/queues/{queue}/limits/{limit}", "pause"),
    ("DELETE", "/queues/{queue}/limits/{limit}", "pause"),
    ("PUT", "/queues/{queue}/limits/{limit}/keys/{key}", "pause"),
    ("DELETE", "/queues/{queue}/limits/{limit}/keys/{key}", "pause"),
    ("POST", "/batches", "enqueue"),
    ("POST", "/batches/{batch}/cancel", "delete"),
    ("POST", "/batches/{batch}/retry", "run"),
    ("POST", "/batches/{batch}/resolve", "run"),
    ("POST", "/batches/{batch}/signals/{node}", "run"),
    ("POST", "/batches/{batch}/nodes/{node}/rerun", "run"),
    ("POST", "/operations", "the action's"),
    ("PATCH", "/operations/{operation}", "the action's"),
    ("DELETE", "/bin/{operation}", "delete"),
    ("POST", "/doctor", "view"),
    ("GET", "/audit", "audit"),
];

fn filled(path: &str, queue: &str) -> String {
    let none =
        ["{entry}", "{batch}", "{node}", "{limit}", "{key}", "{operation}", "{fingerprint}"].map(|name| (name, "none"));
    let names = [("{queue}", queue), ("{id}", "pending")].into_iter().chain(none);
    names.fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
}

#[tokio::test]
async fn every_route_asks_for_its_permission_and_a_read_only_dashboard_changes_nothing() {
    let place = Place::start().await;
    place.furnish().await;
    let routes = place.open().routes().await;
    for (method, path, permission) in &routes {
        let known = CHANGES.iter().find(|(of, at, _)| of == method && at == path);
        assert_eq!(known.map_or("view", |(.., needed)| needed), permission, "{method} {path}");
    }
    assert!(CHANGES.iter().all(|(method, path, _)| routes.iter().any(|(of, at, _)| of == method && at == path)));
    for role in Role::ALL {
        for read_only in [false, true] {
            let who = Identity::new("somebody", role);
            let web = Web::builder(place.redis.clone()).read_only(read_only).identify(move |_| Some(who.clone()));
            let site = Site(web.build());
            for (method, path, permission) in &routes {
                let told = site.send(method, &filled(path, "none"), "{}").await;
                let changes = method != "GET" && path != "/doctor";
                let case = format!("{role:?} {read_only} {method} {path}: {told:?}");
                if read_only && changes {
                    assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "read-only"), "{case}");
                } else if may(role, permission) || permission == "the action's" {
                    assert!(![401, 403].contains(&told.status.as_u16()), "{case}");
                } else {
                    assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "forbidden"), "{case}");
                    assert_eq!(told.json()["permission"], **permission, "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_bulk_change_needs_the_permission_of_its_action() {
    let place = Place::start().await;
    place.furnish().await;
    for (role, action, allowed) in [
        (Role::Viewer, "run", false),
        (Role::Operator, "run", true),
        (Role::Operator, "delete", false),
        (Role::Admin, "delete", true),
    ] {
        let site = place.of(Identity::new("somebody", role));
        let body = format!(r#"{{"action":"{action}","filter":"state:archived"}}"#);
        let told = site.send("POST", &format!("/queues/{QUEUE}/bulk"), &body).await;
        assert_eq!(told.status.is_success(), allowed, "{role:?} {action}: {told:?}");
        assert!(allowed || told.code() == "forbidden");
    }
}

#[tokio::test]
async fn an_operation_needs_the_permission_of_its_action_and_sight_of_its_queues() {
    let place = Place::start().await;
    place.furnish().await;
    let wish = |action: &str| format!(r#"{{"action":"{action}","queues":["{QUEUE}"],"filter":"state:archived"}}"#);
    for (role, action, allowed) in [
        (Role::Viewer, "run", false),
        (Role::Operator, "archive", false),
        (Role::Operator, "delete", false),
        (Role::Operator, "run", true),
        (Role::Admin, "delete", true),
    ] {
        let site = place.of(Identity::new("somebody", role));
        let told = site.send("POST", "/operations", &wish(action)).await;
        let archiving = action == "archive"; // what is archived is so already, whoever asks
        assert_eq!(told.status.is_success(), allowed, "{role:?} {action}: {told:?}");
        assert!(allowed || told.code() == if archiving { "wrong-state" } else { "forbidden" }, "{told:?}");
    }
    let begun = place.open().send("POST", "/operations", &wish("delete")).await.json();
    let path = format!("/operations/{}", begun["id"].as_str().unwrap());
    // Who may not delete cannot steer a deletion; who does not see the queue sees no operation.
    let operator = place.of(Identity::new("somebody", Role::Operator));
    let told = operator.send("PATCH", &path, r#"{"state":"cancelled"}"#).await;
    assert_eq!((told.code().as_str(), &told.json()["permission"]), ("forbidden", &"delete".into()));
    let stranger = place.of(Identity::new("stranger", Role::Admin).queues(["elsewhere*"]));
    for (method, path, body) in [
        ("GET", &*path, ""),
        ("PATCH", &path, r#"{"state":"paused"}"#),
        ("DELETE", &path.replace("operations", "bin"), ""),
    ] {
        assert_eq!(stranger.send(method, path, body).await.code(), "operation-not-found", "{method} {path}");
    }
    let told = stranger.send("POST", "/operations", &wish("delete")).await;
    assert_eq!(told.code(), "queue-not-found");
    assert_eq!(stranger.get("/operations").await.json()["items"], serde_json::json!([]));
    assert_eq!(stranger.get("/bin").await.json()["items"], serde_json::json!([]));
}

#[tokio::test]
async fn nothing_is_answered_without_a_token_but_whether_redis_is_there() {
    let place = Place::start().await;
    let (token, line) = new_token("ada", Role::Viewer);
    let web = Web::builder(place.redis.clone()).tokens(Tokens::parse(&line).unwrap()).build();
    let site = Site(web);
    let routes = place.open().routes().await;
    for (method, path, _) in &routes {
        let told = site.send(method, &filled(path, QUEUE), "{}").await;
        assert_eq!(
            (told.status, told.code().as_str()),
            (StatusCode::UNAUTHORIZED, "unauthenticated"),
            "{method} {path}"
        );
        assert!(told.headers["www-authenticate"].to_str().unwrap().starts_with("Basic"));
    }
    assert_eq!(site.ask("GET", "/", &[], "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(site.ask("GET", "/healthz", &[], "").await.text, "ok\n");
    let bearer = format!("Bearer {token}");
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("ada:{token}")));
    for value in [&bearer, &basic] {
        // With a login, any host will do: a foreign page has no token.
        let headers = [("authorization", value.as_str()), ("host", "tasks.example.com")];
        let told = site.ask("GET", "/api/v1/me", &headers, "").await;
        assert_eq!((told.status, &told.json()["name"]), (StatusCode::OK, &"ada".into()));
    }
}

#[tokio::test]
async fn without_a_login_foreign_hosts_and_foreign_pages_get_nothing() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.open();
    for path in ["/", "/api/v1/queues", "/assets/x/app.js"] {
        let told = site.ask("GET", path, &[("host", "evil.example.com")], "").await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "unknown-host"), "{path}");
    }
    let path = format!("/api/v1/queues/{QUEUE}/tasks/pending/archive");
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example.com")],
    ] {
        let told = site.ask("POST", &path, headers, "").await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "cross-origin"), "{headers:?}");
    }
    assert_eq!(place.state("pending").await, Some(queue_core::TaskState::Pending));
    let told = site.ask("POST", &path, &[("sec-fetch-site", "same-origin")], "").await;
    assert_eq!(told.status, StatusCode::OK, "{told:?}");
    assert!(told.headers.keys().all(|name| !name.as_str().starts_with("access-control")), "no other origin is let in");
}

#[tokio::test]
async fn queues_outside_those_of_a_token_do_not_exist() {
    let place = Place::start().await;
    place.furnish().await;
    place.put([task("hidden-id").queue("vault"), task("pending").queue("vault")]).await;
    place.admin().pause("vault", true).await.unwrap();
    let site = place.of(Identity::new("bob", Role::Admin).queues([QUEUE]));
    for (method, path, _) in site.routes().await.iter().filter(|(_, path, _)| path != "/me") {
        let path = filled(path, "vault").replace("pending", "hidden-id");
        let path = if path == "/tasks" { "/tasks?queue=vault".to_owned() } else { path };
        let told = site.send(method, &path, r#"{"action":"run","filter":"state:archived","type":"t"}"#).await;
        let repeats = path.contains("vault") || path.contains("hidden-id");
        assert!(
            repeats || !(told.text.contains("vault") || told.text.contains("hidden-id")),
            "{method} {path}: {told:?}"
        );
        if path.contains("vault") {
            assert_eq!(
                (told.status, told.code().as_str()),
                (StatusCode::NOT_FOUND, "queue-not-found"),
                "{method} {path}: {told:?}"
            );
        }
    }
    let found = site.get("/tasks/pending").await.json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(site.get("/queues").await.json()["total"], 1);
}

#[tokio::test]
async fn one_who_is_confined_puts_tasks_nowhere_else_and_reads_of_others_in_no_audit() {
    let place = Place::start().await;
    place.furnish().await;
    place.put([task("dead").queue("vault")]).await;
    let site = place.of(Identity::new("bob", Role::Admin).queues([QUEUE]));
    let path = format!("/queues/{QUEUE}/tasks");
    for (more, hidden) in [
        (r#""on_exhausted":"vault:close","on_exhausted_queue":"vault""#.to_owned(), "vault".to_owned()),
        (r#""headers":{"x-on-exhausted":"vault:close","x-on-exhausted-queue":"vault"}"#.to_owned(), "vault".to_owned()),
        (r#""priority":9"#.to_owned(), format!("{QUEUE}}}p9")),
        (r#""only":"web-1""#.to_owned(), format!("{QUEUE}}}@web-1")),
    ] {
        let told = site.send("POST", &path, &format!(r#"{{"type":"t",{more}}}"#)).await;
        assert_eq!(told.code(), "invalid-value", "{told:?}");
        assert!(told.text.contains(&hidden), "{told:?}");
    }
    let own = format!(r#"{{"type":"t","on_exhausted":"t:close","on_exhausted_queue":"{QUEUE}","priority":5}}"#);
    let told = site.send("POST", &path, &own).await;
    assert_eq!(told.status, StatusCode::CREATED, "{told:?}");
    // Of what was done in several queues at once, only who sees all of them.
    let both = format!(r#"{{"action":"run","queues":["{QUEUE}","vault"],"filter":"state:retry"}}"#);
    let told = place.open().send("POST", "/operations", &both).await;
    assert!(told.status.is_success(), "{told:?}");
    let audit = async |site: &Site| site.get("/audit").await.text.contains("vault");
    let broad = place.of(Identity::new("eve", Role::Admin).queues([&*format!("{QUEUE}*")]));
    assert!(audit(&place.open()).await && !audit(&broad).await);
}

#[tokio::test]
async fn a_misspelled_option_of_an_operation_is_not_ignored_and_queues_are_named_once() {
    let place = Place::start().await;
    place.furnish().await;
    let send = async |body: &str| place.open().send("POST", "/operations", body).await;
    let wish = |more: &str| format!(r#"{{"action":"archive","queues":["{QUEUE}"],"filter":"state:pending"{more}}}"#);
    let told = send(&wish(r#","dryRun":true"#)).await;
    assert_eq!((told.code().as_str(), told.text.contains("dryRun")), ("invalid-request", true), "{told:?}");
    assert_eq!(send(&wish(r#","dry_run":true"#)).await.status, StatusCode::OK);
    let twice = format!(r#"{{"action":"run","queues":["{QUEUE}","{QUEUE}"],"filter":"state:retry","dry_run":true}}"#);
    let told = send(&twice).await;
    assert!(told.text.contains("name each queue once"), "{told:?}");
}

/// A marked text stands wherever one can be hidden, and is looked for in all answers.
#[tokio::test]
async fn what_is_hidden_is_in_no_answer() {
    const SECRET: &str = "s3cr3t-8457";
    let place = Place::start().await;
    let secret = |id: &str| {
        task(id).payload(format!(r#"{{"to":"ada","card":{{"number":"{SECRET}"}}}}"#)).header("x-api-token", SECRET)
    };
    // What its handler says of it may repeat it.
    place.put([secret("noted")]).await;
    let work = async |job: Job| {
        job.progress(5, SECRET);
        job.log(SECRET);
        Err::<(), _>(Failure::archive("no"))
    };
    let server = Server::new(place.redis.clone(), Router::new(()).route("email:", work));
    let server = server.queues([(QUEUE, 1)]).start().await.unwrap();
    let worked = async || (place.state("noted").await == Some(queue_core::TaskState::Archived)).then_some(());
    wait_for("it is worked", worked).await;
    server.shutdown().await;
    place.put([secret("pending"), secret("archived"), secret("group").group("g")]).await;
    place.inspector.change_task(queue_admin::Verb::Archive, QUEUE, "archived", "ann").await.unwrap();
    let rules = "headers = ['*token*']\n[payload]\n'email:*' = ['/card/number']";
    let web = Web::builder(place.redis.clone()).redact(Redact::from_toml(rules).unwrap()).build();
    let site = Site(web);
    let mut seen = 0;
    for id in ["pending", "archived", "group", "noted"] {
        for path in [
            format!("/queues/{QUEUE}/tasks/{id}"),
            format!("/queues/{QUEUE}/tasks/{id}/attempts"),
            format!("/queues/{QUEUE}/tasks/{id}/log"),
            format!("/queues/{QUEUE}/tasks/{id}?wait=1ms"),
            format!("/queues/{QUEUE}/tasks/{id}/payload"),
            format!("/queues/{QUEUE}/tasks/{id}/explain"),
            format!("/tasks/{id}"),
            format!("/tasks?queue={QUEUE}"),
            "/servers".to_owned(),
            "/cron".to_owned(),
            "/audit".to_owned(),
            "/overview".to_owned(),
            "/failures".to_owned(),
        ] {
            let told = site.get(&path).await;
            assert!(told.status.is_success() && !told.text.contains(SECRET), "{path}: {told:?}");
            seen += usize::from(told.text.contains("[redacted]"));
        }
    }
    assert!(seen >= 12, "{seen}");
    // A version that could be computed from a guess would tell whether the guess is right.
    let path = format!("/api/v1/queues/{QUEUE}/tasks/archived");
    let (told, whole) = (site.ask("GET", &path, &[], "").await, place.inspector.task_version(QUEUE, "archived").await);
    let tag = told.headers["etag"].to_str().unwrap();
    assert!(!tag.contains(&whole.unwrap()), "{tag}");
    let run = async |tag| site.ask("POST", &format!("{path}/run"), &[("if-match", tag)], "").await.status;
    assert_eq!((run(tag).await, run(tag).await), (StatusCode::OK, StatusCode::PRECONDITION_FAILED));
    let log = site.get(&format!("/queues/{QUEUE}/tasks/noted/log")).await.json();
    assert_eq!(log["items"][0]["text"], "[redacted]");
    for filter in [format!("payload.card.number:{SECRET}"), "header.x-api-token".to_owned(), SECRET.to_owned()] {
        let told = site.get(&format!("/tasks?queue={QUEUE}&q={filter}")).await;
        assert_eq!((told.status, told.code().as_str()), (StatusCode::FORBIDDEN, "redacted"), "{filter}");
    }
    // What cannot be seen cannot be replaced by what was seen of it.
    let told = site.send("PUT", &format!("/queues/{QUEUE}/tasks/pending/payload"), "{}").await;
    assert_eq!(told.code(), "redacted");
}

#[tokio::test]
async fn a_key_of_a_request_is_that_of_one_person_and_finds_a_unique_task_too() {
    let place = Place::start().await;
    let path = format!("/api/v1/queues/{QUEUE}/tasks");
    let (key, body) = ([("idempotency-key", "order-7")], r#"{"type":"u","payload":{},"unique":"1h"}"#);
    let site = place.of(Identity::new("shop", Role::Admin));
    for _ in 0..2 {
        let told = site.ask("POST", &path, &key, body).await;
        assert_eq!((told.status, told.json()["id"].as_str()), (StatusCode::CREATED, Some("order-7")), "{told:?}");
    }
    let somebody = place.of(Identity::new("somebody", Role::Admin));
    let refused = somebody.ask("POST", &path, &key, body).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::CONFLICT, "duplicate-task"));
    let taken = somebody.ask("POST", &path, &key, r#"{"type":"u","payload":{}}"#).await;
    assert_eq!((taken.status, taken.code().as_str()), (StatusCode::CONFLICT, "task-id-taken"));
    // A name of nothing is no queue: nobody would find its pause again.
    let refused = site.send("PUT", "/queues/~/pause", "").await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::BAD_REQUEST, "invalid-value"));
}

/// It is a hash of the payload, which tells whoever guesses the payload that the guess is right.
#[tokio::test]
async fn the_end_of_the_name_of_a_lock_is_hidden_with_payloads() {
    const HASH: &str = "9e107d9d372bb6826bd81d3542a419d6";
    let place = Place::start().await;
    place.furnish().await;
    place.command::<String>(&format!("SET asynq:{{mail}}:unique:login:{HASH} gone EX 1000")).await;
    let rules = Redact::from_toml("[payload]\n'login' = ['*']").unwrap();
    let hiding = Site(Web::builder(place.redis.clone()).redact(rules).build());
    for (site, is_hidden) in [(place.open(), false), (hiding, true)] {
        site.send("POST", "/doctor", "").await;
        let report = wait_for("the examination ends", async || {
            let report = site.get("/doctor").await;
            (report.json()["running"] == false).then_some(report.text)
        })
        .await;
        let explained = site.get(&format!("/queues/{QUEUE}/tasks/gone/explain")).await.text;
        for told in [report, explained] {
            assert!(told.contains(":unique:login:") && told.contains(HASH) != is_hidden, "{told}");
        }
    }
}
