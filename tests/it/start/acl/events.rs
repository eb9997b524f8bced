//! Telling and hearing events with the rights of `docs/deployment.md` for it and no others.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use queue_core::clock::UnixMilli;
use queue_redis::broker::Broker;
use queue_redis::events::{Event, Events, Kind};
use queue_redis::{Client, Redis};

use super::{DOCUMENT, documented, refused, rights, with_user};
use crate::support::{Fixture, QUEUE, job};

fn line(user: &str) -> Vec<String> {
    let is_it = |line: &&str| line.starts_with(&format!("ACL SETUSER {user} +")) && line.ends_with(" +xadd");
    DOCUMENT.lines().find(is_it).expect("the document has the line").split(' ').map(str::to_owned).collect()
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
    let _: redis::Value = fixture.cmd(&line("worker")).await;
    let _: redis::Value = fixture.cmd(&documented("inspector")).await;
    assert!(play(&fixture, worker, &inspector(&fixture)).await);
    for user in ["worker", "inspector"] {
        let all = refused(&fixture, user).await;
        assert!(all.iter().all(|command| command == "client"), "the documented {user} may not {all:?}");
    }
    for right in rights(&line("worker")) {
        let (fixture, worker) = with_user(&documented("worker")).await;
        let without: Vec<String> = line("worker").into_iter().filter(|word| *word != format!("+{right}")).collect();
        let _: redis::Value = fixture.cmd(&without).await;
        let _: redis::Value = fixture.cmd(&documented("inspector")).await;
        assert!(!play(&fixture, worker, &inspector(&fixture)).await, "{right} is not needed");
    }
}

/// Whether what a program enqueues is told.
async fn enqueue(fixture: &Fixture, producer: Redis) -> bool {
    let mut events = Events::of(&fixture.redis()).kinds([Kind::Enqueued]).stream().await.unwrap();
    let client = Client::new(producer);
    client.enqueue(job("a")).await.unwrap();
    client.events_told(Duration::from_secs(60)).await;
    let is_told = fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:x:events"]).await == 1;
    assert!(!is_told || events.next().await.unwrap().unwrap().event.id.as_deref() == Some("a"));
    is_told && fixture.cmd::<i64>(&["TTL", "asynq:{q}:x:events"]).await > 0
}

#[tokio::test]
async fn a_scheduler_tells_of_its_ticks_with_the_documented_rights_and_each_of_them_is_needed() {
    let without_right = rights(&line("scheduler")).into_iter().map(str::to_owned).map(Some).collect::<Vec<_>>();
    for missing in std::iter::once(None).chain(without_right) {
        let (fixture, redis) = with_user(&documented("scheduler")).await;
        let missing = missing.map(|right| format!("+{right}"));
        let granted: Vec<String> =
            line("scheduler").into_iter().filter(|word| Some(word) != missing.as_ref()).collect();
        let _: redis::Value = fixture.cmd(&granted).await;
        let _events = Events::of(&fixture.redis()).kinds([Kind::Enqueued]).stream().await.unwrap();
        let (broker, task) = (Broker::new(redis), fixture.compose(job("a")));
        broker.tell_enqueued(std::iter::once((&task.message, None)), 1);
        broker.events_told(Duration::from_secs(60)).await;
        let is_told = fixture.cmd::<u64>(&["EXISTS", "asynq:{q}:x:events"]).await == 1;
        assert_eq!(is_told, missing.is_none(), "{missing:?} is not needed");
    }
}

#[tokio::test]
async fn a_producer_tells_with_the_documented_rights_and_each_of_them_is_needed() {
    let (fixture, producer) = with_user(&documented("producer")).await;
    let _: redis::Value = fixture.cmd(&line("producer")).await;
    assert!(enqueue(&fixture, producer).await);
    for right in rights(&line("producer")) {
        let (fixture, producer) = with_user(&documented("producer")).await;
        let without: Vec<String> = line("producer").into_iter().filter(|word| *word != format!("+{right}")).collect();
        let _: redis::Value = fixture.cmd(&without).await;
        enqueue(&fixture, producer).await;
        assert!(refused(&fixture, "producer").await.contains(right), "{right} is not needed");
    }
}
