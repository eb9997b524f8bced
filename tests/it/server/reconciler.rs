//! What servers put in order by themselves, and what they leave to people.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_worker::{Event, Handle, Router};

use crate::support::{Events, Fixture, QUEUE, eventually};

const HOUR: Duration = Duration::from_secs(3_600);

fn later(id: &str) -> RawTask {
    RawTask::new("t").queue(QUEUE).task_id(id).process_in(HOUR)
}

/// A server that puts in order every second, and tells what.
async fn start(fixture: &Fixture, events: &Events) -> Handle {
    let events = events.clone();
    let server = fixture.server(Router::new(()).fallback(async |_| ())).reconcile_interval(Duration::from_secs(1));
    let server = server.observe(move |event| {
        if let Event::Reconciled { queue, fault } = event {
            events.tell(format!("{fault} {}", queue.unwrap_or("-")));
        }
    });
    server.start().await.unwrap()
}

#[tokio::test]
async fn a_server_puts_right_what_loses_nothing_and_leaves_the_rest() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    fixture.enqueue(["lost", "archived", "twice", "expires", "misnamed"].map(later)).await;
    fixture.enqueue([RawTask::new("t").queue(QUEUE).task_id("grouped").group("g")]).await;
    for command in [
        "ZREM @scheduled lost",
        "HSET @t:lost state archived",
        "EXPIRE @t:expires 1000",
        "HSET @t:misnamed state retry",
        "ZADD @archived 4102444800 twice",
        "ZADD @retry 4102444800 ghost",
        "SET @unique:t:x gone EX 1000",
        "SREM @groups g",
        "SADD @groups none",
        "SREM asynq:queues q",
    ] {
        fixture.run(&command.replace('@', "asynq:{q}:")).await;
    }
    let handle = start(&fixture, &events).await;
    let mut told = events.wait(5).await;
    told.sort();
    assert_eq!(told, ["empty-group q", "expires q", "no-place q", "unlisted-group q", "unlisted-queue q"]);
    fixture.in_state("lost", TaskState::Archived).await;
    assert_eq!(fixture.cmd::<String>(&["HGET", "asynq:{q}:t:misnamed", "state"]).await, "retry");
    assert_eq!(fixture.cmd::<Option<f64>>(&["ZSCORE", "asynq:{q}:archived", "twice"]).await, Some(4_102_444_800.0));
    assert_eq!(fixture.cmd::<Option<f64>>(&["ZSCORE", "asynq:{q}:retry", "ghost"]).await, Some(4_102_444_800.0));
    assert_eq!(fixture.cmd::<String>(&["GET", "asynq:{q}:unique:t:x"]).await, "gone");
    assert!(fixture.cmd::<bool>(&["SISMEMBER", "asynq:queues", "q"]).await);
    assert!(fixture.cmd::<bool>(&["SISMEMBER", "asynq:{q}:groups", "g"]).await);
    handle.shutdown().await;
}

#[tokio::test]
async fn of_the_servers_of_a_queue_one_looks_after_it_and_another_takes_over() {
    let fixture = Fixture::start().await;
    let (first, second) = (Events::default(), Events::default());
    let (one, other) = (start(&fixture, &first).await, start(&fixture, &second).await);
    for (before, id) in ["a", "b", "c"].into_iter().enumerate() {
        fixture.enqueue([later(id)]).await;
        fixture.run(&format!("EXPIRE asynq:{{q}}:t:{id} 1000")).await;
        eventually("it is put right", async || first.count() + second.count() == before + 1).await;
    }
    // It lasts from one run to the next, which are up to 1.2 s apart.
    eventually("the claim outlives a run", async || {
        fixture.cmd::<i64>(&["PTTL", "asynq:{q}:x:reconciler"]).await > 1_200
    })
    .await;
    let holder: String = fixture.cmd(&["GET", "asynq:{q}:x:reconciler"]).await;
    let (holding, waiting, events) = if holder == one.server_id() { (one, other, second) } else { (other, one, first) };
    assert_eq!(holder, holding.server_id());
    assert_eq!(events.count(), 0, "the one without the claim has done something");
    holding.shutdown().await;
    fixture.enqueue([later("d")]).await;
    fixture.run("EXPIRE asynq:{q}:t:d 1000").await;
    events.wait(1).await;
    waiting.shutdown().await;
}

#[tokio::test]
async fn an_interval_of_zero_switches_it_off_and_a_short_one_is_refused() {
    let fixture = Fixture::start().await;
    let server = || fixture.server(Router::new(()).fallback(async |_| ()));
    let error = server().reconcile_interval(Duration::from_millis(999)).start().await.unwrap_err().to_string();
    assert!(error.contains("reconcile_interval is 999ms; it must be between 1s and 24h, or zero for never"), "{error}");
    let off = server().reconcile_interval(Duration::ZERO).start().await.unwrap();
    let on = server().queues([("other", 1)]).reconcile_interval(Duration::from_secs(1)).start().await.unwrap();
    eventually("the other queue is looked after", async || {
        fixture.cmd::<bool>(&["EXISTS", "asynq:{other}:x:reconciler"]).await
    })
    .await;
    assert!(!fixture.cmd::<bool>(&["EXISTS", "asynq:{q}:x:reconciler"]).await);
    off.shutdown().await;
    on.shutdown().await;
}
