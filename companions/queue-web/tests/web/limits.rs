//! Limits by the REST API.

use queue_admin::Role;
use queue_web::{Identity, Redact, Web};
use serde_json::{Value, json};

use crate::support::{Place, QUEUE, Site, task};

fn lane(key: &str, running: u64, waiting: u64) -> Value {
    json!({ "key": key, "running": running, "waiting": waiting, "next_look": null, "concurrency": null, "paused": false, "weight": null, "rests_until": null, "slowed": null })
}

/// Without when somebody looks, which is a time.
fn lanes(told: &Value) -> Vec<Value> {
    let mut items = told["items"].as_array().unwrap().clone();
    items.iter_mut().for_each(|item| item["next_look"] = json!(null));
    items
}

#[tokio::test]
async fn lanes_are_told_by_key_page_by_page_and_changed_one_by_one() {
    let place = Place::start().await;
    place.limit().await;
    let site = place.of(Identity::new("ada", Role::Operator));
    let path = format!("/queues/{QUEUE}/limits/tenant");
    let all = site.get(&format!("{path}/lanes")).await.json();
    assert_eq!((lanes(&all), &all["next"]), (vec![lane("acme", 1, 2), lane("globex", 1, 0)], &json!(null)));
    // Keys of other limits, and one for which nothing runs, but something is different.
    for name in ["ten", "tenants"] {
        let body = r#"{"key":"type","concurrency":7}"#;
        assert_eq!(site.send("PUT", &format!("/queues/{QUEUE}/limits/{name}"), body).await.json()["concurrency"], 7);
    }
    assert_eq!(site.send("PUT", &format!("/queues/{QUEUE}/limits/ten/keys/x"), r#"{"paused":true}"#).await.status, 200);
    let told = site.send("PUT", &format!("{path}/keys/a%20b%25"), r#"{"paused":true,"concurrency":3}"#).await.json();
    assert_eq!(
        told,
        json!({ "queue": QUEUE, "name": "tenant", "key": "a b%", "now": { "concurrency": 3, "paused": true } })
    );
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = site.get(&format!("{path}/lanes?limit=1&cursor={cursor}")).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| (item["key"].clone(), item["paused"].clone())));
        cursor = page["next"].as_str().unwrap_or_default().to_owned();
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [(json!("a b%"), json!(true)), (json!("acme"), json!(false)), (json!("globex"), json!(false))]);
    for bad in ["x", "dGVu", "dGVuOnggIA"] {
        assert_eq!(site.get(&format!("{path}/lanes?cursor={bad}")).await.code(), "invalid-cursor", "{bad}");
    }
    let told = site.send("DELETE", &format!("{path}/keys/a%20b%25"), "").await.json();
    assert_eq!(told["now"], json!({}));
    assert_eq!(site.get(&format!("{path}/lanes")).await.json()["items"].as_array().unwrap().len(), 2);
    // In order, one at once of each key.
    let strict = format!("/queues/{QUEUE}/limits/ten");
    let told = site.send("PUT", &strict, r#"{"key":"type","order":"strict"}"#).await.json();
    assert_eq!((&told["order"], &told["concurrency"]), (&json!("strict"), &json!(1)));
    let both = site.send("PUT", &strict, r#"{"key":"type","order":"strict","concurrency":2}"#).await;
    assert_eq!(both.code(), "invalid-limit");
    // What rests when too much has failed.
    let told = r#"{"key":"type","breaker":{"percent":50,"of":20,"within":60000,"rest":1000,"most":600000}}"#;
    let told = site.send("PUT", &format!("/queues/{QUEUE}/limits/rests"), told).await.json();
    assert_eq!((&told["breaker"]["of"], &told["opened"]), (&json!(20), &json!(0)));
    let bad = r#"{"key":"type","breaker":{"percent":0,"of":20,"within":60000,"rest":1000,"most":600000}}"#;
    assert_eq!(site.send("PUT", &format!("/queues/{QUEUE}/limits/rests"), bad).await.code(), "invalid-limit");
    site.send("DELETE", &format!("/queues/{QUEUE}/limits/rests"), "").await;
    // Keys that take turns, by weights.
    let fair = format!("/queues/{QUEUE}/limits/tenants");
    assert_eq!(site.send("PUT", &fair, r#"{"key":"type","fair":true}"#).await.code(), "invalid-limit", "beside order");
    site.send("PUT", &strict, r#"{"key":"type","concurrency":7}"#).await;
    let told = site.send("PUT", &fair, r#"{"key":"type","fair":true}"#).await.json();
    assert_eq!((&told["fair"], &told["concurrency"]), (&json!(true), &json!(null)));
    let told = site.send("PUT", &format!("{fair}/keys/job"), r#"{"weight":9}"#).await.json();
    assert_eq!(told["now"], json!({ "weight": 9 }));
    assert_eq!(site.get(&format!("{fair}/lanes")).await.json()["items"][0]["weight"], json!(9));
    assert_eq!(site.send("PUT", &format!("{fair}/keys/job"), r#"{"weight":0}"#).await.code(), "invalid-limit");
    // All queues at once, and what was done.
    let limits = site.get("/limits").await.json();
    let of_queue = site.get(&format!("/queues/{QUEUE}/limits")).await.json();
    assert_eq!((&limits, &limits["total"], &limits["items"][0]["waiting"]), (&of_queue, &json!(3), &json!(2)));
    assert_eq!(
        site.send("DELETE", &path, "").await.json(),
        json!({ "queue": QUEUE, "name": "tenant", "removed": true })
    );
    let off = site.send("DELETE", &format!("/queues/{QUEUE}/limits"), "").await.json();
    assert_eq!(off, json!({ "queue": QUEUE, "made_pending": 2 }));
    assert_eq!(site.get("/limits").await.json(), json!({ "total": 0, "items": [] }));
    let audit = place.open().get("/audit").await.json();
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        [
            ["limit.remove", "limit.remove", "limit.key", "limit.key", "limit.set", "limit.set", "limit.set"]
                .as_slice(),
            &[
                "limit.remove",
                "limit.set",
                "limit.set",
                "limit.key",
                "limit.key",
                "limit.key",
                "limit.set",
                "limit.set"
            ],
        ]
        .concat()
    );
}

/// They were an empty list.
#[tokio::test]
async fn limits_of_a_queue_that_is_not_there_are_not_found() {
    let place = Place::start().await;
    place.put([task("x")]).await;
    let site = place.open();
    for path in ["/queues/none/limits", "/queues/none/limits/x/lanes"] {
        assert_eq!(site.get(path).await.code(), "queue-not-found", "{path}");
    }
    for belongs in ["", "%7Dp9"] {
        let none = site.get(&format!("/queues/{QUEUE}{belongs}/limits")).await.json();
        assert_eq!(none, json!({ "total": 0, "items": [] }), "{belongs}");
    }
}

#[tokio::test]
async fn limits_that_cannot_be_read_are_told_by_their_queue_and_cost_no_other_its_own() {
    let place = Place::start().await;
    place.limit().await;
    place.put([task("x").queue("spoilt")]).await;
    let site = place.of(Identity::new("ada", Role::Operator));
    let fine = site.get("/limits").await.json();
    assert_eq!((&fine["total"], fine.get("unreadable")), (&json!(1), None));
    place.command::<redis::Value>("SET asynq:{spoilt}:x:rules nothing").await;
    let all = site.get("/limits").await.json();
    assert_eq!((&all["total"], &all["items"][0]["queue"]), (&json!(1), &json!(QUEUE)));
    assert_eq!(all["unreadable"][0]["queue"], json!("spoilt"));
    let one = site.get("/queues/spoilt/limits").await;
    assert_eq!((one.status.as_u16(), &*one.code()), (409, "limits-unreadable"));
    assert_eq!(one.json()["queue"], json!("spoilt"));
    assert!(one.text.contains("queuectl limit off"), "{}", one.text);
    let explained = site.get("/queues/spoilt/tasks/x/explain").await.json();
    assert_eq!(explained["reasons"][0]["reason"], json!("limits-unreadable"));
    place.command::<redis::Value>("DEL asynq:{spoilt}:x:rules").await;
    place.command::<redis::Value>("SADD asynq:{spoilt}:x:rules x").await;
    assert!(site.get("/queues/spoilt/limits").await.text.contains("another type"));
    assert_eq!(site.send("DELETE", "/queues/spoilt/limits", "").await.code(), "limits-unreadable");
    assert_eq!(site.send("DELETE", "/queues/none/limits", "").await.code(), "queue-not-found");
    let blank = site.send("PUT", "/queues/%20/limits/x", r#"{"key":"type","concurrency":1}"#).await;
    assert_eq!(blank.code(), "invalid-value", "{}", blank.text);
}

#[tokio::test]
async fn keys_that_are_hidden_in_tasks_are_hidden_here_too() {
    let place = Place::start().await;
    place.limit().await;
    place.put([task("x").queue("vault")]).await;
    let site =
        Site(Web::builder(place.redis.clone()).redact(Redact::from_toml("headers = ['tenant']").unwrap()).build());
    let path = format!("/queues/{QUEUE}/limits");
    site.send("PUT", &format!("{path}/tenant/keys/acme"), r#"{"paused":true}"#).await;
    for path in [path.clone(), "/limits".to_owned(), format!("/queues/{QUEUE}/tasks/a3/explain")] {
        let told = site.get(&path).await;
        assert!(told.status.is_success() && !told.text.contains("acme"), "{path}: {told:?}");
    }
    assert_eq!(site.get(&format!("{path}/tenant/lanes")).await.code(), "redacted");
    assert!(place.open().get(&format!("/queues/{QUEUE}/tasks/a3/explain")).await.text.contains("acme"));
    let bob = place.of(Identity::new("bob", Role::Admin).queues(["vault"]));
    assert_eq!(bob.get("/limits").await.json()["total"], 0);
}
