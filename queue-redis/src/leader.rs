//! The leader: of all servers of a fleet, one looks after what belongs to no queue alone.
//!
//! What it has to do are duties. Whoever gives a duty something to do asks for it first
//! ([`Broker::ask_for_duty`]); the servers hear of that, elect a leader if there is none, and it looks until the duty
//! says that nothing is left. Where there is no duty, there is no leader and no call.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use queue_core::Clock;
use queue_core::limits::{WATCH_POLL, WATCH_REST};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::broker::{Broker, HeldDuty};
use crate::error::Error;
use crate::listener::Watch;
use crate::log::panic::Catch;
use crate::log::{info, warn};
use crate::service::Service;

/// How long a leader leads that is not heard of again.
const LEADS: Duration = Duration::from_secs(3);
/// How old its claim may be when it takes duties.
const RENEWS: Duration = Duration::from_secs(1);
/// When a duty that was taken is due again, if its leader was lost. What a process asks for in case that it dies ten seconds from
/// now is asked for earlier than that, and so it counts, also during a look.
const HELD_MS: i64 = 16_000;
/// How often a duty is held for longer while it is looked at, so that no two servers look at the same time.
const HOLDS: Duration = Duration::from_secs(5);
/// How long a look may take. Each call of it ends when Redis is silent, but a message of many megabytes is long on its way.
const LOOKS: Duration = Duration::from_secs(600);
/// How many duties are looked at at the same time. What a look takes is mostly waiting for Redis.
const AT_ONCE: usize = 64;
/// How long those that are due wait for looks that take longer.
const MEANWHILE: Duration = Duration::from_millis(100);
/// When a look that failed is tried again, and a duty that this server does not know is left to another.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// How long a server that met such a duty leaves the lead to others.
const STANDS_BACK: Duration = Duration::from_secs(30);
/// How often [`Leader::do_all`] takes what is due, at the most: a duty may be due again at once.
const ROUNDS: usize = 100;

/// Something that one server of the fleet does for all.
///
/// A look is repeated when it fails, when its leader is lost half-way, and when it was asked for meanwhile: it has to be
/// right however often it is done, and wherever it was broken off.
pub trait Duty: Send + Sync + 'static {
    /// Its name, without blanks.
    fn name(&self) -> &'static str;

    /// Looks at one subject once; returns how long to wait for the next look, or `None` when there is nothing more to do. It
    /// may be dropped where it waits.
    fn look<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<Duration>, Error>>;
}

/// The duties that a server knows.
pub type Duties = Arc<[Arc<dyn Duty>]>;

/// The loop of a server that leads when it is its turn.
#[derive(Clone)]
pub struct Leader {
    broker: Broker,
    clock: Arc<dyn Clock>,
    server: Arc<str>,
    duties: Duties,
    told: Arc<Notify>,
    watch: Option<watch::Receiver<Option<Watch>>>,
    poll: Duration,
    looks: Duration,
    /// Another server leads, as far as is known; this one steps in when a duty is late.
    follows: bool,
    /// There is no duty.
    is_idle: bool,
    /// Whether it led when it asked last.
    led: bool,
    /// When it claimed the lead last.
    claimed: Option<Instant>,
    /// Until when it leaves the lead to others.
    stands_back: Option<Instant>,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duties: Vec<&str> = self.duties.iter().map(|duty| duty.name()).collect();
        f.debug_struct("Leader").field("server", &self.server).field("duties", &duties).finish_non_exhaustive()
    }
}

impl Service for Leader {
    const NAME: &'static str = "leader";
    const WORK: &'static str = "looking after what belongs to no queue alone";

