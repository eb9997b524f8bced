//! Batches in the in-process store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::{IntoTask as _, RawTask};
use queue_redis::{Batch, BatchState};
use queue_testing::TestQueue;
use queue_worker::{Failure, Job, Router, Task};
use serde::{Deserialize, Serialize};

type Ran = Arc<Mutex<Vec<String>>>;

/// Members `grow` adds two more, `die` is archived; callbacks are noted like members.
async fn work(ran: Ran, job: Job) -> Result<(), Failure> {
    ran.lock().unwrap().push(job.task_type().to_owned());
    if job.task_type() == "die" { Err(Failure::archive("dead")) } else { Ok(()) }
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "grow")]
struct Grow;

async fn grow(_: Grow, batch: Batch) -> Result<(), Failure> {
    batch.add_all(["leaf", "leaf"].map(RawTask::new)).await?;
    Ok(())
}

fn router(ran: &Ran) -> Router {
    let types = ["leaf", "die", "complete", "success", "death", "settled"];
    types.into_iter().fold(Router::new(()).task(grow), |router, task_type| {
        let ran = ran.clone();
        router.route(task_type, move |job| work(ran.clone(), job))
    })
}

async fn made(queue: &TestQueue, members: &[&'static str]) -> Batch {
    let batch = queue.client().batch().on_complete(RawTask::new("complete")).on_success(RawTask::new("success"));
    let batch = batch.on_death(RawTask::new("death")).on_settled(RawTask::new("settled"));
    batch
        .add_all(members.iter().map(|task_type| match *task_type {
            "grow" => Grow.into_task().unwrap(),
            other => RawTask::new(other),
        }))
        .await
        .unwrap()
}

#[tokio::test]
async fn drain_works_members_and_then_callbacks_in_their_order() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let batch = made(&queue, &["leaf", "grow"]).await;
    queue.drain(router(&ran)).await.assert_succeeded(7);
    assert_eq!(batch.status().await.unwrap().state, BatchState::Succeeded);
    let mut ran = ran.lock().unwrap().clone();
    assert_eq!(ran.split_off(3), ["complete", "success", "settled"]);
    assert_eq!(ran, ["leaf"; 3]);
    assert!(queue.enqueued().await.is_empty());
}

#[tokio::test]
async fn drain_works_the_callback_of_a_death() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let batch = made(&queue, &["die", "leaf"]).await;
    assert_eq!(queue.drain(router(&ran)).await.len(), 5);
    assert_eq!(batch.status().await.unwrap().state, BatchState::Dead);
    let ran = ran.lock().unwrap();
    assert_eq!(ran.last().unwrap(), "settled");
    assert!(ran.contains(&"death".to_owned()) && !ran.contains(&"success".to_owned()), "{ran:?}");
}

#[tokio::test]
async fn what_a_worker_that_went_silent_had_of_a_batch_is_recovered_and_counts() {
    let (queue, ran) = (TestQueue::new(), Ran::default());
    let batch = made(&queue, &["leaf"]).await;
    let (token, expires) = ("silent:1".into(), queue.now().timestamp() + 30);
    queue.broker().dequeue(&"default".into(), 1, &token, expires).await.unwrap();
    queue.drain(router(&ran)).await.assert_succeeded(0);
    assert!(!batch.status().await.unwrap().is_over());
    queue.drain_for(Duration::from_secs(3_600), router(&ran)).await.assert_succeeded(4);
    assert_eq!(batch.status().await.unwrap().state, BatchState::Succeeded);
}
