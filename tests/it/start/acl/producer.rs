use std::time::Duration;

use queue_redis::{Client, EnqueueError, Redis, broker::Broker};

use super::{DOCUMENT, documented, with_user};
use crate::support::{Fixture, job};

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) async fn play(fixture: &Fixture, redis: &Redis) {
    redis.ping().await.unwrap();
    let client = Client::new(redis.clone());
    client.enqueue(job("a")).await.unwrap();
    client.enqueue(job("later").process_in(HOUR)).await.unwrap();
    client.enqueue(job("grouped").group("g")).await.unwrap();
    client.enqueue(job("unique").unique(HOUR)).await.unwrap();
    let twice = client.enqueue(job("again").unique(HOUR)).await.unwrap_err();
    assert!(matches!(twice, EnqueueError::DuplicateTask { .. }), "{twice}");
    let taken = client.enqueue(job("a").payload("other")).await.unwrap_err();
    assert!(matches!(taken, EnqueueError::TaskIdConflict { .. }), "{taken}");
    for outcome in client.enqueue_many(["b", "c"].map(job)).await {
        outcome.unwrap();
    }
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await, 4);
    assert_eq!(Broker::new(fixture.redis()).has_groups("q").await.ok(), Some(true));
}

#[tokio::test]
async fn a_producer_needs_one_right_more_to_enqueue_in_front() {
    let (fixture, redis) = with_user(&documented("producer")).await;
    let client = Client::new(redis);
    let refused = client.enqueue(job("a").front()).await.unwrap_err();
    assert!(refused.to_string().contains("lacks a right"), "{refused}");
    assert!(super::refused(&fixture, "producer").await.contains("rpush"));
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:*"]).await, [""; 0], "nothing is half stored");
    let line = "ACL SETUSER producer +rpush";
    assert!(DOCUMENT.lines().any(|other| other == line));
    fixture.run(line).await;
    client.enqueue(job("a").front()).await.unwrap();
}
