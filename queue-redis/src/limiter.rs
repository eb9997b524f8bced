//! A rate that is kept outside of queues, over all processes.

use std::fmt;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use crate::connection::Redis;
use crate::error::Error;
use crate::script::SPEND;

/// The longest time that is waited between two questions: whoever spends may say at any time that it is too much.
const LONGEST: Duration = Duration::from_secs(60);

/// How often something may be done in a time, by all who name the same: calls to somebody else's service, say, in handlers of
/// several queues and outside of tasks.
///
/// A [limit](queue_core::limit) of a queue is decided before a task is taken, so that nothing is held up by what has to wait. A limiter
/// is asked by whoever is at it already.
///
/// The rate is GCRA, by the clock of Redis: with a rate of N in a time and a burst of B, at most N + B − 1 are let through in any
/// window of that time. All who use a name have to say the same rate. Nothing is stored once there would be room for a whole burst.
///
/// ```no_run
/// # async fn example(redis: queue_redis::Redis) -> Result<(), queue_redis::Error> {
/// use std::time::Duration;
/// use queue_redis::Limiter;
///
/// let stripe = Limiter::named(redis, "stripe", 100, Duration::from_secs(60)).burst(10);
/// if stripe.start_within(Duration::from_secs(5)).await? {
///     // call; if it answers "too many requests, after 30 s":
///     stripe.hold(Duration::from_secs(30)).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter {
    redis: Redis,
    name: Box<str>,
    rate: u32,
    per: Duration,
    burst: u32,
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rate, per, burst, .. } = self;
        f.debug_struct("Limiter")
            .field("name", name)
            .field("rate", rate)
            .field("per", per)
            .field("burst", burst)
            .finish()
    }
}

impl Limiter {
    /// The limiter of this name, which lets so many through in a time.
    ///
    /// # Panics
    /// When the name is blank, the rate is zero, or the time is shorter than a millisecond or longer than a year.
    pub fn named(redis: Redis, name: impl Into<Box<str>>, rate: u32, per: Duration) -> Self {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        let name = name.into();
        assert!(!name.trim().is_empty(), "the name of a limiter is blank");
        assert!(rate > 0, "a limiter of rate zero lets nothing through, ever");
        assert!((Duration::from_millis(1)..=YEAR).contains(&per), "the time of a limiter is a millisecond to a year");
        Self { redis, name, rate, per, burst: 1 }
    }

    /// How many are let through at once after a rest. Defaults to 1.
    ///
    /// # Panics
    /// When it is zero.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        assert!(burst > 0, "a limiter with a burst of zero lets nothing through, ever");
        self.burst = burst;
        self
    }

    /// Lets one through, or says after how long it is worth asking again; nothing is reserved then. One that is let through counts,
    /// whatever becomes of it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. It may have counted all the same.
    pub async fn start(&self) -> Result<Result<(), Duration>, Error> {
        Ok(match self.spend(1, Duration::ZERO).await? {
            wait if wait.is_zero() => Ok(()),
            wait => Err(wait),
        })
    }

    /// The same, and waits for its turn; `false` if that will not come within this time, which is said as soon as it is known. Who
    /// waits has no place in a line: of several, whoever asks first is let through.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, nothing more is counted; one that was let through at that moment may have been.
    pub async fn start_within(&self, longest: Duration) -> Result<bool, Error> {
        let began = Instant::now();
        loop {
            let Err(wait) = self.start().await? else { return Ok(true) };
            if began.elapsed().saturating_add(wait) > longest {
                return Ok(false);
            }
            tokio::time::sleep(wait.min(LONGEST)).await;
        }
    }

    /// Lets nobody through for this long, because somebody else has said that it is too much (HTTP's 429).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn hold(&self, duration: Duration) -> Result<(), Error> {
        self.spend(0, duration).await.map(drop)
    }

    /// How long one has to wait; zero if it is let through.
    async fn spend(&self, count: u32, hold: Duration) -> Result<Duration, Error> {
        let interval = self.per.as_secs_f64() * 1_000.0 / f64::from(self.rate);
        let mut call = SPEND.call(1);
        call.arg(queue_core::keys::limiter(&self.name)).arg(interval).arg(self.burst).arg(count);
        call.arg(u64::try_from(hold.as_millis()).unwrap_or(u64::MAX >> 12));
        match self.redis.run(&SPEND, &call).await? {
            Value::Int(millis) => Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
            reply => Err(Error::unexpected(SPEND.name, &reply)),
        }
    }
}
