#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! * [`TestQueue`]: queues for one test, inside this process and with a clock that the test moves, or on a
//!   private Redis.
//! * [`assert_enqueued!`], [`refute_enqueued!`]: what the code under test has enqueued.
//! * [`TestQueue::drain`], [`TestQueue::drain_for`]: work what is there, one task after another, and tell what
//!   became of each.
//! * [`run_inline`]: one task through its handler, without any queue.
//! * [`Store`]: the store by itself, a small Redis inside this process that runs the scripts of the real one.
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
