use chrono::{DateTime, Utc};
use queue_core::{Clock as _, SystemClock};
use queue_redis::Client;

use super::samples::{Samples, Spread, stamped};
use super::{Working, task};
use crate::error::CliError;
use crate::session::Session;

/// Schedules tasks for the coming seconds, as many for each, and measures by how much they start after the
/// second they were asked for.
pub(super) async fn run(
    session: &Session,
    queue: &str,
    working: &Working,
    tasks: u64,
    seconds: u64,
) -> Result<Spread, CliError> {
    let samples = Samples::start(session, queue, working, || SystemClock.now_ns()).await?;
    let client = Client::new(session.redis().clone());
    // The first due second is far enough away for all tasks to be there in time.
    let first = SystemClock.now_secs() + 3;
    let tasks = (0..tasks).map(|n| {
        let due = first + (n % seconds).cast_signed();
        let at = DateTime::<Utc>::from_timestamp(due, 0).unwrap_or_default();
        task(queue, stamped(due * 1_000_000_000)).process_at(at)
    });
    let mut total = 0;
    for outcome in client.enqueue_many(tasks).await {
        outcome?;
        total += 1;
    }
    Ok(samples.end(total).await)
}