    async fn run_once(&mut self) -> Result<Duration, Error> {
        // What was told up to now, the look will show.
        let _ = self.told.notified().now_or_never();
        let first = self.first_duty().await?;
        self.is_idle = first.is_none();
        let Some(first) = first else { return Ok(self.longest()) };
        if let Some(until) = self.stands_back {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Ok(left);
            }
            self.stands_back = None;
        }
        // Whoever leads is first; the others are there for when he is not.
        let waits = if self.follows { patience() } else { Duration::ZERO };
        let due = first.saturating_add(millis(waits));
        let left = due.saturating_sub(self.clock.now_ms());
        if left > 0 {
            return Ok(Duration::from_millis(left.unsigned_abs()).min(self.longest()));
        }
        if !self.lead().await? {
            return Ok(patience());
        }
        self.look_after(None).await?;
        Ok(Duration::ZERO)
    }

    async fn wait(&mut self, pause: Duration) {
        if self.follows && !self.is_idle {
            return tokio::time::sleep(pause).await;
        }
        let told = tokio::time::timeout(pause, self.told.notified()).await;
        if told.is_ok() && self.follows {
            tokio::time::sleep(patience()).await;
        }
    }
}

/// How much later than the leader the others come: he has had time to renew his claim, or has lost it. It differs, so
/// that they do not all come together.
fn patience() -> Duration {
    LEADS.mul_f64(1.0 + fastrand::f64())
}

fn millis(pause: Duration) -> i64 {
    i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)
}

impl Leader {
    /// Leads as the server of this id, by this clock, and does these duties. It looks for them every 15 s.
    pub fn new(broker: Broker, clock: Arc<dyn Clock>, server: impl Into<Arc<str>>, duties: Duties) -> Self {
        Self {
            broker,
            clock,
            server: server.into(),
            duties,
            told: Arc::default(),
            watch: None,
            poll: WATCH_POLL,
            looks: LOOKS,
            follows: false,
            is_idle: true,
            led: false,
            claimed: None,
            stands_back: None,
        }
    }

    /// Looks for duties by the listening connection that is there, and when `told` is notified because
    /// [`Signal::Shared`](crate::Signal::Shared) was heard of them.
    #[must_use]
    pub fn told(mut self, watch: watch::Receiver<Option<Watch>>, told: Arc<Notify>) -> Self {
        (self.watch, self.told) = (Some(watch), told);
        self
    }

