//! Tasks that are stored once, however often that is asked for: `store_once.lua`.

use bytes::Bytes;
use futures_util::future::join_all;
use queue_core::keys::QueueKeys;
use queue_core::limits;
use queue_core::options::{Composed, Placement};
use queue_core::wire::TaskMessage;

use super::enqueue::place_of;
use super::{Broker, next_batch, verdicts};
use crate::error::Error;
use crate::script::{STORE_ONCE, Word};

/// A task that is stored once, and the Unix second by which.
#[derive(Debug)]
pub(crate) struct Once {
    pub(crate) task: Composed,
    /// Its message as it is stored.
    pub(crate) message: Bytes,
    pub(crate) not_after: i64,
    /// What is remembered instead of its id.
    pub(crate) key: Option<String>,
}

impl Once {
    /// A pending task, without a lock, whose id is remembered.
    pub(crate) fn pending(message: TaskMessage, not_after: i64) -> Self {
        let (placement, bytes) = (Placement::Pending, message.to_bytes());
        let task = Composed { message, placement, unique_ttl: 0, generated_id: true, has_own_lock: false };
        Self { task, message: bytes, not_after, key: None }
    }

    /// A task for which this key is remembered.
    pub(crate) fn keyed(key: String, task: Composed, not_after: i64) -> Self {
        Self { message: task.message.to_bytes(), task, not_after, key: Some(key) }
    }
}

/// What became of a task that was to be stored once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredOnce {
    Stored,
    Before,
    TooLate,
    IdTaken,
    Duplicate,
}

impl Broker {
    /// Stores tasks of a queue and one place, each once, in as few calls as may be, which set out together; tells for each what became of it. What
    /// Redis refuses is tried again one by one.
    pub(crate) async fn store_each_once(
        &self,
        queue: &str,
        tasks: impl IntoIterator<Item = Once>,
        now_ns: i64,
    ) -> Vec<(Once, Result<StoredOnce, Error>)> {
        let listed = self.list_queue(queue).await;
        let mut tasks = tasks.into_iter().peekable();
        let calls = std::iter::from_fn(|| {
            let call = next_batch(&mut tasks, limits::SHORT_BATCH, |once| once.message.len());
            Some(call).filter(|call| !call.is_empty())
        });
        let stored = join_all(calls.map(async |call| {
            if let Err(error) = &listed {
                return call.into_iter().map(|once| (once, Err(error.clone()))).collect();
            }
            let stored = match self.store_once(queue, &call, now_ns).await {
                Err(error) if call.len() > 1 && !error.is_outage() => {
                    let each = call.iter().map(|once| self.store_once(queue, std::slice::from_ref(once), now_ns));
                    join_all(each).await.into_iter().map(|stored| Ok(stored?[0])).collect()
                }
                Err(error) => vec![Err(error); call.len()],
                Ok(stored) => stored.into_iter().map(Ok).collect::<Vec<_>>(),
            };
            call.into_iter().zip(stored).collect::<Vec<_>>()
        }));
        let stored: Vec<_> = stored.await.into_iter().flatten().collect();
        let fresh = stored.iter().filter(|(_, stored)| matches!(stored, Ok(StoredOnce::Stored)));
        self.tell_enqueued(fresh.map(|(once, _)| (&once.task.message, once.task.placement.due())), now_ns);
        stored
    }

    /// Stores tasks, all of this queue and one place, each unless that was done before within a day; 1 to
    /// [`SHORT_BATCH`](super::SHORT_BATCH). All of them have keys, or none.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then none is stored, unless the error [is ambiguous](Error::is_ambiguous).
    async fn store_once(&self, queue: &str, tasks: &[Once], now_ns: i64) -> Result<Vec<StoredOnce>, Error> {
        let Some(first) = tasks.first() else { return Ok(Vec::new()) };
        let keys = QueueKeys::new(queue);
        let (state, place, _) = place_of(&keys, &first.task, now_ns);
        let mut call = STORE_ONCE.call(3 + tasks.len());
        call.arg(place).arg(keys.stored_once()).arg(keys.groups());
        for once in tasks {
            call.arg(keys.task(&once.task.message.id));
        }
        call.arg(limits::MAX_STORED_ONCE).arg(state).arg(if first.key.is_some() { 8 } else { 3 });
        for once in tasks {
            let Composed { message, unique_ttl, .. } = &once.task;
            call.arg(&message.id).arg(&once.message[..]).arg(once.not_after);
            if let Some(key) = &once.key {
                // Since when a pending one is, the script says.
                let (_, _, score) = place_of(&keys, &once.task, now_ns);
                call.arg(key).arg(&message.unique_key).arg(unique_ttl).arg(score).arg(&message.group_key);
            }
        }
        let verdict = |word| match word {
            Word::Applied => Some(StoredOnce::Stored),
            Word::Same => Some(StoredOnce::Before),
            Word::Changed => Some(StoredOnce::TooLate),
            Word::IdTaken => Some(StoredOnce::IdTaken),
            Word::Locked => Some(StoredOnce::Duplicate),
            _ => None,
        };
        verdicts(STORE_ONCE.name, &self.redis.run(&STORE_ONCE, &call).await?, tasks.len(), verdict)
    }
}
