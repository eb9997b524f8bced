//! A testing kit for programs that use the queue.
//!
//! * [`TestQueue`]: queues for one test, inside this process and with a clock that the test moves, or on a
//!   private Redis.
//! * [`assert_enqueued!`], [`refute_enqueued!`]: what the code under test has enqueued.
//! * [`TestQueue::drain`], [`TestQueue::drain_for`]: work what is there, one task after another, and tell what
//!   became of each.
//! * [`run_inline`]: one task through its handler, without any queue.
//! * [`Store`]: the store by itself, a small Redis inside this process that runs the scripts of the real one.
//!
//! ```
//! use std::time::Duration;
//!
//! use queue_testing::{TestQueue, assert_enqueued, refute_enqueued};
//! use queue_worker::{End, Router, Task};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! #[task(kind = "email:welcome", queue = "mail", max_retry = 1)]
//! struct Welcome {
//!     user: u64,
//! }
//!
//! // The code under test.
//! async fn sign_up(queue: &queue_redis::Client, user: u64) {
//!     queue.enqueue(Welcome { user }).await.unwrap();
//! }
//!
//! async fn welcome(task: Welcome) -> Result<(), &'static str> {
//!     if task.user == 0 { Err("no such user") } else { Ok(()) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let queue = TestQueue::new();
//! sign_up(queue.client(), 0).await;
//! assert_enqueued!(queue, Welcome, |task| task.user == 0);
//!
//! let router = Router::new(()).task(welcome);
//! let drained = queue.drain(router.clone()).await;
//! assert_eq!(drained[0].end, End::Retried);
//! assert_eq!(drained[0].error.as_deref(), Some("no such user"));
//!
//! // An hour later, which takes no time, it has failed for good.
//! let drained = queue.drain_for(Duration::from_secs(3_600), router).await;
//! assert_eq!(drained.count(End::Archived), 1);
//! refute_enqueued!(queue, Welcome);
//! # }
//! ```
//!
//! # Which time is which
//!
//! By the [clock of the test](TestClock) go: when a task is due, its retries, its deadline, retention, leases,
//! locks of unique tasks, statistics. It stands still unless the test moves it.
//!
//! By tokio's time go: `sleep` in handlers, timeouts of attempts, how often a started
//! [`server`](TestQueue::server) looks around. `#[tokio::test(start_paused = true)]` makes tokio skip whatever it
//! would only wait for, so that a handler which sleeps for an hour takes none; queues inside this process bear that, and
//! the two times stay independent of each other. A private Redis does not bear it: tokio takes waiting for an answer
//! for idleness.

mod attempt;
mod clock;
mod drain;
mod expected;
mod macros;
mod queue;
mod run;
mod store;

pub use attempt::{AggregatedGroup, Attempt, Drained};
pub use clock::TestClock;
pub use drain::Drain;
pub use expected::Expected;
pub use queue::TestQueue;
pub use queue_worker::End;
pub use run::{RunInline, run_inline};
#[doc(hidden)]
pub use serde_json::json;
pub use store::Store;
