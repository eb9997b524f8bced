//! What time it is for a server: by the clock it was given, corrected by Redis' unless the user says otherwise.

use std::sync::Arc;
use std::time::Duration;

use queue_core::Clock;
use queue_core::limits::CLOCK_SETTLES;
use queue_redis::{Connection, Error, Redis, RedisClock};

#[derive(Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// The same clock, where it is corrected.
    corrected: Option<Arc<RedisClock>>,
}

impl Time {
    pub(crate) fn new(clock: Arc<dyn Clock>, corrects: bool) -> Self {
        if !corrects {
            return Self { clock, corrected: None };
        }
        let corrected = Arc::new(RedisClock::new(clock));
        Self { clock: corrected.clone(), corrected: Some(corrected) }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now_secs()
    }

    /// The end of a lease that is this long, in Unix seconds.
    pub(super) fn lease_expiry(&self, lease: Duration) -> i64 {
        self.now().saturating_add(queue_core::clock::secs_ceil(lease))
    }

    /// How long it is until this Unix second; zero if it has come.
    pub(super) fn until(&self, second: i64) -> Duration {
        let left = second.saturating_mul(1_000_000_000).saturating_sub(self.now_ns());
        Duration::from_nanos(u64::try_from(left).unwrap_or(0))
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Asks Redis for its time, if that is what counts.
    pub(super) async fn compare(&self, redis: &Redis) -> Result<(), Error> {
        match &self.corrected {
            Some(clock) => clock.compare(redis).await,
            None => Ok(()),
        }
    }

    /// The same on a connection that is there for something else.
    pub(super) async fn compare_on(&self, connection: &mut Connection) -> Result<(), Error> {
        match &self.corrected {
            Some(clock) => clock.compare_on(connection).await,
            None => Ok(()),
        }
    }

    /// The same only if this machine may have been suspended since Redis was asked last.
    pub(super) async fn settle(&self, redis: &Redis) -> Result<(), Error> {
        match &self.corrected {
            Some(clock) if clock.is_doubtful() => clock.compare(redis).await,
            _ => Ok(()),
        }
    }

    /// Whether the time has leapt so lately that those who are alive may not have renewed by the new one what they
    /// hold. Ask for the time first: then this says whether to go by it.
    pub(super) fn is_settling(&self) -> bool {
        self.corrected.as_ref().and_then(|clock| clock.leapt_ago()).is_some_and(|ago| ago < CLOCK_SETTLES)
    }
}
