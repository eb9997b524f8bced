//! A task under a key: `publish.lua`, `start_followers.lua`.

use bytes::Bytes;
use queue_core::TaskState;
use queue_core::keys::QueueKeys;
use queue_core::options::{Composed, Placement};
use queue_core::publish::{PublishOutcome, PublishPolicy, twin};
use queue_core::wire::TaskMessage;
use redis::Value;

use super::Broker;
use crate::error::Error;
use crate::script::{PUBLISH, START_FOLLOWERS};

/// What became of a publish, and how the task stands that has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishVerdict {
    /// What became of it.
    pub outcome: PublishOutcome,
    /// The task: its message, its state and, in a sorted set, its score.
    pub holder: Option<(TaskMessage, TaskState, Option<i64>)>,
    /// Milliseconds that are left of the window; 0 where none is open.
    pub window_ms: u64,
}

impl Broker {
    /// Starts what follows tasks that have ended, and says how many did; 1 to [`MAX_BATCH`](super::MAX_BATCH). A hint: without it they start
    /// at their fallback.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn start_followers(&self, queue: &str, ended: &[&str], now_ns: i64) -> Result<u64, Error> {
        let keys = QueueKeys::new(queue);
        let mut call = START_FOLLOWERS.call(2);
        call.arg(keys.pending()).arg(keys.scheduled()).arg(keys.task_prefix()).arg(now_ns);
        for id in ended {
            call.arg(*id).arg(twin(id));
        }
        self.integer(&START_FOLLOWERS, &call).await
    }

    /// Publishes a task; its id is the key. `None` where something that is no task has the id. `call` is a number by which a call that is sent again is known.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses; then nothing is changed, unless the error [is ambiguous](Error::is_ambiguous).
    pub async fn publish(
        &self,
        task: &Composed,
        policy: &PublishPolicy,
        now_ns: i64,
        call: u64,
    ) -> Result<Option<PublishVerdict>, Error> {
        let message = &task.message;
        let keys = QueueKeys::new(&message.queue);
        let due = if let Placement::Scheduled { at } = task.placement { at } else { 0 };
        let may = [
            (policy.replace, "replace"),
            (policy.reschedule, "reschedule"),
            (policy.restart, "restart"),
            (policy.follow, "follow"),
        ];
        let may: Vec<&str> = may.iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, word)| *word).collect();
        let most = policy.max_wait.map_or(0, queue_core::clock::secs_ceil);
        let window_ms = policy.window.map_or(0, |window| window.as_nanos().div_ceil(1_000_000));
        let twin = TaskMessage { id: twin(&message.id), ..message.clone() };
        // Without a worker of ours that starts it, when the one that it follows has to have ended. A task without a timeout has a deadline.
        let now = now_ns.div_euclid(1_000_000_000);
        let ends = if message.timeout > 0 { now.saturating_add(message.timeout) } else { message.deadline };
        let fallback = ends.max(now).max(due);
        let (follower, fallback) = if policy.follow { (twin.to_bytes(), fallback) } else { (Bytes::new(), 0) };
        let mut command = PUBLISH.call(8);
        command
            .arg(keys.task(&message.id))
            .arg(keys.task(&twin.id))
            .arg(keys.pending())
            .arg(keys.scheduled())
            .arg(keys.retry());
        command.arg(keys.completed()).arg(keys.archived()).arg(keys.window(&message.id));
        command.arg(keys.task_prefix()).arg(&message.id).arg(&message.to_bytes()[..]).arg(now_ns).arg(due);
        command.arg(may.join(" ")).arg(most).arg(window_ms.to_string()).arg(format!("{call:x}"));
        command.arg(&follower[..]).arg(fallback);
        let reply = self.redis.run(&PUBLISH, &command).await?;
        read(&reply).ok_or_else(|| Error::unexpected(PUBLISH.name, &reply))
    }
}

/// The inner `None` is an id that is taken.
fn read(reply: &Value) -> Option<Option<PublishVerdict>> {
    let Value::Array(parts) = reply else { return None };
    let text = |part: &Value| redis::from_redis_value_ref::<String>(part).ok();
    let [word, message, state, score, window_ms] = &parts[..] else {
        return (parts.len() == 1 && text(&parts[0])? == "taken").then_some(None);
    };
    let (Value::BulkString(message), Value::Int(window_ms)) = (message, window_ms) else { return None };
    let score = text(score)?.parse::<f64>().ok().map(|score| score as i64);
    // A message that cannot be read is as good as none here; the worker that takes it says so.
    let message = TaskMessage::from_bytes(message.clone().into()).ok().filter(|_| !message.is_empty());
    let holder = message.zip(text(state)?.parse().ok()).map(|(message, state)| (message, state, score));
    let outcome = PublishOutcome::parse(&text(word)?)?;
    Some(Some(PublishVerdict { outcome, holder, window_ms: u64::try_from(*window_ms).unwrap_or(0) }))
}
