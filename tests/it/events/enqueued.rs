//! What programs enqueue is told, too.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use queue_admin::Inspector;
use queue_core::{PublishOutcome, RawTask, TaskOptions};
use queue_redis::Client;
use queue_redis::events::{Events, Kind};
use queue_scheduler::{Entry, Scheduler};

use super::{calls, kinds, listen, next_of_all};
use crate::support::{Fixture, QUEUE, job};

async fn carry(fixture: &Fixture, spec: &str) -> Scheduler {
    let scheduler = Scheduler::builder(fixture.redis()).build();
    scheduler.register(Entry::new(spec, RawTask::new("job").queue(QUEUE)).name("e")).unwrap();
    scheduler.start().await.unwrap();
    scheduler
}

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

/// A program that has just begun does not know yet that anybody listens: what it enqueues until then is kept.
#[tokio::test]
async fn what_is_stored_while_a_program_asks_who_listens_is_told_too() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    for program in 0..10 {
        let client = Client::new(fixture.redis());
        for n in 0..5 {
            client.enqueue(job(&format!("{program}-{n}"))).await.unwrap();
        }
        for n in 0..5 {
            let told = next_of_all(&mut events).await.event;
            assert_eq!((told.kind, told.id), (Kind::Enqueued, Some(format!("{program}-{n}"))));
        }
    }
}

#[tokio::test]
async fn members_of_a_batch_are_told_and_only_to_those_who_want_that() {
    let fixture = Fixture::start().await;
    let mut failures = Events::of(&fixture.redis()).kinds([Kind::Failed]).stream().await.unwrap();
    let client = Client::new(fixture.redis());
    let members = || (0..2).map(|_| RawTask::new("job").queue(QUEUE));
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

/// Of each publish that puts a task the task is told, and of one that changes or finds one nothing.
#[tokio::test]
async fn of_what_is_published_that_is_told_which_begins_to_wait() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let client = Client::new(fixture.redis());
    let publish = || client.publish(RawTask::new("job").queue(QUEUE)).key("k").coalesce();
    assert_eq!(publish().await.unwrap().outcome, PublishOutcome::Stored);
    // From here on the program knows that somebody listens.
    let first = next_of_all(&mut events).await.event;
    assert_eq!(publish().await.unwrap().outcome, PublishOutcome::Replaced);
    let taken = fixture.take().await;
    let follows = publish().await.unwrap();
    assert_eq!(follows.outcome, PublishOutcome::Follows);
    client.enqueue(job("last")).await.unwrap();
    let second = next_of_all(&mut events).await.event;
    assert_eq!([first.kind, second.kind], [Kind::Enqueued; 2]);
    assert_eq!((first.id.as_deref(), first.due_at), (Some("k"), None));
    assert_eq!((second.id.as_deref(), second.due_at.is_some()), (Some("k~"), true));
    assert_eq!(next_of_all(&mut events).await.event.id.as_deref(), Some("last"));
    assert_eq!(taken.message.id, "k");
}

#[tokio::test]
async fn a_run_of_an_entry_is_told_before_whoever_asked_for_it_may_end() {
    let fixture = Fixture::start().await;
    let _scheduler = carry(&fixture, "@every 1h").await;
    let mut events = listen(&fixture).await;
    let id = Inspector::new(fixture.redis()).run_cron("e", false).await.unwrap();
    assert_eq!(calls(&fixture, "xadd").await, 1);
    let told = next_of_all(&mut events).await.event;
    assert_eq!((told.kind, told.id, told.due_at), (Kind::Enqueued, Some(id), None));
}

#[tokio::test]
async fn ticks_and_callbacks_are_told() {
    let fixture = Fixture::start().await;
    let mut events = listen(&fixture).await;
    let _scheduler = carry(&fixture, "@every 1s").await;
    let tick = next_of_all(&mut events).await.event;
    assert_eq!((tick.kind, tick.queue.as_deref()), (Kind::Enqueued, Some(QUEUE)));
    assert!(tick.id.unwrap().starts_with("e:"));
    drop(events);

    let mut events = Events::of(&fixture.redis()).queue("callbacks").stream().await.unwrap();
    let callback = RawTask::new("callback").queue("callbacks");
    let batch = Client::new(fixture.redis()).batch().on_success(callback).open().await.unwrap();
    batch.commit().await.unwrap();
    let told = next_of_all(&mut events).await.event;
    assert_eq!((told.kind, told.id), (Kind::Enqueued, Some(format!("flow:{}:0:success", batch.id().root()))));
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
