//! Makes scheduled and retried tasks pending when their time has come.
//!
//! The forwarder looks at the first task of each set, which costs Redis nothing worth mentioning, and forwards
//! only where one is due. It sleeps until the next one is, or until a set changes: it is told so by the
//! listening connection, which the look has armed. Without that, it looks as often as asynq.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::State;
use queue_redis::service::Backoff;
use queue_redis::{Error, SHORT_BATCH};

use super::Shared;
use crate::events::Event;
use crate::log::{error, info, warn};

/// Longest pause between two looks, as in asynq, and when something is wrong with a set.
const INTERVAL: Duration = Duration::from_secs(5);
/// So many sets that are known to have tasks are looked at again in that time.
const SWEPT: usize = 100;
/// Shortest: a burst of new scheduled tasks is not a burst of looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The scheduled or the retry set of a queue.
struct Set {
    queue: Arc<str>,
    state: State,
    /// When its first task is due, or is to be tried again; `None` where it has none.
    next: Option<i64>,
    /// It cannot be served, and is left alone until then.
    refused: Option<Instant>,
    /// Its first tasks are due and have to stay; the Unix second at which to try again, or the next one is
    /// due.
    held_up: Option<i64>,
}

/// What is known of the sets.
struct Sets {
    sets: Vec<Set>,
    /// When the first task of each is due, in Unix seconds; those that are not named are empty.
    due: BTreeSet<(i64, usize)>,
    /// Those of which that is not known. A look tells, and has Redis tell of the next change.
    doubtful: BTreeSet<usize>,
    /// Those that cannot be served.
    refused: BTreeSet<usize>,
    /// When all that are taken to be empty are looked at again, and a part of the others.
    sweep: Instant,
    sweeps: usize,
}

/// Forwards for as long as the server runs.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut sets = Sets::new(&shared);
    let mut backoff = Backoff::new(&shared.outage, "forwarding scheduled tasks");
    loop {
        sets.hear(&shared);
        match sets.forward_due(&shared).await {
            Ok(()) => {
                backoff.succeeded();
                tokio::time::sleep(PAUSE).await;
                let _ = tokio::time::timeout(sets.pause(&shared), shared.schedule.notified()).await;
            }
            Err(error) => backoff.failed(&error).await,
        }
    }
}

impl Sets {
    fn new(shared: &Shared) -> Self {
        let sets = |queue: &Arc<str>| {
            let set = |state| Set { queue: queue.clone(), state, next: None, refused: None, held_up: None };
            [set(State::Scheduled), set(State::Retry)]
        };
        let sets: Vec<Set> = shared.queues.names().flat_map(sets).collect();
        let (doubtful, sweep) = ((0..sets.len()).collect(), Instant::now() + shared.safety_interval());
        Self { sets, due: BTreeSet::new(), doubtful, refused: BTreeSet::new(), sweep, sweeps: 0 }
    }

    /// Goes by what was told since.
    fn hear(&mut self, shared: &Shared) {
        let changes = shared.schedule.take();
        self.doubtful.extend(changes.queues.into_iter().flat_map(|queue| [2 * queue, 2 * queue + 1]));
        if changes.everywhere {
            self.doubtful.extend(0..self.sets.len());
        }
        let now = Instant::now();
        if now < self.sweep {
            return;
        }
        self.sweep = now + self.longest(shared);
        self.sweeps = self.sweeps.wrapping_add(1);
        let parts = self.due.len().div_ceil(SWEPT).max(1);
        let (sets, part) = (&self.sets, self.sweeps % parts);
        let swept = |set: &usize| sets[*set].next.is_none() || set % parts == part;
        self.doubtful.extend((0..sets.len()).filter(swept));
    }

    fn longest(&self, shared: &Shared) -> Duration {
        if shared.watch().is_none() { INTERVAL } else { shared.safety_interval() }
    }

    fn pause(&mut self, shared: &Shared) -> Duration {
        self.sweep = self.sweep.min(Instant::now() + self.longest(shared));
        let mut pause = self.sweep.saturating_duration_since(Instant::now());
        if let Some((next, _)) = self.due.first() {
            let left = next.saturating_mul(1_000_000_000).saturating_sub(shared.now_ns());
            pause = pause.min(Duration::from_nanos(u64::try_from(left).unwrap_or(0)));
        }
        if self.refused.is_empty() { pause } else { pause.min(INTERVAL) }
    }

