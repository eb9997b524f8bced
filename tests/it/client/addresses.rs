//! Where a Redis can be, and what is told when it is not there.

use std::net::TcpListener;
use std::time::Duration;

use queue_core::RawTask;
use queue_redis::{Client, EnqueueError, Error, Redis, RedisOptions, broker::Broker};
use queue_worker::{Job, Router, Server};

use crate::support::{Events, RedisProcess, plain_connection, with};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Enqueues through one URL, and looks for the task in one database through a socket.
async fn assert_stores(url: &str, redis: &RedisProcess, database: u8) {
    let client = Client::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let id = client.enqueue(RawTask::new("job")).await.unwrap().id;
    let other = format!("redis+unix://{}?db={database}&user=default&pass=se%2Fcret", redis.socket().display());
    let mut connection = plain_connection(other).await;
    let key = format!("asynq:{{default}}:t:{id}");
    let found: bool = redis::cmd("EXISTS").arg(key).query_async(&mut connection).await.unwrap();
    assert!(found, "{url}");
}

#[tokio::test]
async fn every_form_of_a_url_leads_to_its_database() {
    let port = free_port();
    let port_text = port.to_string();
    let settings = ["--port", port_text.as_str(), "--requirepass", "se/cret"];
    let redis = RedisProcess::start(&settings).await;
    let socket = redis.socket();
    let socket = socket.display();
    for (url, database) in [
        (format!("redis://:se%2Fcret@127.0.0.1:{port}"), 0),
        (format!("redis://default:se%2Fcret@localhost:{port}/3"), 3),
        (format!("redis+unix://{socket}?pass=se%2Fcret"), 0),
        (format!("redis+unix://{socket}?db=2&user=default&pass=se%2Fcret"), 2),
        (format!("unix://{socket}?db=1&pass=se%2Fcret"), 1),
        (format!("redis-socket://:se%2Fcret@{socket}?db=4"), 4),
    ] {
        assert_stores(&url, &redis, database).await;
    }
}

#[tokio::test]
async fn a_server_and_its_listener_use_the_password_and_the_database_too() {
    let redis = RedisProcess::start(&["--requirepass", "secret"]).await;
    let url = format!("redis+unix://{}?db=5&pass=secret", redis.socket().display());
    let client = Client::connect(&url).await.unwrap();
    let events = <Events>::default();
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(job.id());
        job.cancellation().cancelled().await;
        events.tell("canceled");
    });
    let server = Server::new(client.redis().clone(), Router::new(()).route("job", work));
    let server = server.start().await.unwrap();
    client.enqueue(RawTask::new("job").task_id("a")).await.unwrap();
    events.wait(1).await;
    Broker::new(client.redis().clone()).cancel("a").await.unwrap();
    assert_eq!(events.wait(2).await, ["a", "canceled"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_named_and_not_shown() {
    let redis = RedisProcess::start(&["--requirepass", "secret"]).await;
    let socket = redis.socket();
    let socket = socket.display();
    for (url, word) in [
        (format!("redis+unix://{socket}?pass=hunter2"), "password"),
        (format!("redis+unix://{socket}?user=nobody&pass=hunter2"), "password"),
        (format!("redis+unix://{socket}"), "password"),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        let text = error.to_string();
        assert!(text.to_lowercase().contains(word), "{url}: {text}");
        assert!(!format!("{text} {error:?}").contains("hunter2"), "{error:?}");
        assert!(!text.contains("is it running"), "it is running: {text}");
    }
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_named() {
    let port = free_port();
    for (url, target) in [
        (format!("redis://:hunter2@127.0.0.1:{port}/3"), format!("127.0.0.1:{port}/3")),
        ("redis+unix:///nowhere/redis.sock?pass=hunter2".to_owned(), "/nowhere/redis.sock".to_owned()),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.is_transient() && !error.is_ambiguous());
        assert!(error.to_string().starts_with(&format!("cannot reach Redis at {target}: ")), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        // A client that was made before tells the same of each task.
        let client = Client::new(Redis::lazy(&url, RedisOptions::default()).unwrap());
        let outcomes = client.enqueue_many([RawTask::new("a"), RawTask::new("b")]).await;
        for outcome in outcomes {
            assert!(matches!(outcome, Err(EnqueueError::Redis(Error::Unreachable { .. }))), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn addresses_of_no_redis_are_refused_without_a_connection() {
    for url in [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://localhost/x",
        "redis://localhost:port",
        "redis-sentinel://a",
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{url:?}: {error:?}");
        assert!(error.to_string().contains("redis://user:password@host:6379/0"), "{error}");
    }
}

#[tokio::test]
async fn who_finds_all_connections_in_use_is_told_so_and_not_that_redis_is_away() {
    let redis = RedisProcess::start(&[]).await;
    let options = RedisOptions { response_timeout: Duration::from_secs(1), pool_size: 2, ..RedisOptions::default() };
    let handle = Redis::lazy(&redis.url(), options).unwrap();
    let held = [handle.pooled().await.unwrap(), handle.pooled().await.unwrap()];
    let Err(error) = handle.pooled().await else { panic!("a third of two") };
    let text = error.to_string();
    for part in ["all 2 connections", "in use for 1s", "RedisOptions::pool_size"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(error.is_transient() && !error.is_ambiguous());
    drop(held);
    handle.pooled().await.unwrap();
}

#[tokio::test]
async fn a_url_of_a_cluster_or_of_sentinels_that_leads_to_a_server_says_which_would_do() {
    let port = free_port();
    let _redis = RedisProcess::start(&["--bind", "127.0.0.1", "--port", &port.to_string()]).await;
    for (url, is, instead) in [
        (format!("redis+cluster://127.0.0.1:{port}"), "no node of a cluster", "redis:// for redis+cluster://"),
        (format!("redis-sentinel://127.0.0.1:{port}?master=m"), "no Sentinel", "redis:// for redis-sentinel://"),
    ] {
        let text = Client::connect(&url).await.unwrap_err().to_string();
        assert!(text.contains(is) && text.contains(instead), "{url}: {text}");
    }
}
