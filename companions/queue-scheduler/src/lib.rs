#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! * [`Scheduler`]: enqueues the tasks of its entries at their ticks. Any number of them may carry the same
//!   entries; each tick is enqueued once.
//! * [`Entry`]: a cron spec, a task, and policies for missed ticks ([`Missed`]), for runs that are unfinished
//!   at the next tick ([`Overlap`]), jitter, start and end.
//! * [`ConfigProvider`]: entries that come from elsewhere and change at run time.
//! * [`Spec`], [`Zone`]: cron specs with the answers of Go's robfig/cron.
//!
//! Pausing an entry, running it now and its history are in `queue_admin::Inspector`.

mod entry;
mod problem;
mod provider;
mod schedule;
mod scheduler;
mod spec;

pub use entry::{Entry, EntrySummary};
pub use problem::{EntryError, EntryProblem};
pub use provider::{BoxError, ConfigProvider};
pub use queue_core::clock::UnixSecond;
pub use queue_redis::broker::{Overlap, TickVerdict, Why};
pub use schedule::{MAX_MISSED, Missed};
pub use scheduler::{Scheduler, SchedulerBuilder, SchedulerError, SyncProblem, Ticked};
pub use spec::{Spec, SpecError, Zone};
