//! What every loop has to stand: to be started twice, stopped first, stopped at once, and stopped twice.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Outage, Service, Services};

/// Longer than any loop takes to end while Redis answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts and stops a loop in all orders; returns its name.
///
/// # Panics
/// When one does not end.
pub async fn start_and_stop<S: Service + Clone + 'static>(service: S) -> &'static str {
    // `None`: before it is started; else after so many turns of the runtime.
    for stopped_after in [None, Some(0), Some(1), Some(10), Some(100)] {
        let (services, stop) = (Services::new(Outage::new(|_| {})), CancellationToken::new());
        if stopped_after.is_none() {
            stop.cancel();
        }
        services.start(&stop, service.clone());
        services.start(&stop, service.clone());
        for _ in 0..stopped_after.unwrap_or(0) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        stop.cancel();
        for _ in 0..2 {
            let ended = tokio::time::timeout(PATIENCE, services.ended()).await;
            assert!(ended.is_ok(), "{}, stopped after {stopped_after:?} turns, does not end", S::NAME);
        }
    }
    S::NAME
}
