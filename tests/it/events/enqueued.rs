//! What programs enqueue is told, too.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use queue_core::TaskOptions;
use queue_redis::Client;
use queue_redis::events::{Events, Kind};

use super::{calls, kinds, listen, next_of_all};
use crate::support::{Fixture, QUEUE, job};

#[tokio::test]
async fn what_is_stored_is_told_and_what_is_refused_is_not() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let client = Client::new(fixture.redis());
    // The first call does not know yet that anybody listens.
    client.enqueue(job("a")).await.unwrap();
    let told = next_of_all(&mut events).await.event;
    let names = (told.queue.as_deref(), told.id.as_deref(), told.task_type.as_deref());
    assert_eq!((told.kind, names), (Kind::Enqueued, (Some(QUEUE), Some("a"), Some("job"))));
    assert_eq!((told.due_at, told.server), (None, None));
    assert!(told.at.0 > 0);

    client.enqueue(job("a")).await.unwrap_err();
    let due = client.enqueue(job("b").process_in(Duration::from_secs(60))).await.unwrap().next_process_at;
    let grouped = TaskOptions::new().group("g");
    client.enqueue_with(job("c"), grouped).await.unwrap();
    client.enqueue_stream(stream::iter(["d", "e"].map(job))).for_each(async |stored| drop(stored.unwrap())).await;
    let mut all = Vec::new();
    while all.len() < 4 {
        all.push(next_of_all(&mut events).await.event);
    }
    assert_eq!(kinds(&all), [Kind::Enqueued; 4]);
    let ids: Vec<&str> = all.iter().filter_map(|event| event.id.as_deref()).collect();
    assert_eq!(ids, ["b", "c", "d", "e"]);
    assert_eq!(all[0].due_at.map(|at| at.0), due.map(|due| due.timestamp()));
}

#[tokio::test]
async fn members_of_a_batch_are_told_and_only_to_those_who_want_that() {
    let fixture = Fixture::start().await;
    let mut failures = Events::of(&fixture.redis()).kinds([Kind::Failed]).stream().await.unwrap();
    let client = Client::new(fixture.redis());
    let members = || (0..2).map(|_| queue_core::RawTask::new("job").queue(QUEUE));
    client.batch().id("unheard").add_all(members()).await.unwrap();
    client.events_told(Duration::from_secs(60)).await;
    assert_eq!(calls(&fixture, "xadd").await, 0);
    assert!(failures.next().now_or_never().is_none());
    drop(failures);

    let mut events = listen(&fixture).await;
    // It has asked who listens a moment ago; another client has not.
    let client = Client::new(fixture.redis());
    client.batch().id("heard").add_all(members()).await.unwrap();
    for n in 0..2 {
        let told = next_of_all(&mut events).await.event;
        assert_eq!((told.kind, told.queue.as_deref()), (Kind::Enqueued, Some(QUEUE)));
        assert!(told.id.unwrap().ends_with(&format!(":0:{n}")));
    }
}

#[tokio::test]
async fn while_nobody_listens_a_program_looks_once_and_writes_nothing() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    for n in 0..50 {
        client.enqueue(job(&n.to_string())).await.unwrap();
    }
    client.events_told(Duration::from_secs(60)).await;
    let asked = [calls(&fixture, "exists").await, calls(&fixture, "hgetall").await, calls(&fixture, "xadd").await];
    // The script that stores a task asks for it fifty times.
    assert_eq!(asked, [51, 0, 0]);
}

#[tokio::test]
async fn a_program_that_may_not_tell_enqueues_all_the_same_and_tries_once() {
    let fixture = Fixture::start().await;
    let _events = listen(&fixture).await;
    fixture.run("ACL SETUSER default -xadd").await;
    let client = Client::new(fixture.redis());
    for n in 0..5 {
        client.enqueue(job(&n.to_string())).await.unwrap();
        client.events_told(Duration::from_secs(60)).await;
    }
    let refused: Vec<redis::Value> = fixture.cmd(&["ACL", "LOG"]).await;
    assert_eq!(refused.len(), 1);
}
