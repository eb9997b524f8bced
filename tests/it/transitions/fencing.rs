//! A worker that has lost its task changes nothing any more, whoever has it now.

use std::panic::Location;
use std::time::Duration;

use queue_core::{RawTask, TaskMessage, TaskState};
use queue_redis::broker::Verdict::{self, Applied, Gone, Lost};
use queue_redis::broker::{Completion, Delivery, Report, Side};

use crate::support::{Fixture, Go, NOW, NOW_NS, QUEUE, job, recovered, report};

/// The error Go's recoverer stores.
const SILENT: &str = "asynq: task lease expired";

/// When a task that was taken at [`NOW`] can be somebody else's at the earliest.
const LATER: i64 = NOW + 60;

/// A task with everything that could be damaged.
fn task() -> RawTask {
    job("a").payload("p").unique(Duration::from_secs(600)).retention(Duration::from_secs(60))
}

async fn active(fixture: &Fixture) -> Delivery {
    fixture.active(task()).await
}

/// Lets the worker of a run try all it can do; nothing may change, and each answer has to be this.
#[track_caller]
fn all_refused<'a>(fixture: &'a Fixture, old: &'a Delivery, expected: Verdict) -> impl Future<Output = ()> + 'a {
    let caller = Location::caller();
    async move {
        for resent in [false, true] {
            refused(fixture, old, expected, resent, caller).await;
        }
    }
}

async fn refused(fixture: &Fixture, old: &Delivery, expected: Verdict, resent: bool, caller: &Location<'_>) {
    let late = NOW + 199;
    let failed = TaskMessage { error_msg: "late".into(), last_failed_at: late, retried: 9, ..old.message.clone() };
    let completed = TaskMessage { completed_at: late, ..old.message.clone() };
    let broker = &fixture.broker;
    let mut connection = fixture.redis().pooled().await.unwrap();
    for side in [Side::Oldest, Side::Youngest] {
        let report = Report { side, resent, ..report(old) };
        let (message, result) = (completed.clone(), Some("late".into()));
        let complete = [Completion { report: report.clone(), message, expires_at: late, result }];
        let before = fixture.keyspace().await;
        let renewal = broker.extend_lease(&mut connection, QUEUE, std::slice::from_ref(&old.run), NOW + 60).await;
        let verdicts = [
            ("done", broker.done(QUEUE, std::slice::from_ref(&report), late).await.unwrap()[0]),
            ("done in a batch", broker.done(QUEUE, &[report.clone(), report.clone()], late).await.unwrap()[0]),
            ("complete", broker.complete(QUEUE, &complete, late).await.unwrap()[0]),
            ("retry", broker.retry(&report, &failed.to_bytes(), late, true, late).await.unwrap()),
            ("archive", broker.archive(&report, &failed.to_bytes(), late).await.unwrap()),
            ("requeue", broker.requeue(&report, NOW_NS).await.unwrap()),
            ("write_result", broker.write_result(&old.run, b"late").await.unwrap()),
            ("extend_lease", renewal.unwrap()[0]),
        ];
        for (name, verdict) in verdicts {
            assert_eq!(verdict, expected, "{caller}: {name}, resent: {resent}");
        }
        fixture.keyspace().await.assert_unchanged_since(&before);
    }
}

#[tokio::test]
async fn a_task_that_go_has_recovered_is_lost() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    let go = Go(&fixture);
    go.retry(&old.message, SILENT, NOW + 60, NOW + 90).await;
    all_refused(&fixture, &old, Lost).await;
    go.forward("a").await;
    all_refused(&fixture, &old, Lost).await;
}

/// Go's dequeue leaves the field `owner` of the run before; only the message tells the two runs apart.
#[tokio::test]
async fn a_task_that_go_works_on_is_lost() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    let go = Go(&fixture);
    go.retry(&old.message, SILENT, NOW + 60, NOW + 90).await;
    go.forward("a").await;
    assert_eq!(go.dequeue(NOW + 120).await, "a");
    let owner: String = fixture.cmd(&["HGET", "asynq:{q}:t:a", "owner"]).await;
    assert_eq!(owner, "run-1", "the test is about a stale owner");
    all_refused(&fixture, &old, Lost).await;
}

#[tokio::test]
async fn a_task_that_go_recovered_and_another_of_us_works_on_is_lost() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    let go = Go(&fixture);
    go.retry(&old.message, SILENT, NOW + 60, NOW + 90).await;
    go.forward("a").await;
    let new = fixture.take_at(LATER).await;
    all_refused(&fixture, &old, Lost).await;
    assert_eq!(fixture.broker.done(QUEUE, &[report(&new)], LATER).await.unwrap(), [Applied]);
    all_refused(&fixture, &old, Gone).await;
}

