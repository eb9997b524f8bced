use std::time::Duration;

use futures_util::FutureExt as _;
use queue_core::clock::UnixMilli;
use queue_redis::broker::Broker;
use queue_redis::events::{Cursor, Event, Events, Kind};

use super::{listen, next};
use crate::support::{Fixture, QUEUE};

/// A process that tells, without a server.
async fn teller(fixture: &Fixture) -> Broker {
    let broker = Broker::new(fixture.redis());
    broker.feed().serve("host:1:teller");
    hear(&broker).await;
    broker
}

async fn hear(broker: &Broker) {
    broker.feed().heard_by(broker.wanted().await.unwrap(), 1);
}

async fn tell(broker: &Broker, ids: &[&str]) {
    for id in ids {
        broker.feed().tell(|| Event::of_task(Kind::Started, UnixMilli(1_700_000_000_000), QUEUE, id, "job"));
    }
    broker.tell_events(1_700_000_000_000).await.unwrap();
}

/// The cursor as another process gets it.
fn carried(cursor: &Cursor) -> Cursor {
    cursor.to_string().parse().unwrap()
}

#[tokio::test]
async fn who_comes_back_at_once_goes_on_in_the_middle_of_an_entry_and_misses_nothing() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    tell(&broker, &["a", "b", "c"]).await;
    tell(&broker, &["d"]).await;
    let mut cursor = None;
    for wanted in ["a", "b"] {
        let heard = next(&mut events).await;
        assert_eq!(heard.event.id.as_deref(), Some(wanted));
        cursor = Some(carried(&heard.cursor));
    }
    drop(events);
    tell(&broker, &["e"]).await;
    let mut events = Events::of(&fixture.redis()).since(cursor.unwrap()).stream().await.unwrap();
    for wanted in ["c", "d", "e"] {
        let heard = next(&mut events).await;
        assert_eq!(heard.event.id.as_deref(), Some(wanted), "{:?}", heard.event);
    }
    // And once more, behind all.
    let cursor = {
        tell(&broker, &["f"]).await;
        carried(&next(&mut events).await.cursor)
    };
    tell(&broker, &["g"]).await;
    let mut events = Events::of(&fixture.redis()).since(cursor).stream().await.unwrap();
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("g"));
}

#[tokio::test]
async fn who_comes_back_late_is_told_that_something_is_missing() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    tell(&broker, &["a"]).await;
    let cursor = next(&mut events).await.cursor;
    drop(events);
    // As after a minute.
    fixture.run("DEL asynq:x:watchers").await;
    let mut events = Events::of(&fixture.redis()).since(carried(&cursor)).stream().await.unwrap();
    assert_eq!(next(&mut events).await.event.kind, Kind::Gap);
    tell(&broker, &["b"]).await;
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("b"));
    // The first one has told nobody what it has missed.
    let mut events = Events::of(&fixture.redis()).since(carried(&cursor)).stream().await.unwrap();
    assert_eq!(next(&mut events).await.event.kind, Kind::Gap);
}

#[tokio::test]
async fn entries_that_were_trimmed_are_announced_to_those_who_resume_and_to_those_who_stayed() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    tell(&broker, &["a"]).await;
    let heard = next(&mut events).await;
    tell(&broker, &["b"]).await;
    tell(&broker, &["c"]).await;
    fixture.run("XTRIM asynq:{q}:x:events MAXLEN 1").await;
    let gap = next(&mut events).await.event;
    assert_eq!(gap.kind, Kind::Gap, "{gap:?}");
    assert!(gap.note.unwrap().contains("host:1:teller"));
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("c"));
    let mut events = Events::of(&fixture.redis()).since(carried(&heard.cursor)).stream().await.unwrap();
    assert_eq!(next(&mut events).await.event.kind, Kind::Gap);
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("c"));
}

