//! Takes one task after another from a queue whose take was not answered in time.
//!
//! The answer may have been too large for the way it had to come. The same take again would bring the same, and never
//! end: so here each task is asked for by itself, on a connection that nobody else waits for, with more time from try
//! to try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_redis::broker::{Dequeued, Matching};
use queue_redis::service::Backoff;

use super::limit::Place;
use super::requeue::{Lost, find_lost, find_lost_at_once};
use super::shared::Shared;
use super::slots::Slot;
use super::starts::start;
use super::survey::Among;
use crate::log::warn;

/// How often a queue whose places are all taken is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long an empty queue is still watched, in response timeouts. Another server may have the task: it waits in vain, as this one did, and puts
/// the task back. Without patience both would do so for ever.
const COMES_BACK: u32 = 12;
/// How often.
const LOOK_WHETHER_IT_IS_BACK: Duration = Duration::from_millis(500);

/// How many times as long as for other answers one task is waited for, and how many times longer if that was not enough.
const LONGER: u32 = 4;
/// The longest wait: the largest message that Redis can hold, at a megabyte a second.
const LONGEST: Duration = Duration::from_secs(600);

/// Works the queue of a lost take like this for a while, in the background; where tasks are left to others, those among
/// which the take looked. What the take has taken comes back first: on a queue that is empty without it, this would end.
pub(super) fn begin(shared: &Arc<Shared>, lost: Lost, among: Option<Among>) {
    let Some(tasks) = shared.one_by_one.begin(&lost.queue) else {
        shared.lookups.spawn(find_lost(shared.clone(), lost));
        return;
    };
    let (end, matching) = (End { shared: shared.clone(), queue: lost.queue.clone() }, shared.matching(among));
    shared.lookups.spawn(async move {
        find_lost_at_once(&end.shared, lost).await;
        take(end, tasks, matching).await;
    });
}

/// Leaves the queue to the others again when it is dropped.
struct End {
    shared: Arc<Shared>,
    queue: Arc<str>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.one_by_one.end(&self.queue);
        self.shared.wakeups.work.tell(self.shared.queues.number(&self.queue));
    }
}

/// A slot, and a place where the queue has a limit; of that nobody is told but who takes from all queues.
async fn room(shared: &Shared, queue: &str) -> (Vec<Arc<Slot>>, Vec<Place>) {
    loop {
        let slots = shared.slots.take(1).await;
        match shared.queues.place(queue) {
            Some(places) => return (slots, places),
            None => drop(slots),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn take(end: End, tasks: u32, matching: Option<Matching>) {
    let End { shared, queue } = &end;
    let mut patience = shared.broker.redis().response_timeout() * LONGER;
    let mut backoff = Backoff::new(&shared.outage, "taking tasks one by one");
    let (mut left, mut seen) = (tasks, Instant::now());
    while left > 0 {
        if !shared.queues.number(queue).is_some_and(|queue| shared.queues.is_open(queue)) {
            return;
        }
        let room = shared.shutdown.quiet.run_until_cancelled(room(shared, queue)).await;
        let Some((mut slots, mut places)) = room else { return };
        let (token, expires) = (shared.next_token(), shared.lease_expiry_after(patience));
        let take = shared.broker.dequeue_within(patience, queue, &token, expires, matching.as_ref());
        match shared.shutdown.quiet.run_until_cancelled(take).await {
            Some(Ok(Dequeued::Tasks(taken) | Dequeued::Limited { tasks: taken, .. })) if !taken.is_empty() => {
                backoff.succeeded();
                (left, seen) = (left - 1, Instant::now());
                start(shared, taken, &mut slots, &mut places);
            }
            Some(Ok(_)) => {
                backoff.succeeded();
                if seen.elapsed() >= shared.broker.redis().response_timeout() * COMES_BACK {
                    return;
                }
                drop((slots, places));
                tokio::time::sleep(LOOK_WHETHER_IT_IS_BACK).await;
            }
            Some(Err(error)) if error.is_ambiguous() => {
                let seconds = patience.as_secs();
                warn!(
                    queue = %queue, seconds, %error,
                    "a single task did not come in this time; if it is that large, and this goes on, look at the one \
                     that is next in the queue, or at the way to Redis"
                );
                find_lost_at_once(shared, Lost { queue: queue.clone(), token, expires }).await;
                (patience, seen) = ((patience * LONGER).min(LONGEST), Instant::now());
                // It is no outage while the others are served.
                backoff.refused().await;
            }
            Some(Err(error)) if error.is_outage() => backoff.failed(&error).await,
            // The next take meets it too, and tells.
            Some(Err(_)) => return backoff.succeeded(),
            // It may have been on its way.
            None => return find_lost(shared.clone(), Lost { queue: queue.clone(), token, expires }).await,
        }
    }
}
