//! What handlers say of their tasks while they run, and where the next attempt goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue_core::limits::{MAX_CURSOR_BYTES, MAX_LOG_BYTES, MAX_LOG_LINES, PROGRESS_INTERVAL};
use queue_core::task_log::TaskLog;
use queue_core::{RawTask, RetryPolicy, TaskOptions, TaskState};
use queue_worker::{CheckpointError, Cursor, Failure, Job, Router, Task};
use serde::{Deserialize, Serialize};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "number")]
struct Number;

const HOUR: Duration = Duration::from_secs(3_600);

async fn progress(fixture: &Fixture, id: &str) -> Option<(u8, String)> {
    let progress = fixture.client().handle(QUEUE, id).progress().await.unwrap();
    progress.map(|progress| (progress.percent, progress.note))
}

/// The first of many is written at once, the last before the end, and hardly any in between.
#[tokio::test]
async fn progress_is_seen_while_the_task_runs_and_the_last_one_is_never_lost() {
    let fixture = Fixture::start().await;
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| {
        job.progress(1, "begun");
        events.tell("begun");
        while events.count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for percent in 2..=100 {
            job.progress(percent, format!("{percent} of 100"));
        }
    });
    let writes = Arc::new(AtomicUsize::new(0));
    let redis = fixture.another_redis();
    redis.on_call({
        let writes = writes.clone();
        move |call| {
            writes.fetch_add(usize::from(call.operation == "write_fields"), Ordering::SeqCst);
        }
    });
    let server = queue_worker::Server::new(redis, Router::new(()).route("job", work)).queues([(QUEUE, 1)]);
    let server = server.start().await.unwrap();
    let handle = fixture.client().enqueue_to_wait(job("a")).await.unwrap();
    let mut changes = handle.changes();
    while changes.next().await.unwrap().unwrap().progress.is_none() {}
    assert_eq!(progress(&fixture, "a").await, Some((1, "begun".to_owned())));
    events.tell("go on");
    fixture.in_state("a", TaskState::Completed).await;
    assert_eq!(progress(&fixture, "a").await, Some((100, "100 of 100".to_owned())));
    let seen = fixture.inspector().task(QUEUE, "a").await.unwrap().progress.unwrap();
    assert_eq!(seen.percent, 100);
    server.shutdown().await;
    assert!(writes.load(Ordering::SeqCst) < 20, "{writes:?} writes for 100 calls");
}

