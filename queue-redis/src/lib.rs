#![cfg_attr(feature = "derive", doc = include_str!("../README.md"))]
//!
//! # What is here
//!
//! * [`Redis`]: how the process is connected; cheap to clone.
//! * [`Client`]: enqueues tasks.
//! * [`broker`]: what servers and tools are built from, with one method for each atomic transition of a task.
//! * [`Batch`]: tasks that belong together, and what is enqueued when they have ended.
//! * [`events`]: what happens, told to those who listen.
//! * [`Semaphore`]: how many may do something at the same time, over all processes.
//! * [`Doctor`]: examines queues and repairs them. All else that operators do is in `queue-admin`.
//! * `embedded`: a private `redis-server` for demos and tests (feature `embedded`).
//!
//! Each transition is one Lua script in `lua/`, found there by the name of the [`broker::Broker`] method.

mod address;
pub mod broker;
mod busy_poll;
mod calls;
mod cancel;
pub mod check;
mod client;
mod clock;
mod connection;
pub mod doctor;
#[doc(hidden)]
pub mod duties;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
pub mod events;
mod feed;
pub mod flow;
#[doc(hidden)]
pub mod leader;
mod limiter;
mod link;
mod listener;
#[doc(hidden)]
pub mod log;
mod options;
mod placement;
mod script;
mod semaphore;
#[doc(hidden)]
pub mod service;
mod targets;
mod teller;
#[cfg(feature = "tls")]
mod tls;
mod waits;
mod wrong_type;

pub use calls::Call;
pub use check::{Checked, Role};
pub use client::{
    Client, EnqueueError, EnqueuedOnce, Finished, Interceptor, MAX_TASK_BYTES, OnceClaim, Outgoing, Publish, Published,
    TaskChanges, TaskHandle, WaitError,
};
pub use clock::RedisClock;
pub use connection::{Connection, Redis};
pub use doctor::{Copied, Doctor, Examination, Fault, Finding, Severity};
pub use error::Error;
pub use feed::Feed;
pub use flow::{
    Added, Batch, BatchBuilder, BatchError, BatchState, BatchStatus, Broadcast, BroadcastBuilder, BroadcastStatus,
    CallbackState, ParentError, Parents, Rerun, WorkerReport, WorkerState, WorkflowBuilder,
};
pub use limiter::Limiter;
pub use link::source::InProcess;
pub use listener::{Listener, Signal, Watch};
#[doc(hidden)]
pub use log::panic;
pub use log::{Stderr, log_to_stderr};
pub use options::{RedisOptions, TlsOptions};
pub use placement::{ClusterNode, Placement};
pub use queue_core::broadcast::{To, Verdict};
pub use queue_core::{RawTask, Task, TaskInfo, TaskOptions};
#[cfg(feature = "derive")]
pub use queue_macros::ClientTask as Task;
pub use semaphore::{Permit, Semaphore};

#[doc(hidden)]
pub mod private {
    //! What the derive macro writes refers to these.
    pub use queue_core::{Json, MessagePack, Protobuf, Raw, RetryPolicy, Task, TaskOptions};
}
