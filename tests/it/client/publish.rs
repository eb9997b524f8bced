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

/// Ways to publish, each with whether what came last is worked last.
type Way = (&'static str, bool, fn(Publish) -> Publish);
const WAYS: [Way; 7] = [
    ("keep", false, |publish| publish),
    ("replace", false, Publish::replace),
    ("reschedule", false, Publish::reschedule),
    ("restart", false, Publish::restart),
    ("coalesce", true, Publish::coalesce),
    ("debounce", true, |publish| publish.debounce(SECOND).max_wait(2 * SECOND)),
    ("throttle", false, |publish| publish.throttle(SECOND / 10)),
];

/// A server in a runtime of its own, which can die without a word.
fn mortal(fixture: &Fixture, events: &Events) -> tokio::runtime::Runtime {
    let (url, events) = (fixture.url().to_owned(), events.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let tell = with(&events, async |events: Events, job: Job| {
            events.tell(String::from_utf8_lossy(job.payload()).into_owned());
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
        let redis = queue_redis::Redis::lazy(&url, Default::default()).unwrap();
        let server = Server::new(redis, Router::new(()).route("job", tell)).queues([(QUEUE, 1)]).concurrency(4);
        let server = server.retry_policy(queue_worker::RetryPolicy::Fixed(Duration::ZERO));
        let _running = server.start().await.unwrap();
        std::future::pending::<()>().await;
    });
    runtime
}

/// What waits of a key, and what is worked, looked at in one step.
const LOOK: &str = "local waits = 0
    for _, id in ipairs({ 'k', 'k~' }) do
      local state = redis.call('HGET', 'asynq:{q}:t:' .. id, 'state')
      waits = waits + ((state == 'pending' or state == 'scheduled' or state == 'retry') and 1 or 0)
    end
    return { waits, redis.call('LLEN', 'asynq:{q}:active') }";

/// 50 publish so often in one way, and a server dies with what it has; how many tasks waited at once, and whether it died.
async fn publish_in_one_way((way, is_last_worked, how): Way, each: usize) -> (u64, bool) {
    const PUBLISHERS: usize = 50;
    let (fixture, events) = (Fixture::start().await, Events::default());
    let (mut dying, other) = (Some(mortal(&fixture, &events)), mortal(&fixture, &events));
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let client = Client::new(fixture.another_redis());
        publishers.spawn(async move {
            for n in 0..each {
                how(client.publish(untitled(&format!("{publisher}.{n}"))).key("k")).await.unwrap();
            }
        });
    }
    let mut most = 0;
    while !publishers.is_empty() {
        let (waits, active): (u64, u64) = fixture.cmd(&["EVAL", LOOK, "0"]).await;
        most = waits.max(most);
        if active > 0
            && let Some(dying) = dying.take_if(|_| publishers.len() < PUBLISHERS / 2)
        {
            tokio::task::spawn_blocking(|| dying.shutdown_timeout(SECOND)).await.unwrap();
            // Its lease has ended.
            for id in ["k", "k~"] {
                fixture.run(&format!("ZADD asynq:{{q}}:lease XX 1 {id}")).await;
            }
        }
        while publishers.try_join_next().is_some() {}
    }
    assert!(most <= 1 + u64::from(is_last_worked), "{way}: {most} waited");
    let last = how(Client::new(fixture.another_redis()).publish(untitled("the last")).key("k")).await.unwrap();
    eventually("all is worked", async || {
        let left = ["EXISTS", "asynq:{q}:pending", "asynq:{q}:scheduled", "asynq:{q}:retry", "asynq:{q}:active"];
        fixture.cmd::<usize>(&left).await == 0
    })
    .await;
    let is_worked = is_last_worked || [Stored, Replaced, Restarted].contains(&last.outcome);
    assert!(!is_worked || events.all().last().is_some_and(|last| last == "the last"), "{way}: {:?}", events.all());
    assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", "asynq:{q}:unique:*"]).await, [""; 0], "{way}");
    let has_died = dying.is_none();
    dying.into_iter().chain([other]).for_each(tokio::runtime::Runtime::shutdown_background);
    (most, has_died)
}

/// Never more than one task of a key waits, whoever publishes it in whatever way, or two where the one that a dead server had is to be tried
/// again; what came last is worked last, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_who_publish_one_key_while_a_server_dies_one_task_waits_and_nothing_is_left() {
    let each: usize = std::env::var("QUEUE_PUBLISH_EACH").map_or(12, |each| each.parse().unwrap());
    let ways = WAYS.into_iter().map(|way| publish_in_one_way(way, each));
    let seen = futures_util::future::join_all(ways).await;
    assert!(seen.iter().any(|(most, _)| *most > 0) && seen.iter().any(|(_, died)| *died), "too little: {seen:?}");
}
