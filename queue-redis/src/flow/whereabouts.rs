//! What the hashes of members say: where they are, and in which state.

use bytes::Bytes;
use queue_core::TaskMessage;
use queue_core::flow::MemberId;
use queue_core::keys::QueueKeys;
use queue_core::queue_name::base_of;

use super::Flows;
use crate::error::Error;

/// In how many places one look for members goes that are in none of their own.
const LOOKED_AT_ONCE: usize = 1_000;

impl Flows {
    /// Those of the tasks that wait to be tried again which have failed. Others were put off: a snooze spends no retry.
    pub(super) async fn failing(&self, waiting: Vec<(String, MemberId)>) -> Result<Vec<MemberId>, Error> {
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for (queue, id) in &waiting {
            look.cmd("HGET").arg(QueueKeys::new(queue).task(&id.to_string())).arg("msg");
        }
        let messages: Vec<Option<Bytes>> = self.broker.redis().pipeline("HGET", &look).await?;
        let has_failed = |message: Option<Bytes>| {
            message.and_then(|raw| TaskMessage::from_bytes(raw).ok()).is_some_and(|message| message.retried > 0)
        };
        let failing =
            waiting.into_iter().zip(messages).filter_map(|((_, id), message)| has_failed(message).then_some(id));
        Ok(failing.collect())
    }

    /// What the hashes of tasks say of their states; `None` where there is no task.
    pub(super) async fn states_of(&self, ids: &[(String, MemberId)]) -> Result<Vec<Option<String>>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut look = redis::pipe();
        for (queue, id) in ids {
            look.cmd("HGET").arg(QueueKeys::new(queue).task(&id.to_string())).arg("state");
        }
        self.broker.redis().pipeline("HGET", &look).await
    }

    /// Where tasks are that are not in their queues: somebody may have put them into others of the same families. The queue and the state
    /// of each.
    pub(super) async fn moved(&self, ids: &[(String, MemberId)]) -> Result<Vec<Option<(String, String)>>, Error> {
        let mut found = vec![None; ids.len()];
        if ids.is_empty() {
            return Ok(found);
        }
        let names = self.broker.queue_names().await?;
        let mut looks = Vec::new();
        for (at, (queue, id)) in ids.iter().enumerate() {
            let base = base_of(queue);
            looks
                .extend(names.iter().filter(|name| *name != queue && base_of(name) == base).map(|name| (at, name, id)));
        }
        for looks in looks.chunks(LOOKED_AT_ONCE) {
            let mut look = redis::pipe();
            for (_, queue, id) in looks {
                look.cmd("HGET").arg(QueueKeys::new(queue).task(&id.to_string())).arg("state");
            }
            let states: Vec<Option<String>> = self.broker.redis().pipeline("HGET", &look).await?;
            for ((at, queue, _), state) in looks.iter().zip(states) {
                if let Some(state) = state {
                    found[*at] = Some(((*queue).clone(), state));
                }
            }
        }
        Ok(found)
    }
}
