//! Chains and workflows in the in-process store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::RawTask;
use queue_core::flow::Otherwise;
use queue_redis::{Batch, BatchState, Parents};
use queue_testing::TestQueue;
use queue_worker::{Failure, Output, Router, State, Task};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 3_600);

type Ran = Arc<Mutex<Vec<String>>>;

/// A node that notes its name and returns its length, or dies.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "step")]
struct Step {
    name: String,
}

/// A node that notes the results of those it has waited for.
#[derive(Serialize, Deserialize, Task)]
#[task(type = "sum")]
struct Sum {
    of: Vec<String>,
}

async fn step(step: Step, State(ran): State<Ran>) -> Result<Output<usize>, Failure> {
    ran.lock().unwrap().push(step.name.clone());
    if step.name == "die" { Err(Failure::archive("dead")) } else { Ok(Output(step.name.len())) }
}

async fn sum(sum: Sum, parents: Parents, State(ran): State<Ran>) -> Result<(), Failure> {
    let mut lengths = Vec::<usize>::new();
    for node in &sum.of {
        lengths.extend(parents.all::<usize>(node).or_else(|_| parents.get(node).map(|length| vec![length]))?);
    }
    ran.lock().unwrap().push(format!("sum {lengths:?}"));
    Ok(())
}

fn router(ran: &Ran) -> Router<Ran> {
    Router::new(ran.clone()).task(step).task(sum)
}

fn named(name: &str) -> Step {
    Step { name: name.to_owned() }
}

async fn state_of(flow: &Batch) -> (BatchState, u64, u64) {
    let status = flow.status().await.unwrap();
    (status.state, status.succeeded, status.skipped)
}

#[tokio::test]
async fn drain_works_a_chain_step_by_step_and_hands_results_on() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let chain = queue.client().chain().then(named("one")).then_all(["three", "four"].map(named));
    let chain = chain.then(Sum { of: vec!["step-2".to_owned()] }).start().await.unwrap();
    queue.drain(router(&ran)).await.assert_succeeded(4);
    assert_eq!(state_of(&chain).await, (BatchState::Succeeded, 3, 0));
    let mut ran = ran.lock().unwrap().clone();
    assert_eq!((ran.remove(0), ran.pop()), ("one".to_owned(), Some("sum [5, 4]".to_owned())));
    ran.sort();
    assert_eq!(ran, ["four", "three"]);
}

#[tokio::test]
async fn drain_works_the_branches_that_a_death_leaves() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let flow = queue.client().workflow().task("test", named("die"));
    let flow = flow.task("ship", named("ship")).after(["test"]).task("undo", named("undo")).after_failure(["test"]);
    let flow = flow.task("tidy", named("tidy")).after_end(["ship", "undo"]).start().await.unwrap();
    assert_eq!(queue.drain(router(&ran)).await.len(), 3);
    assert_eq!(state_of(&flow).await, (BatchState::Dead, 2, 1));
    assert_eq!(*ran.lock().unwrap(), ["die", "undo", "tidy"]);
}

#[tokio::test]
async fn drain_for_lets_timers_end_and_signals_come_too_late() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let flow = queue.client().workflow().timer("rest", DAY).task("wake", named("wake")).after(["rest"]);
    let flow = flow.signal("word").within(2 * DAY, Otherwise::Skip).task("heed", RawTask::new("step")).after(["word"]);
    let flow = flow.start().await.unwrap();
    assert!(queue.drain(router(&ran)).await.is_empty());
    queue.drain_for(DAY + Duration::from_secs(60), router(&ran)).await.assert_succeeded(1);
    assert_eq!(state_of(&flow).await, (BatchState::Running, 2, 0));
    assert!(queue.drain_for(DAY, router(&ran)).await.is_empty());
    assert_eq!(state_of(&flow).await, (BatchState::Succeeded, 2, 2));
}

#[tokio::test]
async fn drain_goes_on_when_a_signal_has_come() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let flow = queue.client().workflow().signal("word").task("heed", named("heed")).after(["word"]);
    let flow = flow.start().await.unwrap();
    assert!(queue.drain(router(&ran)).await.is_empty());
    flow.signal("word", &"go").await.unwrap();
    queue.drain(router(&ran)).await.assert_succeeded(1);
    assert_eq!(state_of(&flow).await, (BatchState::Succeeded, 2, 0));
}
