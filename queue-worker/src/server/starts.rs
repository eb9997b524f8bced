//! Starts the attempts of a take.
//!
//! A task of the runtime for each attempt costs more than a handler of a few microseconds, most of it where another
//! thread is woken to run it. So while the handlers end soon and without waiting, the attempts of a take run one after
//! another, in one task of the runtime. An attempt that waits goes on in a task of its own, and after one that
//! waited, or took long, each has its own again, so that they use all threads.
//!
//! A handler that blocks its thread without warning holds up what else its take has brought, once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::future::poll_fn;
use tokio::task::coop::has_budget_remaining;

use super::acks::Ack;
use super::shared::Shared;
use crate::panic;

/// An attempt that may be polled; its report, unless others have the task by now.
pub(super) type Attempt = Pin<Box<dyn Future<Output = Option<Ack>> + Send>>;

/// What is shorter than this is not worth another thread: one thread starts and ends as many such attempts as Redis hands
/// out tasks.
const SHORT: Duration = Duration::from_micros(20);

/// What is longer than this has not merely been interrupted: it blocks its thread.
const LONG: Duration = Duration::from_millis(1);

/// Attempts count as short from half of this score on. A short one adds a point; one that is not takes sixteen, so
/// that one of a hundred which the machine has interrupted changes nothing; one that waits or blocks takes all.
const SURE: u32 = 128;

/// Whether attempts are short.
#[derive(Debug, Default)]
pub(super) struct Pace {
    // Attempts that end at the same time may lose a point.
    score: AtomicU32,
}

impl Pace {
    fn is_short(&self) -> bool {
        self.score.load(Ordering::Relaxed) >= SURE / 2
    }

    /// Polls an attempt for the first time, and learns from it.
    fn begin(&self, attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Option<Ack>> {
        let began = Instant::now();
        let polled = attempt.as_mut().poll(context);
        self.learn(polled.is_ready(), began.elapsed());
        polled
    }

    fn learn(&self, has_ended: bool, took: Duration) {
        let score = self.score.load(Ordering::Relaxed);
        let next = if !has_ended || took >= LONG {
            0
        } else if took >= SHORT {
            score.saturating_sub(16)
        } else {
            (score + 1).min(SURE)
        };
        if next != score {
            self.score.store(next, Ordering::Relaxed);
        }
    }
}

/// Starts what a take has brought.
pub(super) fn start(shared: &Arc<Shared>, attempts: Vec<Attempt>) {
    if attempts.len() > 1 && shared.pace.is_short() {
        shared.handlers.spawn(together(shared.clone(), attempts));
    } else {
        attempts.into_iter().for_each(|attempt| drop(shared.handlers.spawn(alone(shared.clone(), attempt))));
    }
}

async fn alone(shared: Arc<Shared>, mut attempt: Attempt) {
    let mut is_first = true;
    let ended = poll_fn(|context| {
        if std::mem::replace(&mut is_first, false) {
            shared.pace.begin(&mut attempt, context)
        } else {
            attempt.as_mut().poll(context)
        }
    });
    shared.acks.send(ended.await);
}

async fn together(shared: Arc<Shared>, attempts: Vec<Attempt>) {
    // Sent at the end: whoever writes them would be woken on this thread, and wait for the next attempt there.
    let mut ended = Vec::with_capacity(attempts.len());
    for mut attempt in attempts {
        if !has_budget_remaining() {
            tokio::task::yield_now().await;
        }
        if !shared.pace.is_short() {
            shared.handlers.spawn(alone(shared.clone(), attempt));
            continue;
        }
        // What it waits for, it asks again as soon as it has a task of its own.
        let mut context = Context::from_waker(Waker::noop());
        match panic::catch(|| shared.pace.begin(&mut attempt, &mut context)) {
            Ok(Poll::Ready(ack)) => ended.extend(ack),
            Ok(Poll::Pending) => drop(shared.handlers.spawn(go_on(shared.clone(), attempt))),
            // Its report goes out when it is dropped.
            Err(_) => drop(panic::discard(attempt)),
        }
    }
    shared.acks.send(ended);
}

async fn go_on(shared: Arc<Shared>, attempt: Attempt) {
    shared.acks.send(attempt.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_short_when_nearly_all_of_them_end_soon() {
        let (pace, short) = (Pace::default(), Duration::from_micros(5));
        let learn = |times: u32, has_ended, took| (0..times).for_each(|_| pace.learn(has_ended, took));
        assert!(!pace.is_short(), "nothing is known yet");
        learn(64, true, short);
        assert!(pace.is_short());
        for _ in 0..100 {
            learn(99, true, short);
            learn(1, true, SHORT);
            assert!(pace.is_short(), "the machine interrupted one of a hundred");
        }
        for (has_ended, took, times) in [(true, SHORT, 8), (true, LONG, 1), (false, short, 1)] {
            learn(200, true, short);
            learn(times, has_ended, took);
            assert!(!pace.is_short(), "{times} of {took:?}, ended: {has_ended}");
        }
    }
}
