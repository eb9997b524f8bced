//! One method for each atomic transition of a task.

mod apply;
mod bin;
pub(crate) mod cancel;
mod cron;
pub(crate) mod duties;
mod enqueue;
pub(crate) mod events;
mod examine;
mod finish;
mod flow;
mod group;
mod holding;
mod lanes;
mod listed;
mod look;
mod maintain;
mod manage;
mod news;
mod once;
mod operation;
mod publish;
mod reclaim;
mod remove;
mod restore;
mod server;
mod steer;
mod stored;
mod take;
pub(crate) mod targets;
mod tell;
mod waiting;

pub use apply::{Ended, Travel};
pub use bin::{Bin, Undeleted};
pub use cancel::{CancelRequest, CancelRequests};
pub use cron::{EntryDefinition, EntryStatus, Occasion, Overlap, Tick, TickReply, TickVerdict, Why};
pub use duties::HeldDuty;
pub use enqueue::EnqueueVerdict;
pub use finish::{Completion, Report, Side, Verdict};
pub(crate) use flow::{Claimed, Described, Forgotten, Joining, Opening, Record, Recount, Reserved, Tree};
pub use group::{Aggregated, GroupRules, ReadyGroups, StagedSet, StagedTask};
pub use holding::Holding;
pub(crate) use holding::{Search, any_of};
pub use lanes::Freed;
pub(crate) use lanes::{first_lanes, read_first_lanes};
pub use look::{Canceled, TaskLook};
pub use maintain::{Expired, ExpiredLease, Forwarded, Recovery};
pub(crate) use maintain::{FEW_SETS, chosen, due_set, heads_of, read_heads, spread};
pub use manage::{Change, MoveVerdict, PayloadChange, PayloadVerdict, Seen};
pub(crate) use once::{Once, StoredOnce};
pub use operation::Wish;
pub use publish::PublishVerdict;
pub use queue_core::limits::{
    ARCHIVE_MAX, MAX_BATCH, MAX_BATCH_BYTES, MAX_SET, MAX_TAKE_BYTES, SET_BATCH, SHORT_BATCH,
};
pub use reclaim::ListedSet;
pub use restore::{RestoreNote, RestoreVerdict, Restored};
pub use steer::{Ordered, Wants};
pub use stored::{FIELDS_LEFT_BEHIND, StoredCounter, StoredQueue, StoredTask};
pub use take::{Delivery, Dequeued, Matched, Matching, More, PoisonReason, Run, Taken};
pub(crate) use tell::told_at;
pub use waiting::{IdRange, Waiting};

use std::iter::Peekable;
use std::sync::Arc;

use queue_core::TaskState;
use queue_core::queue_name::{Family, QueueName};
use queue_core::unique::holder_of;

use redis::{Cmd, Value};

use crate::connection::Redis;
use crate::error::Error;
use crate::feed::Feed;
use crate::script::{Script, Word};
use crate::teller::Teller;

/// Takes from `items` what one call should carry: at most `most`, and no more bytes than
/// [`MAX_BATCH_BYTES`], but at least one.
pub fn next_batch<T, I: Iterator<Item = T>>(
    items: &mut Peekable<I>,
    most: usize,
    bytes: impl Fn(&T) -> usize,
) -> Vec<T> {
    let (mut batch, mut total) = (Vec::new(), 0);
    while batch.len() < most {
        let fits = |item: &T| batch.is_empty() || bytes(item).saturating_add(total) <= MAX_BATCH_BYTES;
        let Some(item) = items.next_if(fits) else { break };
        total = bytes(&item).saturating_add(total);
        batch.push(item);
    }
    batch
}

/// The transitions of tasks on one Redis; cheap to clone.
///
/// A method is named after its script in `lua/`. What a script can refuse is a value ([`Verdict`],
/// [`EnqueueVerdict`]); an [`Error`] means that Redis could not be asked or did not do it.
#[derive(Debug, Clone)]
pub struct Broker {
    redis: Redis,
    timed: bool,
    teller: Arc<Teller>,
    limited: Arc<lanes::Limited>,
    feed: Arc<Feed>,
    news: Arc<news::News>,
    listed: Arc<listed::Listed>,
}

impl Broker {
    /// The transitions on this Redis.
    pub fn new(redis: Redis) -> Self {
        let (teller, limited, feed, news, listed) = Default::default();
        Self { redis, timed: false, teller, limited, feed, news, listed }
    }

