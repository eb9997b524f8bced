//! Tests of a program that uses the queue: nothing but this process, and a year that takes no time.
//!
//! `cargo run -p queue-examples --example testing` runs them as a program; in your own program they are
//! `#[tokio::test]` functions.

use std::time::Duration;

use queue::testing::{Drain, End, RunInline, TestQueue, assert_enqueued, refute_enqueued, run_inline};
use queue::{Client, EnqueueError, Failure, Job, Output, RetryPolicy, Router, State, Task, TaskOptions};
use queue_examples::Error;
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

// What is to be tested: a shop that thanks for orders, and asks for money until it comes.

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail:thanks", queue = "mail")]
struct Thanks {
    order: u64,
}

#[derive(Serialize, Deserialize, Task)]
#[task(type = "payment:remind", max_retry = 2)]
struct Remind {
    order: u64,
}

#[derive(Clone)]
struct Bank {
    paid: Vec<u64>,
}

async fn order(queue: &Client, order: u64) -> Result<(), EnqueueError> {
    queue.enqueue(Thanks { order }).await?;
    queue.enqueue_with(Remind { order }, TaskOptions::new().process_in(14 * DAY)).await?;
    Ok(())
}

async fn thank(task: Thanks) -> Output<String> {
    Output(format!("thank you for order {}", task.order))
}

async fn remind(task: Remind, State(bank): State<Bank>, job: Job) -> Result<(), Failure> {
    if bank.paid.contains(&task.order) {
        return Ok(());
    }
    Err(format!("order {} is not paid, reminder {}", task.order, job.retried() + 1).into())
}

fn router(paid: &[u64]) -> Router<Bank> {
    Router::new(Bank { paid: paid.to_vec() }).task(thank).task(remind)
}

// The tests.

async fn an_order_is_thanked_for_at_once_and_reminded_of_in_two_weeks() {
    let queue = TestQueue::new();
    order(queue.client(), 42).await.unwrap();

    assert_enqueued!(queue, Thanks, |task| task.order == 42, queue = "mail", times = 1);
    assert_enqueued!(queue, "payment:remind", {"order": 42}, at = queue.now() + 14 * DAY);
    refute_enqueued!(queue, Thanks, |task| task.order == 43);
}

async fn a_handler_is_a_function_like_any_other() {
    let attempt = run_inline(Thanks { order: 42 }, router(&[])).await;
    assert_eq!(attempt.assert_succeeded().json(), "thank you for order 42");

    let last = RunInline::new(Remind { order: 42 }).retried(2).run(router(&[])).await;
    assert_eq!((last.end, last.error.as_deref()), (End::Archived, Some("order 42 is not paid, reminder 3")));
}

async fn who_never_pays_is_reminded_three_times() {
    let queue = TestQueue::new();
    order(queue.client(), 42).await.unwrap();

    // What is due now is done now.
    queue.drain(router(&[])).await.assert_succeeded(1);
    // A year goes by. Each task is worked when it is due, on the clock of the test.
    let weekly = Drain::new().retry_policy(RetryPolicy::Fixed(7 * DAY));
    let drained = queue.drain_for_with(365 * DAY, router(&[]), weekly).await;
    println!("a year without payment:\n{drained}");
    assert_eq!((drained.count(End::Retried), drained.count(End::Archived)), (2, 1));
}

async fn who_pays_is_left_alone() {
    let queue = TestQueue::new();
    order(queue.client(), 42).await.unwrap();
    queue.drain_for(365 * DAY, router(&[42])).await.assert_succeeded(2);
    assert!(queue.enqueued().await.is_empty());
}

async fn a_server_works_on_such_a_queue_too() {
    let queue = TestQueue::new();
    let server = queue.server(router(&[42])).queues([("default", 1), ("mail", 1)]).start().await.unwrap();
    order(queue.client(), 42).await.unwrap();
    processed(&queue, "mail").await; // a clock that leaps while a task runs would end its lease
    queue.advance(14 * DAY); // and the server sees at once that a task is due
    processed(&queue, "default").await;
    server.shutdown().await;
    assert!(queue.enqueued().await.is_empty());
    assert_eq!(queue.inspector().queue("mail").await.unwrap().processed_total, 1);
}

async fn processed(queue: &TestQueue, name: &str) {
    while queue.inspector().queue(name).await.unwrap().processed_total == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    an_order_is_thanked_for_at_once_and_reminded_of_in_two_weeks().await;
    a_handler_is_a_function_like_any_other().await;
    who_never_pays_is_reminded_three_times().await;
    who_pays_is_left_alone().await;
    a_server_works_on_such_a_queue_too().await;
    println!("5 tests passed");
    Ok(())
}
