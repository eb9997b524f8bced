//! Times and counts that make no sense, in messages and scores that others have written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use queue_core::{OptionError, TaskMessage, TaskState};
use queue_redis::EnqueueError;
use queue_worker::{Failure, Job, Router};

use crate::support::{Events, Fixture, QUEUE, eventually, job, with};

/// Puts a task into the queue with such a message.
async fn put(fixture: &Fixture, id: &str, change: impl FnOnce(&mut TaskMessage)) {
    fixture.client().enqueue(job(id)).await.unwrap();
    let mut message = fixture.compose(job(id)).message;
    change(&mut message);
    let (key, bytes) = (format!("asynq:{{q}}:t:{id}"), message.to_bytes());
    let words: [&[u8]; 4] = [b"HSET", key.as_bytes(), b"msg", &bytes];
    let _: i64 = fixture.cmd(&words).await;
}

#[tokio::test]
async fn a_client_refuses_times_that_cannot_be_and_takes_the_past_for_now() {
    let fixture = Fixture::start().await;
    let client = fixture.client();
    let far = UNIX_EPOCH + Duration::from_secs(9_400_000_000_000); // about the year 300,000
    let too_far = |option| OptionError::TimeTooFar { option };
    for (task, expected) in [
        (job("a").process_at(far), too_far("process_at")),
        (job("a").deadline(far), too_far("deadline")),
        (job("a").timeout(Duration::from_secs(u64::MAX)), too_far("timeout")),
        (job("a").retention(Duration::from_secs(u64::MAX)), too_far("retention")),
        (job("a").unique(Duration::from_secs(u64::MAX)), too_far("unique")),
        (job("a").max_retry(u32::MAX), OptionError::MaxRetryTooLarge(u32::MAX)),
    ] {
        match client.enqueue(task).await {
            Err(EnqueueError::Option(error)) => assert_eq!(error, expected),
            other => panic!("{other:?}"),
        }
    }
    let past: SystemTime = UNIX_EPOCH - Duration::from_secs(3_600);
    let info = client.enqueue(job("past").process_at(past)).await.unwrap();
    assert_eq!(info.state, TaskState::Pending);
    // A deadline before 1970 is one that is over, and not "none".
    let info = client.enqueue(job("late").deadline(past)).await.unwrap();
    assert!(info.deadline.is_some_and(|deadline| deadline.timestamp() < 0), "{info:?}");
}

#[tokio::test]
async fn a_message_with_absurd_numbers_is_worked_or_archived_and_harms_nobody() {
    let fixture = Fixture::start().await;
    for (id, number) in [("least", i64::MIN), ("minus", -1), ("most", i64::MAX)] {
        put(&fixture, &format!("timeout-{id}"), |message| message.timeout = number).await;
        put(&fixture, &format!("retention-{id}"), |message| message.retention = number).await;
        put(&fixture, &format!("deadline-{id}"), |message| message.deadline = number).await;
        put(&fixture, &format!("failed-{id}"), |message| {
            message.last_failed_at = number;
            message.completed_at = number;
        })
        .await;
    }
    for (id, retry, retried) in [("a", -1, 0), ("b", i32::MAX, i32::MAX), ("c", 5, -7), ("d", i32::MIN, i32::MIN)] {
        put(&fixture, &format!("retry-{id}"), |message| {
            (message.retry, message.retried) = (retry, retried);
            message.r#type = "fail".to_owned();
        })
        .await;
    }
    put(&fixture, "fine", |_| {}).await;
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| {
        events.tell(format!("{} {} {}", job.id(), job.attempt(), job.deadline()));
    });
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let server = fixture.server(Router::new(()).route("job", work).route("fail", fail)).start().await.unwrap();
    for id in ["timeout-least", "timeout-minus", "timeout-most", "retention-least", "retention-minus", "deadline-most"]
    {
        fixture.gone(id).await;
    }
    fixture.gone("fine").await;
    fixture.in_state("retention-most", TaskState::Completed).await;
    // Such a deadline has passed.
    for id in ["deadline-least", "deadline-minus"] {
        fixture.in_state(id, TaskState::Archived).await;
    }
    for (id, state) in
        [("a", TaskState::Archived), ("b", TaskState::Archived), ("c", TaskState::Retry), ("d", TaskState::Archived)]
    {
        let info = fixture.in_state(&format!("retry-{id}"), state).await;
        assert_eq!(info.last_error.as_deref(), Some("boom"), "{id}");
    }
    server.shutdown().await;
    let kept: i64 = fixture.cmd(&["ZSCORE", "asynq:{q}:completed", "retention-most"]).await;
    assert_eq!(kept, 253_402_300_799, "the end of the year 9999, which Redis prints without an exponent");
}

