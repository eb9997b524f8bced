//! Publishing under a key: what the client lets through, and many at once.

use std::sync::Arc;
use std::time::Duration;

use queue_core::clock::ManualClock;
use queue_core::publish::PublishOutcome::{Follows, Kept, Replaced, Restarted, Stored, Suppressed};
use queue_core::{OptionError, TaskOptions, TaskState};
use queue_redis::{Client, EnqueueError, Outgoing, Publish};
use queue_worker::{Job, Router, Server};
use tokio::task::JoinSet;

use crate::support::{Events, Fixture, NOW, QUEUE, eventually, job, with};

const SECOND: Duration = Duration::from_secs(1);

fn untitled(payload: &str) -> queue_core::RawTask {
    queue_core::RawTask::new("job").queue(QUEUE).payload(payload.to_owned())
}

async fn refused(publish: Publish) -> OptionError {
    match publish.await {
        Err(EnqueueError::Option(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn publish_refuses_what_does_not_go_with_a_key_and_sends_nothing() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    assert_eq!(refused(client.publish(untitled("p"))).await, OptionError::NoKey);
    assert_eq!(refused(client.publish(untitled("p")).key(" ")).await, OptionError::BlankTaskId);
    assert_eq!(refused(client.publish(untitled("p")).key("flow:1")).await, OptionError::ReservedTaskId);
    assert_eq!(refused(client.publish(untitled("p")).key("k~")).await, OptionError::ReservedKey);
    for (task, name) in [(untitled("p").unique(SECOND), "unique"), (untitled("p").group("g"), "a group")] {
        let error = refused(client.publish(task).key("k")).await;
        assert!(matches!(error, OptionError::NotWithKey { option, .. } if option == name), "{error}");
    }
    let error = refused(client.publish(untitled("p")).key("k").throttle(Duration::MAX)).await;
    assert_eq!(error, OptionError::TimeTooFar { option: "throttle" });
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "*"]).await, [""; 0]);
    // An id is a key.
    assert_eq!(client.publish(job("a")).await.unwrap().id, "a");
}

#[tokio::test]
async fn a_debounced_task_tells_when_it_is_due_and_carries_what_came_last() {
    let fixture = Fixture::start().await;
    let clock = Arc::new(ManualClock::at_secs(NOW));
    let client = Client::with_clock(fixture.redis(), clock.clone());
    let client = client.intercept(|task: &mut Outgoing<'_>| task.set_header("tenant", "acme"));
    let publish = |payload: &str| {
        // A time of its own counts for nothing.
        let task = untitled(payload).process_in(900 * SECOND);
        client.publish(task).key("k").debounce(5 * SECOND).max_wait(8 * SECOND)
    };
    for (payload, outcome, due) in [("1", Stored, 5), ("2", Replaced, 8), ("3", Replaced, 8)] {
        let published = publish(payload).await.unwrap();
        let holder = published.holder.unwrap();
        assert_eq!((published.outcome, &holder.payload[..]), (outcome, payload.as_bytes()));
        assert_eq!(holder.next_process_at.map(|at| at.timestamp()), Some(NOW + due));
        assert_eq!(holder.headers["tenant"], "acme");
        clock.advance(4 * SECOND);
    }
    let slower = client.publish(untitled("4")).key("k").replace().with(TaskOptions::new().timeout(7 * SECOND));
    assert_eq!(slower.await.unwrap().holder.unwrap().timeout, Some(7 * SECOND));
}

#[tokio::test]
async fn a_throttled_task_that_is_done_is_suppressed_until_its_window_ends() {
    let fixture = Fixture::start().await;
    let client = Client::new(fixture.redis());
    let publish = |window| client.publish(untitled("p").retention(60 * SECOND)).key("k").throttle(window);
    let first = publish(60 * SECOND).await.unwrap();
    assert_eq!((first.outcome, first.window), (Stored, Some(60 * SECOND)));
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", async |_: Job| {}));
    let server = server.queues([(QUEUE, 1)]).start().await.unwrap();
    eventually("it is done", async || fixture.count("processed").await == 1).await;
    let second = publish(60 * SECOND).await.unwrap();
    assert_eq!((second.outcome, second.holder.unwrap().state), (Suppressed, TaskState::Completed));
    assert!(second.window.is_some_and(|left| left <= 60 * SECOND), "{:?}", second.window);
    let windows: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}:x:window:*"]).await;
    let _: i64 = fixture.cmd(&["DEL", &windows[0]]).await;
    assert_eq!(publish(60 * SECOND).await.unwrap().outcome, Restarted);
    eventually("it is done again", async || fixture.count("processed").await == 2).await;
    server.shutdown().await;
}

