//! Where a queue lies, and what Redis says about itself.

use std::collections::BTreeMap;

use queue_core::doctor::read_info;
use queue_core::keys::QueueKeys;
use redis::Value;

use crate::connection::Redis;
use crate::error::Error;

/// Where in a Redis Cluster a queue lies.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// The slot of all keys of the queue, 0 to 16383.
    pub slot: u16,
    /// The nodes that serve the slot, the master first. Empty where Redis is no cluster, or nobody serves it.
    pub nodes: Vec<ClusterNode>,
}

/// A node of a Redis Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterNode {
    /// The node's own id.
    pub id: String,
    /// `host:port`; without a host where the node does not know its own.
    pub address: String,
}

impl Redis {
    /// In which slot of a Redis Cluster a queue lies, and which nodes serve it. The queue need not exist.
    ///
    /// # Errors
    /// When Redis cannot be asked, or refuses for another reason than that it is no cluster.
    pub async fn cluster_placement(&self, queue: &str) -> Result<Placement, Error> {
        let slot = QueueKeys::new(queue).slot();
        let reply: Result<Value, Error> = self.query("CLUSTER SLOTS", redis::cmd("CLUSTER").arg("SLOTS")).await;
        let nodes = match reply {
            Ok(reply) => nodes_of(&reply, slot),
            Err(Error::Refused { message, .. }) if message.contains("cluster support disabled") => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Placement { slot, nodes })
    }

    /// What Redis says about itself with `INFO`: `redis_version`, `used_memory` and so on.
    ///
    /// # Errors
    /// When Redis cannot be asked or refuses.
    pub async fn info(&self) -> Result<BTreeMap<String, String>, Error> {
        let text: String = self.query("INFO", &redis::cmd("INFO")).await?;
        Ok(read_info(&text))
    }

    /// For each node that has keys the name of one that could be there, so that a command without a key can be
    /// sent to it. One, for a Redis that is no cluster.
    pub(crate) async fn key_on_each_node(&self) -> Result<Vec<String>, Error> {
        let reply: Result<Value, Error> = self.query("CLUSTER SLOTS", redis::cmd("CLUSTER").arg("SLOTS")).await;
        let keys = match reply {
            Ok(reply) => keys_of(&reply),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => Vec::new(),
        };
        Ok(if keys.is_empty() { vec![QueueKeys::new(queue_core::keys::DEFAULT_QUEUE).pending()] } else { keys })
    }
}

/// Numbers that are tried until their slot is in a range. A range of one slot in 16,384 is met by one of these,
/// but for one time in 200,000.
const TRIES: u32 = 200_000;

/// A key for each master in the reply of `CLUSTER SLOTS`.
fn keys_of(reply: &Value) -> Vec<String> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    let mut keys = BTreeMap::new();
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), master, ..] = &parts[..] else { continue };
        let Some(master) = node(master) else { continue };
        keys.entry(master.id).or_insert_with(|| {
            let candidates = (0..TRIES).map(|n| QueueKeys::new(&n.to_string()));
            let found = candidates.into_iter().find(|keys| (*first..=*last).contains(&i64::from(keys.slot())));
            found.map(|keys| keys.pending())
        });
    }
    keys.into_values().flatten().collect()
}

/// The nodes that serve a slot, from ranges like `[first, last, [host, port, id, …], …]`.
fn nodes_of(reply: &Value, slot: u16) -> Vec<ClusterNode> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    let slot = i64::from(slot);
    let range = ranges.iter().find_map(|range| match range {
        Value::Array(parts) => match &parts[..] {
            [Value::Int(first), Value::Int(last), nodes @ ..] if (*first..=*last).contains(&slot) => Some(nodes),
            _ => None,
        },
        _ => None,
    });
    range.unwrap_or_default().iter().filter_map(node).collect()
}

fn node(reply: &Value) -> Option<ClusterNode> {
    let Value::Array(parts) = reply else { return None };
    let [host, Value::Int(port), id, ..] = &parts[..] else { return None };
    Some(ClusterNode { id: text(id), address: format!("{}:{port}", text(host)) })
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(host: &str, port: i64, id: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(vec![text(host), Value::Int(port), text(id), Value::Array(Vec::new())])
    }

    #[test]
    fn the_nodes_of_a_slot_are_those_of_its_range_master_first() {
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let reply = Value::Array(vec![
            range(0, 5718, vec![words("10.0.0.1", 6379, "a"), words("10.0.0.2", 6379, "b")]),
            range(5719, 16383, vec![words("10.0.0.3", 6379, "c")]),
        ]);
        let ids = |slot| nodes_of(&reply, slot).into_iter().map(|node| node.id).collect::<Vec<_>>();
        assert_eq!(ids(5718), ["a", "b"]);
        assert_eq!(ids(5719), ["c"]);
        assert_eq!(nodes_of(&reply, 0)[1].address, "10.0.0.2:6379");
        assert!(nodes_of(&Value::Array(Vec::new()), 0).is_empty());
        let slots: Vec<u16> = keys_of(&reply).iter().map(|key| queue_core::keys::slot_of(key.as_bytes())).collect();
        assert!(matches!(slots[..], [0..=5718, 5719..=16383]), "{slots:?}");
    }
}
