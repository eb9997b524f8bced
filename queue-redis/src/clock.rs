//! What time it is for Redis, whatever the clock of this machine says.
//!
//! Leases and due times are compared by whoever looks at them. One whose clock is a minute fast would take the tasks
//! of all others for abandoned; those of one that is slow would look abandoned to all others. A clock may also be set
//! while it is gone by: so it is looked at only when Redis is asked, and in between time goes on by a clock that
//! nobody sets.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use queue_core::Clock;

use crate::broker::Broker;
use crate::connection::{Connection, Redis};
use crate::error::Error;
use crate::log::{info, warn};

/// Clocks that differ by no more than this are taken for equal: Go's servers do not correct theirs, and all
/// scores are whole seconds anyway.
const TOLERANCE_NS: i64 = 1_000_000_000;

/// How old a comparison may be for those who only look now and then.
const FRESH_NS: i64 = 5_000_000_000;

/// A clock that goes by Redis' where that of this machine differs from it by more than a second, and that does not
/// notice when the machine's is set.
///
/// Until Redis has been [asked](Self::compare), and where its user must not ask (`TIME`), it is the clock of the
/// machine. In a cluster whose nodes have different clocks, everybody asks the same node.
pub struct RedisClock {
    clock: Arc<dyn Clock>,
    compared: AtomicBool,
    /// What has to be added to the steady clock; those who ask for the time need nothing else.
    ahead_ns: AtomicI64,
    /// When the time leapt last, by the steady clock; before 0 for never.
    leapt_ns: AtomicI64,
    // A std mutex: held for a few instructions, never across an await.
    last: Mutex<Last>,
    /// Whether the clock it was given is right, so that Redis is not asked.
    is_exact: bool,
}

/// The last comparison.
#[derive(Debug, Default)]
struct Last {
    /// When it was, by the steady clock.
    at_ns: i64,
    /// How far the clock of this machine was ahead of the steady one.
    machine_ns: i64,
    /// By how much the machine's clock is corrected, as was told last.
    told_ns: i64,
}

queue_core::debug_some!(RedisClock, compared);

impl Clock for RedisClock {
    fn now_ns(&self) -> i64 {
        if self.compared.load(Ordering::Acquire) {
            self.clock.steady_ns().saturating_add(self.ahead_ns.load(Ordering::SeqCst))
        } else {
            self.clock.now_ns()
        }
    }

    fn steady_ns(&self) -> i64 {
        self.clock.steady_ns()
    }
}

