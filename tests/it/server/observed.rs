//! What a server tells those who observe it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use queue_core::{Clock, RawTask, SystemClock, TaskState};
use queue_worker::{End, Event, Failure, Job, Router, Server};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

fn of(task_type: &str) -> RawTask {
    RawTask { task_type: task_type.to_owned(), ..job(task_type) }
}

/// An observer that keeps what it is told, but for the times.
fn observe(server: Server, events: &Events) -> Server {
    let events = events.clone();
    server.observe(move |event| match event {
        Event::ServerStarted { concurrency, .. } => events.tell(format!("server with {concurrency} slots")),
        Event::ServerStopped { concurrency, .. } => events.tell(format!("no server with {concurrency} slots")),
        Event::Taken { queue, tasks } => events.tell(format!("took {tasks} of {queue}")),
        Event::Started { job, waited, .. } => {
            events.tell(format!("start {} {}", job.id(), if waited.is_some() { "timed" } else { "untimed" }));
        }
        Event::Ended { job, end, .. } => events.tell(format!("end {} {end} {:?}", job.id(), job.cancel_reason())),
        Event::Reported { queue, tasks, refused } => {
            events.tell(format!("report {tasks} of {queue}, {refused} refused"))
        }
        Event::Recovered { queue, task_type, end } => events.tell(format!("recover {task_type:?} of {queue}: {end}")),
        Event::Forwarded { queue, tasks } => events.tell(format!("forward {tasks} of {queue}")),
        Event::Unreadable { queue } => events.tell(format!("unreadable in {queue}")),
        other => events.tell(format!("unexpected: {other:?}")),
    })
}

fn ends(events: &Events) -> Vec<String> {
    let mut ends: Vec<String> = events.all().into_iter().filter(|event| event.starts_with("end ")).collect();
    ends.sort();
    ends
}

/// A clock that the first handler sets forward: for the attempts that wait behind it, the process stood still.
#[derive(Debug, Default)]
struct Leaps(AtomicI64);

impl Clock for Leaps {
    fn now_ns(&self) -> i64 {
        SystemClock.now_ns() + self.0.load(Ordering::SeqCst)
    }
}

/// It ran what others had done since, as soon as it went on.
#[tokio::test]
async fn an_attempt_whose_lease_ended_while_it_waited_for_its_turn_is_not_begun() {
    let fixture = Fixture::start().await;
    let clock = Arc::new(Leaps::default());
    let leap = with(&clock, async |clock: Arc<Leaps>, _: Job| {
        let _ = clock.0.compare_exchange(0, 3_600_000_000_000, Ordering::SeqCst, Ordering::SeqCst);
    });
    fixture.enqueue([job("a"), job("b")]).await;
    let events = Events::default();
    let server = observe(fixture.server(Router::new(()).route("job", leap)).clock(clock), &events);
    let server = server.correct_clock(false).concurrency(2).start().await.unwrap();
    eventually("both are done", async || ends(&events).len() == 3).await;
    server.shutdown().await;
    let mut ends: Vec<String> = ends(&events).iter().map(|end| end.replace(" b ", " a ")).collect();
    ends.sort();
    assert_eq!(ends, ["end a lease_lost Some(LeaseLost)", "end a succeeded None", "end a succeeded None"]);
}

