//! The relay of an outbox with the rights of `docs/deployment.md` for it and no others.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use queue_redis::{Client, EnqueuedOnce, Redis};

use super::{DOCUMENT, documented, refused, rights, with_user};
use crate::support::{Fixture, QUEUE, job};

const HOUR: Duration = Duration::from_secs(3_600);

fn line() -> Vec<String> {
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with("ACL SETUSER producer +time"));
    lines.next().expect("the document has the line").split(' ').map(str::to_owned).collect()
}

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
    let (fixture, redis) = with_user(&documented("producer")).await;
    let _: redis::Value = fixture.cmd(&line()).await;
    play(&fixture, redis).await;
    let all = refused(&fixture, "producer").await;
    assert!(all.iter().all(|command| command == "client"), "the documented user may not {all:?}");
    for right in rights(&line()) {
        let (fixture, redis) = with_user(&documented("producer")).await;
        let without: Vec<String> = line().into_iter().filter(|word| *word != format!("+{right}")).collect();
        let _: redis::Value = fixture.cmd(&without).await;
        let _ = AssertUnwindSafe(play(&fixture, redis)).catch_unwind().await;
        assert!(refused(&fixture, "producer").await.contains(right), "{right} is not needed");
    }
}
