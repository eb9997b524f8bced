//! Operations that keep to a rate.

use std::sync::Arc;

use queue_admin::{
    Admin, Error, Filter, Inspector, Operation, OperationSpec, OperationState, OperationVerb, Pace, Role, Work,
};
use queue_core::TaskState;
use queue_core::clock::ManualClock;
use queue_core::wire::TaskMessage;
use tokio::sync::mpsc;

use super::operations::{admin, begin, finish};
use super::{at, start};
use crate::support::{Fixture, NOW, QUEUE, job, report};

const HOUR: i64 = 3_600;

fn replay(rate: &str) -> OperationSpec {
    let archived = Filter::new().state(TaskState::Archived);
    OperationSpec { rate: Some(rate.parse().unwrap()), ..OperationSpec::new(Work::Run, QUEUE, &archived) }
}

async fn archived(fixture: &Fixture, count: usize) {
    for n in 0..count {
        fixture.put_in(TaskState::Archived, job(&format!("t{n}"))).await;
    }
}

/// Carries it out until it has waited twice for its time, and is killed then; or until it ends.
async fn until_it_waits(fixture: &Fixture, inspector: &Inspector, id: &str) -> Operation {
    let (sender, mut told) = mpsc::unbounded_channel();
    let run = inspector.run_operation(id, Pace::Full, move |progress| sender.send(progress.so_far.changed).unwrap());
    let waits = async {
        let mut last = None;
        while let Some(changed) = told.recv().await {
            // Each step but one that waits is told with more than the one before.
            if last.replace(changed) == Some(changed) {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = run => return ended.unwrap(),
        () = waits => {}
    }
    // What is on its way to Redis arrives; half a minute later.
    let _: String = fixture.cmd(&["PING"]).await;
    fixture.run(&format!("DEL asynq:x:op:{{{id}}}:lease")).await;
    inspector.operation(id).await.unwrap()
}

async fn pending(inspector: &Inspector) -> u64 {
    inspector.queue(QUEUE).await.unwrap().pending
}

#[tokio::test]
async fn an_operation_keeps_to_its_rate_and_so_does_whoever_goes_on_with_it() {
    let (fixture, inspector) = start().await;
    archived(&fixture, 3).await;
    let ada = admin(&inspector, Role::Operator);
    let id = begin(&ada, replay("1/1h")).await.id;
    for hour in 0..3 {
        let inspector = at(&fixture, NOW + hour * HOUR);
        // Each process waits for the same hour.
        for _ in 0..2 {
            let now = until_it_waits(&fixture, &inspector, &id).await;
            assert_eq!(pending(&inspector).await, hour as u64 + 1, "{now:?}");
        }
    }
    let done = finish(&at(&fixture, NOW + 3 * HOUR), &id).await;
    assert_eq!((done.state, done.changed, done.matched), (OperationState::Done, 3, 3));
    assert_eq!(done.spec.rate.unwrap().to_string(), "1/1h");
}

#[tokio::test]
async fn tasks_of_a_fast_rate_are_changed_together_for_no_longer_than_a_moment() {
    let (fixture, inspector) = start().await;
    archived(&fixture, 90).await;
    let ada = admin(&inspector, Role::Operator);
    let id = begin(&ada, replay("100/s")).await.id;
    for second in 0..2 {
        // Those of a fifth of a second, twice: by so much it may be late.
        let inspector = at(&fixture, NOW + second);
        until_it_waits(&fixture, &inspector, &id).await;
        assert_eq!(pending(&inspector).await, 40 * (second as u64 + 1));
    }
}

#[tokio::test]
async fn whoever_waits_for_its_time_hears_what_is_wanted_and_stops_at_the_bound() {
    let (fixture, inspector) = start().await;
    archived(&fixture, 3).await;
    let ada = admin(&inspector, Role::Operator);
    let id = begin(&ada, OperationSpec { at_most: Some(2), ..replay("1/1h") }).await.id;
    let steer = async |verb| {
        let (sender, mut told) = mpsc::unbounded_channel();
        let run = inspector.run_operation(&id, Pace::Gentle, move |progress| sender.send(progress).unwrap());
        let steer = async {
            while told.recv().await.unwrap().so_far.changed == 0 {}
            ada.steer_operation(&id, verb).await.unwrap()
        };
        tokio::join!(run, steer).0.unwrap()
    };
    let paused = steer(OperationVerb::Pause).await;
    assert_eq!((paused.state, paused.changed), (OperationState::Paused, 1));
    ada.steer_operation(&id, OperationVerb::Resume).await.unwrap();
    let later = at(&fixture, NOW + HOUR);
    let stopped = finish(&later, &id).await;
    assert_eq!((stopped.state, stopped.changed), (OperationState::Stopped, 2));
    assert!(stopped.error.unwrap().starts_with("limit-reached"));
    let id = begin(&ada, replay("1/1h")).await.id;
    let (sender, mut told) = mpsc::unbounded_channel();
    let run = inspector.run_operation(&id, Pace::Full, move |progress| sender.send(progress).unwrap());
    let cancel = async {
        told.recv().await.unwrap();
        ada.steer_operation(&id, OperationVerb::Cancel).await.unwrap()
    };
    assert_eq!(tokio::join!(run, cancel).0.unwrap().state, OperationState::Cancelled);
}

/// Takes what is pending, and has it fail for good.
async fn fail_again(fixture: &Fixture, at: i64) {
    let delivery = fixture.take().await;
    let failed = TaskMessage { error_msg: "again".into(), last_failed_at: at, ..delivery.message.clone() };
    fixture.broker.archive(&report(&delivery), &failed.to_bytes(), at).await.unwrap();
}

#[tokio::test]
async fn what_has_run_and_failed_again_is_not_run_once_more_by_whoever_goes_on() {
    let (fixture, inspector) = start().await;
    archived(&fixture, 2).await;
    let ada = admin(&inspector, Role::Operator);
    // By what fits, slowly and fast, and by their ids.
    let ids = OperationSpec::of_ids(Work::Run, QUEUE, vec!["t0".to_owned(), "t1".to_owned()]);
    for (n, spec) in [replay("1/1h"), OperationSpec { rate: replay("1/1h").rate, ..ids }].into_iter().enumerate() {
        let now = NOW + n as i64 * 100 * HOUR;
        let id = begin(&admin(&at(&fixture, now), Role::Operator), spec).await.id;
        until_it_waits(&fixture, &at(&fixture, now), &id).await;
        fail_again(&fixture, now + 5).await;
        until_it_waits(&fixture, &at(&fixture, now + HOUR), &id).await;
        let next: Vec<String> = fixture.cmd(&["LRANGE", "asynq:{q}:pending", "0", "-1"]).await;
        assert_eq!(next, ["t1"], "{n}");
        fail_again(&fixture, now + HOUR).await;
        let done = until_it_waits(&fixture, &at(&fixture, now + 2 * HOUR), &id).await;
        assert_eq!((done.state, done.changed, pending(&inspector).await), (OperationState::Done, 2, 0), "{n}");
    }
    // One without a rate, whose process died when it had run all.
    let now = NOW + 300 * HOUR;
    let later = at(&fixture, now);
    let all = OperationSpec { rate: None, ..replay("1/s") };
    let id = begin(&ada, all).await.id;
    fixture.run(&format!("HSET asynq:x:op:{{{id}}} started_ms {}", now * 1_000)).await;
    fail_behind(&later, &fixture, now).await;
    let done = finish(&later, &id).await;
    assert_eq!((done.state, done.changed), (OperationState::Done, 1));
}

/// Has one of two archived tasks run and fail again, behind the back of an operation.
async fn fail_behind(inspector: &Inspector, fixture: &Fixture, at: i64) {
    inspector.run_task(QUEUE, "t0").await.unwrap();
    fail_again(fixture, at + 1).await;
}

#[tokio::test]
async fn a_restoration_has_no_rate_and_a_rate_is_more_than_nothing() {
    let (_fixture, inspector) = start().await;
    let ada: Admin = admin(&inspector, Role::Admin);
    let spec = OperationSpec { rate: "1/s".parse().ok(), ..OperationSpec::restore("x") };
    assert!(matches!(ada.start_operation(spec, None).await.unwrap_err(), Error::OperationInvalid(_)));
    assert!(serde_json::from_str::<OperationSpec>(r#"{"action":"run","rate":"0/1s"}"#).is_err());
}

/// A page was looked at once, and changed for hours after that.
#[tokio::test]
async fn a_task_that_no_longer_fits_when_it_is_its_turn_is_not_changed() {
    for work in [Work::Delete, Work::Archive, Work::Run] {
        let (fixture, inspector) = start().await;
        let state = if work == Work::Archive { TaskState::Scheduled } else { TaskState::Archived };
        for id in ["t0", "t1"] {
            fixture.put_in(state, job(id).payload("old")).await;
        }
        let clock = Arc::new(ManualClock::at_secs(NOW));
        let working = Inspector::with_clock(fixture.redis(), clock.clone());
        let old = Filter::new().state(state).text("old");
        let spec = OperationSpec { rate: replay("1/1h").rate, bin: false, ..OperationSpec::new(work, QUEUE, &old) };
        let id = begin(&admin(&inspector, Role::Admin), spec).await.id;
        let (sender, mut told) = mpsc::unbounded_channel();
        let run = working.run_operation(&id, Pace::Full, move |progress| sender.send(progress.so_far.changed).unwrap());
        let meanwhile = async {
            while told.recv().await.unwrap() == 0 {}
            inspector.update_payload(QUEUE, "t1", "new").await.unwrap();
            clock.set_secs(NOW + HOUR);
        };
        let (done, ()) = tokio::join!(run, meanwhile);
        let done = done.unwrap();
        assert_eq!((done.state, done.matched, done.changed, done.skipped), (OperationState::Done, 2, 1, 1), "{work:?}");
        assert_eq!(inspector.task(QUEUE, "t1").await.unwrap().state, state);
    }
}
