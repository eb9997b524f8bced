//! The code of documents is run.

use queue_core::RawTask;
use queue_crypt::{Encryption, KeyRing};
use queue_redis::Client;
use queue_redis::embedded::RedisServer;
use queue_testing::{End, TestQueue};
use queue_worker::{Job, Router};

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
    mend(inspector.clone()).await.unwrap();
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
