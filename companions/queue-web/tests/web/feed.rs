//! The stream of events.

use std::time::Duration;

use queue_admin::Role;
use queue_redis::Client;
use queue_web::{Identity, Redact, Web};
use serde_json::{Value, json};

use crate::live::Events;
use crate::support::{Mortal, Place, QUEUE, Site, member, task, wait_for};

/// Who listens, by the hash that servers look at.
async fn listeners(place: &Place) -> Vec<String> {
    place.command::<Vec<String>>("HVALS asynq:x:watchers").await
}

/// A server that knows of the listener, and what it works.
async fn heard(place: &Place, stream: &mut Events, id: &str) -> (String, Value) {
    place.put([task(id)]).await;
    loop {
        let (at, event) = stream.next_with_id("happened").await;
        if event["id"] == id {
            return (at, event);
        }
    }
}

#[tokio::test]
async fn all_browsers_have_one_reader_and_each_hears_what_it_wants_and_may_see() {
    let place = Place::start().await;
    place.put([task("first").queue("vault")]).await;
    let web = place.open().0;
    assert_eq!(listeners(&place).await, [""; 0]);
    let mut failed = Events::of(&web, "/feed?kind=failed,archived", None).await;
    failed.next("start").await;
    wait_for("the reader wants what this one wants", async || {
        let all = listeners(&place).await;
        (all.len() == 1 && all[0].contains("failed") && !all[0].contains("succeeded")).then_some(())
    })
    .await;
    let mut all = Events::of(&web, "/feed", None).await;
    wait_for("and then everything", async || {
        let all = listeners(&place).await;
        all.iter().any(|json| !json.contains("failed")).then_some(())
    })
    .await;
    let viewer = Web::builder(place.redis.clone())
        .identify(|_| Some(Identity::new("eve", Role::Viewer).queues([QUEUE])))
        .build();
    let mut some = Events::of(&viewer, "/feed", None).await;
    let server = place.work().await;
    heard(&place, &mut all, "fine").await;
    place.put([member("die").task_id("dies")]).await;
    let dead = failed.next("happened").await;
    assert_eq!(
        (&dead["kind"], &dead["id"], &dead["error"]),
        (&json!("archived"), &json!("dies"), &json!("it was to die"))
    );
    // What operators do is for those who may read the audit, and a queue that one may not see does not exist.
    place.admin().pause("vault", true).await.unwrap();
    for paused in [true, false] {
        place.admin().pause(QUEUE, paused).await.unwrap();
    }
    place.admin().pause("low", true).await.unwrap();
    loop {
        let event = all.next("happened").await;
        if event["action"] == "queue.pause" && event["queue"] == "low" {
            break;
        }
    }
    place.put([task("last")]).await;
    loop {
        let event = some.next("happened").await;
        assert!(event["kind"] != "operator" && event["queue"] != "vault", "{event}");
        if event["kind"] == "succeeded" && event["id"] == "last" {
            break;
        }
    }
    assert_eq!(Site(viewer).get("/feed?queue=vault").await.code(), "queue-not-found");
    server.shutdown().await;
}

#[tokio::test]
async fn who_comes_back_goes_on_where_it_was_and_is_told_where_that_cannot_be() {
    let place = Place::start().await;
    place.put([task("first")]).await;
    let web = place.open().0;
    let mut stream = Events::of(&web, "/feed", None).await;
    stream.next("start").await;
    wait_for("it is listened to", async || (listeners(&place).await.len() == 1).then_some(())).await;
    let server = place.work().await;
    place.put([task("one")]).await;
    let mut before = Vec::new();
    let id = loop {
        let (id, event) = stream.next_with_id("happened").await;
        before.push(event.clone());
        if event["kind"] == "succeeded" && event["id"] == "one" {
            assert_eq!((&event["queue"], &event["type"]), (&json!(QUEUE), &json!("email:send")));
            break id;
        }
    };
    // Nobody looks for a moment: the servers go on telling for a while.
    drop(stream);
    place.put([task("two")]).await;
    wait_for("it is done", async || place.state("two").await.is_none().then_some(())).await;
    let mut again = Events::of(&web, "/feed", Some(&id)).await;
    let mut after = Vec::new();
    while !after.iter().any(|event: &Value| event["kind"] == "succeeded" && event["id"] == "two") {
        after.push(again.next("happened").await);
    }
    assert!(after.iter().any(|event| event["kind"] == "started" && event["id"] == "two"), "{after:?}");
    assert!(after.iter().all(|event| event["kind"] != "gap" && !before.contains(event)), "{before:?} {after:?}");
    let mut late = Events::of(&web, &format!("/feed?after={id}"), None).await;
    assert_eq!(late.next("happened").await, after[0]);
    // Another process, or this one started anew, knows nothing of the number.
    let mut other = Events::of(&place.open().0, "/feed", Some(&id)).await;
    let gap = other.next("happened").await;
    assert_eq!((&gap["kind"], gap["note"].as_str().unwrap().contains("anew")), (&json!("gap"), true));
    server.shutdown().await;
}

#[tokio::test]
async fn nothing_is_asked_while_nobody_listens_and_redis_away_is_told() {
    let place = Place::start().await;
    let web = place.open().0;
    let commands = async || -> u64 {
        let info: String = place.command("INFO stats").await;
        info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap().trim().parse().unwrap()
    };
    let mut stream = Events::of(&web, "/feed", None).await;
    stream.next("start").await;
    wait_for("it is listened to", async || (listeners(&place).await.len() == 1).then_some(())).await;
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = commands().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(commands().await - before < 4);

    let mut server = Mortal::start().await;
    let redis = server.redis();
    Client::new(redis.clone()).enqueue(task("a")).await.unwrap();
    let web = Web::builder(redis).build();
    let mut stream = Events::of(&web, "/feed", None).await;
    stream.next("start").await;
    server.kill();
    let notice = stream.next("notice").await;
    assert!(notice["redis"] == "away" && notice["error"].is_string(), "{notice}");
    server.rise().await;
    assert_eq!(stream.next("notice").await, json!({ "redis": "back" }));
}

#[tokio::test]
async fn what_a_handler_says_to_its_progress_is_hidden_with_its_payload() {
    use queue_core::event::{Event, Kind};
    let place = Place::start().await;
    let rules = "[payload]\n'email:*' = ['/to']";
    let web = Web::builder(place.redis.clone()).redact(Redact::from_toml(rules).unwrap()).build();
    let mut stream = Events::of(&web, "/feed", None).await;
    stream.next("start").await;
    place.put([task("a")]).await;
    let mut event = Event::of_task(Kind::Progress, queue_core::clock::UnixMilli(1), QUEUE, "a", "email:send");
    event.note = Some("s3cr3t-8457".to_owned());
    let mut add = redis::cmd("XADD");
    add.arg("asynq:{mail}:x:events").arg("*").arg("s").arg("h:1:x").arg("n").arg(1).arg("e").arg(event.to_json());
    let client = redis::Client::open(place.server.url()).unwrap();
    let _: String = add.query_async(&mut client.get_multiplexed_async_connection().await.unwrap()).await.unwrap();
    assert_eq!(stream.next("happened").await["note"], "[redacted]");
}
