//! Calls that meet travel together.
//!
//! A caller who finds nobody else under way sends its task itself, without any detour. Whoever comes
//! while that call is under way leaves its task here, and all that have gathered go in the next call.
//! Nothing ever waits for others to come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use queue_core::options::Composed;
use tokio::sync::oneshot;

use super::{Place, Store};
use crate::broker::{EnqueueVerdict, SHORT_BATCH, next_batch};
use crate::error::Error;

type Answer = Result<(EnqueueVerdict, Composed), Error>;

/// A task, when it was composed (Unix nanoseconds), until when its caller waits for a Redis that is away, and
/// where it waits for the answer.
type Waiting = (Composed, i64, Instant, oneshot::Sender<Answer>);

#[derive(Debug, Default)]
pub(super) struct Merger {
    // A std mutex: held to push or take a vector, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody is under way, who will take care of those that wait.
    busy: bool,
    waiting: Vec<Waiting>,
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
        let answer = {
            let mut state = self.lock();
            if state.busy {
                let (sender, answer) = oneshot::channel();
                state.waiting.push((composed, now_ns, until, sender));
                Err(answer)
            } else {
                state.busy = true;
                Ok(composed)
            }
        };
        match answer {
            Ok(composed) => {
                // Hands over to those that came in the meantime, also when this future is dropped.
                let _turn = Turn { merger: self.clone(), store: store.clone() };
                let queue = composed.message.queue.clone();
                let batch = [composed];
                let verdicts = store.store(&queue, Place::of(&batch[0]), &batch, now_ns, until).await?;
                let [composed] = batch;
                Ok((verdicts[0], composed))
            }
            // The carrier answers everybody, or is gone together with the runtime.
            Err(answer) => answer.await.unwrap_or_else(|_| Err(store.gone())),
        }
    }
}

/// The duty to take care of those that wait.
struct Turn {
    merger: Arc<Merger>,
    store: Store,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.merger.lock();
            if state.waiting.is_empty() {
                state.busy = false;
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        let next = Turn { merger: self.merger.clone(), store: self.store.clone() };
        // Not carried by the caller at hand: its own task is stored, and it must not wait for others'.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(carry(next, waiting))),
            // The runtime is ending; those who wait learn that nobody will answer.
            Err(_) => next.merger.lock().busy = false,
        }
    }
}

async fn carry(turn: Turn, waiting: Vec<Waiting>) {
    let mut batches: HashMap<(String, Place), Vec<Waiting>> = HashMap::new();
    for entry in waiting {
        let place = Place::of(&entry.0);
        batches.entry((entry.0.message.queue.clone(), place)).or_default().push(entry);
    }
    let calls = batches.into_iter().flat_map(|((queue, place), entries)| {
        let size = place.batch_size(SHORT_BATCH);
        let mut entries = entries.into_iter().peekable();
        std::iter::from_fn(move || {
            let batch = next_batch(&mut entries, size, |(task, ..)| task.message.payload.len());
            Some((queue.clone(), place, batch)).filter(|(.., batch)| !batch.is_empty())
        })
    });
    let store = &turn.store;
    futures_util::future::join_all(calls.map(|(queue, place, entries)| async move {
        let now_ns = entries.iter().map(|(_, now_ns, ..)| *now_ns).max().unwrap_or_default();
        let until = entries.iter().map(|(_, _, until, _)| *until).max().unwrap_or_else(Instant::now);
        let (tasks, senders): (Vec<Composed>, Vec<_>) =
            entries.into_iter().map(|(composed, .., sender)| (composed, sender)).unzip();
        // A caller that no longer waits has dropped its future; its task is stored all the same, as it
        // would have been had it been under way.
        match store.store(&queue, place, &tasks, now_ns, until).await {
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
