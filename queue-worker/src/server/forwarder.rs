//! Makes scheduled and retried tasks pending when their time has come.
//!
//! The forwarder looks at the first task of each set, which costs Redis nothing worth mentioning, and forwards
//! only where one is due. It sleeps until the next one is, or until a set changes: it is told so by the
//! listening connection, which the look has armed. Without that, it looks as often as asynq.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_core::State;
use queue_redis::{Error, SHORT_BATCH};

use super::Shared;
use super::backoff::Backoff;
use crate::events::Event;
use crate::log::{error, info, warn};

/// Longest pause between two looks, as in asynq, and when something is wrong with a set.
const INTERVAL: Duration = Duration::from_secs(5);
/// The same where Redis tells about changes.
const SAFETY_INTERVAL: Duration = Duration::from_secs(15);
/// Shortest: a burst of new scheduled tasks is not a burst of looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The scheduled or the retry set of a queue.
struct Set {
    queue: Arc<str>,
    state: State,
    /// It cannot be served, and is left alone until then.
    refused: Option<Instant>,
    /// Its first tasks are due and have to stay; the Unix second at which to try again, or the next one is
    /// due.
    held_up: Option<i64>,
}

/// Forwards for as long as the server runs.
pub(super) async fn run(shared: Arc<Shared>) {
    let sets = |queue: &Arc<str>| {
        let set = |state| Set { queue: queue.clone(), state, refused: None, held_up: None };
        [set(State::Scheduled), set(State::Retry)]
    };
    let mut sets: Vec<Set> = shared.queues.names().flat_map(sets).collect();
    let mut backoff = Backoff::new(&shared.outage, "forwarding scheduled tasks");
    loop {
        match forward_due(&shared, &mut sets).await {
            Ok(next) => {
                backoff.succeeded();
                tokio::time::sleep(PAUSE).await;
                let pause = until(&shared, &sets, next);
                let _ = tokio::time::timeout(pause, shared.schedule.notified()).await;
            }
            Err(error) => backoff.failed(&error).await,
        }
    }
}

fn until(shared: &Shared, sets: &[Set], next: Option<i64>) -> Duration {
    let alone = shared.watch().is_none() || sets.iter().any(|set| set.refused.is_some());
    let longest = if alone { INTERVAL } else { SAFETY_INTERVAL };
    let Some(next) = next else { return longest };
    let left = next.saturating_mul(1_000_000_000).saturating_sub(shared.now_ns());
    Duration::from_nanos(u64::try_from(left).unwrap_or(0)).min(longest)
}

/// Forwards what is due; returns the Unix second at which the next task is.
async fn forward_due(shared: &Shared, sets: &mut [Set]) -> Result<Option<i64>, Error> {
    let heads = look(shared, sets).await?;
    let some_answer = heads.iter().any(Result::is_ok);
    let mut next = None;
    for (set, head) in sets.iter_mut().zip(heads) {
        if set.refused.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        if let Err(error) = &head
            && error.is_transient()
            && some_answer
        {
            // A node of the cluster is gone, and others are not.
            set.refuse(error);
            continue;
        }
        match set.forward_if_due(shared, head).await {
            Ok(due) => {
                if set.refused.take().is_some() {
                    info!(queue = %set.queue, set = %set.state, "the set is forwarded again");
                }
                next = [next, due].into_iter().flatten().min();
            }
            Err(error) if error.is_outage() => return Err(error),
            // Only this one is left alone; the others must not wait for it.
            Err(error) => set.refuse(&error),
        }
    }
    Ok(next)
}

/// When the first task of each set is due. On the listening connection, which is then told about changes.
async fn look(shared: &Shared, sets: &[Set]) -> Result<Vec<Result<Option<i64>, Error>>, Error> {
    let sets: Vec<(&str, State)> = sets.iter().map(|set| (&*set.queue, set.state)).collect();
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
