//! Waiting for something to become true.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// Far longer than anything here takes; only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until there is a value.
#[track_caller]
pub(crate) fn wait_for<T, F>(what: impl Into<String>, mut look: impl FnMut() -> F) -> impl Future<Output = T>
where
    F: Future<Output = Option<T>>,
{
    let (what, caller) = (what.into(), std::panic::Location::caller());
    async move {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(Instant::now() < end, "{caller}: gave up after {PATIENCE:?} waiting until {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually<F>(what: impl Into<String>, mut condition: impl FnMut() -> F) -> impl Future<Output = ()>
where
    F: Future<Output = bool>,
{
    wait_for(what, move || {
        let look = condition();
        async move { look.await.then_some(()) }
    })
}
