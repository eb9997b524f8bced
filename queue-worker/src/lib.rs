#![doc = include_str!("../README.md")]
//!
//! # Arguments of a handler
//!
//! The [extractors](extract) say what a handler can ask for, [`Failure`] and [`Answer`] what it can return.

pub mod aggregate;
mod budgets;
mod events;
mod exhausted;
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
mod sequel;
mod server;
mod work;

pub use aggregate::{Aggregation, Aggregator, Group};
pub use events::{End, Event};
pub use extract::{Cursor, Extension, FromJob, FromRef, Headers, State};
pub use handler::{Answer, BlockingHandler, Handler, IntoOutcome, Output};
pub use job::{CancelReason, CheckpointError, Job, ResultError};
pub use middleware::{Next, from_fn};
pub use panic::Panicked;
pub use queue_core::exhausted::Exhausted;
pub use queue_core::outcome::Failure;
pub use queue_core::{RetryPolicy, Task};
pub use queue_macros::{Task, debug_handler};
pub use queue_redis::{Stderr, log_to_stderr};
pub use router::Router;
pub use routes::Route;
pub use server::{Handle, MAX_RESULT_BYTES, Priorities, Server, ServerError, Unhandled};
pub use tokio_util::sync::CancellationToken;
pub use work::{Undecodable, WorkOptions};

#[doc(hidden)]
pub mod private {
    //! What the macros write refers to these.
    pub use queue_core::{Json, MessagePack, Protobuf, Raw, RetryPolicy, Task, TaskOptions};

    pub use crate::extract::FromJob;
    pub use crate::handler::{HandlerError, IntoOutcome};
}
