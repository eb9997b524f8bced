//! Runs handlers for the tasks of an asynq-compatible queue.
//!
//! A handler is an async function. Its first argument is the payload, which also says which tasks it
//! serves; the others are [extractors](extract). What it returns decides what happens to the task.
//!
//! ```no_run
//! use queue_worker::{Failure, Job, Output, Router, Server, State, Task};
//! use queue_redis::Client;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! #[task(kind = "email:welcome", queue = "mail", max_retry = 5, timeout = "30s", retention = "1h")]
//! struct Welcome { user: u64 }
//!
//! #[derive(Clone)]
//! struct Mailer;
//!
//! async fn welcome(task: Welcome, State(_mailer): State<Mailer>, job: Job) -> Result<Output<String>, Failure> {
//!     if task.user == 0 {
//!         return Err(Failure::archive("user 0 has no address")); // no point in trying again
//!     }
//!     Ok(Output(format!("attempt {} reached user {}", job.retried() + 1, task.user)))
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("redis://127.0.0.1:6379").await?;
//! client.enqueue(Welcome { user: 7 }).await?;
//!
//! let router = Router::new(Mailer).task(welcome);
//! Server::new(client.redis().clone(), router)
//!     .queues([("mail", 3), ("default", 1)])
//!     .concurrency(50)
//!     .run() // until SIGTERM or Ctrl-C
//!     .await?;
//! # Ok(()) }
//! ```

pub mod aggregate;
mod events;
pub mod extract;
mod handler;
#[doc(hidden)]
pub mod inline;
mod job;
mod log;
mod middleware;
mod panic;
mod router;
mod routes;
mod server;
mod work;

pub use aggregate::{Aggregation, Aggregator, Group};
pub use events::{End, Event};
pub use extract::{Extension, FromJob, FromRef, Headers, State};
pub use handler::{Answer, BlockingHandler, Handler, IntoOutcome, Output};
pub use job::{CancelReason, Job};
pub use middleware::{Next, from_fn};
pub use panic::Panicked;
pub use queue_core::outcome::Failure;
pub use queue_core::{RetryPolicy, Task};
pub use queue_macros::{Task, debug_handler};
pub use queue_redis::{Stderr, log_to_stderr};
pub use router::{Route, Router};
pub use server::{Handle, MAX_RESULT_BYTES, Server, ServerError, Unhandled};
pub use tokio_util::sync::CancellationToken;
pub use work::{Undecodable, WorkOptions};

#[doc(hidden)]
pub mod private {
    //! What the macros write refers to these.
    pub use queue_core::{Json, MessagePack, Protobuf, Raw, Task, TaskOptions};

    pub use crate::extract::FromJob;
    pub use crate::handler::{HandlerError, IntoOutcome};
}
