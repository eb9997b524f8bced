//! Waiting for an answer that is about to come without going to sleep.
//!
//! A Redis that is awake, on the same machine or one rack away, answers within some 30 µs. A process that sleeps
//! meanwhile has to be woken, which takes longer than that where processors go idle, and Redis, whom everybody lets
//! wait in turn, goes to sleep as well. Who makes one call after another asks again and again instead, and each time
//! leaves the processor to whoever else wants it. Linux does the same with sockets, where it is asked to
//! (`net.core.busy_poll`).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long an answer is asked for. Most come in a third of that; an answer of a Redis that had gone to sleep, hardly.
const BUDGET: Duration = Duration::from_micros(100);

/// How soon after an answer the next call has to come. Later, Redis is asleep.
const FOLLOWS_WITHIN: Duration = Duration::from_micros(200);

/// How many waits sleep at once, at the most, after one whose answer took longer.
const MOST_ASLEEP: u32 = 1_000;

/// On a single processor Redis cannot work while somebody asks whether it is done.
static HAS_A_PROCESSOR_TO_SPARE: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1));

/// What times count from.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Waits for answers, and learns whether they come soon enough to stay awake for them.
///
/// Each answer that takes longer than 100 µs doubles the number of waits that sleep at once, up to a thousand; one that
/// comes sooner sets it back. So a Redis that is far away, or busy, costs next to nothing.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    /// When the last answer came, in microseconds.
    answered: AtomicU64,
    /// How many of the next waits sleep.
    asleep: AtomicU32,
    /// How many will, after the next answer that takes too long.
    penalty: AtomicU32,
}

impl BusyPoll {
    /// Waits for the answer, awake at first if another has just come.
    ///
    /// # Cancel safety
    /// As that of the future.
    pub(crate) async fn wait<F: Future>(&self, answer: F) -> F::Output {
        let answer = pin!(answer);
        let output = if self.is_to_sleep(now()) { answer.await } else { self.stay_awake(answer).await };
        self.answered.store(now(), Ordering::Relaxed);
        output
    }

    fn is_to_sleep(&self, now: u64) -> bool {
        if !*HAS_A_PROCESSOR_TO_SPARE {
            return true;
        }
        let since = now.saturating_sub(self.answered.load(Ordering::Relaxed));
        let take_one = |asleep: u32| asleep.checked_sub(1);
        u128::from(since) > FOLLOWS_WITHIN.as_micros()
            || self.asleep.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_ok()
    }

    async fn stay_awake<F: Future + Unpin>(&self, mut answer: F) -> F::Output {
        let end = Instant::now() + BUDGET;
        loop {
            // The runtime looks at its sockets before it comes back here.
            if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(pin!(&mut answer).poll(context))).await {
                self.penalty.store(0, Ordering::Relaxed);
                return output;
            }
            if Instant::now() >= end {
                break;
            }
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
        let penalty = (self.penalty.load(Ordering::Relaxed) * 2).clamp(1, MOST_ASLEEP);
        self.penalty.store(penalty, Ordering::Relaxed);
        self.asleep.store(penalty, Ordering::Relaxed);
        answer.await
    }
}

fn now() -> u64 {
    u64::try_from(BEGINNING.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait for an answer that is there only after it was asked for in vain when the time for that was over, however
    /// long this test is kept from going on meanwhile.
    async fn ask_in_vain(poll: &BusyPoll) {
        let (mut first, mut is_late) = (None, false);
        let answer = poll_fn(|context| {
            if is_late {
                return Poll::Ready(());
            }
            is_late = first.get_or_insert_with(Instant::now).elapsed() >= BUDGET;
            context.waker().wake_by_ref();
            Poll::Pending
        });
        poll.wait(answer).await;
    }

    /// As if an answer had come just now, however long this test is kept from going on.
    fn answered_just_now(poll: &BusyPoll) {
        poll.answered.store(u64::MAX, Ordering::Relaxed);
    }

    #[tokio::test]
    async fn answers_that_take_long_are_slept_for_and_asked_for_rarely() {
        let poll = BusyPoll::default();
        let mut busy = Vec::new();
        for number in 0..20 {
            answered_just_now(&poll);
            let penalty = poll.penalty.load(Ordering::Relaxed);
            ask_in_vain(&poll).await;
            if poll.penalty.load(Ordering::Relaxed) != penalty {
                busy.push(number);
            }
        }
        let expected: &[i32] = if *HAS_A_PROCESSOR_TO_SPARE { &[0, 2, 5, 10, 19] } else { &[] };
        assert_eq!(busy, expected, "after each the pause doubles");
    }

    #[tokio::test]
    async fn an_answer_that_comes_soon_ends_the_pauses() {
        let poll = BusyPoll { penalty: AtomicU32::new(256), asleep: AtomicU32::new(1), ..BusyPoll::default() };
        answered_just_now(&poll);
        poll.wait(async {}).await;
        assert_eq!(poll.penalty.load(Ordering::Relaxed), 256, "it slept");
        answered_just_now(&poll);
        poll.wait(async {}).await;
        assert_eq!(poll.penalty.load(Ordering::Relaxed) == 0, *HAS_A_PROCESSOR_TO_SPARE);
    }

    #[test]
    fn who_calls_now_and_then_sleeps() {
        let poll = BusyPoll { answered: AtomicU64::new(1_000), ..BusyPoll::default() };
        assert_eq!(poll.is_to_sleep(1_200), !*HAS_A_PROCESSOR_TO_SPARE, "the last call of a row");
        assert!(poll.is_to_sleep(1_201), "the first after a pause");
    }
}
