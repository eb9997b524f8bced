//! Publishing with the rights of `docs/deployment.md` for it and no others.

use std::time::Duration;

use queue_core::TaskState;
use queue_core::publish::PublishOutcome::{Replaced, Restarted, Stored, Suppressed};
use queue_redis::{Client, Redis};

use super::each_is_needed;
use crate::support::{Fixture, job};

const HOUR: Duration = Duration::from_secs(3_600);

async fn play(fixture: &Fixture, redis: Redis) {
    for id in ["done", "late"] {
        fixture.put_in(TaskState::Completed, job(id)).await;
    }
    let client = Client::new(redis);
    assert_eq!(client.publish(job("a")).throttle(HOUR).await.unwrap().outcome, Stored);
    assert_eq!(client.publish(job("a")).throttle(HOUR).await.unwrap().outcome, Suppressed);
    assert_eq!(client.publish(job("a")).replace().await.unwrap().outcome, Replaced);
    assert_eq!(client.publish(job("later")).debounce(HOUR).await.unwrap().outcome, Stored);
    assert_eq!(client.publish(job("later")).debounce(HOUR).await.unwrap().outcome, Replaced);
    assert_eq!(client.publish(job("done")).restart().await.unwrap().outcome, Restarted);
    assert_eq!(client.publish(job("late")).debounce(HOUR).await.unwrap().outcome, Restarted);
}

#[tokio::test]
async fn a_producer_with_the_documented_rights_publishes_and_each_of_them_is_needed() {
    each_is_needed("ACL SETUSER producer +del", play).await;
}