#[tokio::test]
async fn absurd_scores_are_due_or_never_and_nobody_spins() {
    let fixture = Fixture::start().await;
    for (id, score) in [("past", "-inf"), ("minus", "-1e300"), ("never", "+inf"), ("far", "1e300"), ("half", "0.5")] {
        fixture.client().enqueue(job(id).process_in(Duration::from_secs(3_600))).await.unwrap();
        fixture.run(&format!("ZADD asynq:{{q}}:scheduled {score} {id}")).await;
    }
    let events = Events::default();
    let work = with(&events, async |events: Events, job: Job| events.tell(job.id()));
    let server = fixture.server(Router::new(()).route("job", work)).start().await.unwrap();
    events.wait(3).await;
    // A look at each set, and a script where something is due.
    let looks = async || {
        let stats: String = fixture.cmd(&["INFO", "commandstats"]).await;
        let calls =
            |name: &str| stats.lines().find_map(|line| line.strip_prefix(name)?.split(',').next()?.parse().ok());
        ["cmdstat_zrange:calls=", "cmdstat_evalsha:calls="].map(|name| calls(name).unwrap_or(0)).iter().sum::<u64>()
    };
    let before = looks().await;
    // Seconds in which a forwarder that does not rest would look a hundred times.
    fixture.client().enqueue(job("later").process_in(Duration::from_secs(2))).await.unwrap();
    events.wait(4).await;
    assert!(looks().await - before < 60, "the forwarder spins");
    server.shutdown().await;
    let mut ran = events.all();
    ran.sort();
    assert_eq!(ran, ["half", "later", "minus", "past"]);
    let inspector = fixture.inspector();
    let left = inspector.tasks(QUEUE, TaskState::Scheduled, queue_admin::Page::default()).await.unwrap();
    let ids: Vec<&str> = left.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["far", "never"]);
    for lease in ["+inf", "1e300", "-inf"] {
        fixture.run("LPUSH asynq:{q}:active ghost").await;
        fixture.run(&format!("ZADD asynq:{{q}}:lease {lease} ghost")).await;
        inspector.queue(QUEUE).await.unwrap();
        inspector.tasks(QUEUE, TaskState::Active, queue_admin::Page::default()).await.unwrap();
    }
}

#[tokio::test]
async fn counters_that_are_no_numbers_do_not_stop_work() {
    let fixture = Fixture::start().await;
    fixture.run("SET asynq:{q}:processed nonsense").await;
    fixture.run("SET asynq:{q}:failed 9223372036854775807").await;
    fixture.enqueue([job("a"), job("b").max_retry(0)]).await;
    let answer = async |job: Job| if job.id() == "a" { Ok(()) } else { Err::<(), Failure>("boom".into()) };
    let server = fixture.server(Router::new(()).route("job", answer)).start().await.unwrap();
    fixture.gone("a").await;
    fixture.in_state("b", TaskState::Archived).await;
    server.shutdown().await;
    eventually("the queue can be looked at", async || fixture.inspector().queue(QUEUE).await.is_ok()).await;
}
