//! A program that names this crate alone: tasks, handlers, a server, and tests without a Redis.

#![cfg(all(feature = "testing", feature = "scheduler", feature = "crypt", feature = "derive"))]

use std::time::Duration;

use queue::crypt::{Encryption, KeyRing};
use queue::testing::{TestQueue, assert_enqueued};
use queue::{End, Failure, Job, Output, RawTask, Router, State, Task, TaskOptions, TaskState, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "email:welcome", queue = "mail", max_retry = 1, retention = "1h")]
struct Welcome {
    user: u64,
}

#[debug_handler(state = &'static str)]
async fn welcome(task: Welcome, State(from): State<&'static str>, job: Job) -> Result<Output<String>, Failure> {
    if task.user == 0 {
        return Err("no such user".into());
    }
    Ok(Output(format!("{from} wrote to user {}, attempt {}", task.user, job.retried() + 1)))
}

#[tokio::test]
async fn one_crate_enqueues_and_works_a_task() {
    let queue = TestQueue::new();
    let later = TaskOptions::new().process_in(Duration::from_secs(60));
    let scheduled = queue.client().enqueue_with(Welcome { user: 7 }, later).await.unwrap();
    assert_eq!(scheduled.state, TaskState::Scheduled);
    assert_enqueued!(queue, Welcome, |task| task.user == 7, queue = "mail");
    let drained = queue.drain_for(Duration::from_secs(61), Router::new("us").task(welcome)).await;
    assert_eq!(drained[0].end, End::Succeeded, "{drained}");
}

#[tokio::test]
async fn one_crate_encrypts_what_it_enqueues() {
    let queue = TestQueue::new();
    let keys = KeyRing::parse("a:CwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCws=").unwrap();
    let encryption = Encryption::new(keys);
    let client = encryption.client(queue.client().clone());
    let stored = client.enqueue(Welcome { user: 4242 }).await.unwrap();
    assert!(!String::from_utf8_lossy(&stored.payload).contains("4242"), "{stored:?}");
    let drained = queue.drain(encryption.router(Router::new("us").task(welcome))).await;
    assert_eq!(drained[0].end, End::Succeeded, "{drained}");
}

#[tokio::test]
async fn one_crate_refuses_a_bad_cron_spec() {
    let scheduler = queue::scheduler::Scheduler::new(TestQueue::new().client().redis().clone());
    let refused = scheduler.register(queue::scheduler::Entry::new("every now and then", RawTask::new("t")));
    assert!(refused.is_err());
}
