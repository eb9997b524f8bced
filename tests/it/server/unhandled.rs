//! Tasks of types that nobody serves.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_worker::{Job, Router, Unhandled};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, eventually, job, with};

fn unknown(id: &str) -> RawTask {
    RawTask { task_type: "unknown".into(), ..job(id) }
}

fn router(events: &Events) -> Router {
    Router::new(()).route("job", with(events, async |events: Events, job: Job| events.tell(job.id())))
}

#[tokio::test]
async fn unhandled_tasks_are_snoozed_for_30_seconds_by_default() {
    let fixture = Fixture::start().await;
    fixture.enqueue([unknown("a").max_retry(0)]).await;
    let server = fixture.server(Router::new(())).start().await.unwrap();
    let info = fixture.in_state("a", TaskState::Retry).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (0, Some(r#"handler not found for task "unknown""#)));
    let delay = info.next_process_at.unwrap() - info.last_failed_at.unwrap();
    assert_eq!(delay.num_seconds(), 30);
    server.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (0, 0));
}

#[tokio::test]
async fn unhandled_tasks_can_fail_as_in_asynq() {
    let fixture = Fixture::start().await;
    fixture.enqueue([unknown("a"), unknown("b").max_retry(0)]).await;
    let server = fixture.server(Router::new(())).unhandled(Unhandled::Fail).start().await.unwrap();
    let info = fixture.in_state("a", TaskState::Retry).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (1, Some(r#"handler not found for task "unknown""#)));
    fixture.in_state("b", TaskState::Archived).await;
    server.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (2, 2));
}

#[tokio::test]
async fn unhandled_tasks_can_be_archived() {
    let fixture = Fixture::start().await;
    fixture.enqueue([unknown("a")]).await;
    let server = fixture.server(Router::new(())).unhandled(Unhandled::Archive).start().await.unwrap();
    let info = fixture.in_state("a", TaskState::Archived).await;
    assert_eq!((info.retried, info.last_error.as_deref()), (0, Some(r#"handler not found for task "unknown""#)));
    server.shutdown().await;
}

#[tokio::test]
async fn unhandled_tasks_can_be_left_where_they_are() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue([unknown("u1"), job("a"), unknown("u2"), unknown("u3"), job("b")]).await;
    let untouched = fixture.keyspace().await;
    let server = fixture.server(router(&events)).unhandled(Unhandled::Leave).start().await.unwrap();
    assert_eq!(events.wait(2).await.len(), 2);
    // New ones are seen while the others wait.
    fixture.enqueue([unknown("u4"), job("c")]).await;
    events.wait(3).await;
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert_eq!(left.get("{q}:pending"), Some("[u4 u3 u2 u1]"));
    for id in ["u1", "u2", "u3"] {
        for field in ["msg", "state", "pending_since"] {
            let path = format!("{{q}}:t:{id} {field}");
            assert_eq!(left.get(&path), untouched.get(&path), "{path}");
        }
    }
}

#[tokio::test]
async fn handled_tasks_are_found_behind_many_of_others() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue((0..350).map(|n| unknown(&format!("u{n}"))).chain([job("a")])).await;
    fixture.enqueue((350..700).map(|n| unknown(&format!("u{n}"))).chain([job("b")])).await;
    let server = fixture.server(router(&events)).unhandled(Unhandled::Leave).concurrency(1).start().await.unwrap();
    assert_eq!(events.wait(2).await, ["a", "b"]);
    let pending = async || fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await;
    eventually("the others wait", async || pending().await == 700).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_fallback_serves_types_without_a_handler() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| events.tell(job.task_type()));
    fixture.enqueue([unknown("a"), job("b")]).await;
    let router = Router::new(()).route("job", async |_: Job| {}).fallback(tell);
    let server = fixture.server(router).unhandled(Unhandled::Leave).start().await.unwrap();
    assert_eq!(events.wait(1).await, ["unknown"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_snoozed_task_runs_when_a_server_with_a_handler_comes() {
    let fixture = Fixture::start().await;
    fixture.enqueue([unknown("a")]).await;
    let snooze = Unhandled::Snooze(Duration::ZERO);
    let without = fixture.server(Router::new(())).unhandled(snooze).start().await.unwrap();
    let with_it = fixture.server(Router::new(()).route("unknown", async |_: Job| {})).start().await.unwrap();
    fixture.gone("a").await;
    without.shutdown().await;
    with_it.shutdown().await;
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (1, 0));
}

const OURS: usize = 25;
/// A net below the net looks every 8 to 22 s: with what waits for it, this would not do.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn two_handled_tasks_a_moment_apart_are_both_noticed() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue((0..150).map(|n| unknown(&format!("u{n}")))).await;
    let server = fixture.server(router(&events)).unhandled(Unhandled::Leave).start().await.unwrap();
    let pairs = async {
        for pair in 0..OURS {
            fixture.enqueue([job(&format!("a{pair}"))]).await;
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..3_000))).await;
            fixture.enqueue([job(&format!("b{pair}"))]).await;
            events.wait(2 * (pair + 1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, pairs).await.expect("some waited for a poll");
    server.shutdown().await;
}

#[tokio::test]
async fn the_first_handled_task_after_a_start_is_noticed() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue((0..150).map(|n| unknown(&format!("u{n}")))).await;
    let starts = async {
        for start in 0..OURS {
            let server = fixture.server(router(&events)).unhandled(Unhandled::Leave).start().await.unwrap();
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..30))).await;
            fixture.enqueue([job(&format!("a{start}"))]).await;
            events.wait(start + 1).await;
            server.shutdown().await;
        }
    };
    tokio::time::timeout(PATIENCE, starts).await.expect("some waited for a poll");
}

#[tokio::test]
async fn snoozed_tasks_behind_others_are_noticed() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    fixture.enqueue((0..150).map(|n| unknown(&format!("u{n}")))).await;
    let server = fixture.server(router(&events)).unhandled(Unhandled::Leave).start().await.unwrap();
    let rounds = async {
        for round in 0..5 {
            fixture.run("SET asynq:{q}:paused 1").await;
            fixture
                .enqueue((0..120).map(|n| unknown(&format!("v{round}-{n}"))).chain([job(&format!("a{round}"))]))
                .await;
            // As a worker that ends puts back what it has: the oldest last.
            for _ in 0..121 {
                fixture.run("LMOVE asynq:{q}:pending asynq:{q}:pending LEFT RIGHT").await;
            }
            fixture.run("DEL asynq:{q}:paused").await;
            events.wait(round + 1).await;
        }
    };
    tokio::time::timeout(PATIENCE, rounds).await.expect("some waited for a poll");
    server.shutdown().await;
}

/// They come in while all slots are taken, so that nobody looks.
#[tokio::test]
async fn handled_tasks_in_a_burst_of_others_are_found_in_their_order() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let door = Arc::new(Notify::new());
    let hold = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        if job.id() == "first" {
            door.notified().await;
        }
        events.tell(job.id());
    });
    fixture.enqueue((0..800).map(|n| unknown(&format!("u{n}")))).await;
    fixture.enqueue([job("first")]).await;
    let router = Router::new(()).route("job", hold);
    let server = fixture.server(router).unhandled(Unhandled::Leave).concurrency(1).start().await.unwrap();
    eventually("the first has begun", async || fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await == 1).await;
    for burst in 0..3 {
        fixture.enqueue((0..250).map(|n| unknown(&format!("v{burst}-{n}"))).chain([job(&format!("a{burst}"))])).await;
    }
    door.notify_one();
    assert_eq!(events.wait(4).await, ["first", "a0", "a1", "a2"]);
    server.shutdown().await;
}
