//! Which node of a cluster serves which slot.

use redis::Value;

use crate::address::NodeAddress;
use crate::error::Error;

/// The slots that a node serves, from the first to the last.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: NodeAddress,
}

/// Reads the answer of a node to `CLUSTER SLOTS`: ranges like `[first, last, [host, port, …], replicas …]`.
pub(super) fn read(reply: &Value, from: &NodeAddress) -> Result<Vec<Range>, Error> {
    let Value::Array(ranges) = reply else { return Err(Error::unexpected("CLUSTER SLOTS", reply)) };
    ranges
        .iter()
        .map(|range| read_range(range, from).ok_or_else(|| Error::unexpected("CLUSTER SLOTS", range)))
        .collect()
}

fn read_range(range: &Value, from: &NodeAddress) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text,
        Value::Nil => "",
        _ => return None,
    };
    Some(Range {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok().filter(|last| *last < SLOTS)?,
        master: NodeAddress::told(host, u16::try_from(*port).ok()?, from),
    })
}

pub(super) const SLOTS: u16 = 16_384;

/// Where `MOVED` and `ASK` point to: the text after the word is `slot host:port`.
pub(super) fn redirect(message: &str, from: &NodeAddress) -> Option<(u16, NodeAddress)> {
    // Raised inside a pipeline, the word itself may stand before it.
    let mut words = message.split_ascii_whitespace().skip_while(|word| word.parse::<u16>().is_err());
    let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    Some((slot, NodeAddress::told(host, port.parse().ok()?, from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> NodeAddress {
        NodeAddress { host: host.into(), port }
    }

    #[test]
    fn redirects_are_read_with_and_without_a_host() {
        let from = at("h", 1);
        assert_eq!(redirect("3999 127.0.0.1:6381", &from), Some((3999, at("127.0.0.1", 6381))));
        assert_eq!(redirect("MOVED 3999 ::1:6381", &from), Some((3999, at("::1", 6381))));
        assert_eq!(redirect("3999 :6381", &from), Some((3999, at("h", 6381))));
        assert_eq!(redirect("3999 ?:6381", &from), Some((3999, at("h", 6381))));
        for bad in ["", "3999", "16384 h:1", "3999 h", "3999 h:x"] {
            assert_eq!(redirect(bad, &from), None, "{bad}");
        }
    }

    #[test]
    fn a_node_that_does_not_know_its_name_is_the_one_that_was_asked() {
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let reply = Value::Array(vec![
            range(0, 5, node(Value::BulkString(b"a".to_vec()), 1)),
            range(6, 16_383, node(Value::Nil, 2)),
        ]);
        let found = read(&reply, &at("asked", 9)).unwrap();
        let expected =
            [Range { first: 0, last: 5, master: at("a", 1) }, Range { first: 6, last: 16_383, master: at("asked", 2) }];
        assert_eq!(found, expected);
        for bad in [Value::Nil, Value::Array(vec![range(0, 16_384, node(Value::Nil, 2))])] {
            assert!(read(&bad, &at("asked", 9)).is_err(), "{bad:?}");
        }
    }
}
