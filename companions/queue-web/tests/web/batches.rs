//! Batches and workflows by the REST API.

use axum::http::StatusCode;
use queue_admin::Role;
use queue_web::{Identity, Redact, Web};
use serde_json::{Value, json};

use crate::support::{Place, Site, member, task, wait_for};

fn texts<'a>(answer: &'a Value, field: &str) -> Vec<&'a str> {
    answer["items"].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap()).collect()
}

/// A node by its name.
fn node<'a>(answer: &'a Value, name: &str) -> &'a Value {
    answer["items"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap()
}

#[tokio::test]
async fn batches_are_listed_newest_first_and_found_by_their_state() {
    let place = Place::start().await;
    let site = place.open();
    assert_eq!(site.get("/batches").await.json(), json!({ "items": [], "next": null }));
    for (n, id) in ["first", "second", "third"].into_iter().enumerate() {
        let batch = place.client.batch().id(id).open().await.unwrap();
        if id == "second" {
            batch.commit().await.unwrap();
        }
        // The order is that of the seconds in which they were made.
        place.command::<i64>(&format!("ZADD asynq:x:flows {} {id}", 1_000 + n)).await;
    }
    let all = site.get("/batches").await.json();
    assert_eq!((texts(&all, "id"), &all["next"]), (vec!["third", "second", "first"], &json!(null)));
    let page = site.get("/batches?limit=2").await.json();
    assert_eq!((texts(&page, "id"), &page["next"]), (vec!["third", "second"], &json!("2")));
    let rest = site.get("/batches?limit=2&cursor=2").await.json();
    assert_eq!((texts(&rest, "id"), &rest["next"]), (vec!["first"], &json!(null)));
    let open = site.get("/batches?state=open&limit=1").await.json();
    assert_eq!((texts(&open, "id"), &open["next"]), (vec!["third"], &json!("1")));
    for cursor in ["18446744073709551615", "x", "-1"] {
        let refused = site.get(&format!("/batches?cursor={cursor}")).await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (400, "invalid-cursor"), "{cursor}");
    }
    let more = site.get("/batches?state=open&limit=1&cursor=1").await.json();
    assert_eq!((texts(&more, "id"), &more["next"]), (vec!["first"], &json!(null)));
    assert_eq!(texts(&site.get("/batches?state=succeeded").await.json(), "id"), ["second"]);
}

#[tokio::test]
async fn members_come_page_by_page_and_what_is_hidden_of_their_tasks_is_hidden() {
    const SECRET: &str = "s3cr3t-8457";
    let place = Place::start().await;
    let batch = place.client.batch().id("b").open().await.unwrap();
    batch.add_all((0..5).map(|_| member("fine"))).await.unwrap();
    let inner = batch.child().add_all([member("fine")]).await.unwrap();
    batch.commit().await.unwrap();
    let rules = "[payload]\n'email:*' = ['/to']\n'x:signal' = ['/by']";
    let site = Site(Web::builder(place.redis.clone()).redact(Redact::from_toml(rules).unwrap()).build());
    let one = site.get("/batches/b").await.json();
    assert_eq!(
        (&one["total"], &one["sent"], &one["children"]),
        (&json!(6), &json!(6), &json!([inner.id().to_string()]))
    );
    let first = site.get("/batches/b/members?limit=3").await;
    assert!(!first.text.contains(SECRET) && first.text.contains("[redacted]"), "{first:?}");
    let first = first.json();
    let rest = site.get(&format!("/batches/b/members?limit=3&cursor={}", first["next"].as_str().unwrap())).await.json();
    let ids = [texts(&first, "id"), texts(&rest, "id")].concat();
    let root = ids[0].strip_suffix(":0").unwrap();
    assert_eq!(ids, (0..5).map(|n| format!("{root}:{n}")).collect::<Vec<_>>(), "a child is no task");
    assert_eq!(
        (&rest["next"], &first["items"][0]["state"], &first["items"][0]["task"]["state"]),
        (&json!(null), &json!("sent"), &json!("pending"))
    );
    // One whose task is gone is a member all the same, and an unreadable one costs no other.
    place.command::<i64>(&format!("DEL asynq:{{mail}}:t:{}", ids[1])).await;
    place.command::<i64>(&format!("HSET asynq:{{mail}}:t:{} msg x", ids[2])).await;
    let told = site.get("/batches/b/members?state=sent").await.json();
    let tasks: Vec<bool> = told["items"].as_array().unwrap().iter().map(|item| item["task"].is_null()).collect();
    assert_eq!(tasks, [false, true, true, false, false]);
    assert_eq!(texts(&site.get("/batches/b/members?state=dead").await.json(), "id"), [""; 0]);
    let tree = site.get("/batches/b/tree").await.json();
    assert_eq!(
        (texts(&tree, "id"), &tree["items"][1]["depth"], &tree["truncated"]),
        (vec!["b", "b:1"], &json!(1), &json!(false))
    );
}

