//! Batches: what members, callbacks and tools do to each other.

mod additions;
mod callbacks;
mod ends;
mod graphs;
mod growing;
mod left_alone;
mod model;
mod reruns;
mod signals;
mod taken_up;
mod tampered;
mod together;

use std::time::Duration;

use queue_core::RawTask;
use queue_redis::flow::Flows;
use queue_redis::{Batch, BatchStatus, Client};
use queue_worker::{Failure, Job, Router, Server};

use crate::support::{Events, Fixture, PATIENCE, QUEUE, wait_for, with};

/// What ran, in this order: types of callbacks, and payloads of members.
type Ran = Events;

fn count(ran: &Ran, what: &str) -> usize {
    ran.all().iter().filter(|ran| *ran == what).count()
}

/// A member of a batch; what it does is its payload: `ok`, `die`, `fail once`, `fail for long`, or what is noted.
fn member(does: &str) -> RawTask {
    RawTask::new("member").payload(does.to_owned()).queue(QUEUE).max_retry(3)
}

fn callback(event: &str) -> RawTask {
    RawTask::new(event).queue("callbacks")
}

async fn work(ran: Ran, job: Job) -> Result<(), Failure> {
    let does = String::from_utf8_lossy(job.payload()).into_owned();
    let dies = does.starts_with("die") && !ran.all().contains(&"heal".to_owned());
    if dies {
        ran.tell(does);
        return Err(Failure::archive("dead"));
    }
    if does == "fail once" && job.attempt() == 1 {
        ran.tell("failed");
        return Err(Failure::retry_in(Duration::from_secs(1), "once"));
    }
    // Nobody tries it again before somebody asks for it.
    if does == "fail for long" && job.attempt() == 1 {
        ran.tell("failed");
        return Err(Failure::retry_in(Duration::from_secs(3600), "once"));
    }
    ran.tell(does);
    Ok(())
}

/// A router for members, and for callbacks of all four events.
fn router(ran: &Ran) -> Router<Ran> {
    let note = async |ran: Ran, job: Job| ran.tell(job.task_type());
    Router::new(ran.clone())
        .route("member", with(ran, work))
        .route("death", with(ran, note))
        .route("complete", with(ran, note))
        .route("success", with(ran, note))
        .route("settled", with(ran, note))
}

/// A server for members and callbacks.
fn server<S: Clone + Send + Sync + 'static>(fixture: &Fixture, router: Router<S>) -> Server {
    fixture.server(router).queues([(QUEUE, 1), ("callbacks", 1)])
}

fn client(fixture: &Fixture) -> Client {
    Client::new(fixture.redis())
}

fn with_callbacks(client: &Client) -> queue_redis::BatchBuilder {
    client
        .batch()
        .on_death(callback("death"))
        .on_complete(callback("complete"))
        .on_success(callback("success"))
        .on_settled(callback("settled"))
}

async fn over(batch: &Batch) -> BatchStatus {
    batch.wait(PATIENCE).await.unwrap()
}

/// Looks after a tree and its queues as the leader does.
async fn tend(fixture: &Fixture, batch: &Batch) {
    let flows = Flows::new(fixture.broker.clone(), std::sync::Arc::new(queue_core::SystemClock));
    for queue in [QUEUE, "callbacks"] {
        flows.tend_queue(queue).await.unwrap();
    }
    flows.tend(batch.id().root()).await.unwrap();
}

/// Waits until a batch is as it should be.
async fn until(batch: &Batch, what: &str, is: impl Fn(&BatchStatus) -> bool) -> BatchStatus {
    wait_for(what, async || Some(batch.status().await.unwrap()).filter(|status| is(status))).await
}

/// The keys of ours, of all flows.
async fn flow_keys(fixture: &Fixture) -> Vec<String> {
    let keys: Vec<String> = fixture.cmd(&["KEYS", "asynq:x:{*"]).await;
    keys
}
