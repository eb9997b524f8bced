//! Which tasks wait in a queue, by their ids.

use bytes::Bytes;
use queue_core::keys::QueueKeys;
use redis::Value;

use super::Broker;
use crate::error::Error;

/// A part of the list of pending tasks, as `LRANGE` has it: from the youngest to the oldest, negative numbers count
/// from the oldest.
pub type IdRange = (i64, i64);

/// Pending tasks of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many there are.
    pub count: usize,
    /// Whether the queue is paused.
    pub is_paused: bool,
    /// For each range the ids that are in it, youngest first.
    pub ids: Vec<Vec<Bytes>>,
}

impl Waiting {
    pub(crate) fn look(queue: &str, ranges: &[IdRange]) -> redis::Pipeline {
        let keys = QueueKeys::new(queue);
        let mut look = redis::pipe();
        look.cmd("LLEN").arg(keys.pending());
        for (from, to) in ranges {
            look.cmd("LRANGE").arg(keys.pending()).arg(from).arg(to);
        }
        look.cmd("EXISTS").arg(keys.paused());
        look
    }

    pub(crate) fn read(mut reply: Vec<Value>) -> Self {
        let number = |value: Option<Value>| match value {
            Some(Value::Int(number)) => usize::try_from(number).unwrap_or(0),
            _ => 0,
        };
        let is_paused = number(reply.pop()) > 0;
        let mut reply = reply.into_iter();
        let count = number(reply.next());
        let ids = |part| match part {
            Value::Array(ids) => ids
                .into_iter()
                .filter_map(|id| match id {
                    Value::BulkString(id) => Some(Bytes::from(id)),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        Self { count, is_paused, ids: reply.map(ids).collect() }
    }
}

impl Broker {
    /// How many tasks wait in a queue, and the ids of some of them.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn waiting(&self, queue: &str, ranges: &[IdRange]) -> Result<Waiting, Error> {
        Ok(Waiting::read(self.redis.pipeline("LRANGE", &Waiting::look(queue, ranges)).await?))
    }
}
