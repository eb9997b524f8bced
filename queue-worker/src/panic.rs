//! Calls of what users give us; a panic in it becomes an error.

use queue_core::outcome::Failure;
pub use queue_redis::panic::Panicked;
pub(crate) use queue_redis::panic::{Catch, Guard, catch, discard, install_hook};

use crate::handler::Answer;

/// Runs a handler; a panic in it is a failure.
pub(crate) async fn as_failure(work: impl Future<Output = Answer>) -> Answer {
    let caught = Catch(std::pin::pin!(work)).await;
    caught.unwrap_or_else(|panicked| Err(Failure::Retry(panicked.into())))
}