#[tokio::test]
async fn every_attempt_is_told_with_its_end() {
    let fixture = Fixture::start().await;
    let types = ["done", "kept", "fail", "archive", "revoke", "putback", "panic", "late", "unknown"];
    fixture.enqueue(types.map(of)).await;
    fixture.enqueue([of("exhausted").max_retry(0), of("slow").timeout(Duration::from_secs(1))]).await;
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let router = Router::new(())
        .route("done", async |_: Job| {})
        .route("kept", async |_: Job| {})
        .route("fail", fail)
        .route("exhausted", fail)
        .route("archive", async |_: Job| Err::<(), Failure>(Failure::archive("no use")))
        .route("revoke", async |_: Job| Err::<(), Failure>(Failure::revoke("old")))
        .route("putback", async |_: Job| Err::<(), Failure>(Failure::snooze(Duration::from_secs(60), "busy")))
        .route("panic", async |job: Job| assert_eq!(job.id(), "", "oh"))
        .route("slow", async |_: Job| std::future::pending::<()>().await)
        .route("late", async |_: Job| std::future::pending::<()>().await);
    let events = Events::default();
    let server = observe(fixture.server(router), &events).concurrency(20).shutdown_timeout(Duration::ZERO);
    let server = server.start().await.unwrap();
    eventually("all but one have ended", async || ends(&events).len() == 10).await;
    server.shutdown().await;
    assert_eq!(
        ends(&events),
        [
            "end archive archived None",
            "end done succeeded None",
            "end exhausted archived None",
            "end fail retried None",
            "end kept succeeded None",
            "end late aborted Some(Shutdown)",
            "end panic retried None",
            "end putback put_back None",
            "end revoke revoked None",
            "end slow retried Some(Deadline)",
            "end unknown put_back None",
        ]
    );
    let all = events.all();
    assert_eq!(all.first().map(String::as_str), Some("server with 20 slots"));
    assert_eq!(all.last().map(String::as_str), Some("no server with 20 slots"));
    let sum = |prefix: &str| -> usize {
        let numbers =
            all.iter().filter_map(|event| event.strip_prefix(prefix)?.split(' ').next()?.parse::<usize>().ok());
        numbers.sum()
    };
    assert_eq!((sum("took "), sum("report ")), (11, 11), "{all:?}");
    assert!(all.iter().all(|event| !event.starts_with("unexpected")), "{all:?}");
    assert_eq!(all.iter().filter(|event| event.starts_with("start ") && event.ends_with(" timed")).count(), 11);
    assert!(all.iter().all(|event| !event.starts_with("report") || event.ends_with(", 0 refused")), "{all:?}");
}

#[tokio::test]
async fn a_recovery_a_lost_lease_and_a_refused_report_are_told() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a")]).await;
    let release = std::sync::Arc::new(tokio::sync::Notify::new());
    // It does not heed its cancelation, and reports success on a task that is another's by then.
    let work = with(&release, async |release: std::sync::Arc<tokio::sync::Notify>, _: Job| release.notified().await);
    let router = Router::new(()).route("job", work);
    let events = Events::default();
    let slow = observe(fixture.server(router), &events).cancel_grace(Duration::from_secs(60)).start().await.unwrap();
    events.wait(3).await;
    // It would run again at once.
    fixture.inspector().pause(QUEUE).await.unwrap();
    fixture.expire_leases().await;
    let rescue = Events::default();
    let recoverer = observe(fixture.server(Router::new(())), &rescue).start().await.unwrap();
    fixture.in_state("a", TaskState::Pending).await;
    release.notify_one();
    eventually("the report is refused", async || {
        events.all().iter().any(|event| event == &format!("report 1 of {QUEUE}, 1 refused"))
    })
    .await;
    let recovered = format!("recover Some(\"job\") of {QUEUE}: {}", End::Retried);
    eventually("the recovery is told by one of them", async || {
        events.all().contains(&recovered) || rescue.all().contains(&recovered)
    })
    .await;
    slow.shutdown().await;
    recoverer.shutdown().await;
}

#[tokio::test]
async fn an_unreadable_task_and_a_forwarded_one_are_told() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("bad"), job("later").process_in(Duration::from_secs(1))]).await;
    fixture.run("HSET asynq:{q}:t:bad msg rubbish").await;
    let events = Events::default();
    let router = Router::new(()).route("job", async |_: Job| {});
    let server = observe(fixture.server(router), &events).start().await.unwrap();
    eventually("both are told", async || {
        let all = events.all();
        all.contains(&format!("unreadable in {QUEUE}"))
            && all.contains(&format!("forward 1 of {QUEUE}"))
            && all.contains(&"end later succeeded None".to_owned())
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn calls_to_redis_are_told_with_their_errors() {
    let fixture = Fixture::start().await;
    let (redis, calls) = (fixture.redis(), Events::default());
    let heard = calls.clone();
    redis.on_call(move |call| heard.tell(format!("{} {}", call.operation, call.error.is_some())));
    fixture.enqueue([job("a")]).await;
    fixture.run("DEL asynq:{q}:pending").await;
    fixture.run("SET asynq:{q}:pending text").await;
    let refused = fixture.broker.dequeue(&QUEUE.into(), 1, &"run".into(), 0).await;
    assert!(refused.is_err());
    let _ = fixture.inspector().queues().await;
    let all = calls.all();
    for call in ["SADD false", "enqueue false", "dequeue true", "SMEMBERS false"] {
        assert!(all.contains(&call.to_owned()), "{call} is missing in {all:?}");
    }
}
