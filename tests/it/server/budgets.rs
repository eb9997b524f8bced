//! Budgets that tasks bring with them.

use std::time::Duration;

use queue_admin::Reason;
use queue_core::{RawTask, RetryPolicy, TaskState};
use queue_redis::EnqueueError;
use queue_worker::{Failure, Job, Router, Unhandled};

use crate::support::{Events, Fixture, QUEUE, WorkerProcess, job, with};

const HOUR: Duration = Duration::from_secs(3_600);

/// A handler that snoozes whatever comes.
fn snoozing(events: &Events) -> Router {
    let snooze = async |events: Events, job: Job| {
        events.tell(job.id());
        Err::<(), Failure>(Failure::snooze(Duration::ZERO, "busy"))
    };
    Router::new(()).route("job", with(events, snooze))
}

#[tokio::test]
async fn a_task_that_is_snoozed_too_often_is_archived_and_may_be_so_again_when_it_is_run_again() {
    let fixture = Fixture::start().await;
    fixture.enqueue([job("a").max_snoozes(2)]).await;
    let events = Events::default();
    let server = fixture.server(snoozing(&events)).start().await.unwrap();
    for attempts in [3, 6] {
        assert_eq!(events.wait(attempts).await.len(), attempts);
        let given_up = fixture.in_state("a", TaskState::Archived).await;
        let why = "busy; given up: it was snoozed 2 times before, and max_snoozes is 2";
        assert_eq!((given_up.last_error.as_deref(), given_up.retried), (Some(why), 0));
        assert_eq!(given_up.headers.keys().collect::<Vec<_>>(), ["x-max-snoozes"]);
        if attempts == 3 {
            fixture.inspector().run_task(QUEUE, "a").await.unwrap();
        }
    }
    server.shutdown().await;
    assert_eq!(events.wait(6).await, ["a"; 6]);
}

#[tokio::test]
async fn a_type_that_no_server_knows_spends_snoozes_too() {
    let fixture = Fixture::start().await;
    fixture.enqueue([RawTask { task_type: "foreign".into(), ..job("a").max_snoozes(1) }]).await;
    let server = fixture.server(snoozing(&Events::default())).unhandled(Unhandled::Snooze(Duration::ZERO));
    let server = server.start().await.unwrap();
    let given_up = fixture.in_state("a", TaskState::Archived).await.last_error.unwrap();
    assert!(given_up.starts_with("handler not found") && given_up.ends_with("max_snoozes is 1"), "{given_up}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_task_may_survive_fewer_crashes_than_its_server_allows() {
    let fixture = Fixture::start().await;
    let hang = |id: &str| RawTask { task_type: "hang".into(), ..job(id) };
    fixture.enqueue([hang("fragile").max_crashes(0), hang("once").max_crashes(1).max_retry(0), hang("other")]).await;
    let mut worker = WorkerProcess::start(fixture.url(), 3).await;
    for id in ["fragile", "once", "other"] {
        worker.told(&format!("start {id}")).await;
    }
    worker.kill();
    fixture.expire_leases().await;
    let server = fixture.server(snoozing(&Events::default())).unhandled(Unhandled::Leave).start().await.unwrap();
    let story = fixture.in_state("fragile", TaskState::Archived).await.last_error.unwrap();
    assert!(story.starts_with("asynq: task lease expired; given up after 1 crashes, it was held by "), "{story}");
    // A crash is no failure, which would be its last one.
    let once = fixture.in_state("once", TaskState::Pending).await;
    assert_eq!((once.crashes, once.retried), (1, 0));
    fixture.in_state("other", TaskState::Pending).await;
    server.shutdown().await;
    let explained = fixture.inspector().explain(QUEUE, "once").await.unwrap();
    let told = explained.reasons.iter().find(|reason| matches!(reason, Reason::Budgets { .. })).unwrap();
    assert_eq!(told.to_string(), "it has budgets of its own: 1 of 1 crashes");
}

#[tokio::test]
async fn the_delay_of_a_task_wins_over_that_of_the_server() {
    let fixture = Fixture::start().await;
    let own = job("own").backoff(RetryPolicy::Fixed(Duration::from_secs(50))).give_up_after(HOUR);
    fixture.enqueue([own, job("other")]).await;
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let server = fixture.server(Router::new(()).route("job", fail)).start().await.unwrap();
    for (id, secs) in [("own", 50), ("other", 3_600)] {
        let failed = fixture.in_state(id, TaskState::Retry).await;
        let delay = failed.next_process_at.unwrap() - failed.last_failed_at.unwrap();
        assert_eq!(delay.num_seconds(), secs, "{id}");
    }
    server.shutdown().await;
    let failed = fixture.in_state("own", TaskState::Retry).await;
    let since = failed.last_failed_at.unwrap().timestamp().to_string();
    assert_eq!(failed.headers.get("x-first-failed"), Some(&since));
}

#[tokio::test]
async fn what_is_no_budget_is_refused_by_name_and_never_counts_on_a_foreign_task() {
    let fixture = Fixture::start().await;
    let before = fixture.keyspace().await;
    let custom = RetryPolicy::custom(|_, _| HOUR);
    let endless = RetryPolicy::Exponential { base: Duration::ZERO, max: HOUR };
    for (task, named) in [
        (job("a").backoff(custom), "x-backoff"),
        (job("a").backoff(endless), "x-backoff"),
        (job("a").give_up_after(Duration::from_millis(999)), "x-give-up-after"),
        (job("a").header("x-max-snoozes", "many"), "x-max-snoozes"),
        (job("a").header("x-max-crashes", "-1"), "x-max-crashes"),
        (job("a").on_exhausted(" "), "x-on-exhausted"),
        (job("a").on_exhausted_queue("ops"), "x-on-exhausted-queue"),
    ] {
        let error = fixture.client().enqueue(task).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Option(_)), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
    }
    fixture.keyspace().await.assert_unchanged_since(&before);

    // What is spent does not come with a new task.
    fixture.enqueue([job("again").max_snoozes(1).header("x-snoozed", "1").header("x-first-failed", "1")]).await;
    assert_eq!(
        fixture.in_state("again", TaskState::Pending).await.headers.keys().collect::<Vec<_>>(),
        ["x-max-snoozes"]
    );

    // Go's clients check nothing.
    fixture.enqueue([job("foreign")]).await;
    let mut message = fixture.compose(job("foreign")).message;
    for (header, text) in [("x-max-snoozes", "none"), ("x-backoff", "fast"), ("x-give-up-after", "soon")] {
        message.headers.insert(header.to_owned(), text.to_owned());
    }
    let words: [&[u8]; 4] = [b"HSET", b"asynq:{q}:t:foreign", b"msg", &message.to_bytes()];
    let _: i64 = fixture.cmd(&words).await;
    let fail = async |_: Job| Err::<(), Failure>("boom".into());
    let server = fixture.server(Router::new(()).route("job", fail)).start().await.unwrap();
    let failed = fixture.in_state("foreign", TaskState::Retry).await;
    assert_eq!((failed.next_process_at.unwrap() - failed.last_failed_at.unwrap()).num_seconds(), 3_600);
    server.shutdown().await;
}