    /// How often to look for duties where Redis does not tell of them.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// How long a look may take. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn looks(mut self, longest: Duration) -> Self {
        self.looks = longest;
        self
    }

    /// Does all that is due, whoever leads: for those who have the queues to themselves. Returns when the next duty is due
    /// (Unix milliseconds).
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn do_all(&mut self) -> Result<Option<i64>, Error> {
        self.look_after(Some(ROUNDS)).await?;
        self.broker.first_duty().await
    }

    fn watch(&self) -> Option<Watch> {
        self.watch.as_ref().and_then(|watch| watch.borrow().clone())
    }

    fn longest(&self) -> Duration {
        self.watch().map_or(self.poll, |watch| watch.rest(WATCH_REST))
    }

    /// When the first duty is due. On the listening connection, which is then told about changes.
    async fn first_duty(&self) -> Result<Option<i64>, Error> {
        if let Some(mut watch) = self.watch()
            && let Ok(first) = watch.first_duty().await
        {
            return Ok(first);
        }
        // The listening connection is being replaced; when that is done, there will be another look.
        self.broker.first_duty().await
    }

    /// Whether this server leads from now on.
    async fn lead(&mut self) -> Result<bool, Error> {
        let asked = Instant::now();
        if self.claimed.is_some_and(|claimed| asked.duration_since(claimed) < RENEWS) {
            return Ok(true);
        }
        self.claimed = None;
        let leads = self.broker.lead(&self.server, LEADS).await?;
        // It leads only while there is something to do, and takes the lead again and again where nobody else does.
        if !std::mem::replace(&mut self.led, leads) && leads {
            info!(server = &*self.server, "this server leads");
        }
        self.claimed = leads.then_some(asked);
        self.follows = !leads;
        Ok(leads)
    }

    /// Does what is due: for as long as this server leads, or so many times, whoever leads.
    async fn look_after(&mut self, times: Option<usize>) -> Result<(), Error> {
        // Each is a task of its own: one that only this loop drove would stand still while the loop waits for Redis, and with it
        // whoever waits for a connection that it has.
        let mut looks = JoinSet::new();
        // Those that are looked at, and as what they were taken again since, because somebody has asked for them meanwhile.
        let mut at_work: HashMap<String, Option<HeldDuty>> = HashMap::new();
        let mut times_left = times.unwrap_or(usize::MAX);
        loop {
            let room = AT_ONCE - looks.len();
            let may_take = times.is_some() || self.stands_back.is_none() && self.lead().await?;
            let now = self.clock.now_ms();
            let taken = match may_take && times_left > 0 {
                true => self.broker.take_duties(now, now.saturating_add(HELD_MS), room).await?,
                false => Vec::new(),
            };
            times_left = times_left.saturating_sub(usize::from(times.is_some()));
            let is_all = taken.len() < room;
            for duty in taken {
                match at_work.entry(duty.duty().to_owned()) {
                    Entry::Occupied(mut at_work) => drop(at_work.insert(Some(duty))),
                    Entry::Vacant(free) => {
                        free.insert(None);
                        looks.spawn(self.clone().look_at(duty));
                    }
                }
            }
            let soon = tokio::time::Instant::now() + MEANWHILE;
            let go_on_at = if is_all { 0 } else { AT_ONCE / 2 };
            while looks.len() > go_on_at
                && let Ok(Some(looked)) = tokio::time::timeout_at(soon, looks.join_next()).await
            {
                // One has panicked outside of what a duty does: all are due again when they are no longer held.
                let Ok(looked) = looked else { return Ok(()) };
                let (duty, is_known) = looked?;
                if !is_known {
                    self.stand_back();
                }
                if let Some(Some(again)) = at_work.remove(&duty) {
                    at_work.insert(duty, None);
                    looks.spawn(self.clone().look_at(again));
                }
            }
            if is_all && looks.is_empty() {
                return Ok(());
            }
        }
    }

    /// A server that does not know a duty leaves the lead to others.
    fn stand_back(&mut self) {
        self.stands_back = Some(Instant::now() + STANDS_BACK);
        (self.claimed, self.follows) = (None, true);
    }

    /// Looks, and holds the duty meanwhile.
    async fn look_long(&self, duty: &dyn Duty, subject: &str, held: &mut HeldDuty) -> Result<Option<Duration>, String> {
        let (began, mut look) = (Instant::now(), Catch::new(duty.look(subject)));
        loop {
            let left = self.looks.saturating_sub(began.elapsed());
            match tokio::time::timeout(HOLDS.min(left), &mut look).await {
                Ok(Ok(looked)) => return looked.map_err(|error| error.to_string()),
                Ok(Err(panicked)) => return Err(panicked.to_string()),
                Err(_) if began.elapsed() >= self.looks => {
                    return Err(format!("it took longer than {} s", self.looks.as_secs()));
                }
                // Where that fails, the look fails, too, or comes to its end before anybody else begins.
                Err(_) => drop(self.broker.hold_duty(held, self.clock.now_ms().saturating_add(HELD_MS)).await),
            }
        }
    }

    /// Looks at one; returns its text, and whether this server knows the duty.
    async fn look_at(self, mut held: HeldDuty) -> Result<(String, bool), Error> {
        let duty = held.duty().to_owned();
        let (name, subject) = duty.split_once(' ').unwrap_or((&duty, ""));
        let Some(known) = self.duties.iter().find(|known| known.name() == name) else {
            warn!(duty, "this server does not know the duty, and leaves the lead to another one");
            let again = self.clock.now_ms().saturating_add(millis(AFTER_A_FAILURE));
            self.broker.put_off_duty(&held, Some(again)).await?;
            return Ok((duty, false));
        };
        let looked = self.look_long(&**known, subject, &mut held).await;
        let next = looked.unwrap_or_else(|error| {
            warn!(duty, error, "a duty could not be done; it is tried again");
            Some(AFTER_A_FAILURE)
        });
        let next = next.map(|pause| self.clock.now_ms().saturating_add(millis(pause)));
        self.broker.put_off_duty(&held, next).await?;
        Ok((duty, true))
    }
}
