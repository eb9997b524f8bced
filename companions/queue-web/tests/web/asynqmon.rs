//! The routes of asynqmon. What they answer is compared with asynqmon itself in tests/interop.

use axum::http::StatusCode;
use queue_admin::Role;
use queue_core::TaskState;
use queue_web::{Identity, Redact, Web};
use serde_json::json;

use crate::support::{Place, QUEUE, Site, Told, task};

async fn ask(site: &Site, method: &str, path: &str, body: &str) -> Told {
    site.ask(method, &format!("/api/{path}"), &[], body.to_owned()).await
}

async fn get(site: &Site, path: &str) -> Told {
    ask(site, "GET", path, "").await
}

/// Who may do what, said once more; the first role that may.
const CHANGES: [(&str, &str, Role); 20] = [
    ("DELETE", "queues/none", Role::Admin),
    ("POST", "queues/none:pause", Role::Operator),
    ("POST", "queues/none:resume", Role::Operator),
    ("POST", "queues/none/retry_tasks/x:run", Role::Operator),
    ("POST", "queues/none/retry_tasks:batch_run", Role::Operator),
    ("POST", "queues/none/retry_tasks:run_all", Role::Operator),
    ("POST", "queues/none/retry_tasks/x:archive", Role::Operator),
    ("POST", "queues/none/retry_tasks:batch_archive", Role::Operator),
    ("POST", "queues/none/retry_tasks:archive_all", Role::Operator),
    ("POST", "queues/none/active_tasks/x:cancel", Role::Operator),
    ("POST", "queues/none/active_tasks:batch_cancel", Role::Operator),
    ("POST", "queues/none/active_tasks:cancel_all", Role::Operator),
    ("DELETE", "queues/none/retry_tasks/x", Role::Admin),
    ("POST", "queues/none/retry_tasks:batch_delete", Role::Admin),
    ("DELETE", "queues/none/retry_tasks:delete_all", Role::Admin),
    ("POST", "queues/none/groups/g/aggregating_tasks/x:run", Role::Operator),
    ("POST", "queues/none/groups/g/aggregating_tasks:archive_all", Role::Operator),
    ("DELETE", "queues/none/groups/g/aggregating_tasks/x", Role::Admin),
    ("POST", "queues/none/groups/g/aggregating_tasks:batch_delete", Role::Admin),
    ("DELETE", "queues/none/groups/g/aggregating_tasks:delete_all", Role::Admin),
];

