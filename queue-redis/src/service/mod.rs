//! The loops of servers and schedulers: what a loop is, who keeps it running, and how it waits while Redis is away.

mod backoff;
mod outage;
#[cfg(feature = "embedded")]
pub mod stress;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::backoff::Backoff;
pub use self::outage::{Outage, Part};
use crate::error::Error;
use crate::log::error;
use crate::log::panic::Catch;

/// How long a loop that panicked rests: one that panics at once must not fill the log.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// A loop of a server or a scheduler: it does its work once, waits, and does it again.
///
/// It gets what it needs when it is built, its clock included: a run may take longer than a second, and has to know the
/// time more than once.
pub trait Service: Send {
    /// The name of the loop, as asynq calls it.
    const NAME: &'static str;
    /// What it does, for the log: `recovering tasks`.
    const WORK: &'static str;
    /// Whether a run that has begun is finished when the loop is told to stop. Else it is dropped where it waits.
    const FINISHES: bool = false;

    /// Does the work once, and says how long to wait before the next run.
    fn run_once(&mut self) -> impl Future<Output = Result<Duration, Error>> + Send;

    /// Waits between two runs; a loop that can be woken returns earlier.
    fn wait(&mut self, pause: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(pause)
    }

    /// How long after the start the first run begins, unless the loop is woken.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// How long to rest after a failure, beyond the pause that every loop makes.
    fn rest(&self, error: &Error) -> Duration {
        let _ = error;
        Duration::ZERO
    }

    /// The longest pause after a failure.
    fn longest_pause(&self) -> Duration {
        Backoff::LONGEST
    }

    /// Runs over and over until it is told to stop.
    fn run(&mut self, stop: &CancellationToken, outage: &Arc<Outage>) -> impl Future<Output = ()> + Send {
        async move {
            let mut backoff = Backoff::new(outage, Self::WORK);
            let delay = self.delay();
            if !delay.is_zero() {
                stop.run_until_cancelled(self.wait(delay)).await;
            }
            while !stop.is_cancelled() {
                let run = self.run_once();
                let done = if Self::FINISHES { Some(run.await) } else { stop.run_until_cancelled(run).await };
                match done {
                    None => return,
                    Some(Ok(pause)) => {
                        backoff.succeeded();
                        stop.run_until_cancelled(self.wait(pause)).await;
                    }
                    Some(Err(error)) => {
                        let (longest, rest) = (self.longest_pause(), self.rest(&error));
                        let pause = async {
                            backoff.failed_at_most(&error, longest).await;
                            tokio::time::sleep(rest).await;
                        };
                        stop.run_until_cancelled(pause).await;
                    }
                }
            }
        }
    }
}

/// What belongs to one run of a loop: a clone has none.
#[derive(Debug)]
pub struct Fresh<T>(pub Option<T>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Fresh<T> {
    fn clone(&self) -> Self {
        Self(None)
    }
}

/// Of two errors the one that says that Redis was away.
#[must_use]
pub fn worse(known: Option<Error>, error: Error) -> Option<Error> {
    known.filter(Error::is_outage).or(Some(error))
}

/// The loops of a server or a scheduler, kept running until they are told to stop.
#[derive(Debug)]
pub struct Services {
    outage: Arc<Outage>,
    tasks: TaskTracker,
    /// A std mutex: held to add a name.
    started: Mutex<BTreeSet<&'static str>>,
}

impl Services {
    /// None yet. What fails in them because Redis is away is told to `outage`.
    pub fn new(outage: Arc<Outage>) -> Self {
        Self { outage, tasks: TaskTracker::new(), started: Mutex::default() }
    }

    /// Starts a loop, which runs until `stop`. One that panics is started again as it was: a server that looks alive but no
    /// longer recovers tasks would be worse than one that is gone. Starting a loop of the same name again does nothing.
    pub fn start<S: Service + Clone + 'static>(&self, stop: &CancellationToken, service: S) {
        if !self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(S::NAME) {
            return;
        }
        let (stop, outage) = (stop.clone(), self.outage.clone());
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let mut fresh = service.clone();
                let Err(panicked) = Catch::new(Box::pin(fresh.run(&stop, &outage))).await else { return };
                error!(service = S::NAME, error = %panicked, "a loop panicked; it is started again");
                stop.run_until_cancelled(tokio::time::sleep(AFTER_A_PANIC)).await;
            }
        });
    }

    /// Waits until all loops have ended, each of which has been told to stop, or will be.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests;
