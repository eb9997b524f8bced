//! A limit on how many do something at the same time, over all processes; the same as Go's `x/rate`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use queue_core::clock::{unix_ns, unix_secs_ceil};
use queue_core::{Clock, SystemClock};
use redis::{Cmd, Value};

use crate::connection::Redis;
use crate::error::Error;
use crate::script::{ACQUIRE, RELEASE, Script};

/// By how many seconds a clock may be wrong before Redis' counts: scores are whole seconds, and a call takes a while.
const TOLERANCE_SECS: &str = "2";

/// In so many parts of a second the score of a token can end, by which it is known. A double has these bits left of a second
/// up to [`LAST`].
const MARKS: u32 = 1 << 20;
/// The last second at which a token is lost, in the year 2242.
const LAST: i64 = 1 << 33;

/// Tokens of which a fixed number can be held at the same time, by tasks of Go and Rust workers alike.
///
/// Every user of a scope has to name the same number. A token has a holder, in handlers the task, and an
/// expiry, in handlers the deadline of the attempt: a holder that dies without giving it back loses it a second
/// after that. Whoever holds a token can take it again, which moves its expiry (Go's `x/rate` refuses when all
/// are taken): it is one token, given back with the last permit that this semaphore and its clones have handed out for it.
///
/// In a handler, take one by `Job::acquire`. Elsewhere:
///
/// ```no_run
/// # async fn example() -> Result<(), queue_redis::Error> {
/// use std::time::{Duration, SystemTime};
/// use queue_redis::{Redis, Semaphore};
///
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let printer = Semaphore::new(redis, "printer", 2);
/// match printer.acquire("report-7", SystemTime::now() + Duration::from_secs(60)).await? {
///     Some(permit) => {
///         // print, then
///         permit.release().await?;
///     }
///     None => println!("both printers are busy"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    redis: Redis,
    scope: Arc<str>,
    tokens: u32,
    clock: Arc<dyn Clock>,
    corrects: bool,
    holders: Arc<Holders>,
}

/// Who has permits: their number, and the mark of the token.
type Holders = Mutex<HashMap<Arc<str>, (usize, u32)>>;

queue_core::debug_some!(Semaphore, scope, tokens);

impl Semaphore {
    /// The semaphore of this scope, with so many tokens.
    ///
    /// # Panics
    /// When the scope is blank or there is not one token, as in Go.
    pub fn new(redis: Redis, scope: impl Into<Arc<str>>, tokens: u32) -> Self {
        Self::with_clock(redis, scope, tokens, Arc::new(SystemClock))
    }

    /// The same for deadlines by another clock than this machine's. Which tokens are free is still judged by the
    /// clock of Redis.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn with_clock(redis: Redis, scope: impl Into<Arc<str>>, tokens: u32, clock: Arc<dyn Clock>) -> Self {
        let scope = scope.into();
        assert!(!scope.trim().is_empty(), "the scope of a semaphore is blank");
        assert!(tokens > 0, "a semaphore needs at least one token");
        Self { redis, scope, tokens, clock, corrects: true, holders: Arc::default() }
    }

    /// Whether Redis' clock counts where ours differs from it by more than two seconds: an hour fast, ours would take
    /// everybody's tokens away. Defaults to `true`; Go's `x/rate` always goes by its own.
    #[must_use]
    pub fn correct_clock(mut self, correct: bool) -> Self {
        self.corrects = correct;
        self
    }

    /// The name by which others find the same tokens.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Takes a token for this holder until `deadline` (rounded up to the second); `None` when none is free.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. A token that may have been taken all the same is given back in
    /// the background.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the token is given back in the background.
    pub async fn acquire(&self, holder: &str, deadline: impl Into<SystemTime>) -> Result<Option<Permit>, Error> {
        self.acquire_as_of(holder, self.clock.now(), deadline).await
    }

    /// The same for a deadline by some other clock, which says `now`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as_of(
        &self,
        holder: &str,
        now: impl Into<SystemTime>,
        deadline: impl Into<SystemTime>,
    ) -> Result<Option<Permit>, Error> {
        let now = unix_ns(now.into()).div_euclid(1_000_000_000);
        let expires = unix_secs_ceil(deadline.into());
        let mut permit = Permit::new(self.clone(), holder.into());
        let mut reply = self.try_acquire(&mut permit, now, expires, self.corrects).await?;
        if let Value::Int(redis_now @ 2..) = reply {
            let expires = expires.saturating_add(redis_now.saturating_sub(now));
            reply = self.try_acquire(&mut permit, redis_now, expires, false).await?;
        }
        match reply {
            Value::Int(1) => Ok(Some(permit)),
            Value::Int(0) => Ok(None),
            reply => Err(Error::unexpected(ACQUIRE.name, &reply)),
        }
    }

    async fn try_acquire(&self, permit: &mut Permit, now: i64, expires: i64, corrects: bool) -> Result<Value, Error> {
        let mut call = self.call(&ACQUIRE);
        let score = expires.clamp(0, LAST) as f64 - part_of_a_second(permit.mark);
        call.arg(&*permit.holder).arg(now).arg(score.to_string()).arg(self.tokens);
        call.arg(if corrects { TOLERANCE_SECS } else { "" });
        permit.held = true;
        match self.redis.run(&ACQUIRE, &call).await {
            Ok(reply) => {
                permit.held = reply == Value::Int(1);
                Ok(reply)
            }
            Err(error) => {
                permit.held = error.is_ambiguous();
                Err(error)
            }
        }
    }

    /// Gives back the token of a holder, whoever took it; whether there was one.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn release(&self, holder: &str) -> Result<bool, Error> {
        self.give_back(holder, None).await
    }

    /// How many tokens are held now.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn held(&self) -> Result<u64, Error> {
        let mut now = self.clock.now_secs();
        if self.corrects {
            match self.redis.query::<(i64, i64)>("TIME", &redis::cmd("TIME")).await {
                Ok((secs, _)) => now = secs,
                Err(error) if error.is_outage() => return Err(error),
                // A user who may not ask goes by the clock that he has.
                Err(_) => {}
            }
        }
        self.redis.command("ZCOUNT", (queue_core::keys::semaphore(&self.scope), format!("({}", now - 1), "+inf")).await
    }

    async fn give_back(&self, holder: &str, mark: Option<u32>) -> Result<bool, Error> {
        let mut call = self.call(&RELEASE);
        call.arg(holder).arg(mark.map(|mark| part_of_a_second(mark).to_string()).unwrap_or_default());
        match self.redis.run(&RELEASE, &call).await? {
            Value::Int(given) => Ok(given == 1),
            reply => Err(Error::unexpected(RELEASE.name, &reply)),
        }
    }

    fn call(&self, script: &Script) -> Cmd {
        let mut call = script.call(1);
        call.arg(queue_core::keys::semaphore(&self.scope));
        call
    }
}

