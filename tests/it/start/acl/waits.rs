//! Waiting for tasks with the rights of `docs/deployment.md` for it and no others.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use queue_redis::{Client, Finished, Redis};

use super::{DOCUMENT, documented, is_needed, refused, rights, with_user};
use crate::support::{Fixture, PATIENCE, job};

fn line() -> Vec<String> {
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with("ACL SETUSER producer +client"));
    lines.next().expect("the document has the line").split(' ').map(str::to_owned).collect()
}

async fn play(fixture: &Fixture, redis: Redis) {
    let client = Client::new(redis);
    let handle = client.enqueue_to_wait(job("a")).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait(PATIENCE).await }
    });
    assert!(handle.wait(Duration::from_millis(50)).await.is_err());
    fixture.run("HSET asynq:{q}:t:a state completed").await;
    let ended = waiting.await.unwrap();
    assert!(matches!(ended, Ok(Finished::Completed(_))), "{ended:?}");
}

#[tokio::test]
async fn a_producer_with_the_documented_rights_waits_and_each_of_them_is_needed() {
    let (fixture, redis) = with_user(&documented("producer")).await;
    let _: redis::Value = fixture.cmd(&line()).await;
    play(&fixture, redis).await;
    let all = refused(&fixture, "producer").await;
    assert!(all.is_empty(), "the documented user may not {all:?}");
    for right in rights(&line()) {
        let (fixture, redis) = with_user(&documented("producer")).await;
        let without: Vec<String> = line().into_iter().filter(|word| *word != format!("+{right}")).collect();
        let _: redis::Value = fixture.cmd(&without).await;
        // Without `hmget` it fails; without the others it goes on, and is only slower.
        let _ = AssertUnwindSafe(play(&fixture, redis)).catch_unwind().await;
        assert!(is_needed(&fixture, "producer", right).await, "{right} is not needed");
    }
}
