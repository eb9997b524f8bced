//! Periodic tasks for an asynq-compatible queue.
//!
//! * [`Spec`], [`Zone`]: cron specs with the answers of Go's robfig/cron.

mod spec;

pub use spec::{Spec, SpecError, Zone};