/// Whoever is told that his payload is in the task finds it worked, unless somebody else has replaced it since; and no two run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_replace_one_task_while_it_is_worked_lose_nothing_in_silence() {
    const PUBLISHERS: usize = 8;
    const EACH: usize = 60;
    let fixture = Fixture::start().await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| {
        events.tell(format!("+{}", String::from_utf8_lossy(job.payload())));
        tokio::time::sleep(Duration::from_millis(1)).await;
        events.tell("-");
    });
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", tell));
    let server = server.queues([(QUEUE, 1)]).concurrency(4).start().await.unwrap();
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let client = Client::new(fixture.another_redis());
        publishers.spawn(async move {
            let mut outcomes = Vec::new();
            for n in 0..EACH {
                let payload = format!("{publisher}.{n}");
                let published = client.publish(untitled(&payload)).key("k").replace().await.unwrap();
                outcomes.push((payload, published.outcome));
            }
            outcomes
        });
    }
    let outcomes = publishers.join_all().await.concat();
    let stored = outcomes.iter().filter(|(_, outcome)| *outcome == Stored).count();
    eventually("all that were stored are worked", async || fixture.count("processed").await as usize == stored).await;
    server.shutdown().await;
    let told = events.all();
    assert!(told.chunks(2).all(|pair| pair[0].starts_with('+') && pair[1] == "-"), "two at once: {told:?}");
    assert_eq!(told.len(), 2 * stored);
    for run in told.iter().filter_map(|text| text.strip_prefix('+')) {
        let outcome = outcomes.iter().find(|(payload, _)| payload == run).map(|(_, outcome)| *outcome);
        assert!(matches!(outcome, Some(Stored | Replaced)), "{run} ran, and was told {outcome:?}");
    }
    assert!(stored > 1 && outcomes.iter().any(|(_, outcome)| *outcome == Kept), "too little happened: {stored} runs");
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:t:*"]).await, [""; 0]);
}

/// Nobody is told that his payload is left out, and what came last is worked last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_coalesce_the_last_is_worked_last_and_no_two_at_once() {
    const PUBLISHERS: usize = 8;
    let fixture = Fixture::start().await;
    let events = Events::default();
    let tell = with(&events, async |events: Events, job: Job| {
        events.tell(format!("+{}", String::from_utf8_lossy(job.payload())));
        tokio::time::sleep(Duration::from_millis(2)).await;
        events.tell("-");
        // It ends in every way that is an end.
        match job.payload().len() % 3 {
            0 => Err(queue_worker::Failure::archive("no")),
            _ => Ok(()),
        }
    });
    let server = Server::new(fixture.another_redis(), Router::new(()).route("job", tell));
    let server = server.queues([(QUEUE, 1)]).concurrency(4).start().await.unwrap();
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let client = Client::new(fixture.another_redis());
        publishers.spawn(async move {
            let mut outcomes = Vec::new();
            for n in 0..60 {
                let payload = format!("{publisher}.{n}");
                outcomes.push(client.publish(untitled(&payload)).key("k").coalesce().await.unwrap().outcome);
            }
            outcomes
        });
    }
    let mut outcomes = publishers.join_all().await.concat();
    let last = Client::new(fixture.another_redis()).publish(untitled("the last")).key("k").coalesce().await.unwrap();
    outcomes.push(last.outcome);
    let tasks = outcomes.iter().filter(|outcome| matches!(outcome, Stored | Follows | Restarted)).count();
    eventually("all are worked", async || events.count() == 2 * tasks).await;
    server.shutdown().await;
    let told = events.all();
    assert!(told.chunks(2).all(|pair| pair[0].starts_with('+') && pair[1] == "-"), "two at once: {told:?}");
    assert_eq!(told[told.len() - 2], "+the last");
    assert!(!outcomes.contains(&Kept) && outcomes.contains(&Follows) && outcomes.contains(&Replaced), "{outcomes:?}");
    let waiting: usize = fixture.cmd(&["EXISTS", "asynq:{q}:pending", "asynq:{q}:scheduled", "asynq:{q}:active"]).await;
    assert_eq!(waiting, 0);
}