    /// Whether a dequeue also asks since when each task was pending. That costs Redis one more look into
    /// the task. Defaults to `false`.
    #[must_use]
    pub fn timed(mut self, timed: bool) -> Self {
        self.timed = timed;
        self
    }

    /// How this process tells what became of members of batches.
    pub(crate) fn teller(&self) -> &Teller {
        &self.teller
    }

    /// The connections it uses.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Lists a queue, so that tools can see it (rule R7). Belongs before the first write into it.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn publish_queue(&self, queue: &str) -> Result<(), Error> {
        self.redis.command::<()>("SADD", (queue_core::keys::QUEUES, queue)).await?;
        // Most names have no brace.
        if queue.contains('}') && QueueName::parse(queue).family.as_ref().is_some_and(Family::is_target) {
            // Behind it: whoever looks and finds no such queue is done.
            self.ask_for_targets().await?;
        }
        Ok(())
    }

    /// The names of all queues.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn queue_names(&self) -> Result<Vec<String>, Error> {
        Ok(read_queue_names(self.redis.pipeline("SMEMBERS", &all_queue_names()).await?))
    }

    /// Makes a call whose answer is how many of something, or 1 for yes and 0 for no.
    async fn integer(&self, script: &'static Script, call: &Cmd) -> Result<u64, Error> {
        match self.redis.run(script, call).await? {
            Value::Int(number) => Ok(u64::try_from(number).unwrap_or(0)),
            reply => Err(Error::unexpected(script.name, &reply)),
        }
    }

    /// The id of the task that holds a uniqueness lock, or has opened its window.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn lock_holder(&self, lock: &str) -> Result<Option<String>, Error> {
        let value: Option<Vec<u8>> = self.redis.command("GET", lock).await?;
        Ok(value.map(|value| String::from_utf8_lossy(holder_of(&value).0).into_owned()))
    }

    /// The state of a task; `None` where there is none, or it says something else.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn state_of(&self, queue: &str, id: &str) -> Result<Option<TaskState>, Error> {
        let key = queue_core::keys::QueueKeys::new(queue).task(id);
        let state: Option<String> = self.redis.command("HGET", (key, "state")).await?;
        Ok(state.and_then(|state| state.parse().ok()))
    }

    /// Whether there is a task with this id.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub(crate) async fn has_task(&self, queue: &str, id: &str) -> Result<bool, Error> {
        let key = queue_core::keys::QueueKeys::new(queue).task(id);
        self.redis.command("EXISTS", key).await
    }

    /// Asks every server to cancel the task with this id, in whichever queue; returns how many servers
    /// heard it. The task then goes to retry with the error `context canceled`.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn cancel(&self, id: &str) -> Result<u64, Error> {
        self.redis.command("PUBLISH", (queue_core::keys::CANCEL_CHANNEL, id)).await
    }
}

/// The letters of a reply, one for each task.
fn verdicts<T>(
    operation: &'static str,
    reply: &Value,
    count: usize,
    parse: impl Fn(Word) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let parsed = match reply {
        Value::BulkString(text) if text.len() == count => text.iter().map(|letter| parse(Word::of(*letter)?)).collect(),
        _ => None,
    };
    parsed.ok_or_else(|| Error::unexpected(operation, reply))
}

pub(crate) fn all_queue_names() -> redis::Pipeline {
    let mut look = redis::pipe();
    look.cmd("SMEMBERS").arg(queue_core::keys::QUEUES);
    look
}

/// A name that is no text is none of ours, and nobody can name it.
pub(crate) fn read_queue_names((names,): (Vec<Vec<u8>>,)) -> Vec<String> {
    names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_by_number_and_by_size_but_never_empty() {
        let batches = |sizes: &[usize], most| {
            let mut items = sizes.iter().copied().peekable();
            std::iter::from_fn(|| Some(next_batch(&mut items, most, |size| *size).len()).filter(|taken| *taken > 0))
                .collect::<Vec<_>>()
        };
        assert_eq!(batches(&[1; 250], 100), [100, 100, 50]);
        assert_eq!(batches(&[MAX_BATCH_BYTES + 1, 1, MAX_BATCH_BYTES, 1], 100), [1, 1, 1, 1]);
        assert_eq!(batches(&[MAX_BATCH_BYTES / 2; 3], 100), [2, 1]);
    }
}
