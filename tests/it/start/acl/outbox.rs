//! The relay of an outbox with the rights of `docs/deployment.md` for it and no others.

use std::time::Duration;

use queue_redis::{Client, EnqueuedOnce, Redis};

use super::each_is_needed;
use crate::support::{Fixture, QUEUE, job};

const HOUR: Duration = Duration::from_secs(3_600);

async fn play(_: &Fixture, redis: Redis) {
    let client = Client::new(redis);
    for expected in [EnqueuedOnce::Now, EnqueuedOnce::Before] {
        let claim = client.claim_once(HOUR).await.unwrap();
        let tasks = [job("a"), job("b").process_in(HOUR), job("c").group("g"), job("d").unique(HOUR)];
        let keyed = tasks.into_iter().enumerate().map(|(n, task)| (n.to_string(), client.compose(task).unwrap()));
        let outcomes = claim.enqueue(keyed.collect()).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(told) if *told == expected)), "{outcomes:?}");
        claim.confirm([(QUEUE.to_owned(), "0".to_owned())]).await.unwrap();
    }
}

#[tokio::test]
async fn a_producer_with_the_documented_rights_relays_and_each_of_them_is_needed() {
    each_is_needed("ACL SETUSER producer +time", play).await;
}
