#![cfg_attr(all(feature = "worker", feature = "derive", feature = "metrics"), doc = include_str!("../README.md"))]
//!
//! # What is here
//!
//! At the root stand the types that an application needs: [`Client`] and `Task` to enqueue; with the feature `worker` also
//! `Router`, `Server`, and what handlers take and return. Each further feature is a module. Whoever builds servers or tools of
//! their own finds the plumbing in `queue-redis` and `queue-worker`, of which these items are re-exports.

#[cfg(feature = "derive")]
pub use queue_macros::FacadeTask as Task;
#[cfg(all(feature = "derive", feature = "worker"))]
pub use queue_macros::facade_debug_handler as debug_handler;

// Tasks, and what tells how they are worked.
pub use queue_core::exhausted::Exhausted;
pub use queue_core::flow::Otherwise;
pub use queue_core::progress::Progress;
pub use queue_core::task_log::{LogLine, TaskLog};
pub use queue_core::{
    Clock, Codec, DecodeError, EncodeError, Failure, IntoTask, Json, MessagePack, OptionError, Protobuf,
    PublishOutcome, Raw, RawTask, RetryPolicy, SystemClock, Task, TaskInfo, TaskOptions, TaskState, UniqueUntil,
};
// Redis and clients.
pub use queue_redis::broker::{Canceled, TaskLook};
#[cfg(feature = "embedded")]
pub use queue_redis::embedded;
#[doc(inline)]
pub use queue_redis::events;
pub use queue_redis::{
    Added, Batch, BatchBuilder, BatchError, BatchState, BatchStatus, Broadcast, BroadcastBuilder, BroadcastStatus,
    Call, CallbackState, Client, EnqueueError, Error, Finished, Interceptor, Limiter, Outgoing, ParentError, Parents,
    Permit, Publish, Published, Redis, RedisOptions, Rerun, Semaphore, Stderr, TaskChanges, TaskHandle, TlsOptions, To,
    Verdict, WaitError, WorkerReport, WorkerState, WorkflowBuilder, log_to_stderr,
};
// Handlers and servers.
#[cfg(feature = "worker")]
pub use queue_worker::{
    Aggregation, Aggregator, Answer, BlockingHandler, CancelReason, CancellationToken, CheckpointError, Cursor, End,
    Event, Extension, FromJob, FromRef, Group, Handle, Handler, Headers, IntoOutcome, Job, Next, Output, Panicked,
    Priorities, ResultError, Route, Router, Server, ServerError, State, Undecodable, Unhandled, WorkOptions, aggregate,
    extract, from_fn,
};

#[cfg(feature = "admin")]
pub mod admin {
    //! Looking at queues, tasks and servers, and changing tasks that no worker has: [`Inspector`].
    pub use queue_admin::{
        Action, Actor, Admin, AuditEntry, AuditPage, BadCursor, BatchExplanation, BatchView, Board, BoardRow, Branch,
        Cancellation, Changed, CronEntry, CronEvent, Cursor, DailyStats, Direction, EnqueueEvent, Error, Explanation,
        Filter, FilterError, Given, GroupInfo, Heeded, Inspector, Lane, LimitInfo, Listing, Outcome, Page, Permission,
        Progress, QueueInfo, Reason, Role, SchedulerEntry, Searched, ServerInfo, ServerVerb, UnixSecond, Verb, Waited,
        WhyUnreadable, WorkerInfo,
    };
    pub use queue_core::attempt::Attempt;
    pub use queue_core::flow::FlowId;
    pub use queue_core::forecast::{Drain, Forecast, Look, forecast};
    pub use queue_core::limit::{Breaker, LaneChange, LaneOrder, Limit, LimitError, LimitKey};
    pub use queue_core::registry::{Order, ServerEntry};
    pub use queue_redis::{ClusterNode, Copied, Doctor, Examination, Fault, Finding, Placement, Severity};
}
#[cfg(feature = "crypt")]
#[doc(inline)]
pub use queue_crypt as crypt;
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use queue_metrics as metrics;
#[cfg(feature = "otel")]
#[doc(inline)]
pub use queue_otel as otel;
#[cfg(feature = "outbox")]
#[doc(inline)]
pub use queue_outbox as outbox;
#[cfg(feature = "scheduler")]
#[doc(inline)]
pub use queue_scheduler as scheduler;
#[cfg(feature = "testing")]
#[doc(inline)]
pub use queue_testing as testing;
#[cfg(feature = "web")]
#[doc(inline)]
pub use queue_web as web;

#[doc(hidden)]
pub mod private {
    //! What the macros write refers to these.
    pub use queue_core::{Json, MessagePack, Protobuf, Raw, RetryPolicy, Task, TaskOptions};
    #[cfg(feature = "worker")]
    pub use queue_worker::private::{FromJob, HandlerError, IntoOutcome};
}
