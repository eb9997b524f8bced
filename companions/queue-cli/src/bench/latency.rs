use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use queue_redis::Client;
use queue_worker::{Job, Router, Server};
use serde::Serialize;

use super::{Working, task};
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// The server subscribes and looks around before the first task comes.
const SETTLE: Duration = Duration::from_millis(300);

/// Milliseconds until the handler started.
#[derive(Debug, Serialize)]
pub(super) struct Spread {
    n: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Spread {
    pub(super) fn show(&self, out: &Output) -> Result<(), CliError> {
        if out.json {
            return out.value(self);
        }
        let Self { n, p50_ms, p99_ms, max_ms } = self;
        out.line(&format!("{n} tasks: p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms, max {max_ms:.3} ms"))
    }

    pub(super) fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| {
            let rank = (nanos.len().saturating_sub(1) as f64 * share) as usize;
            nanos.get(rank).map_or(0.0, |nanos| *nanos as f64 / 1e6)
        };
        Self { n: nanos.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

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
    let samples: Arc<Mutex<Vec<u64>>> = Arc::default();
    let handler = {
        let (samples, work) = (samples.clone(), working.work);
        move |job: Job| {
            let now = nanos_since(epoch);
            let sent = job.payload().get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            if let Some(sent) = sent {
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(now.saturating_sub(sent));
            }
            async move {
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
            }
        }
    };
    let server = Server::new(session.redis().clone(), Router::new(()).route_exact("bench:noop", handler))
        .queues([(queue, 1)])
        .concurrency(working.concurrency as usize)
        .start()
        .await?;
    tokio::time::sleep(SETTLE).await;

    let total = rate * seconds;
    let start = tokio::time::Instant::now();
    let mut calls = Vec::new();
    for n in 0..total {
        tokio::time::sleep_until(start + Duration::from_nanos(1_000_000_000 / rate * n)).await;
        let (client, queue) = (client.clone(), queue.to_owned());
        calls.push(tokio::spawn(async move {
            let mut payload = vec![b'x'; 200];
            payload[..8].copy_from_slice(&nanos_since(epoch).to_le_bytes());
            client.enqueue(task(&queue, payload)).await
        }));
    }
    for outcome in try_join_all(calls).await.map_err(|error| CliError::failed(error.to_string()))? {
        outcome?;
    }
    let worked = || samples.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
    while worked() < total {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.shutdown().await;
    let samples = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Spread::of(samples))
}

fn nanos_since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_samples_is_by_rank() {
        let spread = Spread::of((1..=1000).rev().map(|ms| ms * 1_000_000).collect());
        assert_eq!((spread.n, spread.p50_ms, spread.p99_ms, spread.max_ms), (1000, 500.0, 990.0, 1000.0));
        assert_eq!(Spread::of(Vec::new()).max_ms, 0.0);
    }
}
