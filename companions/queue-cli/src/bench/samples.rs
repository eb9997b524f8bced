use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use queue_worker::{Handle, Job, Router};
use serde::Serialize;

use super::Working;
use crate::error::CliError;
use crate::output::Output;
use crate::session::Session;

/// A server whose handlers note how long after the time in their payload they start.
pub(super) struct Samples {
    server: Handle,
    nanos: Arc<Mutex<Vec<u64>>>,
}

/// The payload of a task that is to be measured from this time on, in nanoseconds.
pub(super) fn stamped(nanos: i64) -> Vec<u8> {
    let mut payload = vec![b'x'; 200];
    payload[..8].copy_from_slice(&nanos.to_le_bytes());
    payload
}

impl Samples {
    /// `now` tells the time in nanoseconds, by the clock of the payloads.
    pub(super) async fn start(
        session: &Session,
        queue: &str,
        working: &Working,
        now: impl Fn() -> i64 + Clone + Send + Sync + 'static,
    ) -> Result<Self, CliError> {
        let nanos: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (samples, work) = (nanos.clone(), working.work);
        let handler = move |job: Job| {
            let now = now();
            let since = job.payload().get(..8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes);
            if let Some(since) = since {
                let nanos = u64::try_from(now.saturating_sub(since)).unwrap_or(0);
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(nanos);
            }
            async move {
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
            }
        };
        let router = Router::new(()).route_exact("bench:noop", handler);
        Ok(Self { server: super::serve(session, queue, working, router).await?, nanos })
    }

    /// Waits for so many samples, and ends the server.
    pub(super) async fn end(self, total: usize) -> Spread {
        let nanos = || self.nanos.lock().unwrap_or_else(PoisonError::into_inner);
        while nanos().len() < total {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.server.shutdown().await;
        Spread::of(std::mem::take(&mut *nanos()))
    }
}

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

    fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| {
            let rank = (nanos.len().saturating_sub(1) as f64 * share) as usize;
            nanos.get(rank).map_or(0.0, |nanos| *nanos as f64 / 1e6)
        };
        Self { n: nanos.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
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
