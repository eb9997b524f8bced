//! Publishing with the rights of `docs/deployment.md` for it and no others.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use queue_core::TaskState;
use queue_core::publish::PublishOutcome::{Replaced, Restarted, Stored, Suppressed};
use queue_redis::{Client, Redis};

use super::{DOCUMENT, documented, refused, rights, with_user};
use crate::support::{Fixture, job};

const HOUR: Duration = Duration::from_secs(3_600);

fn line() -> Vec<String> {
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with("ACL SETUSER producer +del"));
    lines.next().expect("the document has the line").split(' ').map(str::to_owned).collect()
}

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