#[tokio::test]
async fn a_workflow_is_signalled_its_dead_are_run_again_and_it_is_cancelled_and_all_is_written_down() {
    let place = Place::start().await;
    place.release().await;
    let site = place.of(Identity::new("ada", Role::Admin));
    let nodes = site.get("/batches/release/nodes").await.json();
    assert_eq!(texts(&nodes, "name").len(), 5);
    let after = json!([
        { "node": "test", "when": "succeeded", "state": "dead" },
        { "node": "approve", "when": "succeeded", "state": "sent" },
    ]);
    assert_eq!((&node(&nodes, "ship")["after"], &node(&nodes, "ship")["state"]), (&after, &json!("skipped")));
    assert_eq!(node(&nodes, "roll-back")["after"][0]["when"], "failed");
    let explained = site.get("/batches/release/explain").await.json();
    assert_eq!((&explained["nodes"][0]["name"], &explained["status"]["state"]), (&json!("approve"), &json!("doomed")));
    let (test, path) = (node(&nodes, "test")["id"].as_str().unwrap(), "/batches/release");
    // Nothing is done by counting.
    let retry = format!("/batches/{}/retry", test.replace(':', "%3A"));
    let told = site.send("POST", &retry, r#"{"dry_run":true}"#).await.json();
    assert_eq!(told, json!({ "id": test, "dry_run": true, "members": 1 }));
    let told = site.send("POST", &format!("{path}/cancel"), r#"{"dry_run":true}"#).await.json();
    assert_eq!((&told["dry_run"], &told["children"], &told["cancelled"]), (&json!(true), &json!(1), &json!(null)));
    assert_eq!(site.get("/audit").await.json()["items"], json!([]));

    let told = site.send("POST", &retry, "").await.json();
    assert_eq!(told, json!({ "id": test, "members": 1 }));
    let told = site.send("POST", &format!("{path}/signals/approve"), r#"{"payload":{"by":"ada"}}"#).await.json();
    assert_eq!(told, json!({ "id": "release", "node": "approve", "signal": "given" }));
    let late = site.send("POST", &format!("{path}/signals/approve"), r#"{"decline":true}"#).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "signal-late"), "{late:?}");
    let wrong = site.send("POST", &format!("{path}/signals/ship"), "").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (StatusCode::CONFLICT, "signal-refused"), "{wrong:?}");
    assert_eq!(
        site.send("POST", &format!("{path}/cancel"), "").await.json(),
        json!({ "id": "release", "cancelled": true })
    );
    assert_eq!(site.get(path).await.json()["state"], "cancelled");
    let audit = site.get("/audit").await.json();
    assert_eq!(
        texts(&audit, "action"),
        ["batch.cancel", "batch.signal", "batch.signal", "batch.signal", "batch.retry"]
    );
    assert_eq!((&audit["items"][0]["actor"], &audit["items"][0]["ids"]), (&json!("ada"), &json!(["release"])));
    let server = place.work().await;
    let over = wait_for("the workflow is over", async || {
        Some(site.get(path).await.json()).filter(|found| !found["over"].is_null())
    })
    .await;
    server.shutdown().await;
    assert_eq!(over["state"], "cancelled");
    place.client.batch().id("over").add_all(Vec::<queue_core::RawTask>::new()).await.unwrap();
    let late = site.send("POST", "/batches/over/cancel", "").await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "batch-over"), "{late:?}");
}

#[tokio::test]
async fn what_died_counts_as_succeeded_where_somebody_says_so_and_that_is_written_down() {
    let place = Place::start().await;
    place.release().await;
    let site = place.of(Identity::new("ada", Role::Operator));
    let test = node(&site.get("/batches/release/nodes").await.json(), "test")["id"].as_str().unwrap().to_owned();
    let path = format!("/batches/{}", test.replace(':', "%3A"));
    let dead = site.get(&format!("{path}/members?state=dead")).await.json();
    let dead = texts(&dead, "id")[0];
    let resolve = format!("{path}/resolve");
    let told = site.send("POST", &resolve, r#"{"all":true,"dry_run":true}"#).await.json();
    assert_eq!(told, json!({ "id": test, "dry_run": true, "members": 1 }));
    let told = site.send("POST", &resolve, r#"{"members":["another"]}"#).await.json();
    assert_eq!(told["members"], 0);
    assert_eq!(site.get(&path).await.json()["dead"], 1);
    let told = site.send("POST", &resolve, &json!({ "members": [dead] }).to_string()).await.json();
    assert_eq!(told, json!({ "id": test, "members": 1 }));
    let found = site.get(&path).await.json();
    assert_eq!((&found["dead"], &found["succeeded"]), (&json!(0), &json!(3)));
    let audit = place.of(Identity::new("eve", Role::Admin)).get("/audit").await.json();
    assert_eq!(texts(&audit, "action"), ["batch.resolve"; 2]);
    assert_eq!(audit["items"][0]["ids"], json!([test, dead]));
    // Whoever may only look may not.
    let viewer = place.of(Identity::new("bob", Role::Viewer));
    assert_eq!(viewer.send("POST", &resolve, r#"{"all":true}"#).await.code(), "forbidden");
}

#[tokio::test]
async fn a_node_is_run_again_with_what_is_behind_it_and_that_is_written_down() {
    let place = Place::start().await;
    place.release().await;
    let site = place.of(Identity::new("ada", Role::Operator));
    let path = "/batches/release/nodes";
    let early = site.send("POST", &format!("{path}/build/rerun"), "").await;
    assert_eq!((early.status, early.code().as_str()), (StatusCode::CONFLICT, "rerun-refused"), "{early:?}");
    assert!(early.text.contains("approve"), "it names what has not ended: {early:?}");
    let told = site.send("POST", &format!("{path}/roll-back/rerun"), "").await.json();
    assert_eq!(told, json!({ "id": "release", "node": "roll-back", "generation": 2, "nodes": 1 }));
    let nodes = site.get(path).await.json();
    assert_eq!(node(&nodes, "roll-back")["state"], "sent");
    assert!(node(&nodes, "roll-back")["id"].as_str().unwrap().ends_with(".2"), "{nodes}");
    assert_eq!(site.send("POST", &format!("{path}/nobody/rerun"), "").await.code(), "rerun-refused");
    let audit = place.of(Identity::new("eve", Role::Admin)).get("/audit").await.json();
    assert_eq!(texts(&audit, "action"), ["batch.rerun"; 3]);
    assert_eq!(audit["items"][1]["ids"], json!(["release", "roll-back"]));
}

#[tokio::test]
async fn what_was_said_with_a_signal_is_hidden_by_the_rules_for_its_type_and_batches_from_those_who_see_some_queues() {
    let place = Place::start().await;
    place.release().await;
    place.put([task("a")]).await;
    let rules = "[payload]\n'x:signal' = ['/by']";
    let site = Site(Web::builder(place.redis.clone()).redact(Redact::from_toml(rules).unwrap()).build());
    site.send("POST", "/batches/release/signals/approve", r#"{"payload":{"by":"s3cr3t","yes":1}}"#).await;
    let told = site.get("/batches/release/nodes").await;
    assert_eq!(node(&told.json(), "approve")["signal"]["said"], json!({ "by": "[redacted]", "yes": 1 }), "{told:?}");
    assert!(!site.get("/batches/release/explain").await.text.contains("s3cr3t"));
    // Not even for those who see all the queues of its members.
    let some = place.of(Identity::new("bob", Role::Admin).queues(["mail"]));
    assert_eq!(some.get("/batches").await.json()["items"], json!([]));
    for path in ["", "/members", "/tree", "/nodes", "/explain"] {
        assert_eq!(some.get(&format!("/batches/release{path}")).await.code(), "batch-not-found", "{path}");
    }
    assert_eq!(some.send("POST", "/batches/release/cancel", "").await.code(), "batch-not-found");
    assert_ne!(site.get("/batches/release").await.json()["state"], "cancelled");
}

#[tokio::test]
async fn a_batch_is_made_once_by_its_id_or_the_key_of_the_request() {
    let place = Place::start().await;
    let site = place.of(Identity::new("ada", Role::Admin));
    let body = r#"{"description":"bills","on_success":{"type":"billed"},"tasks":[{"type":"bill","queue":"mail","payload":{"n": 1.10}},{"type":"bill"}]}"#;
    let key = [("idempotency-key", "bills-7")];
    let made = site.ask("POST", "/api/v1/batches", &key, body).await;
    assert_eq!((made.status, made.json()), (StatusCode::CREATED, json!({ "id": "bills-7", "existed": false })));
    assert_eq!(made.headers["location"], "batches/bills-7");
    let again = site.ask("POST", "/api/v1/batches", &key, body).await;
    assert_eq!((again.status, again.json()), (StatusCode::OK, json!({ "id": "bills-7", "existed": true })));
    let one = site.get("/batches/bills-7").await.json();
    assert_eq!((&one["total"], &one["state"], &one["description"]), (&json!(2), &json!("running"), &json!("bills")));
    let members = site.get("/batches/bills-7/members").await.json();
    let task = &members["items"][0]["task"];
    assert_eq!((&task["queue"], &task["headers"]["x-enqueued-by"]), (&json!("mail"), &json!("ada")));
    let flow =
        r#"{"id":"release","nodes":[{"name":"build","type":"build"},{"name":"ship","type":"ship","after":["build"]}]}"#;
    assert_eq!(site.send("POST", "/batches", flow).await.json()["id"], "release");
    assert_eq!(texts(&site.get("/batches/release/nodes").await.json(), "name"), ["build", "ship"]);
    let random = site.send("POST", "/batches", r#"{"tasks":[]}"#).await.json();
    let id = random["id"].as_str().unwrap();
    assert_eq!(site.get(&format!("/batches/{id}")).await.json()["state"], "succeeded");
    let audit = site.get("/audit").await.json();
    let acts: Vec<&Value> = audit["items"].as_array().unwrap().iter().map(|item| &item["action"]).collect();
    assert_eq!(acts, [&json!("batch.create"); 4]);
    assert_eq!((&audit["items"][0]["ids"], &audit["items"][3]["changed"]), (&json!([id]), &json!(2)));
}

#[tokio::test]
async fn a_batch_that_cannot_be_made_is_refused_and_nothing_is_stored() {
    let place = Place::start().await;
    let site = place.of(Identity::new("ada", Role::Admin));
    for (body, told) in [
        ("", "EOF"),
        (r#"{"tasks":[{"type":"t","quue":"q"}]}"#, "tasks[0]: unknown field `quue`"),
        (r#"{"tasks":[{"type":"t","task_id":"7"}]}"#, "task 0 cannot belong to a batch"),
        (r#"{"id":"a b","tasks":[]}"#, "a b"),
    ] {
        let refused = site.send("POST", "/batches", body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "invalid-request"),
            "{refused:?}"
        );
        assert!(refused.text.contains(told), "{refused:?}");
    }
    assert_eq!(site.get("/batches").await.json()["items"], json!([]));
    let gone = place.client.batch().id("gone").open().await.unwrap();
    gone.cancel().await.unwrap();
    let late = site.send("POST", "/batches", r#"{"id":"gone","tasks":[{"type":"t"}]}"#).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "batch-closed"), "{late:?}");
    for who in [Identity::new("bob", Role::Operator), Identity::new("eve", Role::Admin).queues(["mail"])] {
        let refused = place.of(who).send("POST", "/batches", r#"{"tasks":[]}"#).await;
        assert_eq!((refused.status, refused.code().as_str()), (StatusCode::FORBIDDEN, "forbidden"), "{refused:?}");
    }
}
