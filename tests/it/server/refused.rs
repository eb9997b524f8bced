//! Queues whose outcomes Redis refuses to write, because a key of theirs has another type.

use std::time::Duration;

use queue_core::{RawTask, TaskState};
use queue_worker::{Failure, Handle, Job, Router};

use crate::support::{Events, Fixture, eventually, job, with};

/// A server for the queue of the tests, which is favoured, and another; tasks of the type `fail` fail.
async fn serve(fixture: &Fixture, events: &Events, concurrency: usize) -> Handle {
    let fail = with(events, async |events: Events, job: Job| {
        events.tell(format!("fails {}", job.id()));
        Err::<(), Failure>("boom".into())
    });
    let work = with(events, async |events: Events, job: Job| events.tell(job.id()));
    let router = Router::new(()).route("fail", fail).route("job", work);
    let server = fixture.server(router).queues([("q", 100), ("other", 1)]).concurrency(concurrency);
    server.lease(Duration::from_secs(5)).start().await.unwrap()
}

fn failing(id: &str) -> RawTask {
    RawTask { task_type: "fail".into(), ..job(id) }
}

fn failures(events: &Events) -> usize {
    events.all().iter().filter(|event| event.starts_with("fails ")).count()
}

#[tokio::test]
async fn failing_tasks_of_a_queue_with_a_stray_retry_key_leave_the_slots_to_other_queues() {
    let fixture = Fixture::start().await;
    fixture.warm().await;
    fixture.run("SET asynq:{q}:retry stray").await;
    fixture.enqueue((0..50).map(|n| failing(&n.to_string()))).await;
    let events = Events::default();
    let server = serve(&fixture, &events, 2).await;
    eventually("both slots have met a failure", async || failures(&events) >= 2).await;
    fixture.enqueue((100..150).map(|n| job(&n.to_string()).queue("other"))).await;
    eventually("the other queue is worked off", async || events.count() - failures(&events) == 50).await;
    // For each slot that in hand when it was first refused, that of a take that was under way, and one that was
    // taken while Redis was asked which key it is.
    let held = failures(&events);
    assert!(held <= 6, "{held} tasks were taken from a queue whose outcomes cannot be written");
    assert_eq!(fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await, held, "they stay leased meanwhile");

    fixture.run("DEL asynq:{q}:retry").await;
    eventually("all tasks wait for their retry", async || {
        fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:retry"]).await == 50
    })
    .await;
    assert_eq!(failures(&events), 50, "none ran twice");
    assert_eq!((fixture.count("processed").await, fixture.count("failed").await), (50, 50));
    server.shutdown().await;
    let left = fixture.keyspace().await;
    assert!(left.get("{q}:active").is_none() && left.paths_with("lease").is_empty(), "{left}");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever_for_outcomes_that_are_refused() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:retry stray").await;
    fixture.enqueue([failing("a")]).await;
    let events = Events::default();
    let server = serve(&fixture, &events, 1).await;
    events.wait(1).await;
    let ended = tokio::time::timeout(Duration::from_secs(60), server.shutdown()).await;
    assert!(ended.is_ok(), "the server waits for the length of a lease, which is 5 s here");
    // It is still leased, so that the next server finds it.
    let info = fixture.in_state("a", TaskState::Active).await;
    assert_eq!((info.retried, info.last_error), (0, None));
    assert!(fixture.cmd::<Option<i64>>(&["ZSCORE", "asynq:{q}:lease", "a"]).await.is_some());
}

/// They were repeated together, for as long as one of them was refused.
#[tokio::test]
async fn reports_that_travel_with_one_that_is_refused_are_written_without_it() {
    let fixture = Fixture::start().await;
    let (events, door) = (Events::default(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, _), job: Job| {
        events.tell(job.id());
        let door: std::sync::Arc<tokio::sync::Semaphore> = door;
        door.acquire().await.unwrap().forget();
    });
    let hour = Duration::from_secs(3600);
    let tasks = ["fine-1", "bad-1", "fine-2"].map(job);
    let kept = ["fine-3", "bad-2", "fine-4"].map(|id| job(id).retention(hour));
    fixture.enqueue(tasks.into_iter().chain(kept)).await;
    let server = fixture.server(Router::new(()).route("job", work)).queues([("q", 1)]).concurrency(6);
    let server = server.start().await.unwrap();
    events.wait(6).await;
    let keys = "~asynq:{q}:[a-su-z]* ~asynq:{q}:t:fine* ~asynq:s* ~asynq:w* ~asynq:q*";
    fixture.run(&format!("ACL SETUSER default resetkeys {keys}")).await;
    door.add_permits(6);
    eventually("the others are reported", async || {
        fixture.count("processed").await == 4 && fixture.cmd::<usize>(&["LLEN", "asynq:{q}:active"]).await == 2
    })
    .await;
    fixture.run("ACL SETUSER default allkeys").await;
    eventually("all are reported", async || fixture.count("processed").await == 6).await;
    server.shutdown().await;
    assert_eq!(fixture.cmd::<usize>(&["ZCARD", "asynq:{q}:completed"]).await, 3);
}

/// What was taken is renewed for as long as its outcome waits.
#[tokio::test]
async fn a_task_whose_outcome_is_refused_for_longer_than_its_lease_keeps_it() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:archived stray").await;
    fixture.enqueue([failing("a").max_retry(0)]).await;
    let events = Events::default();
    let server = serve(&fixture, &events, 1).await;
    events.wait(1).await;
    let lease = async || fixture.cmd::<i64>(&["ZSCORE", "asynq:{q}:lease", "a"]).await;
    let first = lease().await;
    eventually("the lease was prolonged by more than its length", async || lease().await > first + 5).await;
    fixture.run("DEL asynq:{q}:archived").await;
    fixture.in_state("a", TaskState::Archived).await;
    server.shutdown().await;
    assert_eq!(events.all(), ["fails a"]);
}
