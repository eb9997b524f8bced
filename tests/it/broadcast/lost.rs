//! A server that dies with the task in hand, and does not come back: the leader takes the task from it.

use queue_core::{Clock as _, RawTask, SystemClock, TaskState};
use queue_redis::broker::Dequeued;
use queue_redis::{BatchState, Broadcast, To, Verdict, WorkerState};

use super::{Looks, Ran, flush, pretend, serve, states, until, vanish};
use crate::support::Fixture;

const LOST: &str = "q}@c";

/// `c` takes its task and dies.
async fn die_with_it(fixture: &Fixture, sent: &Broadcast, others: WorkerState) {
    let expires = SystemClock.now_secs() + 30;
    let taken = fixture.broker.dequeue(&LOST.into(), 1, &"c:7:id:1".into(), expires).await.unwrap();
    assert!(matches!(taken, Dequeued::Tasks(tasks) if tasks.len() == 1));
    vanish(fixture, &pretend(fixture, "c").await).await;
    let gone = WorkerState::Gone;
    until(sent, &[("a", others), ("b", others), ("c", gone)]).await;
}

#[tokio::test]
async fn the_task_in_the_hands_of_a_dead_server_waits_again_within_two_minutes_and_is_run_when_it_is_back() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let servers = [serve(&fixture, &ran, "a").await, serve(&fixture, &ran, "b").await];
    pretend(&fixture, "c").await;
    let mut looks = Looks::new(&fixture);
    let sent = flush(&fixture).send().await.unwrap();
    die_with_it(&fixture, &sent, WorkerState::Succeeded).await;
    let task = sent.status().await.unwrap().workers[2].task.clone();
    let state = async || fixture.inspector().task(LOST, &task).await.unwrap().state;
    assert_eq!(state().await, TaskState::Active);
    looks.pass(120).await;
    assert_ne!(state().await, TaskState::Active);
    // The first crash has its task wait for 75 s at the most.
    looks.pass(100).await;
    assert_eq!(state().await, TaskState::Pending);
    assert_eq!(sent.status().await.unwrap().verdict, Verdict::Open, "all have to succeed, and it may come back");
    let back = serve(&fixture, &ran, "c").await;
    assert_eq!(super::decided(&sent).await.verdict, Verdict::Reached);
    assert_eq!(ran.sorted(), ["a all", "b all", "c all"]);
    for server in servers.into_iter().chain([back]) {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_cancel_that_met_a_dead_server_ends_the_broadcast() {
    let fixture = Fixture::start().await;
    for name in ["a", "b", "c"] {
        pretend(&fixture, name).await;
    }
    let mut looks = Looks::new(&fixture);
    let sent = flush(&fixture).quorum(1).send().await.unwrap();
    die_with_it(&fixture, &sent, WorkerState::Waiting).await;
    assert!(sent.batch().cancel().await.unwrap());
    let cancelled = WorkerState::Cancelled;
    let status = until(&sent, &[("a", cancelled), ("b", cancelled), ("c", WorkerState::Gone)]).await;
    assert_eq!((status.verdict, status.over), (Verdict::Open, None));
    let status = looks.until(&sent, |status| status.over.is_some()).await;
    assert_eq!((status.verdict, status.state), (Verdict::Missed, BatchState::Cancelled));
    assert_eq!(states(&status), [("a", cancelled), ("b", cancelled), ("c", cancelled)]);
}

#[tokio::test]
async fn a_task_that_may_not_crash_is_dead_and_the_quorum_goes_by_that() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let servers = [serve(&fixture, &ran, "a").await, serve(&fixture, &ran, "b").await];
    for (quorum, verdict) in [(3, Verdict::Missed), (2, Verdict::Reached)] {
        pretend(&fixture, "c").await;
        let mut looks = Looks::new(&fixture);
        let task = RawTask::new("flush").payload("all").max_crashes(0);
        let to = To::servers(["a", "b", "c"]);
        let sent = fixture.client().broadcast(task).to(to).queue("q").quorum(quorum).send().await.unwrap();
        die_with_it(&fixture, &sent, WorkerState::Succeeded).await;
        let status = looks.until(&sent, |status| status.workers[2].state == WorkerState::Dead).await;
        assert_eq!((status.verdict, status.state), (verdict, BatchState::Dead));
        let error = status.workers[2].error.as_deref().unwrap();
        assert!(error.contains("lease expired") && error.contains("c:7:id"), "{error}");
    }
    for server in servers {
        server.shutdown().await;
    }
}
