//! How tasks are worked, by type, by queue and for all.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{Clock as _, RawTask, RetryPolicy, SystemClock, TaskState};
use queue_worker::{Failure, Job, Router, ServerError, State, Undecodable, WorkOptions};
use tokio::sync::Notify;

use crate::support::{Events, Fixture, Gauge, eventually, job, with};

fn fixed(secs: u64) -> WorkOptions {
    WorkOptions::new().retry_policy(RetryPolicy::Fixed(Duration::from_secs(secs)))
}

fn of(task_type: &str, id: &str) -> RawTask {
    RawTask { task_type: task_type.into(), ..job(id) }
}

#[derive(Debug, serde::Serialize, serde::Deserialize, queue_worker::Task)]
#[task(type = "job")]
struct Typed {
    number: u8,
}

fn numbered(id: &str) -> RawTask {
    job(id).payload(r#"{"number":1}"#)
}

#[tokio::test]
async fn a_queue_at_its_limit_leaves_its_tasks_and_the_slots_to_others() {
    let fixture = Fixture::start().await;
    let (events, door) = (<Events>::default(), Arc::new(Notify::new()));
    let work = with(&(events.clone(), door.clone()), async |(events, door): (Events, Arc<Notify>), job: Job| {
        events.tell(job.queue());
        door.notified().await;
    });
    let tasks = |queue: &'static str| (0..20).map(move |n| job(&format!("{queue}-{n}")).queue(queue));
    fixture.enqueue(tasks("slow").chain(tasks("q"))).await;
    // The limited queue would get nearly all slots by its weight.
    let server = fixture.server(Router::new(()).route("job", work)).queues([("slow", 1_000), ("q", 1)]);
    let day = Duration::from_secs(24 * 60 * 60);
    let server = server.concurrency(10).queue_concurrency("slow", 2).poll_interval(day).start().await.unwrap();
    let mut started = events.wait(10).await;
    started.sort();
    assert_eq!(started, [vec!["q"; 8], vec!["slow"; 2]].concat());
    let length = async |key: &str| fixture.cmd::<usize>(&["LLEN", key]).await;
    assert_eq!((length("asynq:{slow}:active").await, length("asynq:{slow}:pending").await), (2, 18));
    let pass = async || {
        door.notify_one();
        events.count() == 40
    };
    eventually("all tasks of both queues have run", pass).await;
    server.shutdown().await;
}

/// Nothing but the end of one of its tasks tells that a full queue has room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limited_queues_are_worked_off_within_their_limits() {
    let fixture = Fixture::start().await;
    let (gauge, events) = (Gauge::default(), <Events>::default());
    let work = with(&(gauge.clone(), events.clone()), async |(gauge, events): (Gauge, Events), job: Job| {
        gauge.enter();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
        gauge.leave();
        events.tell(job.id());
    });
    let router = Router::new(()).route("job", work);
    let server = fixture.server(router).queues([("q", 1), ("other", 1)]).concurrency(50);
    let server = server.queue_concurrency("q", 3).queue_concurrency("other", 2).start().await.unwrap();
    for round in 0..3 {
        let queue = |n: usize| if n.is_multiple_of(2) { "q" } else { "other" };
        fixture.enqueue((0..200).map(|n| job(&format!("{round}-{n}")).queue(queue(n)))).await;
        events.wait(200 * (round + 1)).await;
    }
    server.shutdown().await;
    assert_eq!(gauge.most(), 5);
}