#[tokio::test]
async fn changes_ask_for_the_permission_of_our_own_routes() {
    let place = Place::start().await;
    let rank = |role| [Role::Viewer, Role::Operator, Role::Admin].iter().position(|it| *it == role);
    for role in Role::ALL {
        let site = place.of(Identity::new("somebody", role));
        for (method, path, needed) in CHANGES {
            let told = ask(&site, method, path, r#"{"task_ids":[]}"#).await;
            let may = rank(role) >= rank(needed);
            assert_eq!(told.status == StatusCode::FORBIDDEN, !may, "{role:?} {method} {path}: {told:?}");
            assert_ne!(told.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
    let closed = Site(Web::builder(place.redis.clone()).read_only(true).build());
    let nobody = Site(Web::builder(place.redis.clone()).identify(|_| None).build());
    for (method, path, _) in CHANGES {
        assert_eq!(ask(&closed, method, path, "").await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(ask(&nobody, method, path, "").await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(get(&nobody, "queues").await.status, StatusCode::UNAUTHORIZED);
    let foreign = [("sec-fetch-site", "cross-site")];
    let told = place.open().ask("POST", &format!("/api/queues/{QUEUE}:pause"), &foreign, "").await;
    assert_eq!((told.status, place.inspector.queues().await.unwrap().len()), (StatusCode::FORBIDDEN, 0));
}

#[tokio::test]
async fn each_id_of_a_batch_is_told_and_all_is_in_the_audit() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.of(Identity::new("ada", Role::Admin));
    let list = |state: &str| match state {
        "aggregating" => format!("queues/{QUEUE}/groups/g/aggregating_tasks"),
        state => format!("queues/{QUEUE}/{state}_tasks"),
    };
    for (path, answer) in [
        ("scheduled:batch_run", json!({ "pending_ids": ["scheduled"], "error_ids": ["nobody"] })),
        ("aggregating:batch_archive", json!({ "archived_ids": ["aggregating"], "error_ids": ["nobody"] })),
        ("archived:batch_delete", json!({ "deleted_ids": ["archived"], "failed_ids": ["nobody"] })),
        // asynqmon takes a cancellation that nobody hears for one.
        ("active:batch_cancel", json!({ "canceled_ids": [], "error_ids": ["pending", "nobody"] })),
    ] {
        let (state, verb) = path.split_once(':').unwrap();
        let ids = answer.as_object().unwrap().values().flat_map(|ids| ids.as_array().unwrap());
        let body = json!({ "task_ids": ids.collect::<Vec<_>>() }).to_string();
        let told = ask(&site, "POST", &format!("{}:{verb}", list(state)), &body).await;
        assert_eq!(told.json(), answer, "{path}");
    }
    assert_eq!(place.state("scheduled").await, Some(TaskState::Pending));
    assert_eq!(place.state("aggregating").await, Some(TaskState::Archived));
    for (method, path, told) in [
        ("DELETE", format!("{}:delete_all", list("archived")), json!({ "deleted": 1 })),
        ("POST", format!("{}:archive_all", list("pending")), json!({ "archived": 2 })),
        ("POST", format!("{}:run_all", list("archived")), json!({ "scheduled": 2 })),
    ] {
        assert_eq!(ask(&site, method, &path, "").await.json(), told, "{path}");
    }
    let audit = site.get("/audit").await.json();
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap()).collect();
    assert!(audit["items"].as_array().unwrap().iter().all(|item| item["actor"] == "ada"));
    // The newest first; of an id that is not there, too. A cancellation of what does not run is not begun.
    assert_eq!(actions, ["tasks.run", "tasks.archive", "tasks.delete", "task.delete", "task.archive", "task.run",]);
    // All of a group are not all of the queue.
    place.put([task("g1").group("g"), task("h1").group("h")]).await;
    let told = ask(&site, "DELETE", &format!("{}:delete_all", list("aggregating")), "").await;
    assert_eq!((told.json(), place.state("g1").await), (json!({ "deleted": 1 }), None));
    assert_eq!(place.state("h1").await, Some(TaskState::Aggregating));
    let bad = ask(&site, "POST", &format!("{}:batch_run", list("retry")), r#"{"ids":[]}"#).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_may_not_be_seen_is_not_there() {
    let place = Place::start().await;
    place.furnish().await;
    place.put([task("secret").queue("vault").header("token", "t")]).await;
    let redact = Redact::from_toml("[payload]\n'email:*' = ['/to']").unwrap();
    let bob = Identity::new("bob", Role::Admin).queues(["vault"]);
    let web = Web::builder(place.redis.clone()).redact(redact).identify(move |_| Some(bob.clone()));
    let site = Site(web.build());
    let queues = get(&site, "queues").await.json();
    assert_eq!((queues["queues"].as_array().unwrap().len(), &queues["queues"][0]["queue"]), (1, &json!("vault")));
    assert_eq!(get(&site, "queue_stats").await.json()["stats"].as_object().unwrap().len(), 1);
    for path in [String::new(), "/groups".into(), "/pending_tasks".into(), "/tasks/pending".into()] {
        let told = get(&site, &format!("queues/{QUEUE}{path}")).await;
        assert_eq!(told.status, StatusCode::NOT_FOUND, "{path}: {told:?}");
        assert!(told.headers["content-type"].to_str().unwrap().starts_with("text/plain"), "{told:?}");
    }
    for verb in ["DELETE pending_tasks/pending", "POST active_tasks/pending:cancel", "POST pending_tasks:archive_all"] {
        let (method, path) = verb.split_once(' ').unwrap();
        assert_eq!(ask(&site, method, &format!("queues/{QUEUE}/{path}"), "").await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(place.state("pending").await, Some(TaskState::Pending));
    // An id of another queue, by a queue that one sees.
    let told = ask(&site, "POST", "queues/vault/pending_tasks:batch_delete", r#"{"task_ids":["pending"]}"#).await;
    assert_eq!(told.json(), json!({ "deleted_ids": [], "failed_ids": ["pending"] }));
    for path in ["queues/vault/pending_tasks", "queues/vault/tasks/secret"] {
        let told = get(&site, path).await;
        assert!(told.text.contains("[redacted]") && !told.text.contains("ada"), "{told:?}");
    }
}

/// What Redis reads at once is a round trip, or 16 KB of a large one; less than one for each queue.
#[tokio::test]
async fn all_queues_are_read_in_a_few_round_trips_and_one_that_cannot_be_read_costs_no_other() {
    const QUEUES: usize = 60;
    let place = Place::start().await;
    place.furnish().await;
    for n in 0..QUEUES {
        let queue = format!("q{n}");
        let hour = std::time::Duration::from_secs(3_600);
        place.put((0..5).map(|t| task(&format!("t{t}")).queue(&queue))).await;
        place.put([task("later").queue(&queue).process_in(hour), task("grouped").queue(&queue).group("g")]).await;
    }
    place.command::<i64>("SADD asynq:queues bad").await;
    place.command::<String>("SET asynq:{bad}:retry text").await;
    let site = place.open();
    let reads = async || {
        let info = place.command::<String>("INFO stats").await;
        let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap();
        line.parse::<usize>().unwrap()
    };
    get(&site, "queues").await;
    for path in ["queues", "queue_stats", "v1/overview"] {
        let before = reads().await;
        let told = get(&site, path).await;
        let count = reads().await - before;
        assert!(told.status.is_success(), "{told:?}");
        eprintln!("{path}: {count} reads for {QUEUES} queues");
        assert!(count < QUEUES, "{path}: {count} reads for {QUEUES} queues");
    }
    let told = get(&site, "queues").await.json();
    let told = told["queues"].as_array().unwrap();
    let names: Vec<&str> = told.iter().map(|queue| queue["queue"].as_str().unwrap()).collect();
    assert!(names.len() == QUEUES + 1 && names.contains(&QUEUE) && !names.contains(&"bad"), "{names:?}");
    // The same as alone.
    for queue in told {
        let mut alone = get(&site, &format!("queues/{}", queue["queue"].as_str().unwrap())).await.json();
        let mut queue = queue.clone();
        for one in [&mut queue, &mut alone["current"]] {
            for moving in ["timestamp", "latency_msec", "display_latency"] {
                one[moving].take();
            }
        }
        assert_eq!(queue, alone["current"]);
        assert!(queue["memory_usage_bytes"].as_u64().unwrap() > 500, "{queue}");
    }
}

#[tokio::test]
async fn only_what_is_usual_in_a_state_is_possible_and_pages_have_a_bound() {
    let place = Place::start().await;
    place.furnish().await;
    place.put((0..25).map(|n| task(&format!("t{n}")))).await;
    let site = place.open();
    let page = async |query: &str| {
        let told = get(&site, &format!("queues/{QUEUE}/pending_tasks?{query}")).await.json();
        let ids = told["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!((page("").await.len(), page("page=2").await.len()), (20, 6));
    assert_eq!(page("size=2&page=13&other=1").await, ["t23", "t24"]);
    assert_eq!(page("size=x&page=0").await.len(), 20);
    let told = get(&site, &format!("queues/{QUEUE}/pending_tasks?size=1001")).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    for (method, path) in [
        ("GET", "some_tasks"),
        ("GET", "aggregating_tasks"),
        ("GET", "groups/g/pending_tasks"),
        ("POST", "pending_tasks/pending:run"),
        ("POST", "completed_tasks:run_all"),
        ("POST", "archived_tasks:archive_all"),
        ("DELETE", "active_tasks:delete_all"),
        ("POST", "pending_tasks:cancel_all"),
    ] {
        let told = ask(&site, method, &format!("queues/{QUEUE}/{path}"), "").await;
        assert_eq!(told.status, StatusCode::NOT_FOUND, "{method} {path}: {told:?}");
    }
    // As asynqmon tells it.
    assert_eq!(ask(&site, "DELETE", &format!("queues/{QUEUE}"), "").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(get(&site, "nothing").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn once_redis_refuses_the_other_ids_are_not_tried() {
    let place = Place::start().await;
    place.furnish().await;
    place.command::<String>("CONFIG SET min-replicas-to-write 1").await;
    place.command::<String>("CONFIG RESETSTAT").await;
    let ids = ["pending", "scheduled", "archived"];
    let body = json!({ "task_ids": ids }).to_string();
    let path = format!("queues/{QUEUE}/pending_tasks:batch_delete");
    let told = ask(&place.open(), "POST", &path, &body).await;
    assert_eq!(told.json(), json!({ "deleted_ids": [], "failed_ids": ids }));
    // Each id that is tried looks for the queue first.
    let calls = place.command::<String>("INFO commandstats").await;
    assert!(calls.contains("cmdstat_sismember:calls=1,"), "{calls}");
}

/// It held the places of all searches.
#[tokio::test]
async fn a_prometheus_that_hangs_holds_up_no_search() {
    let place = Place::start().await;
    place.furnish().await;
    let asked = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let tell = asked.clone();
    let web = Web::builder(place.redis.clone()).prometheus(move |_| {
        tell.add_permits(1);
        std::future::pending()
    });
    let site = std::sync::Arc::new(Site(web.build()));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let site = site.clone();
        asking.spawn(async move { get(&site, "metrics").await });
    }
    let _all = asked.acquire_many(4 * 9).await.unwrap();
    let search = format!("/tasks?queue={QUEUE}&state=pending&q=type:nothing");
    let told = tokio::time::timeout(std::time::Duration::from_secs(20), site.get(&search)).await;
    assert!(told.expect("the search waits").status.is_success());
}

#[tokio::test]
async fn a_cursor_of_the_audit_that_is_none_is_refused_by_us() {
    let place = Place::start().await;
    let site = place.open();
    for cursor in ["-", "1-", "-1", "1-2-3", "99999999999999999999", "x"] {
        let told = site.get(&format!("/audit?cursor={cursor}")).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST, "{cursor}: {told:?}");
    }
    assert_eq!(site.get("/audit?cursor=5-1").await.status, StatusCode::OK);
}

/// That it is asked the same as by asynqmon is seen in tests/interop.
#[tokio::test]
async fn series_come_from_a_prometheus_and_are_of_the_queues_that_somebody_sees() {
    let place = Place::start().await;
    place.put([task("a"), task("b").queue("vault"), task("c").queue("mail.fast")]).await;
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let with = |who: Identity, answer: &'static str| {
        let asked = asked.clone();
        let web = Web::builder(place.redis.clone()).identify(move |_| Some(who.clone())).prometheus(move |path| {
            asked.lock().unwrap().push(path);
            let told = if answer.is_empty() { Err("nobody answers".to_owned()) } else { Ok(answer.into()) };
            async { told }
        });
        Site(web.build())
    };
    let all = with(Identity::new("ada", Role::Viewer), r#"{"data":[1.50,"1e400"]}"#);
    let told = get(&all, "metrics?endtime=7200&queues=x%22%7D,.*").await;
    assert_eq!(told.status, StatusCode::OK, "{told:?}");
    assert!(told.text.contains(r#""queue_size":{"data":[1.50,"1e400"]}"#), "as it was answered: {told:?}");
    let paths: Vec<String> = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(paths.len(), 9);
    let query = |path: &str| {
        let address = url::Url::parse(&format!("http://p{path}")).unwrap();
        let pairs: Vec<(String, String)> = address.query_pairs().into_owned().collect();
        assert_eq!((pairs[1].1.as_str(), pairs[2].1.as_str(), pairs[3].1.as_str()), ("3600", "7200", "10"));
        pairs[0].1.clone()
    };
    assert!(paths.iter().any(|path| query(path) == r#"asynq_queue_size{queue=~"x\"\\}|\\.\\*"}"#), "{paths:?}");
    // Whoever is confined to some queues gets no series of others, whatever is asked for.
    let bob = with(Identity::new("bob", Role::Viewer).queues(["mail*"]), "{}");
    for (path, wanted) in [
        ("metrics?endtime=7200", r#""mail|mail\\.fast""#),
        ("metrics?endtime=7200&queues=vault,mail", r#""mail""#),
        ("metrics?endtime=7200&queues=vault", r#""""#),
        ("metrics?endtime=7200&queues=mail%7Cvault", r#""mail\\|vault""#),
    ] {
        assert_eq!(get(&bob, path).await.status, StatusCode::OK, "{path}");
        let paths: Vec<String> = std::mem::take(&mut *asked.lock().unwrap());
        for path in &paths {
            let query = query(path);
            assert!(query.contains(&format!("queue=~{wanted}")) && !query.contains("{}"), "{query}");
        }
    }
    for path in
        ["metrics?duration=0", "metrics?duration=x", "metrics?endtime=-1", "metrics?duration=9223372036854775807"]
    {
        assert_eq!(get(&all, path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert!(asked.lock().unwrap().is_empty());
    for (answer, said) in [("", "nobody answers"), ("<html>", "it answers no JSON")] {
        let told = get(&with(Identity::new("ada", Role::Viewer), answer), "metrics").await;
        assert_eq!((told.status, told.text.contains(said)), (StatusCode::BAD_GATEWAY, true), "{told:?}");
    }
    let told = get(&place.open(), "metrics").await;
    assert_eq!((told.status, told.text.contains("--prometheus")), (StatusCode::NOT_FOUND, true), "{told:?}");
}