    /// Forwards what is due, and learns of the sets that are doubtful when they are.
    async fn forward_due(&mut self, shared: &Shared) -> Result<(), Error> {
        let now = Instant::now();
        self.refused.retain(|set| self.sets[*set].refused.is_some());
        let again = self.refused.iter().filter(|set| self.sets[**set].refused.is_some_and(|until| until <= now));
        self.doubtful.extend(again);
        let looked_at: Vec<usize> = self
            .doubtful
            .iter()
            .copied()
            .filter(|set| self.sets[*set].refused.is_none_or(|until| until <= now))
            .collect();
        let heads = if looked_at.is_empty() { Vec::new() } else { look(shared, &self.sets, &looked_at).await? };
        let some_answer = heads.iter().any(Result::is_ok);
        let mut heads: Vec<(usize, Result<Option<i64>, Error>)> = looked_at.into_iter().zip(heads).collect();
        // What the last look said of these still stands.
        let second = shared.now();
        let due = self.due.range(..(second.saturating_add(1), 0)).filter(|(_, set)| !self.doubtful.contains(set));
        heads.extend(due.map(|(due, set)| (*set, Ok(Some(*due)))));
        for (number, head) in heads {
            match &head {
                // A node of the cluster is gone, and others are not.
                Err(error) if error.is_transient() && some_answer => {
                    self.refuse(number, error);
                    continue;
                }
                _ => {}
            }
            match self.sets[number].forward_if_due(shared, head).await {
                Ok(next) => {
                    let set = &mut self.sets[number];
                    if set.refused.take().is_some() {
                        info!(queue = %set.queue, set = %set.state, "the set is forwarded again");
                    }
                    self.doubtful.remove(&number);
                    self.learn(number, next);
                }
                Err(error) if error.is_outage() => return Err(error),
                // Only this one is left alone; the others must not wait for it.
                Err(error) => self.refuse(number, &error),
            }
        }
        Ok(())
    }

    fn learn(&mut self, number: usize, next: Option<i64>) {
        let known = std::mem::replace(&mut self.sets[number].next, next);
        if known != next {
            if let Some(known) = known {
                self.due.remove(&(known, number));
            }
            self.due.extend(next.map(|next| (next, number)));
        }
    }

    fn refuse(&mut self, number: usize, error: &Error) {
        self.sets[number].refuse(error);
        self.learn(number, None);
        self.doubtful.remove(&number);
        self.refused.insert(number);
    }
}

/// When the first task of each set is due. On the listening connection, which is then told about changes.
async fn look(shared: &Shared, sets: &[Set], looked_at: &[usize]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
    let sets: Vec<(&str, State)> = looked_at.iter().map(|set| (&*sets[*set].queue, sets[*set].state)).collect();
    if let Some(mut watch) = shared.watch()
        && let Ok(heads) = watch.next_due(&sets).await
    {
        return Ok(heads);
    }
    // The listening connection is being replaced; when that is done, there will be another look.
    shared.broker.next_due(&sets).await
}

impl Set {
    /// Returns when the next task is due.
    async fn forward_if_due(
        &mut self,
        shared: &Shared,
        head: Result<Option<i64>, Error>,
    ) -> Result<Option<i64>, Error> {
        let Some(head) = head? else { return Ok(None) };
        let now = shared.now();
        let due = self.held_up.filter(|_| head <= now).unwrap_or(head);
        if due > now {
            return Ok(Some(due));
        }
        let mut stayed = 0;
        loop {
            let forwarded = shared.broker.forward(&self.queue, self.state, shared.now_ns(), stayed).await?;
            stayed += forwarded.stayed;
            if forwarded.moved > 0 {
                shared.tell(|| Event::Forwarded { queue: &self.queue, tasks: forwarded.moved });
            }
            if forwarded.dropped > 0 {
                warn!(queue = %self.queue, set = %self.state, ids = forwarded.dropped, "ids without tasks were dropped");
            }
            if forwarded.moved + forwarded.dropped + forwarded.stayed < SHORT_BATCH as u64 {
                return Ok(self.settle(now, stayed, forwarded.next_due));
            }
        }
    }

    /// Remembers whether tasks had to stay; returns when to come back.
    fn settle(&mut self, now: i64, stayed: u64, next_due: Option<i64>) -> Option<i64> {
        if stayed == 0 {
            self.held_up = None;
            return next_due;
        }
        if self.held_up.is_none() {
            let (queue, set) = (&self.queue, self.state);
            warn!(queue = %queue, %set, tasks = stayed, "due tasks stay: keys of other types stand where their groups should be");
        }
        let again = now.saturating_add(INTERVAL.as_secs() as i64);
        self.held_up = Some(next_due.unwrap_or(again).min(again));
        self.held_up
    }

    fn refuse(&mut self, error: &Error) {
        if self.refused.replace(Instant::now() + INTERVAL).is_none() {
            error!(queue = %self.queue, set = %self.state, %error, "the set cannot be forwarded; looking at it again every few seconds");
        }
    }
}