#[tokio::test]
async fn a_blocking_handler_that_outlives_its_attempt_keeps_its_place_in_the_queue() {
    let fixture = Fixture::start().await;
    let (events, (open, opened)) = (<Events>::default(), std::sync::mpsc::channel::<()>());
    let opened = Arc::new(std::sync::Mutex::new(opened));
    let block = move |_: Typed, job: Job, State(events): State<Events>| {
        events.tell(job.id());
        let _ = opened.lock().unwrap().recv();
    };
    let router = Router::new(events.clone()).blocking(block);
    let server = fixture.server(router).concurrency(5).queue_concurrency("q", 1).start().await.unwrap();
    fixture.enqueue([numbered("a").timeout(Duration::from_secs(1)), numbered("b")]).await;
    fixture.in_state("a", TaskState::Retry).await;
    assert_eq!((events.all(), fixture.cmd::<usize>(&["LLEN", "asynq:{q}:pending"]).await), (vec!["a".to_owned()], 1));
    open.send(()).unwrap();
    events.wait(2).await;
    open.send(()).unwrap();
    fixture.gone("b").await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_retry_policy_of_the_type_wins_over_that_of_the_queue_and_that_over_the_servers() {
    let fixture = Fixture::start().await;
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let router = Router::new(()).route("own", fail).options("own", fixed(100)).route("job", fail);
    let server = fixture.server(router).queues([("q", 1), ("other", 1)]);
    let server = server.retry_policy(RetryPolicy::Fixed(Duration::from_secs(300))).queue_options("q", fixed(200));
    let server = server.start().await.unwrap();
    fixture.enqueue([of("own:more", "type"), job("queue"), job("server").queue("other")]).await;
    for (queue, id, expected) in [("q", "type", 100), ("q", "queue", 200), ("other", "server", 300)] {
        let delay = async || {
            let info = fixture.inspector().task(queue, id).await.ok()?;
            Some((info.next_process_at? - info.last_failed_at?).num_seconds())
        };
        eventually(format!("{id} has failed"), async || delay().await.is_some()).await;
        assert_eq!(delay().await, Some(expected), "{id}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn the_timeout_of_a_type_is_for_tasks_that_chose_none() {
    let fixture = Fixture::start().await;
    let events = Events::<(String, i64)>::default();
    let tell = with(&events, async |events: Events<(String, i64)>, job: Job| {
        let left = job.deadline().timestamp() - SystemClock.now_secs();
        // To the next quarter of an hour: starting takes no longer.
        events.tell((job.id().to_owned(), (left + 450) / 900));
    });
    let router = Router::new(()).route("job", tell.clone()).route("video", tell);
    let router = router.options("video", WorkOptions::new().timeout(Duration::from_secs(2 * 3_600)));
    let server = fixture.server(router).start().await.unwrap();
    let chosen = of("video", "chosen").timeout(Duration::from_secs(3_600));
    fixture.enqueue([job("plain"), of("video", "type"), chosen]).await;
    let mut left = events.wait(3).await;
    left.sort();
    assert_eq!(left, [("chosen".to_owned(), 4), ("plain".to_owned(), 2), ("type".to_owned(), 8)]);
    server.shutdown().await;
}

async fn undecodable(choice: Option<Undecodable>, expected: TaskState) -> queue_core::TaskInfo {
    let fixture = Fixture::start().await;
    let mut router = Router::new(()).task(async |_: Typed| {});
    if let Some(choice) = choice {
        router = router.options("job", WorkOptions::new().undecodable(choice));
    }
    let server =
        fixture.server(router).retry_policy(RetryPolicy::Fixed(Duration::from_secs(50))).start().await.unwrap();
    fixture.enqueue([job("a").payload("nonsense")]).await;
    let info = fixture.in_state("a", expected).await;
    server.shutdown().await;
    let error = info.last_error.clone().unwrap();
    assert!(error.starts_with("failed to decode the payload of 8 bytes as JSON: "), "{error}");
    info
}

#[tokio::test]
async fn an_undecodable_payload_archives_fails_or_is_snoozed_as_chosen() {
    let delay =
        |info: &queue_core::TaskInfo| (info.next_process_at.unwrap() - info.last_failed_at.unwrap()).num_seconds();
    assert_eq!(undecodable(None, TaskState::Archived).await.retried, 0);
    let failed = undecodable(Some(Undecodable::Fail), TaskState::Retry).await;
    assert_eq!((failed.retried, delay(&failed)), (1, 50));
    let back = undecodable(Some(Undecodable::Snooze(Duration::from_secs(7))), TaskState::Retry).await;
    assert_eq!((back.retried, delay(&back)), (0, 7));
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_by_name() {
    let fixture = Fixture::start().await;
    let nothing = WorkOptions::new().timeout(Duration::ZERO);
    let router = || Router::new(()).route("job", async |_: Job| {});
    let server = || fixture.server(router());
    for (server, expected) in [
        (server().queue_concurrency("q", 0), r#"queue_concurrency is 0 for "q"; it must be between 1 and 100000"#),
        (
            server().queue_concurrency("mial", 3),
            r#"queue_concurrency is set for "mial"; it must be one of the queues or patterns that the server serves"#,
        ),
        (
            server().queue_options("mial", fixed(1)),
            r#"queue_options is set for "mial"; it must be one of the queues or patterns that the server serves"#,
        ),
        (server().work_options(nothing.clone()), "timeout is zero; it must be longer than that"),
        (server().queue_options("q", nothing.clone()), r#"timeout is zero for queue "q"; it must be longer than that"#),
        (
            fixture.server(router().options("job", nothing.clone())),
            r#"timeout is zero for "job"; it must be longer than that"#,
        ),
    ] {
        let error: ServerError = server.start().await.unwrap_err();
        assert_eq!(error.to_string(), format!("the server's option {expected}"));
    }
}
