use std::time::Duration;

use queue_redis::{Client, EnqueueError, Redis, broker::Broker};

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
