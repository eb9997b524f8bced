//! Who waits for tasks: any number of waits on one connection that listens.
//!
//! The connection tracks the hash of each task that is waited for (see [`listener`](crate::listener)): a look arms it, and
//! the next change pushes a message, whoever made it. So there is one look to begin with, and one for each change.
//! Whoever waits has a channel of its own, so that a look that was under way before it came is not for it: the id may have
//! been another task's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::broker::{Broker, TaskLook};
use crate::connection::Redis;
use crate::error::Error;
use crate::listener::{Listener, Signal, Watch};

/// How often to look where Redis does not tell of changes.
const POLL: Duration = Duration::from_secs(1);
/// How long after the last wait the connection is kept for the next one.
const IDLE: Duration = Duration::from_secs(10);
/// When to try again whether Redis tells of changes after all.
const WITHOUT_TRACKING: Duration = Duration::from_secs(60);
/// A server that accepts connections and closes them again must not be hammered.
const PAUSE: Duration = Duration::from_millis(50);
/// How many looks are under way at once.
const LOOKS: usize = 500;
/// How many messages are read before those that they name are looked at.
const SIGNALS: usize = 1_000;

/// Queue and id.
type Name = (String, String);

/// What a look has shown.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// Nobody has looked yet.
    Nothing,
    /// There is such a task.
    Task(TaskLook),
    /// There is none.
    Gone,
    /// Redis refuses to tell.
    Refused(Error),
}

/// The waits of one client and its clones.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// A std mutex: held for a few entries, never across an await.
    state: Mutex<State>,
    /// There is somebody new.
    come: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Name, Vec<Waiting>>,
    /// Those that nobody has looked at since they came.
    fresh: Vec<Name>,
    /// Whether somebody listens for them.
    is_kept: bool,
    /// How many have come so far.
    count: u64,
}

/// One who waits, by its number.
type Waiting = (u64, Arc<watch::Sender<Seen>>);

/// Somebody who waits for a task.
#[derive(Debug)]
pub(crate) struct Wait {
    waits: Arc<Waits>,
    redis: Redis,
    name: Name,
    number: u64,
    seen: watch::Receiver<Seen>,
}

impl Waits {
    /// Begins to wait for a task. Somebody listens from now on, in the runtime of the caller.
    pub(crate) fn wait(self: &Arc<Self>, redis: &Redis, queue: &str, id: &str) -> Wait {
        let name = (queue.to_owned(), id.to_owned());
        let (number, seen) = self.enter(redis, &name);
        Wait { waits: self.clone(), redis: redis.clone(), name, number, seen }
    }

    fn enter(self: &Arc<Self>, redis: &Redis, name: &Name) -> (u64, watch::Receiver<Seen>) {
        let (sender, seen) = watch::channel(Seen::Nothing);
        let (number, begins) = {
            let mut state = self.lock();
            state.count += 1;
            let number = state.count;
            state.waiting.entry(name.clone()).or_default().push((number, Arc::new(sender)));
            state.fresh.push(name.clone());
            (number, !std::mem::replace(&mut state.is_kept, true))
        };
        if begins {
            tokio::spawn(Keeper { waits: self.clone(), redis: redis.clone(), has_left: false }.keep());
        } else {
            self.come.notify_one();
        }
        (number, seen)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wait {
    /// What the next look shows; each change of the task is looked at.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not told yet is told by the next call.
    pub(crate) async fn next(&mut self) -> Seen {
        while self.seen.changed().await.is_err() {
            // Whoever listened has gone with its runtime.
            tokio::time::sleep(PAUSE).await;
            (self.number, self.seen) = self.waits.enter(&self.redis, &self.name);
        }
        self.seen.borrow_and_update().clone()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.waits.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.name) {
            waiting.retain(|(number, _)| *number != self.number);
            if waiting.is_empty() {
                state.waiting.remove(&self.name);
            }
        }
    }
}

/// Listens for all that wait, and ends when for a while there was nobody.
struct Keeper {
    waits: Arc<Waits>,
    redis: Redis,
    has_left: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.has_left {
            // With its runtime, or by a panic: those who wait notice that nobody tells them any more, and come again.
            let mut state = self.waits.lock();
            state.is_kept = false;
            state.waiting.clear();
            state.fresh.clear();
        }
    }
}