/// What is taken off the expiry, so that the token is known by it: more than nothing, less than a second.
fn part_of_a_second(mark: u32) -> f64 {
    f64::from(mark) / f64::from(MARKS)
}

/// A token in hand. Dropping it gives it back in the background, if a tokio runtime is there; otherwise, or if
/// Redis cannot be asked then, it is lost at its expiry. Where the same holder has another permit for it, that gives it back.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    semaphore: Semaphore,
    holder: Arc<str>,
    mark: u32,
    held: bool,
    is_counted: bool,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("scope", &self.semaphore.scope)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

impl Permit {
    /// One that may come to hold a token. A token that is taken while no permit for it is left is a new one, with a mark of its
    /// own: what gives back the last one may still be on its way.
    fn new(semaphore: Semaphore, holder: Arc<str>) -> Self {
        let mark = {
            let mut holders = semaphore.holders.lock().unwrap_or_else(PoisonError::into_inner);
            let (permits, mark) = holders.entry(holder.clone()).or_insert_with(|| (0, fastrand::u32(1..MARKS)));
            *permits += 1;
            *mark
        };
        Self { semaphore, holder, mark, held: true, is_counted: true }
    }

    /// Whether no other permit for the token is left.
    fn leave(&mut self) -> bool {
        if !std::mem::take(&mut self.is_counted) {
            return true;
        }
        let mut holders = self.semaphore.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((permits, _)) = holders.get_mut(&self.holder) else { return true };
        *permits -= 1;
        let is_last = *permits == 0;
        if is_last {
            holders.remove(&self.holder);
        }
        is_last
    }

    /// Gives the token back, and waits until that is done, unless the holder has another permit for it. Whether it was still
    /// held: it may have expired, or somebody else may have taken it again under the same name.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; it is then tried again in the background.
    pub async fn release(mut self) -> Result<bool, Error> {
        if !self.leave() {
            self.held = false;
            return Ok(true);
        }
        let given = self.semaphore.give_back(&self.holder, Some(self.mark)).await?;
        self.held = false;
        Ok(given)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.leave() || !std::mem::take(&mut self.held) {
            return;
        }
        let (semaphore, holder, mark) = (self.semaphore.clone(), self.holder.clone(), self.mark);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let mut pauses = [100, 1_000, 10_000].map(Duration::from_millis).into_iter();
                while let Err(error) = semaphore.give_back(&holder, Some(mark)).await {
                    let Some(pause) = pauses.next().filter(|_| error.is_transient()) else {
                        crate::log::warn!(
                            scope = &*semaphore.scope,
                            holder = &*holder,
                            %error,
                            "could not give a token back; it is lost at its expiry"
                        );
                        return;
                    };
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}
