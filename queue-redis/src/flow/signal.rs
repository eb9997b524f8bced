//! Nodes that wait for a signal: for somebody's word, or for time to pass.

use std::time::Duration;

use bytes::Bytes;
use queue_core::TaskMessage;
use queue_core::clock::secs_ceil;
use queue_core::flow::{FlowId, MemberId, Otherwise, Part, SIGNAL_TYPE};
use queue_core::limits::{FLOW_MAX_SIGNAL_BYTES, LAST_SECOND};
use serde::Serialize;

use super::batch::{Batch, BatchError};
use super::status::flow_key;
use super::{Flows, TREE};
use crate::broker::Claimed;
use crate::error::Error;
use crate::script::Word;

/// What stands in the ledger for a node that waits for a signal: a message that is never enqueued. Its timeout is how long it waits, in
/// seconds, 0 for ever; its payload is what becomes of it then.
pub(super) fn message(within: Option<(Duration, Otherwise)>) -> TaskMessage {
    // What is further away than that, scripts cannot count.
    let seconds = |duration| secs_ceil(duration).clamp(1, LAST_SECOND);
    TaskMessage {
        r#type: SIGNAL_TYPE.to_owned(),
        timeout: within.map_or(0, |(duration, _)| seconds(duration)),
        payload: within.map_or("", |(_, otherwise)| otherwise.as_str()).into(),
        ..TaskMessage::default()
    }
}

/// What becomes of a node when its time is over; `None` if that is never.
pub(super) fn otherwise(message: &TaskMessage) -> Option<Otherwise> {
    Otherwise::from_name(std::str::from_utf8(&message.payload).ok()?).filter(|_| message.timeout > 0)
}

impl Flows {
    /// The turn of a node has come that waits for a signal.
    pub(super) async fn begin_to_wait(&self, id: &MemberId, message: &TaskMessage) -> Result<(), Error> {
        let Part::Member(node, _) = id.part else { return Ok(()) };
        if message.timeout > 0 {
            let (root, over_ms) = (id.flow.root(), self.clock.now_ms() + message.timeout * 1_000);
            // First, so that whoever dies in between leaves nothing that nobody looks for.
            self.broker.ask_for_duty(TREE, root, over_ms).await?;
            let place = (root, id.flow.number(), node);
            self.broker.flow_signal(place, "wait", &message.timeout.to_string()).await?;
        }
        Ok(())
    }

    /// The time of a node is over that waits for a signal. Returns what is to be done next.
    pub(super) async fn is_late(&self, root: &str, (flow, node): (u32, u32), raw: Bytes) -> Result<Claimed, Error> {
        let message = TaskMessage::from_bytes(raw).unwrap_or_default();
        // Only ours are written; a node nobody can read ends without success.
        let otherwise = otherwise(&message).unwrap_or(Otherwise::Fail);
        let (_, claimed) = self.broker.flow_signal((root, flow, node), otherwise.as_str(), "null").await?;
        Ok(claimed)
    }
}

impl Batch {
    /// Gives the signal that a node of this workflow waits for: the node succeeds, and those behind it read what was said by
    /// [`Parents::get`](super::Parents::get). It may come before the node's turn, and after its time is over; given twice, the first
    /// counts. Returns whether it is the one that counts.
    ///
    /// # Errors
    /// [`BatchError::Signal`] when no node of this name waits for a signal, when more than 16 KiB are said, or when the workflow has ended, or
    /// was cancelled or abandoned.
    pub async fn signal(&self, node: &str, said: &impl Serialize) -> Result<bool, BatchError> {
        self.tell(node, "given", said).await
    }

    /// Declines the signal that a node of this workflow waits for: the node is skipped, as are those that wait for its success. A signal
    /// that is given later counts all the same. Returns whether that was news.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn decline(&self, node: &str, said: &impl Serialize) -> Result<bool, BatchError> {
        self.tell(node, "declined", said).await
    }

    async fn tell(&self, node: &str, what: &'static str, said: &impl Serialize) -> Result<bool, BatchError> {
        let refused = |reason: String| BatchError::Signal { reason };
        let said = serde_json::to_string(said)
            .map_err(|error| refused(format!("what is said with signal {node:?} is no JSON: {error}")))?;
        if said.len() > FLOW_MAX_SIGNAL_BYTES {
            let text = format!("signal {node:?} says {} bytes, and {FLOW_MAX_SIGNAL_BYTES} is the most", said.len());
            return Err(refused(text));
        }
        let flows = self.client.flows();
        let number = flows.signal_named(&self.id, node).await?;
        let number = number
            .ok_or_else(|| refused(format!("workflow {} has no node {node:?} that waits for a signal", self.id)))?;
        let place = (self.id.root(), self.id.number(), number);
        let (word, claimed) = flows.broker.flow_signal(place, what, &said).await?;
        flows.carry_out(self.id.root(), self.born, claimed).await?;
        match word {
            Word::Applied => Ok(true),
            Word::Same => Ok(false),
            Word::Closed => Err(refused(format!("workflow {} has ended, or was cancelled or abandoned", self.id))),
            _ => Err(BatchError::Unknown { id: self.id.to_string() }),
        }
    }
}

impl Flows {
    /// The number of the node of this name that waits for a signal.
    async fn signal_named(&self, id: &FlowId, name: &str) -> Result<Option<u32>, Error> {
        let (redis, prefix) = (self.broker.redis(), flow_key(id));
        let number: Option<u32> = redis.command("HGET", ([&prefix, "names"].concat(), name)).await?;
        let Some(number) = number else { return Ok(None) };
        let raw: Option<Vec<u8>> = redis.command("HGET", ([&prefix, "messages"].concat(), number)).await?;
        let message = raw.and_then(|raw| TaskMessage::from_bytes(raw.into()).ok());
        Ok(message.filter(|message| message.r#type == SIGNAL_TYPE).map(|_| number))
    }
}