/// Recovers the task of this run as our recoverer does.
async fn recover(fixture: &Fixture, retried: i32) {
    let expired = fixture.broker.list_expired(QUEUE, NOW + 30, 0).await.unwrap().leases;
    let failed = TaskMessage { retried, ..expired[0].message.clone().unwrap() };
    assert_eq!(recovered(&fixture.broker, &expired[0], failed, Some(NOW + 60), NOW + 60).await, Applied);
}

#[tokio::test]
async fn a_task_that_we_have_recovered_is_lost() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    recover(&fixture, 1).await;
    all_refused(&fixture, &old, Lost).await;
    fixture.broker.forward(QUEUE, TaskState::Retry, (NOW + 60) * 1_000_000_000, 0).await.unwrap();
    all_refused(&fixture, &old, Lost).await;
    fixture.take_at(LATER).await;
    all_refused(&fixture, &old, Lost).await;
}

/// Were only the message compared, two runs with the same message would be one.
#[tokio::test]
async fn a_recovery_that_left_the_message_as_it_was_is_noticed() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    recover(&fixture, 0).await;
    fixture.broker.forward(QUEUE, TaskState::Retry, (NOW + 60) * 1_000_000_000, 0).await.unwrap();
    let new = fixture.take_at(LATER).await;
    assert_eq!(new.message, old.message, "the test is about equal messages");
    all_refused(&fixture, &old, Lost).await;
}

#[tokio::test]
async fn a_task_requeued_and_taken_again_by_the_same_server_is_another_run() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    assert_eq!(fixture.broker.requeue(&report(&old), NOW_NS).await.unwrap(), Applied);
    all_refused(&fixture, &old, Lost).await;
    let new = fixture.take_at(NOW + 1).await;
    all_refused(&fixture, &old, Lost).await;
    assert_eq!(fixture.broker.done(QUEUE, &[report(&new)], NOW).await.unwrap(), [Applied]);
}

/// Two leases that end in the same second: only the token tells the runs apart. No server reports on a run
/// after it has put the task back, except that it may not know whether the first sending arrived.
#[tokio::test]
async fn a_task_requeued_and_taken_again_within_a_second_is_another_run() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    assert_eq!(fixture.broker.requeue(&report(&old), NOW_NS).await.unwrap(), Applied);
    fixture.take().await;
    refused(&fixture, &old, Lost, true, Location::caller()).await;
}

#[tokio::test]
async fn a_task_deleted_and_enqueued_again_under_its_id_is_another_task() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    let go = Go(&fixture);
    go.retry(&old.message, SILENT, NOW + 60, NOW + 90).await;
    fixture.run("ZREM asynq:{q}:retry a").await;
    fixture.run(&format!("DEL asynq:{{q}}:t:a {}", old.message.unique_key)).await;
    all_refused(&fixture, &old, Gone).await;
    fixture.put([task()]).await;
    all_refused(&fixture, &old, Lost).await;
    let again = fixture.take_at(LATER).await;
    assert_eq!(again.message, old.message, "the test is about equal messages");
    all_refused(&fixture, &old, Lost).await;
    // The same in the hands of Go, which writes no owner.
    fixture.broker.done(QUEUE, &[report(&again)], LATER).await.unwrap();
    fixture.put([task()]).await;
    go.dequeue(LATER + 30).await;
    all_refused(&fixture, &old, Lost).await;
}

#[tokio::test]
async fn a_task_in_any_other_state_is_lost() {
    let fixture = Fixture::start().await;
    let old = active(&fixture).await;
    fixture.run("ZREM asynq:{q}:lease a").await;
    for state in TaskState::ALL {
        fixture.run(&format!("HSET asynq:{{q}}:t:a state {state}")).await;
        all_refused(&fixture, &old, Lost).await;
    }
}

/// The worker of the tests above can do all of it while the task is its own.
#[tokio::test]
async fn nothing_is_refused_to_the_owner() {
    let fixture = Fixture::start().await;
    let mut connection = fixture.redis().pooled().await.unwrap();
    let task = active(&fixture).await;
    assert_eq!(fixture.broker.write_result(&task.run, b"x").await.unwrap(), Applied);
    let runs = [task.run.clone()];
    assert_eq!(fixture.broker.extend_lease(&mut connection, QUEUE, &runs, NOW + 60).await.unwrap(), [Applied]);
    assert_eq!(fixture.broker.write_result(&task.run, b"y").await.unwrap(), Applied);
    assert_eq!(fixture.broker.done(QUEUE, &[report(&task)], NOW).await.unwrap(), [Applied]);
}
