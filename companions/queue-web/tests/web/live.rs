//! The stream of overviews.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use queue_admin::Role;
use queue_redis::Client;
use queue_web::{Identity, Web};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::support::{Mortal, Place, QUEUE, task, wait_for};

/// A stream, and what of it was read.
pub(crate) struct Events {
    body: Pin<Box<BodyDataStream>>,
    read: String,
}

impl Events {
    async fn open(web: &Web) -> Self {
        Self::of(web, "/events", None).await
    }

    /// Another stream, behind an event.
    pub(crate) async fn of(web: &Web, path: &str, behind: Option<&str>) -> Self {
        let request = Request::builder().uri(format!("/api/v1{path}")).header("host", "localhost");
        let request = behind.into_iter().fold(request, |request, id| request.header("last-event-id", id));
        let request = request.body(Body::empty()).unwrap();
        let response = web.router().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: Box::pin(response.into_body().into_data_stream()), read: String::new() }
    }

    /// The next event of this name.
    pub(crate) async fn next(&mut self, name: &str) -> Value {
        self.next_with_id(name).await.1
    }

    pub(crate) async fn next_with_id(&mut self, name: &str) -> (String, Value) {
        let limit = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            assert!(tokio::time::Instant::now() < limit, "no event {name}");
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.read = rest;
                if event.contains(&format!("event: {name}\n")) {
                    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                    let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_default();
                    return (id.to_owned(), serde_json::from_str(data).unwrap());
                }
                continue;
            }
            use futures_util::StreamExt as _;
            let chunk =
                tokio::time::timeout(Duration::from_secs(20), self.body.next()).await.unwrap().unwrap().unwrap();
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn the_overview_comes_again_and_again_and_says_what_each_may_see() {
    let place = Place::start().await;
    place.put([task("a"), task("b").queue("vault")]).await;
    let mut all = Events::open(&place.open().0).await;
    let mut some = Events::open(&place.of(Identity::new("bob", Role::Viewer).queues([QUEUE])).0).await;
    let (whole, part) = (all.next("overview").await, some.next("overview").await);
    let names = |look: &Value| {
        look["queues"].as_array().unwrap().iter().map(|row| row["queue"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&whole), names(&part)),
        (vec!["\"mail\"".to_owned(), "\"vault\"".to_owned()], vec!["\"mail\"".to_owned()])
    );
    place.put([task("c")]).await;
    wait_for("the new task is counted", async || {
        let look = all.next("overview").await;
        (look["queues"][0]["pending"] == 2 && !look["queues"][0]["processed_per_s"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_streams_ask_redis_no_more_than_one() {
    let place = Place::start().await;
    place.put((0..20).map(|n| task("a").queue(format!("q{n}")))).await;
    let commands = async || -> u64 {
        let info: String = place.command("INFO stats").await;
        info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap().trim().parse().unwrap()
    };
    let web = place.open().0;
    let mut counts = Vec::new();
    let mut streams = Vec::new();
    for wanted in [1, 50] {
        while streams.len() < wanted {
            streams.push(Events::open(&web).await);
        }
        // From one look to the look after the next.
        streams[0].next("overview").await;
        let before = commands().await;
        streams[0].next("overview").await;
        streams[0].next("overview").await;
        counts.push(commands().await - before);
    }
    let (one, fifty) = (counts[0], counts[1]);
    assert!(one > 20 * 15 && fifty <= one + 20, "one stream: {one} commands, fifty: {fifty}");
    // Nobody watches, nobody asks.
    drop(streams);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = commands().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(commands().await - before < 5);
}

/// What servers and operations there are does not wait for the queues.
#[tokio::test]
async fn a_look_asks_for_all_at_once() {
    let place = Place::start().await;
    place.put([task("a")]).await;
    let site = place.open();
    site.get("/overview").await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let _: () = place.command("CONFIG SET slowlog-log-slower-than 0").await;
    let _: () = place.command("SLOWLOG RESET").await;
    site.get("/overview").await;
    type Noted = (u64, u64, u64, Vec<String>, String, String);
    let noted: Vec<Noted> = place.command("SLOWLOG GET 128").await;
    let order: Vec<&str> = noted.iter().rev().map(|noted| noted.3[0].as_str()).collect();
    let at = |command: &str| order.iter().position(|name| *name == command).unwrap_or_else(|| panic!("{order:?}"));
    // The operations, the sizes of queues.
    assert!(at("ZREVRANGE") < at("LLEN"), "{order:?}");
}

#[tokio::test]
async fn redis_away_is_told_and_so_is_its_return() {
    let mut server = Mortal::start().await;
    let redis = server.redis();
    Client::new(redis.clone()).enqueue(task("a")).await.unwrap();
    let web = Web::builder(redis).build();
    let mut events = Events::open(&web).await;
    assert_eq!(events.next("overview").await["queues"][0]["pending"], 1);
    server.kill();
    let notice = events.next("notice").await;
    assert_eq!(notice["redis"], "away");
    assert!(notice["error"].as_str().is_some_and(|error| !error.is_empty()));
    server.rise().await;
    assert_eq!(events.next("overview").await["queues"][0]["pending"], 1);
}
