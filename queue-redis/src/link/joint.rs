//! One piece of work that many wait for.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::sync::oneshot::{Receiver, channel};

use crate::error::Error;
use crate::options::RedisOptions;

/// Work that is done once for all who ask while it is under way; they have its result in common.
///
/// A task of its own does it. A lock that the first who asks holds would be simpler, but a future that nobody polls (one
/// of a stream, while its user does something else) holds it for ever, and whoever should poll that future may be the
/// one who waits for the lock.
#[derive(Debug)]
pub(crate) struct Joint<T>(Arc<Mutex<UnderWay<T>>>);

type UnderWay<T> = Option<Waiting<T>>;

type Waiting<T> = Shared<Receiver<Result<T, Error>>>;

/// Whose end, however it comes, makes room for the next piece of work.
struct Turn<T>(Arc<Mutex<UnderWay<T>>>);

impl<T> Default for Joint<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

fn lock<T>(under_way: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics between two changes; a poisoned lock is still consistent.
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Far longer than one attempt takes by its own limits.
fn longest(options: &RedisOptions) -> Duration {
    4 * (options.connect_timeout + options.response_timeout)
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

impl<T: Clone + Send + Sync + 'static> Joint<T> {
    /// The result of the work under way, or else of this one, which asks `target` and has its own time limits.
    pub(crate) async fn ask(
        &self,
        target: &(impl Display + ?Sized),
        options: &RedisOptions,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match tokio::time::timeout(longest(options), self.join(work)).await {
            Ok(Ok(result)) => return result,
            // Its task has panicked, or its runtime has ended.
            Ok(Err(_)) => {}
            // Nobody drives its runtime any more.
            Err(_) => *lock(&self.0) = None,
        }
        let source = Arc::new(std::io::Error::other("the attempt to connect was given up"));
        Err(Error::Unreachable { target: target.to_string(), source })
    }

    fn join(&self, work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Waiting<T> {
        let mut under_way = lock(&self.0);
        if let Some(waiting) = &*under_way {
            return waiting.clone();
        }
        let (done, waiting) = channel();
        let waiting = waiting.shared();
        *under_way = Some(waiting.clone());
        // A runtime that is shutting down drops the task at once, and its turn, which needs the lock.
        drop(under_way);
        let turn = Turn(self.0.clone());
        tokio::spawn(async move {
            let result = work.await;
            // First: who asks after the result is known does not want this one.
            drop(turn);
            // Those who asked may have gone.
            let _ = done.send(result);
        });
        waiting
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt as _;
    use tokio::sync::Notify;

    use crate::options::TlsOptions;

    use super::*;

    const OPTIONS: RedisOptions = RedisOptions {
        connect_timeout: Duration::from_millis(100),
        response_timeout: Duration::from_millis(100),
        pool_size: 1,
        tls: TlsOptions { ca: None, client: None },
    };

    #[tokio::test]
    async fn work_is_done_once_for_all_who_ask_meanwhile_and_anew_for_who_comes_later() {
        let (joint, done) = (Joint::default(), Arc::new(AtomicU32::new(0)));
        let work = || {
            let done = done.clone();
            joint.ask("", &OPTIONS, async move { Ok(done.fetch_add(1, Ordering::Relaxed)) })
        };
        let (first, second, third) = tokio::join!(work(), work(), work());
        assert_eq!([first, second, third].map(Result::ok), [Some(0); 3]);
        assert_eq!(work().await.ok(), Some(1));
    }

    #[tokio::test]
    async fn work_goes_on_though_the_first_who_asked_is_not_polled_any_more() {
        let (joint, go) = (Joint::default(), Arc::new(Notify::new()));
        let work = |number| {
            let go = go.clone();
            joint.ask("", &OPTIONS, async move {
                go.notified().await;
                Ok(number)
            })
        };
        let mut first = Box::pin(work(1));
        assert!(first.as_mut().now_or_never().is_none());
        go.notify_one();
        assert_eq!(work(2).await.ok(), Some(1));
        assert_eq!(first.await.ok(), Some(1));
    }

    #[test]
    fn without_a_runtime_it_panics_as_tokio_does_and_does_not_wait_for_itself() {
        let joint = Joint::default();
        let ask = || joint.ask("", &OPTIONS, async { Ok(()) }).now_or_never();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).is_err());
        assert!(lock(&joint.0).is_none());
    }

    #[tokio::test]
    async fn work_whose_runtime_nobody_drives_is_waited_for_no_longer_than_it_can_take() {
        let joint = Joint::default();
        let undriven = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let guard = undriven.enter();
        assert!(joint.ask("", &OPTIONS, async { Ok(1) }).now_or_never().is_none());
        drop(guard);
        assert!(joint.ask("", &OPTIONS, async { Ok(2) }).await.is_err());
        assert_eq!(joint.ask("", &OPTIONS, async { Ok(3) }).await.ok(), Some(3));
        std::thread::spawn(move || drop(undriven)).join().unwrap();
    }

    #[tokio::test]
    async fn work_that_panics_or_that_nobody_waits_for_stands_in_nobodys_way() {
        let joint = Joint::default();
        let panicked = joint.ask("here", &OPTIONS, async { panic!("it is meant to") }).await;
        assert!(matches!(panicked, Err(Error::Unreachable { target, .. }) if target == "here"));
        assert!(joint.ask("", &OPTIONS, async { Ok(1) }).now_or_never().is_none());
        tokio::task::yield_now().await;
        assert_eq!(joint.ask("", &OPTIONS, async { Ok(2) }).await.ok(), Some(2));
    }
}