impl RedisClock {
    /// Corrects this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (compared, ahead_ns, last) = Default::default();
        Self { clock, compared, ahead_ns, leapt_ns: AtomicI64::new(-1), last, is_exact: false }
    }

    /// This clock as it is: it is right, or a test's. [`refresh`](Self::refresh) then asks nobody.
    pub fn exact(clock: Arc<dyn Clock>) -> Self {
        Self { is_exact: true, ..Self::new(clock) }
    }

    /// Asks Redis for its time. A user who may not ask goes by the clock of the machine.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn compare(&self, redis: &Redis) -> Result<(), Error> {
        self.compare_on(&mut redis.pooled().await?).await
    }

    /// The same on a connection that is there for something else.
    ///
    /// # Errors
    /// As [`compare`](Self::compare).
    pub async fn compare_on(&self, connection: &mut Connection) -> Result<(), Error> {
        let sent_ns = self.clock.steady_ns();
        match Broker::redis_time(connection).await {
            Ok(redis_ns) => self.learn(sent_ns, redis_ns, self.clock.steady_ns()),
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => tracing::debug!(%error, "Redis does not tell the time"),
        }
        Ok(())
    }

    /// The same if the last answer is some seconds old, or no longer to be relied on.
    ///
    /// # Errors
    /// As [`compare`](Self::compare).
    pub async fn refresh(&self, redis: &Redis) -> Result<(), Error> {
        let age_ns = self.clock.steady_ns().saturating_sub(self.last().at_ns);
        let is_fresh = self.compared.load(Ordering::Acquire) && age_ns < FRESH_NS && !self.is_doubtful();
        if self.is_exact || is_fresh {
            return Ok(());
        }
        self.compare(redis).await
    }

    /// Whether Redis has told its time before.
    pub fn was_compared(&self) -> bool {
        self.compared.load(Ordering::Acquire)
    }

    /// Whether the clock of this machine and the steady one have parted since the last comparison: somebody has set
    /// it, or the machine was suspended, and then the steady clock stood still. Redis has to be asked before
    /// anything depends on the time.
    pub fn is_doubtful(&self) -> bool {
        self.compared.load(Ordering::Acquire)
            && (self.machine_ns(self.clock.steady_ns()) - self.last().machine_ns).abs() > TOLERANCE_NS
    }

    /// How long ago the time has leapt at a comparison, because this machine was suspended, somebody set Redis' clock,
    /// or another node took over. Those who are alive have to renew their leases by the new time before anybody may
    /// judge them by it. Whoever asks for the time first and then for this, knows whether that time is a new one.
    pub fn leapt_ago(&self) -> Option<Duration> {
        let leapt_ns = self.leapt_ns.load(Ordering::SeqCst);
        let ago = Duration::from_nanos(u64::try_from(self.clock.steady_ns().saturating_sub(leapt_ns)).unwrap_or(0));
        (leapt_ns >= 0).then_some(ago)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the machine's clock is ahead of the steady one, which was just read.
    fn machine_ns(&self, steady_ns: i64) -> i64 {
        self.clock.now_ns().saturating_sub(steady_ns)
    }

    /// Redis was asked at `sent_ns` what time it is, and the answer `redis_ns` was there at `received_ns`, both by the
    /// steady clock.
    fn learn(&self, sent_ns: i64, redis_ns: i64, received_ns: i64) {
        let mut last = self.last();
        let machine_ns = self.machine_ns(received_ns);
        let before_ns = self.compared.load(Ordering::Acquire).then(|| self.ahead_ns.load(Ordering::SeqCst));
        let half_ns = received_ns.saturating_sub(sent_ns).max(0) / 2;
        let redis_ahead_ns = redis_ns.saturating_sub(sent_ns.saturating_add(half_ns));
        // The longer the answer took, the less it says.
        let slack_ns = TOLERANCE_NS + half_ns;
        let fits = |ahead_ns: &i64| redis_ahead_ns.saturating_sub(*ahead_ns).saturating_abs() <= slack_ns;
        let ahead_ns = Some(machine_ns).filter(fits).or(before_ns.filter(fits)).unwrap_or(redis_ahead_ns);

        let leapt_ns = before_ns.map_or(0, |before_ns| ahead_ns.saturating_sub(before_ns));
        if leapt_ns.saturating_abs() > 2 * slack_ns {
            // Before anybody can read the new time.
            self.leapt_ns.store(received_ns, Ordering::SeqCst);
            warn!(by = %Seconds(leapt_ns), "the time has leapt: this machine was suspended, or Redis' clock was set");
        }
        self.ahead_ns.store(ahead_ns, Ordering::SeqCst);
        self.compared.store(true, Ordering::Release);

        let corrected_ns = machine_ns.saturating_sub(ahead_ns);
        if corrected_ns != 0 && corrected_ns.saturating_sub(last.told_ns).saturating_abs() > TOLERANCE_NS {
            let by = Seconds(corrected_ns.saturating_abs());
            let side = if corrected_ns > 0 { "ahead of" } else { "behind" };
            warn!(%by, "this machine's clock is {side} Redis' by so much; Redis' counts, set this one right");
            last.told_ns = corrected_ns;
        } else if corrected_ns == 0 && last.told_ns != 0 {
            info!("this machine's clock and Redis' agree again");
            last.told_ns = 0;
        }
        (last.at_ns, last.machine_ns) = (received_ns, machine_ns);
    }
}

/// Nanoseconds for people.
struct Seconds(i64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Duration::from_nanos(self.0.unsigned_abs()).as_secs_f64();
        write!(f, "{}{size:.1}s", if self.0 < 0 { "-" } else { "" })
    }
}

#[cfg(test)]
mod tests;
