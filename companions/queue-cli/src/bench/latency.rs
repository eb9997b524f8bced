use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use queue_redis::Client;

use super::samples::{Samples, Spread, stamped};
use super::{Working, task};
use crate::error::CliError;
use crate::session::Session;

/// The server subscribes and looks around before the first task comes.
const SETTLE: Duration = Duration::from_millis(300);

/// Enqueues at a steady rate. The payload of a task says when its call began, so that a call that is late
/// counts as late.
pub(super) async fn run(
    session: &Session,
    queue: &str,
    working: &Working,
    rate: u64,
    seconds: u64,
) -> Result<Spread, CliError> {
    let client = Client::new(session.redis().clone());
    let epoch = Instant::now();
    let now = move || i64::try_from(epoch.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let samples = Samples::start(session, queue, working, now).await?;
    tokio::time::sleep(SETTLE).await;

    let start = tokio::time::Instant::now();
    let mut calls = Vec::new();
    for n in 0..rate * seconds {
        tokio::time::sleep_until(start + Duration::from_nanos(1_000_000_000 / rate * n)).await;
        let (client, queue) = (client.clone(), queue.to_owned());
        calls.push(tokio::spawn(async move { client.enqueue(task(&queue, stamped(now()))).await }));
    }
    let total = calls.len();
    for outcome in try_join_all(calls).await.map_err(|error| CliError::failed(error.to_string()))? {
        outcome?;
    }
    Ok(samples.end(total).await)
}
