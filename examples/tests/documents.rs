//! The code of documents is run.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use queue::admin::Inspector;
use queue::crypt::{Encryption, KeyRing};
use queue::embedded::RedisServer;
use queue::metrics::{Endpoint, WorkerMetrics};
use queue::testing::{End, TestQueue};
use queue::{CancellationToken, Client, Job, RawTask, Router, Server};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

type Error = Box<dyn std::error::Error + Send + Sync>;

include!(concat!(env!("OUT_DIR"), "/doctor.rs"));

#[tokio::test]
async fn the_doctor_mends_from_rust() {
    let redis = RedisServer::start().await.unwrap();
    let (client, inspector) = (Client::new(redis.redis()), Inspector::new(redis.redis()));
    client.enqueue(RawTask::new("t").task_id("lost")).await.unwrap();
    let mut remove = redis::cmd("LREM");
    remove.arg("asynq:{default}:pending").arg(0).arg("lost");
    let raw = redis::Client::open(redis.url()).unwrap();
    let _: i64 = remove.query_async(&mut raw.get_multiplexed_async_connection().await.unwrap()).await.unwrap();
    assert_eq!(inspector.queue("default").await.unwrap().pending, 0);
    mend(inspector.doctor()).await.unwrap();
    assert_eq!(inspector.queue("default").await.unwrap().pending, 1);
}

/// What the document reads from the environment.
const KEYS: &str =
    "2026-11:CwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCws=,2026-05:BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";

fn encrypted(client: Client, router: Router) -> Result<(Client, Router), Error> {
    Ok(include!(concat!(env!("OUT_DIR"), "/encryption.rs")))
}

#[tokio::test]
async fn payloads_are_encrypted_between_client_and_handler() {
    let queue = TestQueue::new();
    let router = Router::new(()).route("order:pay", async |job: Job| {
        assert_eq!(&job.payload()[..], br#"{"card":{"number":"4242"}}"#);
    });
    let (client, router) = encrypted(queue.client().clone(), router).unwrap();
    let task = RawTask::new("order:pay").payload(r#"{"card":{"number":"4242"}}"#);
    let stored = client.enqueue(task).await.unwrap();
    assert!(!String::from_utf8_lossy(&stored.payload).contains("4242"), "{stored:?}");
    let drained = queue.drain(router).await;
    assert_eq!(drained[0].end, End::Succeeded, "{drained}");
}

#[tokio::test]
async fn a_program_serves_its_metrics() {
    let server = RedisServer::start().await.unwrap();
    let (redis, inspector) = (server.redis(), Inspector::new(server.redis()));
    let (router, stop) = (Router::new(()), CancellationToken::new());
    let program = async move {
        include!(concat!(env!("OUT_DIR"), "/metrics.rs"));
        Ok::<(), Error>(())
    };
    let listed = async {
        while inspector.servers().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        ended = program => panic!("the program has ended: {ended:?}"),
        () = listed => {}
    }
}

/// As the document says, with spans that stay in memory.
async fn traced(url: &str, router: Router) -> Result<(Client, Server), Error> {
    let exporter = InMemorySpanExporter::default();
    Ok(include!(concat!(env!("OUT_DIR"), "/traces.rs")))
}

#[tokio::test]
async fn a_task_carries_its_trace() {
    let redis = RedisServer::start().await.unwrap();
    let (client, server) = traced(redis.url(), Router::new(())).await.unwrap();
    let server = server.start().await.unwrap();
    let task = client.enqueue(RawTask::new("t")).await.unwrap();
    assert!(task.headers.contains_key("traceparent"), "{task:?}");
    server.shutdown().await;
}
