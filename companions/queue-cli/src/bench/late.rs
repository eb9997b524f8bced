use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Clock as _, SystemClock};
use queue_redis::Client;
use queue_worker::{Job, Router, Server};

use super::latency::Spread;
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
    let samples: Arc<Mutex<Vec<u64>>> = Arc::default();
    let handler = {
        let samples = samples.clone();
        move |job: Job| {
            let now = SystemClock.now_ns();
            let due = job.payload().get(..8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes);
            if let Some(due) = due {
                let late = u64::try_from(now - due).unwrap_or(0);
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            }
            async {}
        }
    };
    let server = Server::new(session.redis().clone(), Router::new(()).route_exact("bench:noop", handler))
        .queues([(queue, 1)])
        .concurrency(working.concurrency as usize)
        .start()
        .await?;
    let client = Client::new(session.redis().clone());
    // The first due second is far enough away for all tasks to be there in time.
    let first = SystemClock.now_secs() + 3;
    let tasks = (0..tasks).map(|n| {
        let due = first + (n % seconds).cast_signed();
        let mut payload = vec![b'x'; 200];
        payload[..8].copy_from_slice(&(due * 1_000_000_000).to_le_bytes());
        task(queue, payload).process_at(DateTime::<Utc>::from_timestamp(due, 0).unwrap_or_default())
    });
    let mut total = 0;
    for outcome in client.enqueue_many(tasks).await {
        outcome?;
        total += 1;
    }
    while samples.lock().unwrap_or_else(PoisonError::into_inner).len() < total {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.shutdown().await;
    let samples = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Spread::of(samples))
}
