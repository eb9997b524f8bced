//! Calls of what users give us; a panic in it becomes an error.

pub use queue_redis::panic::Panicked;
pub(crate) use queue_redis::panic::{Catch, Guard, catch, discard, install_hook};
