//! Who runs it, and how often.

use std::sync::Arc;

use queue_core::SystemClock;
use queue_redis::flow::Flows;
use queue_redis::{BatchState, To, Verdict, WorkerState};

use super::{Ran, decided, flush, labelled, pretend, serve, states, until, vanish};
use crate::support::{Fixture, PATIENCE};

#[tokio::test]
async fn each_server_runs_it_once_and_its_result_is_told() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let mut servers = Vec::new();
    for name in ["a", "b", "c", ""] {
        servers.push(serve(&fixture, &ran, name).await);
    }
    let sent = flush(&fixture).send().await.unwrap();
    assert_eq!(sent.left_out().len(), 1, "one has no name: {:?}", sent.left_out());
    let status = decided(&sent).await;
    assert_eq!((status.verdict, status.quorum, status.succeeded()), (Verdict::Reached, 3, 3));
    for (worker, name) in status.workers.iter().zip(["a", "b", "c"]) {
        assert_eq!((&*worker.server, worker.state), (name, WorkerState::Succeeded));
        assert_eq!(worker.read::<String>().unwrap(), Some(format!("done by {name}")));
        assert_eq!((&*worker.queue, &worker.error), (&*format!("q}}@{name}"), &None));
    }
    assert_eq!(ran.sorted(), ["a all", "b all", "c all"]);
    assert_eq!(sent.batch().wait(PATIENCE).await.unwrap().state, BatchState::Succeeded);
    for server in servers {
        server.shutdown().await;
    }
    // The results are there until it is forgotten, and no longer.
    let kept: Vec<String> = fixture.cmd(&["KEYS", "asynq:{q}@*:t:*"]).await;
    assert_eq!(kept.len(), 3, "{kept:?}");
    let _: i64 = fixture.cmd(&["HSET", &format!("asynq:x:{{{}}}:0:flow", sent.id()), "over", "1"]).await;
    let flows = Flows::new(fixture.broker.clone(), Arc::new(SystemClock));
    assert_eq!(flows.tend(sent.id().root()).await.unwrap(), None);
    for pattern in ["asynq:{q}@*:t:*", "asynq:x:{*"] {
        assert_eq!(fixture.cmd::<Vec<String>>(&["KEYS", pattern]).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn labels_and_counts_choose_among_those_that_are_alive() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let servers = [
        labelled(&fixture, &ran, "a", &["gpu"]).await,
        labelled(&fixture, &ran, "b", &["gpu", "eu"]).await,
        labelled(&fixture, &ran, "c", &["eu"]).await,
    ];
    decided(&flush(&fixture).to(To::labelled("gpu")).send().await.unwrap()).await;
    assert_eq!(ran.sorted(), ["a all", "b all"]);
    decided(&flush(&fixture).to(To::servers(["c"])).send().await.unwrap()).await;
    assert_eq!(ran.sorted(), ["a all", "b all", "c all"]);
    let two = decided(&flush(&fixture).to(To::count(2)).send().await.unwrap()).await;
    assert_eq!((two.workers.len(), two.verdict, ran.events.count()), (2, Verdict::Reached, 5));
    assert_ne!(two.workers[0].server, two.workers[1].server);
    for server in servers {
        server.shutdown().await;
    }
}

/// One server has ended before it took its task, one died while it ran it, and one came later.
#[tokio::test]
async fn a_chosen_server_that_comes_back_goes_on_and_one_that_comes_later_takes_no_part() {
    let (fixture, ran) = (Fixture::start().await, Ran::default());
    let a = serve(&fixture, &ran, "a").await;
    let (b, c) = (pretend(&fixture, "b").await, pretend(&fixture, "c").await);
    let sent = flush(&fixture).send().await.unwrap();
    fixture.broker.dequeue(&"q}@c".into(), 1, &"run of c".into(), 1).await.unwrap();
    until(&sent, &[("a", WorkerState::Succeeded), ("b", WorkerState::Waiting), ("c", WorkerState::Running)]).await;
    for server in [&b, &c] {
        vanish(&fixture, server).await;
    }
    let gone = until(&sent, &[("a", WorkerState::Succeeded), ("b", WorkerState::Gone), ("c", WorkerState::Gone)]).await;
    assert_eq!(gone.verdict, Verdict::Open);
    let later = serve(&fixture, &ran, "later").await;
    let back = [serve(&fixture, &ran, "b").await, serve(&fixture, &ran, "c").await];
    let status = decided(&sent).await;
    assert_eq!((status.verdict, status.succeeded()), (Verdict::Reached, 3));
    assert_eq!(status.workers[2].read::<String>().unwrap().as_deref(), Some("done by c"));
    assert_eq!(ran.sorted(), ["a all", "b all", "c all"]);
    for server in [a, later].into_iter().chain(back) {
        server.shutdown().await;
    }
    assert_eq!(states(&status).len(), 3);
}