#[tokio::test]
async fn a_listener_that_does_not_read_is_forgotten_and_others_are_not() {
    let fixture = Fixture::start().await;
    fixture.run(r#"HSET asynq:x:watchers gone {"until":1} broken nonsense"#).await;
    let events = listen(&fixture).await;
    let listeners: Vec<String> = fixture.cmd(&["HKEYS", "asynq:x:watchers"]).await;
    assert_eq!(listeners.len(), 1, "those that are over are gone: {listeners:?}");
    let ttl: i64 = fixture.cmd(&["TTL", "asynq:x:watchers"]).await;
    assert!((1..=60).contains(&ttl), "{ttl}");
    // Nobody polls it: nothing is asked.
    let asked = super::calls(&fixture, "xrange").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(super::calls(&fixture, "xrange").await, asked);
    drop(events);
}

#[tokio::test]
async fn a_listener_goes_on_after_redis_was_away() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    tell(&broker, &["a"]).await;
    next(&mut events).await;
    let _: u64 = fixture.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    tell(&broker, &["b"]).await;
    use futures_util::StreamExt as _;
    let mut told = None;
    while told.is_none() {
        if let Ok(heard) = events.next().await.unwrap() {
            told = heard.event.id;
        }
    }
    assert_eq!(told.as_deref(), Some("b"));
    assert!(events.next().now_or_never().is_none());
}

/// Whoever had told what is gone never told anything again, so that no number jumped.
#[tokio::test]
async fn what_was_trimmed_is_announced_to_those_who_stayed_although_its_tellers_are_gone() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    tell(&broker, &["a"]).await;
    assert_eq!(next(&mut events).await.event.id.as_deref(), Some("a"));
    // It is away for so long that others fill the stream.
    tell(&broker, &["lost"]).await;
    let entry = "s host:1:other e";
    for number in 1..=60 {
        fixture.run(&format!("XADD asynq:{{q}}:x:events MAXLEN 50 * n {number} {entry} -")).await;
    }
    assert_eq!(next(&mut events).await.event.kind, Kind::Gap);
}

#[tokio::test]
async fn a_flood_that_is_all_there_is_no_gap() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let broker = teller(&fixture).await;
    for round in 0..3 {
        let ids: Vec<String> = (0..70).map(|n| format!("{round}-{n}")).collect();
        for id in &ids {
            tell(&broker, &[id]).await;
        }
        for id in &ids {
            assert_eq!(next(&mut events).await.event.id.as_deref(), Some(&**id));
        }
    }
}

/// They named each queue that ever was: with many short-lived ones, each line of `queuectl events --json` had 61 KB.
#[tokio::test]
async fn cursors_forget_queues_of_which_nothing_is_kept_and_nothing_is_told_twice() {
    let fixture = Fixture::start().await;
    let broker = teller(&fixture).await;
    let now = UnixMilli::of_ns(queue_core::Clock::now_ns(&queue_core::SystemClock)).0;
    let (old, young) = (now - 2 * 3_600_000, now - 60_000);
    for queue in [QUEUE, "old", "young"] {
        fixture.broker.publish_queue(queue).await.unwrap();
    }
    // Streams of queues that somebody keeps for ever are not told again either.
    let told = Event::of_task(Kind::Started, UnixMilli(old), "old", "told", "job").to_json();
    let (key, id) = (queue_core::keys::QueueKeys::new("old").events(), format!("{old}-1"));
    fixture.cmd::<String>(&["XADD", &key, &id, "s", "host:1:x", "n", "1", "e", &told]).await;
    let cursor = format!("w~{old}~a={old}-0~qold={old}-1~qyoung={young}-0");
    let mut events = Events::of(&fixture.redis()).since(cursor.parse().unwrap()).stream().await.unwrap();
    hear(&broker).await;
    assert_eq!(next(&mut events).await.event.kind, Kind::Gap);
    let end = tokio::time::Instant::now() + crate::support::PATIENCE;
    loop {
        assert!(tokio::time::Instant::now() < end, "the old queue is still named");
        tell(&broker, &["a"]).await;
        let heard = next(&mut events).await;
        if heard.event.kind == Kind::Gap {
            continue;
        }
        assert_eq!(heard.event.id.as_deref(), Some("a"), "{heard:?}");
        let told = heard.cursor.to_string();
        assert!(told.contains("~qyoung=") && told.contains("~a="), "{told}");
        if !told.contains("~qold=") {
            break;
        }
        tokio::time::sleep(super::GATHERED).await;
    }
}
