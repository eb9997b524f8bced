//! The inspector: what it shows and changes.

mod looking;
mod many_tasks;
#[cfg(measure)]
mod measure;
mod one_task;
mod operations;
mod pages;
mod remove_queue;
mod replay;
mod transfer;

use std::sync::Arc;

use queue_admin::Inspector;
use queue_core::clock::ManualClock;

use crate::support::{Fixture, NOW, QUEUE};

/// An inspector at [`NOW`] on a Redis where the queue of the tests is listed.
async fn start() -> (Fixture, Inspector) {
    let fixture = Fixture::start().await;
    fixture.broker.publish_queue(QUEUE).await.unwrap();
    let inspector = at(&fixture, NOW);
    (fixture, inspector)
}

/// An inspector whose clock stands at this second.
fn at(fixture: &Fixture, secs: i64) -> Inspector {
    Inspector::with_clock(fixture.redis(), Arc::new(ManualClock::at_secs(secs)))
}
