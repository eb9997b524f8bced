//! On a Redis Cluster of three masters with a replica each: everything works, over queues on all of them, while slots
//! move, and while a master dies.

mod batches;
mod doctor;
mod failover;
mod features;
mod flows;
mod locks;
mod metrics;
mod moving;
mod sizes;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::RawTask;
use queue_core::keys::QueueKeys;
use queue_redis::{Client, EnqueueError, Redis, RedisOptions};
use queue_worker::{Handle, Job, Router, Server};

use crate::support::{Cluster, eventually, with};

/// A queue on each of the masters, as [`Cluster::start`] gives them their slots.
pub(crate) fn queues() -> [String; 3] {
    [0..=5461, 5462..=10922, 10923..=16383].map(|slots| {
        let mut names = (0..).map(|n| format!("q{n}"));
        names.find(|name| slots.contains(&QueueKeys::new(name).slot())).unwrap()
    })
}

/// A handle that gives up after so long.
fn connect(cluster: &Cluster, patience: Duration) -> Redis {
    let options = RedisOptions { connect_timeout: patience, response_timeout: patience, ..cluster.options.clone() };
    Redis::lazy(&cluster.url(), options).unwrap()
}

/// How often each task was handled.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, u32>>>);

impl Counts {
    pub(crate) fn of(&self, id: &str) -> u32 {
        self.0.lock().unwrap().get(id).copied().unwrap_or(0)
    }

    pub(crate) fn distinct(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn router(&self) -> Router {
        let count = with(self, async |counts: Self, job: Job| {
            *counts.0.lock().unwrap().entry(job.id().to_owned()).or_default() += 1;
        });
        Router::new(()).route("job", count)
    }
}

async fn serve(redis: Redis, counts: &Counts, queues: &[String]) -> Handle {
    let server = Server::new(redis, counts.router()).queues(queues.iter().map(|queue| (queue.as_str(), 1)));
    server.concurrency(8).start().await.unwrap()
}

/// Enqueues tasks over these queues one by one, each until it is accepted, until told to stop; returns the ids.
/// A task whose fate was unknown is sent again under its id.
pub(crate) async fn pour(client: Client, queues: Vec<String>, stop: Arc<std::sync::atomic::AtomicBool>) -> Vec<String> {
    let mut ids = Vec::new();
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let id = format!("task-{}", ids.len());
        let queue = &queues[ids.len() % queues.len()];
        eventually("the task is accepted", async || {
            let task = RawTask::new("job").queue(queue.as_str()).task_id(id.as_str());
            match client.enqueue(task).await {
                Ok(_) | Err(EnqueueError::TaskIdConflict { .. }) => true,
                Err(EnqueueError::Redis(error)) if error.is_transient() => false,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        ids.push(id);
    }
    ids
}