#[tokio::test]
async fn progress_comes_to_its_turn_while_the_handler_goes_on() {
    let fixture = Fixture::start().await;
    let stop = Events::default();
    let work = with(&stop, async |stop: Events, job: Job| {
        job.progress(1, "first");
        tokio::time::sleep(PROGRESS_INTERVAL / 10).await;
        job.progress(2, "second");
        while stop.count() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    eventually("the second is written", async || progress(&fixture, "a").await == Some((2, "second".to_owned()))).await;
    stop.tell("stop");
    fixture.gone("a").await;
    server.shutdown().await;
}

#[tokio::test]
async fn what_a_failed_attempt_said_last_stays_and_a_blocking_handler_can_say_it_too() {
    let fixture = Fixture::start().await;
    let router = Router::new(()).blocking(|_: Number, job: Job| {
        job.progress(20, "reading");
        job.progress(30, "writing");
        Err::<(), Failure>("disk full".into())
    });
    let server = fixture.server(router).start().await.unwrap();
    fixture.client().enqueue_with(Number, TaskOptions::new().queue(QUEUE).task_id("a")).await.unwrap();
    fixture.in_state("a", TaskState::Retry).await;
    assert_eq!(progress(&fixture, "a").await, Some((30, "writing".to_owned())));
    server.shutdown().await;
}

/// Lines gather, and travel with the progress; those of earlier attempts stay.
#[tokio::test]
async fn a_log_has_the_lines_of_all_attempts_and_is_written_in_few_calls() {
    let fixture = Fixture::start().await;
    let work = async |job: Job| {
        for row in 1..=50 {
            job.log(format!("row {row}"));
            job.progress(row, "");
        }
        if job.attempt() < 3 { Err(Failure::from("boom")) } else { Ok(()) }
    };
    let calls = Arc::new(Calls::default());
    let redis = fixture.another_redis();
    redis.on_call({
        let calls = calls.clone();
        move |call| calls.count(call.operation)
    });
    let router = Router::new(()).route("job", work).route("quiet", async |_: Job| {});
    let server = queue_worker::Server::new(redis, router).queues([(QUEUE, 1)]);
    let server = server.retry_policy(RetryPolicy::Fixed(Duration::ZERO)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    fixture.gone("a").await;
    assert_eq!(fixture.client().handle(QUEUE, "a").log().await.unwrap(), TaskLog::default());
    let calls_of_one = (calls.writes.load(Ordering::SeqCst), calls.reads.load(Ordering::SeqCst));
    assert!(calls_of_one.0 < 20 && calls_of_one.1 <= 3, "{calls_of_one:?} writes and reads for 300 calls");

    fixture.enqueue([job("b").retention(HOUR)]).await;
    fixture.in_state("b", TaskState::Completed).await;
    let log = fixture.inspector().log(QUEUE, "b").await.unwrap();
    let lines: Vec<_> = log.lines().map(|line| (line.attempt, line.text.clone())).collect();
    let expected = (1..=3).flat_map(|attempt| (1..=50).map(move |row| (attempt, format!("row {row}"))));
    assert_eq!(lines, expected.collect::<Vec<_>>());
    assert_eq!(progress(&fixture, "b").await, Some((50, String::new())));

    // Who logs nothing pays nothing.
    let before = (calls.writes.load(Ordering::SeqCst), calls.reads.load(Ordering::SeqCst));
    fixture.enqueue([RawTask { task_type: "quiet".into(), ..job("c") }]).await;
    fixture.gone("c").await;
    assert_eq!((calls.writes.load(Ordering::SeqCst), calls.reads.load(Ordering::SeqCst)), before);
    server.shutdown().await;
}

/// Calls of a server that have to do with what handlers say.
#[derive(Debug, Default)]
struct Calls {
    writes: AtomicUsize,
    reads: AtomicUsize,
}

impl Calls {
    fn count(&self, operation: &str) {
        self.writes.fetch_add(usize::from(operation == "write_fields"), Ordering::SeqCst);
        self.reads.fetch_add(usize::from(operation == "HGET"), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_log_is_bounded_and_says_how_many_lines_are_missing() {
    let fixture = Fixture::start().await;
    let work = async |job: Job| {
        for row in 0..10_000 {
            job.log(format!("row {row}"));
        }
        Err::<(), Failure>("boom".into())
    };
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    fixture.in_state("a", TaskState::Retry).await;
    let log = fixture.inspector().log(QUEUE, "a").await.unwrap();
    assert_eq!((log.count(), log.lines().len()), (10_000, MAX_LOG_LINES));
    assert_eq!(log.lines().last().unwrap().text, "row 9999");
    let bytes: usize = fixture.cmd(&["HSTRLEN", "asynq:{q}:t:a", "x_log"]).await;
    assert!(bytes < MAX_LOG_BYTES, "{bytes}");
    server.shutdown().await;
}

/// Fails or hangs at the rows that its payload names, and tells where it began.
async fn import(events: Events, job: Job) -> Result<(), Failure> {
    let cursor: Option<u32> = job.cursor().await?;
    events.tell(format!("{cursor:?}"));
    for row in cursor.unwrap_or(0)..4 {
        if row == 2 && cursor.is_none() {
            match &job.payload()[..] {
                b"fails" => return Err("row 2 is locked".into()),
                b"archives" => return Err(Failure::archive("row 2 is bad")),
                b"snoozes" => return Err(Failure::snooze(Duration::ZERO, "row 2 is not there")),
                _ => {
                    events.tell("hangs");
                    job.cancellation().cancelled().await;
                    return Err("interrupted".into());
                }
            }
        }
        assert!(job.checkpoint(&(row + 1)).await?);
    }
    Ok(())
}

fn importing(fixture: &Fixture, events: &Events) -> queue_worker::Server {
    fixture.server(Router::new(()).route("job", with(events, import))).retry_policy(RetryPolicy::Fixed(Duration::ZERO))
}

#[tokio::test]
async fn a_task_that_fails_or_snoozes_goes_on_from_its_checkpoint() {
    for way in ["fails", "snoozes"] {
        let (fixture, events) = (Fixture::start().await, Events::default());
        let server = importing(&fixture, &events).start().await.unwrap();
        fixture.enqueue([job("a").payload(way).retention(HOUR)]).await;
        fixture.in_state("a", TaskState::Completed).await;
        assert_eq!(events.all(), ["None", "Some(2)"], "{way}");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_task_that_a_shutdown_stops_goes_on_from_its_checkpoint_elsewhere() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let server = importing(&fixture, &events).shutdown_timeout(Duration::ZERO).start().await.unwrap();
    fixture.enqueue([job("a").payload("hangs").retention(HOUR)]).await;
    events.wait(2).await;
    server.shutdown().await;
    let elsewhere = importing(&fixture, &events).start().await.unwrap();
    fixture.in_state("a", TaskState::Completed).await;
    assert_eq!(events.all(), ["None", "hangs", "Some(2)"]);
    elsewhere.shutdown().await;
}

#[tokio::test]
async fn an_archived_task_goes_on_when_it_is_run_again_and_a_completed_one_begins_anew() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let server = importing(&fixture, &events).start().await.unwrap();
    fixture.enqueue([job("a").payload("archives").retention(HOUR)]).await;
    fixture.in_state("a", TaskState::Archived).await;
    fixture.inspector().run_task(QUEUE, "a").await.unwrap();
    fixture.in_state("a", TaskState::Completed).await;
    assert_eq!(events.all(), ["None", "Some(2)"]);
    fixture.inspector().run_task(QUEUE, "a").await.unwrap();
    fixture.in_state("a", TaskState::Archived).await;
    assert_eq!(events.all(), ["None", "Some(2)", "None"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_checkpoint_that_is_too_large_is_not_sent_and_one_that_cannot_be_read_fails_the_attempt() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let large = with(&events, async |events: Events, job: Job| {
        // With its quotes it is one byte too long.
        let error = job.checkpoint(&"x".repeat(MAX_CURSOR_BYTES - 1)).await.unwrap_err();
        assert!(matches!(error, CheckpointError::TooLarge { .. }), "{error}");
        assert_eq!(job.cursor::<String>().await.unwrap(), None);
        assert!(job.checkpoint(&"x".repeat(MAX_CURSOR_BYTES - 2)).await.unwrap());
        events.tell("stored");
        Err::<(), _>(Failure::archive("enough"))
    });
    let router = Router::new(()).route("job", large).task(async |_: Number, _: Cursor<u32>| {});
    let server = fixture.server(router).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    fixture.in_state("a", TaskState::Archived).await;
    assert_eq!(events.all(), ["stored"]);
    let later = TaskOptions::new().queue(QUEUE).task_id("b").process_in(HOUR);
    fixture.client().enqueue_with(Number, later).await.unwrap();
    fixture.run("HSET asynq:{q}:t:b x_cursor text").await;
    fixture.inspector().run_task(QUEUE, "b").await.unwrap();
    let task = fixture.in_state("b", TaskState::Retry).await;
    assert!(task.last_error.as_ref().unwrap().contains("checkpoint cannot be written or read"), "{task:?}");
    server.shutdown().await;
}

/// A handler that outlives its task leaves nothing behind.
#[tokio::test]
async fn nothing_is_written_of_a_task_that_others_have() {
    let (fixture, events) = (Fixture::start().await, Events::default());
    let work = with(&events, async |events: Events, job: Job| {
        events.tell("runs");
        while events.count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        job.progress(50, "too late");
        job.log("too late");
        assert!(!job.checkpoint(&1).await.unwrap());
        events.tell("refused");
    });
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    fixture.enqueue([job("a")]).await;
    events.wait(1).await;
    fixture.run("DEL asynq:{q}:t:a").await;
    events.tell("deleted");
    events.wait(3).await;
    server.shutdown().await;
    assert_eq!(fixture.cmd::<i64>(&["EXISTS", "asynq:{q}:t:a"]).await, 0);
}
