//! What happens, told to those who listen, and to nobody else.

mod enqueued;
mod resume;
mod told;

use std::time::Duration;

use futures_util::StreamExt as _;
use queue_redis::events::{Event, EventStream, Events, Heard, Kind};

use crate::support::{Fixture, PATIENCE, QUEUE};

/// The next event.
async fn next_of_all(events: &mut EventStream) -> Heard {
    let next = tokio::time::timeout(PATIENCE, events.next()).await;
    next.expect("an event comes").expect("the stream does not end").expect("Redis answers")
}

/// The next event that is not the enqueuing of the task that a test needs: that is told before or behind what becomes of it.
async fn next(events: &mut EventStream) -> Heard {
    loop {
        let next = next_of_all(events).await;
        if next.event.kind != Kind::Enqueued {
            return next;
        }
    }
}

/// All up to the first of this kind.
async fn up_to(events: &mut EventStream, kind: Kind) -> Vec<Event> {
    let mut told = Vec::new();
    let end = tokio::time::Instant::now() + PATIENCE;
    while told.last().is_none_or(|last: &Event| last.kind != kind) {
        assert!(tokio::time::Instant::now() < end, "no {kind:?} among {told:?}");
        told.push(next(events).await.event);
    }
    told
}

fn kinds(events: &[Event]) -> Vec<Kind> {
    events.iter().map(|event| event.kind).collect()
}

/// How often Redis was asked this.
async fn calls(fixture: &Fixture, command: &str) -> u64 {
    let info: String = fixture.cmd(&["INFO", "commandstats"]).await;
    let count = |line: &str| -> Option<u64> {
        line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next()?.parse().ok()
    };
    info.lines().find_map(count).unwrap_or(0)
}

/// Long enough for a process to have written what it has gathered; nothing is concluded from how long it took.
const GATHERED: Duration = Duration::from_millis(400);

async fn listen(fixture: &Fixture) -> EventStream {
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    Events::of(&fixture.redis()).stream().await.unwrap()
}