impl Keeper {
    async fn keep(mut self) {
        let mut listener: Option<Listener> = None;
        let (mut listen_at, mut used_at) = (Instant::now(), Instant::now());
        // When to look at all: now, or again and again while Redis does not tell of changes.
        let mut poll_at = Some(Instant::now());
        let mut changed: HashSet<Name> = HashSet::new();
        loop {
            let now = Instant::now();
            if listener.is_none() && listen_at <= now {
                (listener, listen_at) = self.listen().await;
                // Whatever happened while nobody listened has to be looked for.
                poll_at = Some(now);
            }
            if poll_at.is_some_and(|at| at <= now) {
                self.all(&mut changed);
                poll_at = None;
            }
            let told = listener.as_ref().and_then(Listener::watch);
            let mut pause = match (&told, &mut poll_at) {
                (Some(_), _) => IDLE,
                (None, poll_at) => poll_at.get_or_insert(now + POLL).saturating_duration_since(now),
            };
            self.look(&mut changed, told.as_ref()).await;
            if !changed.is_empty() {
                pause = pause.min(POLL);
            }
            if !self.waits.lock().waiting.is_empty() {
                used_at = Instant::now();
            } else if used_at.elapsed() >= IDLE && self.leave() {
                return;
            }
            let is_lost = tokio::select! {
                () = self.waits.come.notified() => false,
                signal = next(&mut listener) => !self.hear(signal, listener.as_mut(), &mut changed),
                () = tokio::time::sleep(pause) => false,
            };
            if is_lost {
                listener = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// A connection that tells of changes, or when to try again to have one.
    async fn listen(&self) -> (Option<Listener>, Instant) {
        let now = Instant::now();
        match Listener::of_changes(&self.redis).await {
            Ok(listener) => (Some(listener), now),
            Err(error) if error.is_outage() => (None, now + POLL),
            Err(_) => (None, now + WITHOUT_TRACKING),
        }
    }

    /// Takes note of a signal and of those that have come with it; `false` if the connection is lost.
    fn hear(&self, first: Signal, mut listener: Option<&mut Listener>, changed: &mut HashSet<Name>) -> bool {
        let mut signal = Some(first);
        for _ in 0..SIGNALS {
            match signal {
                Some(Signal::Lost) => return false,
                Some(Signal::Everything) => self.all(changed),
                Some(Signal::Task(queue, id)) => {
                    changed.insert((queue, id));
                }
                Some(_) => {}
                None => break,
            }
            signal = listener.as_mut().and_then(|listener| listener.signal().now_or_never());
        }
        true
    }

    fn all(&self, changed: &mut HashSet<Name>) {
        changed.extend(self.waits.lock().waiting.keys().cloned());
    }

    /// Looks at those that have changed, and at those that are new. `changed` has then those that are to be looked at again: Redis could
    /// not be asked, or refused, or it will not tell of their next change. If that is because the connection is lost, the listener says so.
    async fn look(&self, changed: &mut HashSet<Name>, told: Option<&Watch>) {
        let looks: Vec<(Name, Vec<Waiting>)> = {
            let mut state = self.waits.lock();
            changed.extend(std::mem::take(&mut state.fresh));
            changed.drain().filter_map(|name| state.waiting.get(&name).cloned().map(|who| (name, who))).collect()
        };
        let broker = Broker::new(self.redis.clone());
        let looks = looks.into_iter().map(|(name, who)| {
            let (watch, broker) = (told.cloned(), &broker);
            async move {
                let (mut found, mut is_moving) = (None, false);
                if let Some(mut watch) = watch {
                    let looked = watch.look_at(&name.0, &name.1).await;
                    // Its slot is on the way to another node, which does not tell before all of it is there.
                    is_moving = looked.as_ref().is_err_and(Error::is_moving);
                    found = Some(looked).filter(|_| !is_moving);
                }
                let found = match found {
                    Some(found) => found,
                    None => broker.look_at(&name.0, &name.1).await,
                };
                (name, who, found, is_moving)
            }
        });
        let mut looks = stream::iter(looks).buffer_unordered(LOOKS);
        while let Some((name, who, found, is_moving)) = looks.next().await {
            let is_away = found.as_ref().is_err_and(Error::is_transient);
            if found.is_err() || is_moving {
                changed.insert(name);
            }
            let seen = match found {
                Err(_) if is_away => continue,
                Err(error) => Seen::Refused(error),
                Ok(Some(look)) => Seen::Task(look),
                Ok(None) => Seen::Gone,
            };
            for (_, waiting) in who {
                waiting.send_replace(seen.clone());
            }
        }
    }

    /// Ends, unless somebody has come.
    fn leave(&mut self) -> bool {
        let mut state = self.waits.lock();
        self.has_left = state.waiting.is_empty();
        state.is_kept = !self.has_left;
        self.has_left
    }
}

/// The next signal; none without a connection.
async fn next(listener: &mut Option<Listener>) -> Signal {
    match listener {
        Some(listener) => listener.signal().await,
        None => std::future::pending().await,
    }
}
