//! Telling and hearing events with the rights of `docs/deployment.md` for it and no others.

use futures_util::{FutureExt as _, StreamExt as _};
use queue_core::clock::UnixMilli;
use queue_redis::Redis;
use queue_redis::broker::Broker;
use queue_redis::events::{Event, Events, Kind};

use super::{DOCUMENT, documented, refused, rights, with_user};
use crate::support::{Fixture, QUEUE};

fn line() -> Vec<String> {
    let mut lines = DOCUMENT.lines().filter(|line| line.starts_with("ACL SETUSER worker +exec +multi +xadd"));
    lines.next().expect("the document has the line").split(' ').map(str::to_owned).collect()
}

/// One tells what the other hears; whether that was possible.
async fn play(fixture: &Fixture, worker: Redis, inspector: &Redis) -> bool {
    let mut events = Events::of(inspector).queue(QUEUE).stream().await.unwrap();
    let broker = Broker::new(worker);
    broker.feed().heard_by(broker.wanted().await.unwrap(), 1);
    assert!(broker.feed().is_heard());
    broker.feed().tell(|| Event::of_task(Kind::Started, UnixMilli(1_700_000_000_000), QUEUE, "a", "job"));
    if broker.tell_events(1_700_000_000_000).await.is_err() {
        return false;
    }
    assert_eq!(events.next().await.unwrap().unwrap().event.id.as_deref(), Some("a"));
    // Behind an event that was heard.
    let cursor = {
        broker.feed().tell(|| Event::of_task(Kind::Started, UnixMilli(1_700_000_000_000), QUEUE, "b", "job"));
        broker.tell_events(1_700_000_000_000).await.unwrap();
        events.next().await.unwrap().unwrap().cursor
    };
    let mut events = Events::of(inspector).since(cursor).stream().await.unwrap();
    assert!(events.next().now_or_never().is_none());
    fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:x:events"]).await == 1
}

#[tokio::test]
async fn a_worker_tells_with_the_documented_rights_and_an_inspector_hears_with_its_own() {
    let inspector = |fixture: &Fixture| {
        let url = format!("{}?user=inspector&pass=secret", fixture.url());
        Redis::lazy(&url, queue_redis::RedisOptions::default()).unwrap()
    };
    let (fixture, worker) = with_user(&documented("worker")).await;
    let _: redis::Value = fixture.cmd(&line()).await;
    let _: redis::Value = fixture.cmd(&documented("inspector")).await;
    assert!(play(&fixture, worker, &inspector(&fixture)).await);
    for user in ["worker", "inspector"] {
        let all = refused(&fixture, user).await;
        assert!(all.iter().all(|command| command == "client"), "the documented {user} may not {all:?}");
    }
    for right in rights(&line()) {
        let (fixture, worker) = with_user(&documented("worker")).await;
        let without: Vec<String> = line().into_iter().filter(|word| *word != format!("+{right}")).collect();
        let _: redis::Value = fixture.cmd(&without).await;
        let _: redis::Value = fixture.cmd(&documented("inspector")).await;
        assert!(!play(&fixture, worker, &inspector(&fixture)).await, "{right} is not needed");
    }
}
