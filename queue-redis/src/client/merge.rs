//! Calls that meet travel together.
//!
//! A caller who is alone sends its task itself, without any detour. Where there are many, they travel in waves, of
//! which two are under way at most: while Redis works on one, the callers of the other take their answers and come
//! back. Nothing ever waits for others to come, but for one turn of the runtime, in which all that were answered
//! together can come back together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use queue_core::options::Composed;
use tokio::sync::oneshot;

use super::{Place, Store};
use crate::broker::{EnqueueVerdict, next_batch};
use crate::busy_poll::BusyPoll;
use crate::error::Error;

/// How many waves are under way at once.
const WAVES: usize = 2;

/// So many tasks, those under way included, are not worth dividing among the waves.
const FEW: usize = 16;

type Answer = Result<(EnqueueVerdict, Composed), Error>;

/// A task, when it was composed (Unix nanoseconds), until when its caller waits for a Redis that is away, and
/// where it waits for the answer.
type Waiting = (Composed, i64, Instant, oneshot::Sender<Answer>);

#[derive(Debug, Default)]
pub(super) struct Merger {
    // A std mutex: held to push or take a vector, never across an await.
    state: Mutex<State>,
    /// How those wait who are alone.
    alone: BusyPoll,
}

#[derive(Debug, Default)]
struct State {
    waves: usize,
    /// How many tasks they carry.
    under_way: usize,
    /// Whether one of the waves has not set out yet: it takes those that wait when the runtime comes to it.
    gathering: bool,
    /// Whether the last wave that gathered found more than one task.
    crowd: bool,
    waiting: Vec<Waiting>,
}

impl State {
    /// Whether those that wait need another wave, which the caller then has to begin.
    fn wants_wave(&mut self) -> bool {
        let wants = self.waves < WAVES && !self.gathering && !self.waiting.is_empty();
        if wants {
            self.waves += 1;
            self.gathering = true;
        }
        wants
    }

    /// What the next wave carries: half of all there are, so that two waves of the same size go in turn.
    fn gather(&mut self) -> Vec<Waiting> {
        let all = self.under_way + self.waiting.len();
        let share = if all <= FEW { all } else { all.div_ceil(WAVES) };
        let rest = self.waiting.split_off(share.min(self.waiting.len()));
        let tasks = std::mem::replace(&mut self.waiting, rest);
        self.gathering = false;
        self.crowd = tasks.len() > 1;
        self.under_way += tasks.len();
        tasks
    }
}

impl Merger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores one task, alone or with others.
    pub(super) async fn store(
        self: &Arc<Self>,
        store: &Store,
        composed: Composed,
        now_ns: i64,
        until: Instant,
    ) -> Answer {
        let (answer, wants_wave) = {
            let mut state = self.lock();
            if state.waves == 0 && !state.crowd {
                state.waves = 1;
                state.under_way = 1;
                (Err(composed), false)
            } else {
                let (sender, answer) = oneshot::channel();
                state.waiting.push((composed, now_ns, until, sender));
                (Ok(answer), state.wants_wave())
            }
        };
        if wants_wave {
            Wave::begin(self, store);
        }
        match answer {
            // The wave answers everybody, or is gone together with the runtime.
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(store.gone())),
            Err(composed) => {
                // Hands over to those that came in the meantime, also when this future is dropped.
                let _wave = Wave { merger: self.clone(), store: store.clone(), tasks: 1 };
                let queue = composed.message.queue.clone();
                let batch = [composed];
                let stored = store.store(&queue, Place::of(&batch[0]), &batch, now_ns, until);
                let verdicts = self.alone.wait(stored).await?;
                let [composed] = batch;
                Ok((verdicts[0], composed))
            }
        }
    }
}

/// Tasks that are under way together; none yet while it gathers.
struct Wave {
    merger: Arc<Merger>,
    store: Store,
    tasks: usize,
}

impl Drop for Wave {
    fn drop(&mut self) {
        let (wants_wave, unanswered) = {
            let mut state = self.merger.lock();
            state.waves -= 1;
            state.under_way -= self.tasks;
            if self.tasks == 0 {
                // The runtime is ending; those who wait learn that nobody will answer.
                state.gathering = false;
                (false, std::mem::take(&mut state.waiting))
            } else {
                (state.wants_wave(), Vec::new())
            }
        };
        drop(unanswered);
        if wants_wave {
            Wave::begin(&self.merger, &self.store);
        }
    }
}

impl Wave {
    /// Begins a wave that [`wants_wave`](State::wants_wave) has counted.
    fn begin(merger: &Arc<Merger>, store: &Store) {
        let wave = Wave { merger: merger.clone(), store: store.clone(), tasks: 0 };
        // Outside of a runtime it ends here.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(wave.carry());
        }
    }

    async fn carry(mut self) {
        // Those who were answered together come back together.
        tokio::task::yield_now().await;
        let (tasks, wants_wave) = {
            let mut state = self.merger.lock();
            let tasks = state.gather();
            self.tasks = tasks.len();
            (tasks, state.wants_wave())
        };
        if wants_wave {
            Wave::begin(&self.merger, &self.store);
        }
        self.store.deliver(tasks).await;
    }
}

impl Store {
    /// Stores tasks of any queues and places, and answers each.
    async fn deliver(&self, waiting: Vec<Waiting>) {
        let mut batches: HashMap<(String, Place), Vec<Waiting>> = HashMap::new();
        for entry in waiting {
            let place = Place::of(&entry.0);
            batches.entry((entry.0.message.queue.clone(), place)).or_default().push(entry);
        }
        let calls = batches.into_iter().flat_map(|((queue, place), entries)| {
            let size = place.batch_size();
            let mut entries = entries.into_iter().peekable();
            std::iter::from_fn(move || {
                let batch = next_batch(&mut entries, size, |(task, ..)| task.message.payload.len());
                Some((queue.clone(), place, batch)).filter(|(.., batch)| !batch.is_empty())
            })
        });
        futures_util::future::join_all(calls.map(|(queue, place, entries)| async move {
            let now_ns = entries.iter().map(|(_, now_ns, ..)| *now_ns).max().unwrap_or_default();
            let until = entries.iter().map(|(_, _, until, _)| *until).max().unwrap_or_else(Instant::now);
            let (tasks, senders): (Vec<Composed>, Vec<_>) =
                entries.into_iter().map(|(composed, .., sender)| (composed, sender)).unzip();
            // A caller that no longer waits has dropped its future; its task is stored all the same, as it
            // would have been had it been under way.
            match self.store(&queue, place, &tasks, now_ns, until).await {
                Ok(verdicts) => {
                    for ((task, sender), verdict) in tasks.into_iter().zip(senders).zip(verdicts) {
                        let _ = sender.send(Ok((verdict, task)));
                    }
                }
                Err(error) => senders.into_iter().for_each(|sender| drop(sender.send(Err(error.clone())))),
            }
        }))
        .await;
    }
}
