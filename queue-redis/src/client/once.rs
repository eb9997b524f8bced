//! Tasks that are enqueued once for each key, however often that is asked for: [`Client::claim_once`].

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use queue_core::IntoTask;
use queue_core::keys::QueueKeys;
use queue_core::limits::{OUTBOX_CLAIM, OUTBOX_CONFIRMED_FOR, STORED_ONCE_AT_LEAST, STORED_ONCE_FOR};
use queue_core::options::{Composed, Placement};
use queue_core::{OptionError, TaskOptions};

use super::{Client, EnqueueError, Place, composed, judge};
use crate::broker::{EnqueueVerdict, Once, StoredOnce};
use crate::error::Error;

/// What became of a task that was to be enqueued once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueuedOnce {
    /// It is enqueued.
    Now,
    /// It was enqueued before, under the same key, or is there with the same message.
    Before,
    /// The claim has ended; nothing was done.
    TooLate,
}

/// The right to enqueue some tasks for a while.
#[derive(Debug)]
pub struct OnceClaim {
    client: Client,
    /// The Unix second at which it began, by Redis' clock.
    began: i64,
    /// And the last one of it.
    not_after: i64,
}

impl Client {
    /// A task as it would be enqueued now: its options are checked, its message is complete, and interceptors have seen it. Nothing is sent.
    ///
    /// # Errors
    /// See [`EnqueueError`]. A task cannot go [in front](TaskOptions::front).
    pub fn compose(&self, task: impl IntoTask) -> Result<Composed, EnqueueError> {
        let mut task = composed(task, TaskOptions::new(), self.now_ns())?;
        if task.placement == Placement::Front {
            return Err(OptionError::NotInFront { what: "what is enqueued later" }.into());
        }
        self.prepare(&mut task)?;
        Ok(task)
    }

    /// Begins to enqueue tasks that stand elsewhere too, such as in rows of a database, and are not to be enqueued twice whatever happens: a
    /// [`OnceClaim`], of so many seconds by Redis' clock, 30 at the most. Call this first, and then lock the rows for longer than that: who stands still in
    /// between finds his claim over before anybody else can have had his locks.
    ///
    /// Each has a key, which its queue remembers for a day, or for an hour at least where it has more than 100,000 of them. When the rows are
    /// gone, [`confirm`](OnceClaim::confirm) them. Call this anew for each set of rows.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn claim_once(&self, within: Duration) -> Result<OnceClaim, Error> {
        let (began, _): (i64, i64) = self.redis().query("TIME", &redis::cmd("TIME")).await?;
        let not_after = began + within.min(OUTBOX_CLAIM).as_secs().cast_signed();
        Ok(OnceClaim { client: self.clone(), began, not_after })
    }
}

impl OnceClaim {
    /// Enqueues tasks, each with its key, and tells in order what became of them. Those of one queue and state keep their order. Interceptors do
    /// not see them: that was when they were [composed](Client::compose).
    ///
    /// An error that [is an outage](Error::is_outage) concerns Redis, any other one the task. Whatever is not known to be enqueued may be tried
    /// again, by anybody.
    pub async fn enqueue(&self, tasks: Vec<(String, Composed)>) -> Vec<Result<EnqueuedOnce, EnqueueError>> {
        let now_ns = self.client.now_ns();
        let mut outcomes: Vec<_> = std::iter::repeat_with(|| None).take(tasks.len()).collect();
        let mut places: BTreeMap<_, (Vec<usize>, Vec<Once>)> = BTreeMap::new();
        for (at, (key, task)) in tasks.into_iter().enumerate() {
            let place = (task.message.queue.clone(), Place::of(&task), task.message.group_key.clone());
            let (positions, of_place) = places.entry(place).or_default();
            positions.push(at);
            of_place.push(Once::keyed(key, task, self.not_after));
        }
        let stored = join_all(places.into_iter().map(async |((queue, ..), (positions, tasks))| {
            let stored = self.client.broker().store_each_once(&queue, tasks, now_ns).await;
            positions.into_iter().zip(stored).collect::<Vec<_>>()
        }));
        for (at, (once, stored)) in stored.await.into_iter().flatten() {
            let refused = |verdict| judge(verdict, once.task, now_ns).map(|_| EnqueuedOnce::Before);
            outcomes[at] = Some(match stored {
                Ok(StoredOnce::Stored) => Ok(EnqueuedOnce::Now),
                Ok(StoredOnce::Before) => Ok(EnqueuedOnce::Before),
                Ok(StoredOnce::TooLate) => Ok(EnqueuedOnce::TooLate),
                Ok(StoredOnce::IdTaken) => refused(EnqueueVerdict::IdTaken),
                Ok(StoredOnce::Duplicate) => refused(EnqueueVerdict::Duplicate),
                Err(error) => Err(error.into()),
            });
        }
        outcomes.into_iter().flatten().collect()
    }

    /// Tells queues that nobody will enqueue under these keys again: pairs of queue and key. They need not be remembered for longer than two minutes then.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses. Then they are remembered for longer.
    pub async fn confirm(&self, keys: impl IntoIterator<Item = (String, String)>) -> Result<(), Error> {
        let mut queues: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (queue, key) in keys {
            queues.entry(queue).or_default().push(key);
        }
        // As if it had been stored earlier: it is the first to go, in two minutes.
        let forgotten = STORED_ONCE_FOR.saturating_sub(STORED_ONCE_AT_LEAST) + OUTBOX_CONFIRMED_FOR;
        let score = self.began + forgotten.as_secs().cast_signed();
        let told = join_all(queues.into_iter().map(async |(queue, keys)| {
            let once = QueueKeys::new(&queue).stored_once();
            let marked: Vec<(i64, String)> = keys.into_iter().map(|key| (score, key)).collect();
            self.client.redis().command::<()>("ZADD", (once, "XX", marked)).await
        }));
        told.await.into_iter().collect()
    }
}
