//! How it ends: quorum, deadline, cancel, death.

use std::sync::Arc;
use std::time::Duration;

use queue_core::{Clock as _, SystemClock};
use queue_redis::broker::Seen;
use queue_redis::flow::Flows;
use queue_redis::{BatchError, BatchState, To, Verdict, WorkerState};

use super::{Ran, decided, flush, pretend, serve, states, until};
use crate::support::{Fixture, PATIENCE, eventually};

#[tokio::test]
async fn a_quorum_ends_the_wait_and_the_others_go_on() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    ran.hold_up("c");
    let servers =
        [serve(&fixture, &ran, "a").await, serve(&fixture, &ran, "b").await, serve(&fixture, &ran, "c").await];
    let sent = flush(&fixture).quorum(2).send().await.unwrap();
    assert_eq!(decided(&sent).await.verdict, Verdict::Reached);
    let status =
        until(&sent, &[("a", WorkerState::Succeeded), ("b", WorkerState::Succeeded), ("c", WorkerState::Running)]);
    assert_eq!(status.await.verdict, Verdict::Reached);
    ran.let_go();
    assert_eq!(sent.batch().wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    assert_eq!(ran.sorted(), ["a all", "b all", "c all"]);
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_quorum_that_is_out_of_reach_ends_the_wait_and_is_met_when_the_dead_run_again() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    ran.hold_up("c");
    ran.let_die("a");
    ran.let_die("b");
    let servers =
        [serve(&fixture, &ran, "a").await, serve(&fixture, &ran, "b").await, serve(&fixture, &ran, "c").await];
    let sent = flush(&fixture).quorum(2).send().await.unwrap();
    assert_eq!(decided(&sent).await.verdict, Verdict::Missed);
    let status = until(&sent, &[("a", WorkerState::Dead), ("b", WorkerState::Dead), ("c", WorkerState::Running)]).await;
    let errors: Vec<_> = status.workers.iter().map(|worker| worker.error.as_deref()).collect();
    assert_eq!(errors, [Some("a cannot"), Some("b cannot"), None]);
    assert_eq!(status.workers[0].read::<String>().unwrap(), None);
    ran.dying.lock().unwrap().clear();
    ran.let_go();
    assert_eq!(sent.batch().retry_dead().await.unwrap(), 2);
    assert_eq!(decided(&sent).await.verdict, Verdict::Reached);
    assert_eq!(sent.batch().wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_not_over_at_the_deadline_is_cancelled() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    ran.hold_up("b");
    let servers = [serve(&fixture, &ran, "a").await, serve(&fixture, &ran, "b").await];
    pretend(&fixture, "c").await;
    let sent = flush(&fixture).deadline(SystemClock.now() + Duration::from_secs(3)).send().await.unwrap();
    let error = sent.wait(Duration::from_millis(10)).await.unwrap_err();
    assert!(matches!(error, BatchError::TimedOut { .. }), "{error}");
    eventually("b has begun", async || ran.events.count() == 2).await;
    assert_eq!(decided(&sent).await.verdict, Verdict::Missed);
    let batch = sent.batch().wait(PATIENCE).await.unwrap();
    assert_eq!((batch.state, batch.succeeded, batch.cancelled), (BatchState::Cancelled, 1, 2), "{batch:?}");
    let cancelled = WorkerState::Cancelled;
    assert_eq!(
        states(&sent.status().await.unwrap()),
        [("a", WorkerState::Succeeded), ("b", cancelled), ("c", cancelled)]
    );
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_broadcast_is_cancelled_and_what_was_deleted_is_told() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    for name in ["a", "b"] {
        pretend(&fixture, name).await;
    }
    let server = serve(&fixture, &ran, "c").await;
    let sent = flush(&fixture).quorum(2).send().await.unwrap();
    until(&sent, &[("a", WorkerState::Waiting), ("b", WorkerState::Waiting), ("c", WorkerState::Succeeded)]).await;
    let task = sent.status().await.unwrap().workers[0].task.clone();
    fixture.broker.delete_tasks("q}@a", Seen::Anywhere, &[task]).await.unwrap();
    let long_ago = (SystemClock.now_secs() - 3_600).to_string();
    let flow = format!("asynq:x:{{{}}}:0:flow", sent.id());
    let _: i64 = fixture.cmd(&["HSET", &flow, "touched", &long_ago, "looked", &long_ago]).await;
    Flows::new(fixture.broker.clone(), Arc::new(SystemClock)).tend(sent.id().root()).await.unwrap();
    until(&sent, &[("a", WorkerState::Removed), ("b", WorkerState::Waiting), ("c", WorkerState::Succeeded)]).await;
    assert!(sent.batch().cancel().await.unwrap());
    let status = decided(&sent).await;
    assert_eq!((status.verdict, status.state), (Verdict::Missed, BatchState::Cancelled));
    assert_eq!(status.workers[1].state, WorkerState::Cancelled);
    assert_eq!(ran.sorted(), ["c all"]);
    // Nothing of it is left in the way of the next.
    let next = flush(&fixture).to(To::servers(["c"])).send().await.unwrap();
    assert_eq!(decided(&next).await.verdict, Verdict::Reached);
    server.shutdown().await;
}
